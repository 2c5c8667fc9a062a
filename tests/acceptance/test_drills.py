"""Each fire drill, held through its command: the real fault, and every assertion of its report."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from scheduler_app.drills.hold import drills
from tests.stack import CHECKOUT, wait_for

if TYPE_CHECKING:
    from collections.abc import Sequence

HELD_WITHIN_S = 240.0  # on a busy machine; an idle one needs about 25 s


def _drill(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "manage.py", "drill", *arguments],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        timeout=HELD_WITHIN_S,
        check=False,
    )


# What each drill must have seen beyond what they all check.
SEEN = {
    "failover": ("the first write of the old leader is refused and recorded",),
    "worker-loss": (
        "the lost execution used none of its retries",
        "what the woken execution still wrote was refused by its fence",
    ),
    "broker-loss": ("the same attempts were published again (killed)",),
    "duplicate-delivery": ("each further delivery late is a record with its reason",),
    "clock-skew": ("user code saw a clock that is off",),
    "database-restart": ("no execution was given up because the database was away",),
    "chaos": ("nothing is accepted twice",),
}
FLAGS = {"chaos": ("--minutes", "0.75", "--seed", "1")}


@pytest.mark.parametrize("name", SEEN)
def test_the_drill_holds(name: str) -> None:
    held = _drill(name, "--output", "json", *FLAGS.get(name, ()))
    assert held.returncode == 0, held.stdout + held.stderr
    report: dict[str, Any] = json.loads(held.stdout)
    assert report["holds"] is True
    findings = {finding["what"]: finding for finding in report["findings"]}
    assert all(finding["holds"] for finding in findings.values())
    assert findings.keys() >= {*SEEN[name], "every execution that started has a row"}
    assert report["numbers"]["started"] > 0
    assert report["faults"]
    folder = held.stderr.split("a stack of its own in ", 1)[1].splitlines()[0]
    assert not Path(folder).exists(), "nothing of its stack is left"


def test_the_names_are_those_of_the_modules() -> None:
    assert set(SEEN) == set(drills())
    told = _drill("--help")
    assert told.returncode == 0
    assert all(name in told.stdout for name in SEEN)
    assert _drill("earthquake").returncode == 2


def _of_stack(folder: str) -> Sequence[int]:
    """Processes whose environment names this folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                environment = (entry / "environ").read_bytes()
            except OSError:
                continue
            if folder.encode() in environment:
                found.append(int(entry.name))
    return found


def test_an_interrupted_drill_leaves_nothing_behind() -> None:
    process = subprocess.Popen(
        [sys.executable, "manage.py", "drill", "worker-loss"],
        cwd=CHECKOUT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    folder = process.stdout.readline().rpartition(" ")[2].strip()
    assert folder.startswith("/tmp/daylight-drill-")
    wait_for("its stack runs", lambda: len(_of_stack(folder)) > 3, within_s=60)
    os.kill(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=90)
    assert process.returncode == 130
    assert "cleared away" in errors
    assert not Path(folder).exists()
    wait_for("no process of it is left", lambda: not _of_stack(folder), within_s=30)
