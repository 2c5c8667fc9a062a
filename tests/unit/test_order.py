"""The order of a test run, and that a run which is stopped has told its failures."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import OrderedDict
from pathlib import Path
from typing import Any

from tests import order

ROOT = Path(order.__file__).parents[1]


def play(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    plugins = ("-p", "xdist.plugin", "-p", "tests.order", "-p", "no:cacheprovider")
    return subprocess.run(
        [sys.executable, "-m", "pytest", *plugins, *arguments, str(folder)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_files_stay_together_and_drills_do_not() -> None:
    assert order.unit_of("tests/unit/test_a.py::Test::test_b[1]") == "tests/unit/test_a.py"
    drill = "tests/acceptance/test_drills.py::test_the_drill_holds[chaos]"
    assert order.unit_of(drill) == drill


def test_files_named_here_are_there() -> None:
    for file in order.APART:
        assert (ROOT / file).exists()
    assert all(s >= order.KEPT_FROM_S for s in json.loads(order.SECONDS.read_text()).values())


def test_the_longest_come_first_and_unknown_ones_by_their_number_of_tests() -> None:
    units = {
        "tests/unit/test_a.py": 10,
        "tests/unit/test_b.py": 20,
        "tests/unit/test_c.py": 1,
        "tests/acceptance/test_d.py": 2,
    }
    assert order.in_order(units, {"tests/unit/test_c.py": 9.5}) == [
        "tests/acceptance/test_d.py",
        "tests/unit/test_c.py",
        "tests/unit/test_b.py",
        "tests/unit/test_a.py",
    ]


class Node:
    """A process that tests are sent to."""

    shutting_down = False

    def __init__(self) -> None:
        self.sent: list[int] = []

    def send_runtest_some(self, indexes: list[int]) -> None:
        self.sent += indexes


def test_half_of_the_processes_begin_with_tests_that_wait() -> None:
    tests = [
        "tests/unit/test_a.py::test_1",
        "tests/unit/test_a.py::test_2",
        "tests/acceptance/test_b.py::test_1",
        "tests/unit/test_c.py::test_1",
        "tests/acceptance/test_d.py::test_1",
    ]
    scheduler = order.LongestFirst.__new__(order.LongestFirst)
    nodes: list[Any] = [Node(), Node()]
    scheduler.assigned_work = {node: {} for node in nodes}
    scheduler.registered_collections = dict.fromkeys(nodes, tests)
    scheduler.workqueue = OrderedDict()
    for test in tests:
        scheduler.workqueue.setdefault(order.unit_of(test), {})[test] = False
    while scheduler.workqueue:
        for node in nodes:
            if scheduler.workqueue:
                scheduler._assign_work_unit(node)
    assert {tests[index] for index in nodes[0].sent} >= {tests[2], tests[4]}
    assert [tests[index] for index in nodes[1].sent][:2] == tests[:2]
    assert sorted(nodes[0].sent + nodes[1].sent) == list(range(5))


FAILING = """
import os, time
from pathlib import Path

def test_that_fails():
    assert "apples" == "pears"

def test_that_ends_everything():
    print("so far", flush=True)
    os._exit(3)
"""


def test_a_failure_is_told_at_once(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(FAILING, encoding="utf-8")
    stopped = play(tmp_path, "-s")
    assert stopped.returncode == 3
    assert "test_it.py::test_that_fails failed (call)" in stopped.stdout
    assert "AssertionError: assert 'apples' == 'pears'" in stopped.stdout
    assert stopped.stdout.index("pears") < stopped.stdout.index("so far")


def test_processes_play_everything_once(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / f"test_{name}.py").write_text(
            "import pytest\n\n@pytest.mark.parametrize('n', range(4))\ndef test(n):\n    assert n != 3\n",
            encoding="utf-8",
        )
    played = play(tmp_path, "-n", "2", "--dist", "loadfile")
    assert "3 failed, 9 passed" in played.stdout
    for name in ("a", "b", "c"):
        assert f"test_{name}.py::test[3] failed (call)" in played.stdout
