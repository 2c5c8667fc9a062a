"""``manage.py test``: pytest in the test environment; its own plugin brings throw-away servers."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from scheduler_app.launch.environment import ROOT

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(arguments: Sequence[str]) -> int:
    """This process became pytest; its arguments and exit code are pytest's. Never returns."""
    os.chdir(ROOT)
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", "pytest", *arguments])  # noqa: S606 - no shell
