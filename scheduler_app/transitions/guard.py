"""Guards of automatic actions: what holds for them, what was done, and what an operator sets.

A check and its action are one transaction that holds the flow: so two actions on one flow follow each
other, and each sees what the other did.
"""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any, Final

from psycopg.rows import dict_row, tuple_row

from scheduler_app.rules import guards
from scheduler_app.rules.guards import GuardLimits, GuardRow

if TYPE_CHECKING:
    from collections.abc import Sequence

    import psycopg

TURN: Final = 0x6461_796C_6775  # of the advisory lock
_LIMITS: Final = tuple(one.name for one in fields(GuardLimits))


def take_turn(connection: psycopg.Connection[Any], *, alone: bool) -> None:
    """Until this transaction ends no guard is changed; ``alone``: and no automatic action goes on."""
    call = "pg_advisory_xact_lock" if alone else "pg_advisory_xact_lock_shared"
    with connection.cursor() as cursor:
        if call == "pg_advisory_xact_lock":
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [TURN])
        else:
            cursor.execute("SELECT pg_advisory_xact_lock_shared(%s)", [TURN])


def hold_flow(connection: psycopg.Connection[Any], *, flow_id: str) -> None:
    """No other automatic action on the flow goes on until this transaction ends.

    Comes before pools and runs in the order of locks.
    """
    take_turn(connection, alone=False)
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1 FROM flow WHERE flow_id = %s FOR NO KEY UPDATE", [flow_id])


def refusal(
    connection: psycopg.Connection[Any],
    *,
    flow_id: str,
    kind: guards.ActionKind,
    defined: GuardLimits | None,
    defaults: GuardLimits,
    size: guards.Size,
) -> guards.Refusal | None:
    """Why the action must wait for a person; null: it need not. The caller holds the flow."""
    effective = guards.effective(
        read_guards(connection, flow_id=flow_id),
        flow_id=flow_id,
        kind=kind,
        defined=defined or GuardLimits(),
        defaults=defaults,
    )
    past = _past(connection, flow_id, kind, effective.limits.window_s or 0.0)
    return guards.refuse(effective, past, size)


def record_action(
    connection: psycopg.Connection[Any],
    *,
    flow_id: str,
    kind: guards.ActionKind,
    run_id: int,
    size: guards.Size,
    actor: str,
    reason: str,
) -> None:
    """The action counts. Part of its transaction."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO automatic_action (at, flow_id, kind, run_id, run_count,"
            "  task_instance_count, actor, reason)"
            " VALUES (clock_timestamp(), %s, %s, %s, %s, %s, %s, %s)",
            [flow_id, kind.value, run_id, size.runs, size.task_instances, actor, reason],
        )


def read_guards(connection: psycopg.Connection[Any], *, flow_id: str) -> list[GuardRow]:
    """What operators set for the flow and for everything."""
    with connection.cursor(row_factory=dict_row) as cursor:
        cursor.execute(
            "SELECT flow_id, kind, is_stopped, cooldown_s, actions_max, window_s, runs_max,"
            "  task_instances_max, actor, reason"
            " FROM guard WHERE flow_id IN ('', %s) ORDER BY flow_id, kind",
            [flow_id],
        )
        return [_row(row) for row in cursor.fetchall()]


def set_guard(connection: psycopg.Connection[Any], *, row: GuardRow) -> GuardRow | None:
    """The guard of this flow and kind is just this; what it was before, or null.

    The caller took its turn alone: an action that had begun has ended, and the next one sees it.
    """
    with connection.cursor(row_factory=dict_row) as cursor:
        cursor.execute(
            "SELECT flow_id, kind, is_stopped, cooldown_s, actions_max, window_s, runs_max,"
            "  task_instances_max, actor, reason"
            " FROM guard WHERE flow_id = %s AND kind = %s FOR UPDATE",
            [row.flow_id, row.kind],
        )
        before = cursor.fetchone()
        cursor.execute(
            "INSERT INTO guard (flow_id, kind, is_stopped, cooldown_s, actions_max, window_s, runs_max,"
            "  task_instances_max, actor, reason, updated_at)"
            " VALUES (%(flow_id)s, %(kind)s, %(is_stopped)s, %(cooldown_s)s, %(actions_max)s,"
            "  %(window_s)s, %(runs_max)s, %(task_instances_max)s, %(actor)s, %(reason)s,"
            "  clock_timestamp())"
            " ON CONFLICT (flow_id, kind) DO UPDATE SET is_stopped = excluded.is_stopped,"
            "  cooldown_s = excluded.cooldown_s, actions_max = excluded.actions_max,"
            "  window_s = excluded.window_s, runs_max = excluded.runs_max,"
            "  task_instances_max = excluded.task_instances_max, actor = excluded.actor,"
            "  reason = excluded.reason, updated_at = excluded.updated_at",
            {
                "flow_id": row.flow_id,
                "kind": row.kind,
                "is_stopped": row.is_stopped,
                "actor": row.actor,
                "reason": row.reason,
                **asdict(row.limits),
            },
        )
    return None if before is None else _row(before)


def _row(row: dict[str, Any]) -> GuardRow:
    limits = GuardLimits(**{name: row[name] for name in _LIMITS})
    rest = {key: value for key, value in row.items() if key not in _LIMITS}
    return GuardRow(limits=limits, **rest)


def _past(
    connection: psycopg.Connection[Any], flow_id: str, kind: guards.ActionKind, window_s: float
) -> guards.Past:
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(
            "SELECT clock_timestamp(),"
            "  (SELECT max(at) FROM automatic_action WHERE flow_id = %(flow)s AND kind = %(kind)s),"
            "  (SELECT count(*) FROM automatic_action WHERE flow_id = %(flow)s AND kind = %(kind)s"
            "    AND at > clock_timestamp() - make_interval(secs => %(window)s::float8))",
            {"flow": flow_id, "kind": kind.value, "window": window_s},
        )
        found: Sequence[Any] | None = cursor.fetchone()
    assert found is not None
    return guards.Past(now=found[0], last_at=found[1], in_window=found[2])
