"""How soon a stack is ready: the first time, and when it was there before."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import TYPE_CHECKING, Final

from tests.benchmarks.page import Row
from tests.stack import CHECKOUT, running

if TYPE_CHECKING:
    from pathlib import Path

SECOND_S_MAX: Final = 10.0


def test_first_and_second_start(table: list[Row], tmp_path: Path) -> None:
    began = time.monotonic()
    with running(tmp_path) as stack:
        first_s = time.monotonic() - began
        stack.stop()
        stack.lines.clear()
        began = time.monotonic()
        stack.start()
        second_s = time.monotonic() - began
    began = time.monotonic()
    subprocess.run([sys.executable, "manage.py", "check"], cwd=CHECKOUT, check=True)
    check_s = time.monotonic() - began
    table.append(
        Row(
            name="start",
            what="`up`, from the command to its ready line",
            measured=f"{first_s:.1f} s on an empty folder, {second_s:.1f} s the next time;"
            f" `manage.py check` alone {check_s:.1f} s",
            goal=f"the next time under {SECOND_S_MAX:.0f} s",
            is_met=second_s < SECOND_S_MAX,
        )
    )
