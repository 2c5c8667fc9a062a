"""W9: one step of a scheduler among many flows, of which a few are due. Runs in this process, by hand."""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING, Any, Final

import pytest

from scheduler_app.processes import database
from scheduler_app.scheduler.service import Scheduler
from tests.benchmarks.page import Row
from tests.world import World, chain

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from uuid import UUID

    import psycopg

    from scheduler_app.rules.ghosts import Waiting
    from scheduler_app.scheduler.leases import Leases
    from scheduler_app.transitions.attempt import Message

DUE: Final = 10
IDLE: Final = (0, 1000, 10_000)
STEPS: Final = 15
INDEPENDENT_FACTOR: Final = 1.5  # of the step without idle flows, and of the noise of a machine

_IDLE: Final = """
INSERT INTO flow (flow_id, shard, is_paused, current_version_id, folder, path, description, owner, tags,
                  next_interval_start, next_interval_end, created_at, updated_at)
SELECT 'idle_' || n, n %% 16, false, NULL, '', '', '', '', '[]', clock_timestamp(),
       clock_timestamp() + n * interval '1 minute' + interval '1 hour', clock_timestamp(),
       clock_timestamp()
  FROM generate_series((SELECT count(*) FROM flow WHERE flow_id LIKE 'idle%%') + 1, %(number)s) n
"""
_VERSIONS: Final = """
INSERT INTO flow_version (flow_id, number, digest, definition, bundle_id, created_at)
SELECT f.flow_id, 1, v.digest, jsonb_set(v.definition, '{flow_id}', to_jsonb(f.flow_id)), v.bundle_id,
       clock_timestamp()
  FROM flow f, flow_version v WHERE f.current_version_id IS NULL AND v.flow_id = 'due_0'
"""
_CURRENT: Final = """
UPDATE flow SET current_version_id = v.id FROM flow_version v
 WHERE v.flow_id = flow.flow_id AND flow.current_version_id IS NULL
"""
_DUE: Final = """
UPDATE flow SET next_interval_start = date_trunc('hour', clock_timestamp()) - interval '1 hour',
                next_interval_end = date_trunc('hour', clock_timestamp()),
                last_interval_start = NULL, last_interval_end = NULL
 WHERE flow_id LIKE 'due%'
"""
_ENDED: Final = """
WITH r AS (UPDATE run SET is_active = false, state = 'success', ended_at = clock_timestamp(),
                          run_key = 'ended__' || id, logical_date = NULL
            WHERE is_active RETURNING id)
UPDATE task_instance SET is_open = false, state = 'success' WHERE run_id IN (SELECT id FROM r)
"""


class Nowhere:
    """An executor that takes no message: no worker is part of a step."""

    carrier = "none"

    def publish(self, messages: Sequence[Message], *, identity: str) -> frozenset[UUID]:
        """See ``Executor.publish``."""
        del messages, identity
        return frozenset()

    def queue_depth(self, queue: str) -> int | None:
        """See ``Executor.queue_depth``."""
        del queue
        return 0

    def waiting(self, queue: str, *, limit: int) -> list[Waiting] | None:
        """See ``Executor.waiting``."""
        del queue, limit
        return None

    def close(self) -> None:
        """See ``Executor.close``."""


@pytest.fixture
def raw(transactional_db: None) -> Iterator[psycopg.Connection[Any]]:
    """A raw connection that commits by itself."""
    del transactional_db
    with database.connect("scheduler") as connection:
        yield connection


@pytest.fixture
def scheduler(raw: psycopg.Connection[Any]) -> Iterator[Scheduler]:
    """A scheduler that holds every shard, whose loop is in the test's hand."""
    made = Scheduler(executor=Nowhere(), watch_flows=lambda *_: None)
    made._balance(raw)
    assert len(_leases(made).terms()) == 16
    yield made
    made._connect().close()


def _leases(scheduler: Scheduler) -> Leases:
    return scheduler._leases


def _step_ms(scheduler: Scheduler, raw: psycopg.Connection[Any]) -> float:
    """Everything that a turn of the loop may have to do is due; how long it took."""
    raw.execute(_ENDED)
    raw.execute(_DUE)
    _leases(scheduler).loop_progressed()
    scheduler._next = dict.fromkeys(scheduler._next, 0.0)
    scheduler._orphans_at = 0.0
    scheduler._unscanned = {}
    began = time.monotonic()
    scheduler._turn()
    took_ms = (time.monotonic() - began) * 1000
    (made,) = raw.execute("SELECT count(*) FROM run WHERE is_active").fetchall()
    assert made[0] == DUE, "each due flow has its run"
    return took_ms


def test_w9_step(scheduler: Scheduler, raw: psycopg.Connection[Any], table: list[Row]) -> None:
    world = World(raw, _leases(scheduler))
    for number in range(DUE):
        world.flow(f"due_{number}", chain("a"), schedule="@hourly")
    found: dict[int, float] = {}
    for idle in IDLE:
        for part in (_IDLE, _VERSIONS, _CURRENT):
            raw.execute(part, {"number": idle})
        raw.execute("VACUUM (ANALYZE) flow, flow_version")
        times = [_step_ms(scheduler, raw) for _ in range(STEPS)]
        found[idle] = statistics.median(times[3:])
    most = max(found.values())
    table.append(
        Row(
            name="W9",
            what=f"a step with {DUE} flows due, everything else of a turn due too: among"
            f" {' / '.join(f'{n:,}' for n in IDLE)} idle ones",
            measured=f"{' / '.join(f'{ms:.0f}' for ms in found.values())} ms",
            goal="independent of idle flows",
            is_met=most <= INDEPENDENT_FACTOR * found[0],
        )
    )
