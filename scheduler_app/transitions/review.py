"""Reviews: what a guard left for a person, opened once for the same request, decided once."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any, Final

from psycopg.rows import dict_row, tuple_row
from psycopg.types.json import Jsonb

from scheduler_app.transitions.counters import count
from scheduler_app.transitions.incident import raise_incident, resolve_incident

if TYPE_CHECKING:
    from collections.abc import Mapping

    import psycopg

    from scheduler_app.rules.guards import ActionKind, GuardCode

ALERT: Final = "review_waits"  # kind of the incident that is open while a review is


SUBJECT_CHARACTERS_MAX: Final = 250  # the column's width


def open_review(
    connection: psycopg.Connection[Any],
    *,
    guard: GuardCode,
    action: ActionKind,
    run_id: int,
    run_key: str,
    flow_id: str,
    request: Mapping[str, Any],
    summary: str,
    asked_by: str,
    reason: str,
) -> int:
    """A review of this request waits for a person, who is alerted; its number.

    The same request again raises the number of times that it was asked for. Part of the caller's
    transaction, which holds the run.
    """
    key = hashlib.sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(
            "INSERT INTO review (guard, action, object_kind, object_id, flow_id, request_key, request,"
            "  summary, asked_by, reason, times, state, created_at, decided_by, note)"
            " VALUES (%(guard)s, %(action)s, 'run', %(run)s, %(flow)s, %(key)s, %(request)s,"
            "  %(summary)s, %(asked_by)s, %(reason)s, 1, 'open', clock_timestamp(), '', '')"
            " ON CONFLICT (action, object_kind, object_id, request_key) WHERE state = 'open'"
            " DO UPDATE SET times = review.times + 1, last_at = clock_timestamp(),"
            "  guard = excluded.guard, summary = excluded.summary"
            " RETURNING id",
            {
                "guard": guard.value,
                "action": action.value,
                "run": str(run_id),
                "flow": flow_id,
                "key": key,
                "request": Jsonb(dict(request)),
                "summary": summary,
                "asked_by": asked_by,
                "reason": reason,
            },
        )
        row = cursor.fetchone()
    assert row is not None
    count(connection, "scheduler_automatic_actions_held_total", 1)
    raise_incident(
        connection,
        kind=ALERT,
        subject=_subject(flow_id, action.value),
        flow_id=flow_id,
        run_id=run_id,
        message=(
            f"{action.value.replace('_', ' ').capitalize()} of run {run_key} of flow {flow_id} waits for"
            f" a person in review {row[0]}. {summary}"
        ),
    )
    return int(row[0])


def read_review(
    connection: psycopg.Connection[Any], *, review_id: int, lock: bool = False
) -> dict[str, Any] | None:
    """The review, or null; ``request`` is decoded. Locked, it comes after its run."""
    statement = (
        # As text: what reads JSON differs between Django's connections and others.
        "SELECT id, guard, action, object_kind, object_id, flow_id, request::text, summary, asked_by,"
        "  reason, state, decided_by FROM review WHERE id = %s"
    )
    with connection.cursor(row_factory=dict_row) as cursor:
        cursor.execute(f"{statement} FOR UPDATE" if lock else statement, [review_id])
        row = cursor.fetchone()
    return None if row is None else {**row, "request": json.loads(row["request"] or "null")}


def decide_review(
    connection: psycopg.Connection[Any],
    *,
    review_id: int,
    state: str,
    by: str,
    note: str,
    outcome: Mapping[str, Any] | None = None,
) -> bool:
    """Whether the review, which was open, is decided now; its alert is over."""
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(
            "UPDATE review SET state = %s, ended_at = clock_timestamp(), decided_by = %s, note = %s,"
            "  outcome = %s WHERE id = %s AND state = 'open'",
            [state, by, note, None if outcome is None else Jsonb(dict(outcome)), review_id],
        )
        if cursor.rowcount != 1:
            return False
        cursor.execute(
            "SELECT w.flow_id, w.action FROM review w WHERE w.id = %s AND NOT EXISTS ("
            " SELECT 1 FROM review o WHERE o.state = 'open' AND o.flow_id = w.flow_id"
            "  AND o.action = w.action)",
            [review_id],
        )
        last = cursor.fetchone()
    if last is not None:
        resolve_incident(
            connection,
            kind=ALERT,
            subject=_subject(*last),
            resolution=f"The last of its reviews, {review_id}, was {state} by {by}.",
        )
    return True


def _subject(flow_id: str, action: str) -> str:
    # One alert a flow and kind: a storm of requests is one condition.
    return f"{action.replace('_', ' ')} of flow {flow_id}"[:SUBJECT_CHARACTERS_MAX]


def resolve_overtaken(connection: psycopg.Connection[Any]) -> list[int]:
    """Reviews of run retries whose run has gone on without them are resolved; their numbers."""
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(
            "SELECT w.id, r.state, r.run_attempt FROM review w JOIN run r ON r.id::text = w.object_id"
            " WHERE w.state = 'open' AND w.action = 'run_retry' AND w.object_kind = 'run'"
            "  AND (r.state <> 'failed' OR r.run_attempt <> (w.request->>'run_attempt')::int)"
            " ORDER BY w.id"
        )
        found = cursor.fetchall()
    return [
        review_id
        for review_id, state, run_attempt in found
        if decide_review(
            connection,
            review_id=review_id,
            state="resolved",
            by="scheduler",
            note=f"Its run is {state} in run attempt {run_attempt}: nothing is left to decide.",
        )
    ]
