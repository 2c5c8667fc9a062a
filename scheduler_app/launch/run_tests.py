"""``manage.py test``: pytest in the test environment; its own plugin brings throw-away servers."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Final

from scheduler_app.launch.environment import ROOT

if TYPE_CHECKING:
    from collections.abc import Sequence


# Two that compute keep two cores busy while three wait for processes (tests/order.py). A file's
# tests stay together, since they may share a stack. Within a file they are shuffled, in the whole suite
# always alike, so that what was red is red again; a part of it is shuffled anew each time.
FIVE_AT_A_TIME: Final = ("-n", "5", "--dist", "loadfile", "--randomly-seed=207237166")


def main(arguments: Sequence[str]) -> int:
    """This process became pytest; its arguments and exit code are pytest's. Never returns."""
    os.chdir(ROOT)
    # Hundreds of processes load the same code: what is compiled is kept, whatever was asked for.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", "pytest", *how_many(arguments), *arguments])  # noqa: S606 - no shell


def how_many(arguments: Sequence[str]) -> tuple[str, ...]:
    """Pytest's arguments for the number of processes: the whole suite runs in five."""
    return () if arguments else FIVE_AT_A_TIME
