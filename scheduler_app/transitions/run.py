"""Runs: create with all their task instances, start, end."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from psycopg.rows import dict_row, tuple_row
from psycopg.types.json import Jsonb

from scheduler_app import sql
from scheduler_app.rules.states import RunType
from scheduler_app.transitions import audit, counters
from scheduler_app.transitions.counters import count

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    import psycopg

    from scheduler_app.rules.definition import FlowDefinition
    from scheduler_app.rules.states import RunState
    from scheduler_app.rules.timetable import DataInterval


REASON_CHARACTERS_MAX = 250  # the column's width
CREATED_TOTAL: Final = "scheduler_runs_created_total"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRun:
    """What a run is created with. Times aware UTC."""

    flow_id: str
    run_key: str
    shard: int
    run_type: RunType
    version_id: int
    logical_date: datetime | None
    data_interval_start: datetime | None
    data_interval_end: datetime | None
    conf: Mapping[str, Any]
    note: str = ""
    actor: str = ""


class Created(NamedTuple):
    """What the database gave a new run, or made of it. Times aware."""

    id: int
    conf: Mapping[str, Any]  # as it is stored
    created_at: datetime
    queued_at: datetime
    frozen_at: datetime | None  # with its flow

    @classmethod
    def of(cls, row: Sequence[Any] | None) -> Created | None:
        """What the statement said; null where it made none."""
        if row is None:
            return None
        number, conf, *moments = row
        return cls(number, json.loads(conf), *moments)


_CREATE = """
WITH r AS (
  INSERT INTO run (flow_id, run_key, shard, run_type, state, is_active, logical_date,
                   data_interval_start, data_interval_end, run_attempt, version_id, conf, note, actor,
                   state_reason, created_at, queued_at, retry_count, late_at, frozen_at)
  VALUES (%(flow_id)s::varchar, %(run_key)s, %(shard)s, %(run_type)s, 'queued', true, %(logical_date)s,
          %(data_interval_start)s, %(data_interval_end)s, 1, %(version_id)s, %(conf)s, %(note)s,
          %(actor)s, '', clock_timestamp(), clock_timestamp(), 0,
          %(data_interval_end)s::timestamptz + make_interval(secs => %(deadline_s)s::float8),
          -- A run that is made while its flow is frozen is frozen from its first moment.
          (SELECT frozen_at FROM flow WHERE flow_id = %(flow_id)s::varchar))
  ON CONFLICT DO NOTHING
  RETURNING id, conf, created_at, queued_at, frozen_at),
t AS (
  INSERT INTO task_instance (run_id, shard, task_id, map_index, state, is_open, try_number, max_tries,
                             resume_index, dispatch_no, budget_start, infra_losses, pool, pool_slots,
                             queue, priority)
  SELECT r.id, %(shard)s, u.task_id, -1, 'none', true, 0, u.max_tries, 0, 0, 0, 0, u.pool,
         u.pool_slots, u.queue, u.priority
    FROM r, unnest(%(task_id)s::text[], %(max_tries)s::int[], %(pool)s::text[],
                   %(pool_slots)s::int[], %(queue)s::text[], %(priority)s::int[])
              AS u(task_id, max_tries, pool, pool_slots, queue, priority)
  RETURNING 1),
a AS (
  INSERT INTO run_attempt (run_id, number, cause, actor, state)
  SELECT r.id, 1, 'created', %(actor)s, 'queued' FROM r)
"""
_COUNTED = f""",
c AS ({counters.ONE_MORE_OF_EACH})"""
_NOTED = f""",
e AS ({audit.OF_TRIGGERED_RUN})"""
_CREATED = " SELECT id, conf::text, created_at, queued_at, frozen_at FROM r"
_COUNTER = {"counter": CREATED_TOTAL}


def create_run(
    connection: psycopg.Connection[Any], *, new: NewRun, definition: FlowDefinition
) -> int | None:
    """The run and all its task instances exist, queued; its id.

    ``None`` if a run of this key, or a scheduled one of this logical date, exists already: then
    nothing was written. Part of the caller's transaction.
    """
    (run_id,) = create_runs(connection, new=[new], definition=definition)
    return run_id


def create_runs(
    connection: psycopg.Connection[Any], *, new: Sequence[NewRun], definition: FlowDefinition
) -> list[int | None]:
    """As ``create_run``, for several runs of one version, in one round trip; in their order."""
    made = _created(connection, new, definition, "", [{}] * len(new))
    return [None if one is None else one.id for one in made]


def create_asked_runs(
    connection: psycopg.Connection[Any],
    *,
    new: Sequence[NewRun],
    definition: FlowDefinition,
    asked: Sequence[Mapping[str, Any]],
) -> list[Created | None]:
    """As ``create_runs``, and what each was asked for with, its part of ``conf``, is in the audit.

    One run is one statement: it needs no transaction.
    """
    more = [{"asked": Jsonb(dict(conf))} for conf in asked]
    return _created(connection, new, definition, _NOTED, more)


def _created(
    connection: psycopg.Connection[Any],
    new: Sequence[NewRun],
    definition: FlowDefinition,
    noted: str,
    more: Sequence[Mapping[str, Any]],
) -> list[Created | None]:
    tasks = definition.tasks
    of_tasks = {
        "task_id": [task.task_id for task in tasks],
        "max_tries": [task.retries for task in tasks],
        "pool": [task.pool for task in tasks],
        "pool_slots": [task.pool_slots for task in tasks],
        "queue": [task.queue for task in tasks],
        "priority": [task.priority for task in tasks],
    }
    made: list[Created | None] = []
    with connection.cursor(row_factory=tuple_row) as cursor:
        every = [
            {**_parameters(one, definition), **of_tasks, **of_one}
            for one, of_one in zip(new, more, strict=True)
        ]
        if len(new) == 1:
            cursor.execute(f"{_CREATE}{_COUNTED}{noted}{_CREATED}", every[0] | _COUNTER)
            row = cursor.fetchone()
            return [Created.of(row)]
        cursor.executemany(f"{_CREATE}{noted}{_CREATED}", every, returning=True)
        for _ in new:
            row = cursor.fetchone()
            made.append(Created.of(row))
            cursor.nextset()
    # Once for all: each time it counts leaves a version of its row behind.
    count(connection, CREATED_TOTAL, sum(one is not None for one in made))
    return made


def _parameters(new: NewRun, definition: FlowDefinition) -> dict[str, Any]:
    # By hand, a data interval may end whenever somebody says.
    is_due = new.run_type == RunType.SCHEDULED and definition.deadline_from != "start"
    return {
        "deadline_s": definition.deadline_s if is_due else None,
        "flow_id": new.flow_id,
        "run_key": new.run_key,
        "shard": new.shard,
        "run_type": new.run_type,
        "version_id": new.version_id,
        "logical_date": new.logical_date,
        "data_interval_start": new.data_interval_start,
        "data_interval_end": new.data_interval_end,
        "conf": Jsonb(dict(new.conf)),
        "note": new.note,
        "actor": new.actor,
    }


def create_failed_run(
    connection: psycopg.Connection[Any],
    *,
    flow_id: str,
    run_key: str,
    shard: int,
    version_id: int,
    interval: DataInterval,
    reason: str,
    aside: Aside | None = None,
) -> None:
    """A scheduled run that never started says why, in the place of the one that was not made.

    With ``aside`` it is set aside from its first moment. Nothing happens if a run of this key or
    logical date exists.
    """
    create_failed_runs(
        connection,
        flow_id=flow_id,
        run_keys=[run_key],
        shard=shard,
        version_id=version_id,
        intervals=[interval],
        reason=reason,
        aside=aside,
    )


def create_failed_runs(
    connection: psycopg.Connection[Any],
    *,
    flow_id: str,
    run_keys: Sequence[str],
    shard: int,
    version_id: int,
    intervals: Sequence[DataInterval],
    reason: str,
    aside: Aside | None = None,
) -> None:
    """The same for several intervals of a flow, with one statement; ``run_keys`` are theirs, in order."""
    with connection.cursor() as cursor:
        cursor.execute(
            _CREATE_FAILED,
            {
                "flow_id": flow_id,
                "run_keys": list(run_keys),
                "shard": shard,
                "version_id": version_id,
                "starts": [interval.start for interval in intervals],
                "ends": [interval.end for interval in intervals],
                "reason": reason[:REASON_CHARACTERS_MAX],
                "code": aside and aside.code,
                "detail": aside and Jsonb(dict(aside.detail)),
            },
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Aside:
    """Why a run is set aside from its first moment."""

    code: str
    detail: Mapping[str, Any]


_CREATE_FAILED: Final = """
WITH r AS (
  INSERT INTO run (flow_id, run_key, shard, run_type, state, is_active, logical_date,
                   data_interval_start, data_interval_end, run_attempt, version_id, conf, note, actor,
                   state_reason, created_at, queued_at, ended_at, retry_count, filter_code,
                   filter_detail, filtered_at)
  SELECT %(flow_id)s, d.run_key, %(shard)s, 'scheduled', 'failed', false, d.starts, d.starts,
         d.ends, 1, %(version_id)s, '{}', '', 'scheduler', %(reason)s, t.now, t.now, t.now, 0,
         %(code)s::varchar, %(detail)s, CASE WHEN %(code)s::varchar IS NOT NULL THEN t.now END
    FROM (SELECT clock_timestamp() AS now) t,
         unnest(%(run_keys)s::text[], %(starts)s::timestamptz[], %(ends)s::timestamptz[])
           WITH ORDINALITY d (run_key, starts, ends, place)
   ORDER BY d.place
  ON CONFLICT DO NOTHING
  RETURNING id, filter_code, filter_detail, filtered_at)
INSERT INTO run_attempt (run_id, number, cause, actor, state, ended_at, filter_code, filter_detail,
                         filtered_at)
SELECT id, 1, 'created', 'scheduler', 'failed', clock_timestamp(), filter_code, filter_detail,
       filtered_at FROM r
"""


def record_ghost_run(
    connection: psycopg.Connection[Any],
    *,
    flow_id: str,
    run_key: str,
    run_type: str,
    logical_date: datetime | None,
    created_at: datetime | None,
    detail: dict[str, Any],
) -> int | None:
    """The id of the run that an execution without a record belongs to.

    The very run, if it is still here (same key, created at the same instant). Else a run set aside
    as ``ghost_run``, under a key of its own, since the schedule may create the lost one again.
    ``None`` if the flow is not here either.
    """
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(
            "SELECT id FROM run WHERE flow_id = %s AND run_key = %s AND created_at = %s",
            [flow_id, run_key, created_at],
        )
        row = cursor.fetchone()
        if row is None:
            cursor.execute(
                _GHOST_RUN,
                {
                    "flow_id": flow_id,
                    "run_key": run_key[: RUN_KEY_CHARACTERS_MAX - len(GHOST_KEY)] + GHOST_KEY,
                    "run_type": run_type,
                    "logical_date": logical_date,
                    "detail": Jsonb(detail),
                },
            )
            row = cursor.fetchone()
        return None if row is None else int(row[0])


GHOST_KEY: Final = "~ghost"
RUN_KEY_CHARACTERS_MAX: Final = 250
_GHOST_RUN = """
INSERT INTO run (flow_id, run_key, shard, run_type, state, is_active, logical_date,
                 data_interval_start, data_interval_end, run_attempt, version_id, conf, note, actor,
                 state_reason, created_at, ended_at, retry_count, filter_code, filtered_at,
                 filter_detail)
SELECT f.flow_id, %(run_key)s, f.shard, %(run_type)s, 'failed', false, %(logical_date)s,
       %(logical_date)s, %(logical_date)s, 1, f.current_version_id, '{}', '', '',
       'its record is gone; an execution of it was found', clock_timestamp(), clock_timestamp(), 0,
       'ghost_run', clock_timestamp(), %(detail)s
  FROM flow f WHERE f.flow_id = %(flow_id)s AND f.current_version_id IS NOT NULL
ON CONFLICT (flow_id, run_key) DO UPDATE SET run_key = excluded.run_key
RETURNING id
"""


def lock_active_runs(
    connection: psycopg.Connection[Any], *, run_ids: Sequence[int], shards: Sequence[int]
) -> list[dict[str, Any]]:
    """The active, current runs among ``run_ids``, locked FOR NO KEY UPDATE in id order.

    Runs that another transaction holds are skipped; the caller looks again at its next tick.
    One dict per run: id, flow_id, run_key, state, version_id, run_attempt, shard, frozen, is_overdue
    (past its deadline), retry_count, retry_barred (who ended it or part of it; empty: nobody), backfill_id, revision,
    run_type, now (by the database's clock).
    """
    with connection.cursor(row_factory=dict_row) as cursor:
        cursor.execute(
            "SELECT r.id, r.flow_id, r.run_key, r.state, r.version_id, r.run_attempt, r.shard,"
            "  r.frozen_at IS NOT NULL OR f.frozen_at IS NOT NULL AS frozen, r.created_at,"
            "  coalesce(r.deadline_at <= clock_timestamp(), false) AS is_overdue,"
            "  r.retry_count, r.retry_barred, r.backfill_id, r.revision, r.run_type, clock_timestamp() AS now"
            " FROM run r JOIN flow f ON f.flow_id = r.flow_id"
            " WHERE r.id = ANY(%s) AND r.shard = ANY(%s) AND r.is_active AND r.filter_code IS NULL"
            " ORDER BY r.id FOR NO KEY UPDATE OF r SKIP LOCKED",
            [list(run_ids), list(shards)],
        )
        return cursor.fetchall()


def revise_runs(connection: psycopg.Connection[Any], *, ti_ids: Sequence[int]) -> None:
    """Whoever keeps the runs of these task instances in memory reads them anew.

    For every act that moves what has ended, or what never started, other than a tick. The caller holds the runs.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE run SET revision = revision + 1 WHERE id IN"
            " (SELECT run_id FROM task_instance WHERE id = ANY(%s))",
            [list(ti_ids)],
        )


def start_runs(
    connection: psycopg.Connection[Any],
    *,
    run_ids: Sequence[int],
    timeouts_s: Mapping[int, float] | None = None,
    late_after_s: Mapping[int, float] | None = None,
) -> frozenset[int]:
    """The queued runs among ``run_ids`` are running, and so are their run attempts.

    Those with a timeout (by run, in seconds) are ended that long from now, and those in
    ``late_after_s`` are late.
    """
    limits = timeouts_s or {}
    late = late_after_s or {}
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(
            "WITH r AS (UPDATE run SET state = 'running', started_at = clock_timestamp(),"
            "   deadline_at = clock_timestamp() + make_interval(secs => u.timeout_s),"
            "   late_at = coalesce(clock_timestamp() + make_interval(secs => u.late_s), late_at),"
            "   is_late_judged = is_late_judged AND u.late_s IS NULL"
            "  FROM unnest(%s::bigint[], %s::float8[], %s::float8[]) AS u(id, timeout_s, late_s)"
            "  WHERE run.id = u.id AND state = 'queued' RETURNING run.id, run_attempt)"
            " UPDATE run_attempt ra SET state = 'running', started_at = clock_timestamp()"
            "  FROM r WHERE ra.run_id = r.id AND ra.number = r.run_attempt RETURNING ra.run_id",
            [
                list(run_ids),
                [limits.get(run_id) for run_id in run_ids],
                [late.get(run_id) for run_id in run_ids],
            ],
        )
        return frozenset(row[0] for row in cursor.fetchall())


LATE_MAX: Final = 500  # judged in one transaction


def lock_late_runs(
    connection: psycopg.Connection[Any], *, shards: Sequence[int]
) -> list[dict[str, Any]]:
    """Runs of these shards whose deadline has passed, locked, and judged with this transaction.

    Frozen ones are left for later. One dict per run: id, flow_id, run_key, shard, is_active, state,
    late_at, ended_at, filter_code.
    """
    with connection.cursor(row_factory=dict_row) as cursor:
        cursor.execute(
            "WITH due AS (SELECT r.id FROM run r JOIN flow f ON f.flow_id = r.flow_id"
            "  WHERE r.shard = ANY(%s) AND r.late_at <= clock_timestamp() AND NOT r.is_late_judged"
            "   AND r.frozen_at IS NULL AND f.frozen_at IS NULL"
            "  ORDER BY r.id LIMIT %s FOR NO KEY UPDATE OF r SKIP LOCKED)"
            " UPDATE run r SET is_late_judged = true FROM due WHERE r.id = due.id"
            " RETURNING r.id, r.flow_id, r.run_key, r.shard, r.is_active, r.state, r.late_at,"
            "  r.ended_at, r.filter_code",
            [list(shards), LATE_MAX],
        )
        return sorted(cursor.fetchall(), key=lambda run: run["id"])


def lock_run(connection: psycopg.Connection[Any], *, run_id: int) -> dict[str, Any] | None:
    """The run, locked FOR NO KEY UPDATE, or ``None``.

    One dict: id, flow_id, run_key, state, is_frozen, run_attempt, version_id, filter_code, shard,
    state_reason, retry_at, retry_count.
    """
    with connection.cursor(row_factory=dict_row) as cursor:
        cursor.execute(
            "SELECT r.id, r.flow_id, r.run_key, r.state, r.run_attempt, r.version_id,"
            "  r.filter_code, r.shard, r.state_reason, r.retry_at, r.retry_count,"
            "  r.frozen_at IS NOT NULL OR f.frozen_at IS NOT NULL AS is_frozen"
            " FROM run r JOIN flow f ON f.flow_id = r.flow_id WHERE r.id = %s"
            " FOR NO KEY UPDATE OF r",
            [run_id],
        )
        return cursor.fetchone()


def end_queued_run(connection: psycopg.Connection[Any], *, run_id: int, reason: str) -> bool:
    """Whether the run, which had not started, failed now: nothing in it is open any more.

    Nobody needs to start it only to end it. The caller locked it in an *earlier* statement.
    """
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(
            "WITH r AS (UPDATE run SET state = 'failed', is_active = false,"
            "  ended_at = clock_timestamp(), state_reason = %(reason)s"
            "  WHERE id = %(run)s AND state = 'queued' AND frozen_at IS NULL"
            "   AND NOT EXISTS (SELECT 1 FROM task_instance t WHERE t.run_id = %(run)s AND t.is_open)"
            "   AND NOT EXISTS (SELECT 1 FROM attempt a WHERE a.run_id = %(run)s AND a.is_live"
            "    AND a.kind = 'task')"
            "  RETURNING id, run_attempt)"
            " UPDATE run_attempt ra SET state = 'failed', ended_at = clock_timestamp(),"
            "   outcome_reason = %(reason)s"
            "  FROM r WHERE ra.run_id = r.id AND ra.number = r.run_attempt RETURNING ra.run_id",
            {"run": run_id, "reason": reason[:REASON_CHARACTERS_MAX]},
        )
        return cursor.fetchone() is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedRun:
    """How a run ended."""

    state: str
    is_quiet: bool  # a person said how, and did not ask for callbacks


def end_runs(
    connection: psycopg.Connection[Any], *, ends: Mapping[int, tuple[RunState, str]]
) -> dict[int, EndedRun]:
    """How each of these runs ended now; the others have an unfinished task instance or a live attempt.

    ``ends``: state and reason by run. Where a person said how one ends, that counts, not the state. The
    caller locked the runs in an *earlier* statement of this transaction.
    """
    if not ends:
        return {}
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(
            sql.load("end_runs"),
            {
                "run": list(ends),
                "state": [state for state, _ in ends.values()],
                "reason": [reason[:REASON_CHARACTERS_MAX] for _, reason in ends.values()],
            },
        )
        return {
            run_id: EndedRun(state=state, is_quiet=is_quiet)
            for run_id, state, is_quiet in cursor.fetchall()
        }
