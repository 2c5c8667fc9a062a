"""A stack under measurement: runs through it, timed by the database's clock and the kernel's."""

from __future__ import annotations

import os
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import psycopg
from psycopg.rows import dict_row

from tests.benchmarks import baselines, doors, processes
from tests.stack import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from tests.benchmarks.baselines import Baselines
    from tests.stack import Stack

LOOK_EVERY_S: Final = 0.1  # what is measured is told by the database's clock
SETTLE_S: Final = 1.0
FLOW_WITHIN_S: Final = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """Runs that went through."""

    run_ids: Sequence[int]
    tasks: int
    seconds: float  # from the first run's creation to the last one's end
    cpu_s: float  # of the whole stack meanwhile

    @property
    def tasks_s(self) -> float:
        """Tasks a second."""
        return self.tasks / self.seconds

    @property
    def cpu_ms(self) -> float:
        """CPU of one task, over all processes."""
        return self.cpu_s * 1000 / self.tasks


class Bench:
    """One stack, looked at over one connection, so that looking costs little."""

    def __init__(self, stack: Stack, folder: Path) -> None:
        self.stack = stack
        self._folder = folder
        self._connection = psycopg.connect(
            stack.addresses.database_url, autocommit=True, row_factory=dict_row
        )

    def close(self) -> None:
        """The connection is closed."""
        self._connection.close()

    def rows(self, query: str, *parameters: Any) -> list[dict[str, Any]]:
        """Rows of the product's database."""
        return self._connection.execute(query, parameters).fetchall()

    def value(self, query: str, *parameters: Any) -> Any:
        """The first column of the first row."""
        (row,) = self.rows(query, *parameters)
        return next(iter(row.values()))

    def cpu_s(self) -> float:
        """CPU seconds of the whole stack so far."""
        return processes.cpu_s(self.pid)

    @property
    def pid(self) -> int:
        """The process under which the whole stack runs."""
        assert self.stack.process is not None
        return self.stack.process.pid

    def baselines(self) -> Baselines:
        """Raw Celery and plain commits, now."""
        return baselines.measure(self.stack, self._folder)

    @contextmanager
    def flow(self, flow_id: str, source: str) -> Iterator[str]:
        """A flow that is there for the block only, since what is big costs each look at the files."""
        path = self.stack.flows / f"{flow_id}.py"
        self.stack.write_flow(path.name, source)
        wait_for(
            f"flow {flow_id}",
            lambda: self.rows(
                "SELECT 1 FROM flow WHERE flow_id = %s AND removed_at IS NULL", flow_id
            ),
            within_s=FLOW_WITHIN_S,
        )
        try:
            yield flow_id
        finally:
            path.unlink()

    def runs(self, flow_id: str, number: int = 1, **body: Any) -> list[int]:
        """So many runs exist, each triggered by a call of the API; several callers at a time.

        Each keeps its connection from call to call, as a program does that triggers many runs.
        """
        return doors.trigger(self.stack, flow_id, body, number)

    def runs_by_one_call(self, flow_id: str, number: int) -> list[int]:
        """So many runs exist, all triggered by one call of the API."""
        body: dict[str, Any] = {"runs": [{}] * number}
        made = self.stack.api("POST", f"/api/v1/flows/{flow_id}/trigger/", body)
        return [run["id"] for run in made["runs"]]

    def through(self, start: Callable[[], Sequence[int]], *, within_s: float = 300.0) -> Timed:
        """The runs that ``start`` makes ended well. Fails if one did not, or not in time."""
        time.sleep(SETTLE_S)
        before = self.cpu_s()
        run_ids = list(start())
        self.wait(run_ids, within_s=within_s)
        used = self.cpu_s() - before
        (row,) = self.rows(
            "SELECT extract(epoch FROM max(ended_at) - min(queued_at))::float8 AS s,"
            " count(*) FILTER (WHERE state <> 'success') AS bad FROM run WHERE id = ANY(%s)",
            run_ids,
        )
        assert row["bad"] == 0, f"{row['bad']} of {len(run_ids)} runs did not succeed"
        tasks = self.value(
            "SELECT count(*) FROM attempt WHERE run_id = ANY(%s) AND kind = 'task'", run_ids
        )
        return Timed(run_ids=run_ids, tasks=tasks, seconds=row["s"], cpu_s=used)

    def wait(self, run_ids: Sequence[int], *, within_s: float = 300.0) -> None:
        """All these runs have ended."""
        wait_for(
            f"{len(run_ids)} runs end",
            lambda: (
                self.value(
                    "SELECT count(*) FROM run WHERE id = ANY(%s) AND is_active", list(run_ids)
                )
                == 0
            ),
            within_s=within_s,
            every_s=LOOK_EVERY_S,
        )


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which the share of all values lies."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def is_large() -> bool:
    """Whether the parts that take many minutes are asked for too."""
    return os.environ.get("BENCHMARKS_LARGE", "") not in ("", "0")
