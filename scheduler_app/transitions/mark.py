"""Marks by hand: what a person says that task instances and runs are, and that it was a person."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from psycopg.rows import dict_row, tuple_row
from psycopg.types.json import Jsonb

from scheduler_app import sql
from scheduler_app.transitions.ids import uuid7
from scheduler_app.transitions.run import REASON_CHARACTERS_MAX, revise_runs
from scheduler_app.transitions.run_retry import bar_retry

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from uuid import UUID

    import psycopg

    from scheduler_app.rules.callbacks import Call
    from scheduler_app.rules.states import RunState


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """One act of marking: by whom, why, and whether callbacks were asked for."""

    id: UUID
    actor: str
    reason: str
    callbacks: bool

    def told(self, state: str) -> str:
        """In a sentence without its stop."""
        return f"{self.actor} marked it {state}: {self.reason}"

    def kept(self) -> dict[str, Any]:
        """What rows keep of it; the state is added to it."""
        return {
            "id": str(self.id),
            "actor": self.actor,
            "reason": self.reason,
            "callbacks": self.callbacks,
        }


def lock_instances(
    connection: psycopg.Connection[Any], *, run_id: int, lock: bool
) -> list[dict[str, Any]]:
    """Every task instance of the run, locked in id order if asked for; the caller holds the run then.

    One dict each: id, task_id, map_index, state, held_by, attempt_id, marked. Walks
    ``task_instance_unique``.
    """
    with connection.cursor(row_factory=dict_row) as cursor:
        cursor.execute(_LOCK if lock else _READ, [run_id])
        return cursor.fetchall()


_READ: Final = """
SELECT id, task_id, map_index, state, held_by, attempt_id, mark->>'state' AS marked
  FROM task_instance WHERE run_id = %s ORDER BY id
"""
_LOCK: Final = f"{_READ} FOR NO KEY UPDATE"


def mark_by_hand(
    connection: psycopg.Connection[Any],
    *,
    marks: Sequence[tuple[int, str, str]],
    by: Mark,
) -> dict[int, bool]:
    """By id, whether each that was still as it was seen is open still, since its attempt runs.

    ``marks``: id, the state that was seen, the state to be, of one target or several. The caller holds
    the run and locked the task instances in an earlier statement.
    """
    moved: dict[int, bool] = {}
    ordered = sorted(marks)
    with connection.cursor(row_factory=tuple_row) as cursor:
        for target in sorted({state for _, _, state in ordered}):
            own = [one for one in ordered if one[2] == target]
            cursor.execute(
                sql.load("mark_by_hand"),
                {
                    "ti": [ti_id for ti_id, _, _ in own],
                    "seen_state": [seen for _, seen, _ in own],
                    "state": [state for _, _, state in own],
                    "mark": Jsonb(by.kept()),
                    "why": by.told(target),
                },
            )
            moved |= dict(cursor.fetchall())
    revise_runs(connection, ti_ids=list(moved))
    return moved


def mark_run(
    connection: psycopg.Connection[Any], *, run_id: int, state: RunState, by: Mark
) -> None:
    """The run, which the caller holds, ends in this state; one that has ended is in it now.

    Its policy keeps out until something of it is cleared.
    """
    said = f"{by.actor} marked the run {state}: {by.reason}"
    values = {
        "run": run_id,
        "state": state,
        "said": said[:REASON_CHARACTERS_MAX],
        "mark": Jsonb({**by.kept(), "state": state, "said": said[:REASON_CHARACTERS_MAX]}),
    }
    with connection.cursor() as cursor:
        cursor.execute("UPDATE run SET mark = %(mark)s WHERE id = %(run)s", values)
        cursor.execute(_SETTLE, values)
    bar_retry(connection, run_id=run_id, why=f"{said}.")


def settle_run(
    connection: psycopg.Connection[Any], *, run_id: int, state: RunState, reason: str
) -> None:
    """The run, which had ended and which the caller holds, ended in this state; its times stay."""
    values = {"run": run_id, "state": state, "said": reason[:REASON_CHARACTERS_MAX]}
    with connection.cursor() as cursor:
        cursor.execute(_SETTLE, values)


_SETTLE = """
WITH r AS (
  UPDATE run SET state = %(state)s, state_reason = %(said)s, retry_at = NULL
   WHERE id = %(run)s AND state IN ('success', 'failed') AND state <> %(state)s
  RETURNING id, run_attempt)
UPDATE run_attempt ra SET state = %(state)s, outcome_reason = %(said)s
  FROM r WHERE ra.run_id = r.id AND ra.number = r.run_attempt
"""


def end_marked_run(connection: psycopg.Connection[Any], *, run_id: int) -> bool:
    """Whether the marked run ended now: nothing in it is open, and no attempt live.

    The caller locked the run in an *earlier* statement.
    """
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(_END, {"run": run_id})
        return cursor.fetchone() is not None


_END = """
WITH r AS (
  UPDATE run SET state = mark->>'state', is_active = false, ended_at = clock_timestamp(),
         state_reason = mark->>'said'
   WHERE id = %(run)s AND is_active AND mark IS NOT NULL AND frozen_at IS NULL
     AND NOT EXISTS (SELECT 1 FROM task_instance t WHERE t.run_id = %(run)s AND t.is_open)
     AND NOT EXISTS (SELECT 1 FROM attempt a
                      WHERE a.run_id = %(run)s AND a.is_live AND a.kind = 'task')
  RETURNING id, run_attempt, state, state_reason)
UPDATE run_attempt ra
   SET state = r.state, ended_at = clock_timestamp(), outcome_reason = r.state_reason
  FROM r WHERE ra.run_id = r.id AND ra.number = r.run_attempt RETURNING ra.run_id
"""


def issue_callbacks(
    connection: psycopg.Connection[Any],
    *,
    run_id: int,
    calls: Mapping[int | None, Sequence[Call]],
    states: Mapping[int | None, str],
    queue: str,
    by: Mark,
) -> None:
    """Each callable that these marks call for, since it was asked for, has an issued attempt.

    By task instance; ``None``: by the run, on ``queue``. Part of the caller's transaction.
    """
    rows = [(uuid7(), ti_id, call, states[ti_id]) for ti_id, own in calls.items() for call in own]
    if not rows:
        return
    with connection.cursor() as cursor:
        cursor.execute(
            _ISSUE,
            {
                "run": run_id,
                "queue": queue,
                "mark": str(by.id),
                "callback_id": [own for own, _, _, _ in rows],
                "ti": [ti_id for _, ti_id, _, _ in rows],
                "callback": [
                    Jsonb(
                        {
                            "on": call.on,
                            "index": call.index,
                            "name": call.name,
                            "state": state,
                            "reason": by.told(state),
                            "of": None,
                        }
                    )
                    for _, _, call, state in rows
                ],
            },
        )


# Under the lease that holds the shard now: who publishes it proves that one.
_ISSUE = """
INSERT INTO attempt (id, ti_id, run_id, task_id, map_index, kind, shard, try_number, resume_index,
                     dispatch_no, run_attempt, lease_token, fence, queue, pool, pool_slots, state,
                     is_live, is_accepted, publish_count, issued_at, callback, callback_key)
SELECT u.id, i.id, r.id, i.task_id, i.map_index, 'callback', r.shard, i.try_number, i.resume_index, 1,
       r.run_attempt, l.token, nextval('attempt_fence'), coalesce(i.queue, %(queue)s),
       coalesce(i.pool, ''), 0, 'issued', true, false, 0, clock_timestamp(), u.callback,
       format('mark:%%s:%%s:%%s:%%s', %(mark)s::text, u.ti, u.callback->>'on', u.callback->>'index')
  FROM unnest(%(callback_id)s::uuid[], %(ti)s::bigint[], %(callback)s::jsonb[]) AS u(id, ti, callback)
  JOIN run r ON r.id = %(run)s
  JOIN lease l ON l.shard = r.shard
  LEFT JOIN task_instance i ON i.id = u.ti
"""
