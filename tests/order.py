"""Which process of a test run plays what, and when; and failures told as they happen.

A plugin. Tests of one file stay together and in one process, since they may share a stack, unless
the file says otherwise here. The longest come first, by what they took last time
(``tests/seconds.json``), so that no long one is left over at the end. Half of the processes begin
with those that mostly wait for processes of a stack, the other half with those that mostly
compute, so that the cores have work all the time.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from xdist.scheduler import LoadScopeScheduling

if TYPE_CHECKING:
    from collections.abc import Mapping

SECONDS: Final = Path(__file__).with_name("seconds.json")
KEPT_FROM_S: Final = 2.0  # shorter ones are all alike
SHORT_S: Final = 0.05  # a test that the table does not know, elsewhere than in acceptance
WAITING_S: Final = 5.0  # one in acceptance
WAITING: Final = (
    "tests/acceptance/",
    "tests/replays/",
    "tests/integration/executors/",
    "tests/integration/triggerer/",
)
# Files whose tests share nothing: each test by itself.
APART: Final = frozenset(
    {
        "tests/acceptance/test_drills.py",
        "tests/integration/simulation/test_state_machine.py",
    }
)


def unit_of(nodeid: str) -> str:
    """What a test is handed out with: its file, or itself alone."""
    file = nodeid.split("::", 1)[0]
    return nodeid if file in APART else file


def is_waiting(unit: str) -> bool:
    """Whether the tests mostly wait for processes."""
    return unit.startswith(WAITING)


def in_order(units: Mapping[str, int], seconds: Mapping[str, float]) -> list[str]:
    """The units, longest first, by their seconds or else by their number of tests."""

    def expected_s(unit: str) -> float:
        each_s = WAITING_S if is_waiting(unit) else SHORT_S
        return seconds.get(unit, units[unit] * each_s)

    return sorted(units, key=lambda unit: (-expected_s(unit), unit))


def _known() -> dict[str, float]:
    seconds: dict[str, float] = json.loads(SECONDS.read_text(encoding="utf-8"))
    return seconds


class LongestFirst(LoadScopeScheduling):  # type: ignore[misc] # it has no types
    """Hands out the longest unit that is left, of the process's own half while there is one."""

    _is_sorted = False

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)

    def _assign_work_unit(self, node: Any) -> None:
        if not self._is_sorted:  # the first: nothing of the queue was handed out before
            self._is_sorted = True
            self._sort()
        wants_waiting = self.nodes.index(node) % 2 == 0
        for unit in self.workqueue:
            if is_waiting(unit) is wants_waiting:
                self.workqueue.move_to_end(unit, last=False)
                break
        super()._assign_work_unit(node)

    def _sort(self) -> None:
        units = {unit: len(tests) for unit, tests in self.workqueue.items()}
        for unit in in_order(units, _known()):
            self.workqueue.move_to_end(unit)


class Told:
    """Each failure is told when it happens, and the seconds of each unit are added up."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self.seconds: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A run that is stopped has told what had failed by then; its summary never comes."""
        self.seconds[unit_of(report.nodeid)] += report.duration  # type: ignore[assignment] # a float
        reporter = self._config.pluginmanager.getplugin("terminalreporter")
        if report.failed and reporter is not None:
            reporter.write_sep("!", f"{report.nodeid} failed ({report.when})", red=True)
            reporter.write_line(report.longreprtext)
            reporter.flush()

    def pytest_sessionfinish(self) -> None:
        """The table has what this run took, if that was asked for."""
        if self._config.getoption("keep_seconds"):
            units = {**_known(), **{unit: round(s, 1) for unit, s in self.seconds.items()}}
            kept = {
                unit: s
                for unit, s in sorted(units.items())
                if s >= KEPT_FROM_S and (self._config.rootpath / unit.split("::", 1)[0]).exists()
            }
            SECONDS.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


def pytest_addoption(parser: pytest.Parser) -> None:
    """An option to keep the seconds of a run."""
    parser.addoption(
        "--keep-seconds",
        action="store_true",
        help="note what each file took in tests/seconds.json, which orders the next run",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Processes that only play tests for another tell nothing: that one does."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Told(config), "told")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LongestFirst | None:
    """Whoever wants files together gets them in this order."""
    return LongestFirst(config, log) if config.getoption("dist") == "loadfile" else None
