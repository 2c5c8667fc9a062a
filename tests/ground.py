"""A drill ground for acceptance tests: a throw-away stack whose tasks keep a ledger, and its checker.

Tests of faults do their damage here and end with ``all_holds``: what the tasks wrote down, the bank
and what the API shows agree. What each fault cost is kept by ``recovered``; with
``FAULT_TIMES`` in the environment the times are added to that file.
"""

from __future__ import annotations

import json
import os
import signal
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import redis

from scheduler_app.drills.ledger import boot_clock_s
from scheduler_app.drills.stack import Stack
from scheduler_app.drills.stage import Drill, Stage
from tests import auditing, readymade
from tests.asking import Questions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

TTL_S = 3.0


class Ground(Stage):
    """A stage, with eyes inside the database too."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.direct_database_url = ""  # where the stack's own address goes through a proxy
        self.questions = Questions()
        self._standbys: list[int] = []
        self._number_of_standbys = 0

    def rows(self, query: str, *parameters: Any) -> list[dict[str, Any]]:
        """Rows of the product's database."""
        return self.questions.rows(self.database_url, query, parameters)

    @property
    def database_url(self) -> str:
        """The database, around every proxy."""
        return self.direct_database_url or self.stack.addresses.database_url

    def broker(self) -> Any:
        """A client of the broker."""
        return redis.Redis.from_url(self.stack.addresses.broker_url)

    def stand_by(self) -> int:
        """One more scheduler that is there at once, and none of the earlier ones but the newest.

        The supervisor starts what was killed after a growing pause.
        """
        for pid in self._standbys[:-1]:
            self.stack.signal(pid, signal.SIGTERM)
        self._standbys[:-1] = []
        self._number_of_standbys += 1
        pid = self.stack.spawn(f"standby-{self._number_of_standbys}", "scheduler")
        self._standbys.append(pid)
        return pid

    def arm(self, point: str) -> None:
        """The next process that reaches the failpoint does what it was set up for."""
        (self.stack.once / point).unlink()

    def is_reached(self, point: str) -> bool:
        """Whether some process has been at the armed failpoint."""
        return (self.stack.once / point).exists()

    def ended(self, *run_ids: str) -> bool:
        """Whether these runs have ended."""
        rows = {row["run_id"]: row["state"] for row in self.stack.rows("runs", "filtered=1")}
        return all(rows.get(run_id) in {"success", "failed"} for run_id in run_ids)

    def recovered(
        self, fault: str, since: float, condition: Callable[[], Any], *, within_s: float = 90.0
    ) -> float:
        """Seconds from ``since`` until the condition holds, kept for the documents."""
        self.stack.wait_for(f"recovery from: {fault}", condition, within_s=within_s)
        took = boot_clock_s() - since
        if path := os.environ.get("FAULT_TIMES"):
            with Path(path).open("a", encoding="utf-8") as file:
                file.write(json.dumps({"fault": fault, "seconds": round(took, 2)}) + "\n")
        return took

    def all_holds(self) -> None:
        """Everything has settled, and every finding of the drills' checker holds."""
        self.settle()
        broken = [finding for finding in self.check() if not finding.holds]
        assert not broken, "\n".join(str(finding) for finding in broken)


@contextmanager
def ground(
    *,
    flags: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    points: Mapping[str, str] | None = None,
) -> Iterator[Ground]:
    """A ready stack, ended afterwards; failpoints are there and quiet."""
    points = points or {}
    stack = Stack(
        flags=flags,
        environment={
            "DAYLIGHT_LEASE_TTL": f"{TTL_S:g}",
            "DAYLIGHT_FAILPOINTS": ";".join(f"{k}={v}" for k, v in points.items()),
            # Losses are meant: none of them may use up what a task has.
            "DAYLIGHT_INFRASTRUCTURE_BUDGET": "100",
            **(environment or {}),
        },
    )
    drill = Drill(name="test", summary="a test of faults", play=lambda stage: None)
    if "DATABASE_URL" not in (environment or {}):
        readymade.fill(stack.data_dir)
    try:
        stack.start(list(points))
        made = Ground(drill, stack, ttl_s=TTL_S, options={}, say=print)
        with closing(made.questions):
            yield made
        auditing.assert_nothing_hidden(made.database_url)
    finally:
        stack.end(keep=False)
