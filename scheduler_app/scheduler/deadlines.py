"""Runs that are late, and scheduled runs that did not begin: an incident each, judged once.

A run's deadline is a moment in its row: looked at once it has passed, whenever that is, and then
never again. Frozen runs and flows are left alone; their clocks stand still.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from psycopg.rows import dict_row, tuple_row

from scheduler_app.rules.incidents import DEADLINE_MISSED, RUN_EXPECTED
from scheduler_app.transitions.incident import raise_incident, resolve_incident
from scheduler_app.transitions.run import lock_late_runs

if TYPE_CHECKING:
    from datetime import datetime

    import psycopg

    from scheduler_app.scheduler.leases import Leases

SUBJECT_CHARACTERS_MAX: Final = 250


def judge_deadlines(
    connection: psycopg.Connection[Any], *, leases: Leases, terms: dict[int, int]
) -> None:
    """Each run of these shards whose deadline has passed was judged: late, or ended in time.

    An incident is open exactly while a late run goes on. Raises ``Fenced``.
    """
    shards = list(terms)
    if not _any_due(connection, shards) and not _any_over(connection, shards):
        return
    with connection.transaction():
        leases.prove(connection, terms)
        for run in lock_late_runs(connection, shards=shards):
            if run["filter_code"] is not None or not _is_late(run):
                continue
            raise_incident(
                connection,
                kind=DEADLINE_MISSED,
                subject=_subject(run),
                message=_message(run),
                flow_id=run["flow_id"],
                run_id=run["id"],
                shard=run["shard"],
                lease_token=terms[run["shard"]],
            )
        for run in _over(connection, shards):
            after = _in_words(run["ended_at"] - run["late_at"])
            resolve_incident(
                connection,
                kind=DEADLINE_MISSED,
                subject=run["subject"],
                resolution=f"The run ended as {run['state']}, {after} after its deadline.",
            )


def watch_for_expected(
    connection: psycopg.Connection[Any], *, leases: Leases, terms: dict[int, int]
) -> None:
    """An incident is open exactly for each flow whose scheduled run should have begun, and has not.

    Of flows that say ``expected_within``; not while they are paused, frozen or removed. Raises
    ``Fenced``.
    """
    shards = list(terms)
    unmet = {row["flow_id"]: row for row in _unmet(connection, shards)}
    told = _told(connection, shards)
    over = {flow_id: resolution for flow_id, resolution in told.items() if flow_id not in unmet}
    news = [row for flow_id, row in unmet.items() if flow_id not in told]
    if not over and not news:
        return
    with connection.transaction():
        leases.prove(connection, terms)
        for row in news:
            raise_incident(
                connection,
                kind=RUN_EXPECTED,
                subject=row["flow_id"],
                message=(
                    f"The run of flow {row['flow_id']} that was due at {_moment(row['due_at'])} should"
                    f" have begun within {_in_words(timedelta(seconds=row['within_s']))}, and"
                    f" {_WHY[row['why']]}."
                ),
                flow_id=row["flow_id"],
                run_id=row["run_id"],
                shard=row["shard"],
                lease_token=terms[row["shard"]],
            )
        for flow_id, resolution in over.items():
            resolve_incident(connection, kind=RUN_EXPECTED, subject=flow_id, resolution=resolution)


_WHY: Final = {
    "missing": "does not exist yet: the flow may have as many runs as it may, or no scheduler got to it",
    "queued": "waits in the queue of its flow's runs",
}

_UNMET: Final = """
SELECT DISTINCT ON (flow_id) * FROM (
  SELECT f.flow_id, f.shard, f.next_interval_end AS due_at, NULL::bigint AS run_id,
         'missing' AS why, (v.definition->>'expected_within_s')::float8 AS within_s,
         greatest(f.next_interval_end, coalesce(f.scheduled_since, f.created_at)) AS since
    FROM flow f JOIN flow_version v ON v.id = f.current_version_id
   WHERE f.shard = ANY(%(shard)s) AND NOT f.is_paused AND f.removed_at IS NULL
     AND f.frozen_at IS NULL AND f.next_interval_end <= clock_timestamp()
     AND v.definition ? 'expected_within_s'
  UNION ALL
  SELECT r.flow_id, r.shard, r.data_interval_end, r.id, 'queued',
         (v.definition->>'expected_within_s')::float8,
         greatest(r.data_interval_end, coalesce(f.scheduled_since, f.created_at))
    FROM run r JOIN flow f ON f.flow_id = r.flow_id JOIN flow_version v ON v.id = r.version_id
   WHERE r.shard = ANY(%(shard)s) AND r.is_active AND r.filter_code IS NULL
     AND r.run_type = 'scheduled' AND r.state = 'queued' AND r.run_attempt = 1
     AND r.frozen_at IS NULL AND f.frozen_at IS NULL AND NOT f.is_paused AND f.removed_at IS NULL
     AND v.definition ? 'expected_within_s') u
 WHERE since + make_interval(secs => within_s) < clock_timestamp()
 ORDER BY flow_id, due_at
"""


def _unmet(connection: psycopg.Connection[Any], shards: list[int]) -> list[dict[str, Any]]:
    with connection.cursor(row_factory=dict_row) as cursor:
        cursor.execute(_UNMET, {"shard": shards})
        return cursor.fetchall()


def _told(connection: psycopg.Connection[Any], shards: list[int]) -> dict[str, str]:
    """The flows of these shards with an open incident, each with how it would end now."""
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(
            "SELECT n.subject, CASE WHEN f.removed_at IS NOT NULL THEN 'The flow was removed.'"
            "  WHEN f.frozen_at IS NOT NULL THEN 'The flow is frozen: its clocks stand still.'"
            "  WHEN f.is_paused THEN 'The flow is paused: no run is expected.'"
            "  ELSE 'The run began.' END"
            " FROM incident n JOIN flow f ON f.flow_id = n.flow_id"
            " WHERE n.kind = %s AND n.resolved_at IS NULL AND f.shard = ANY(%s)",
            [RUN_EXPECTED, shards],
        )
        return dict(cursor.fetchall())


def _any_due(connection: psycopg.Connection[Any], shards: list[int]) -> bool:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT 1 FROM run WHERE shard = ANY(%s) AND late_at <= clock_timestamp()"
            " AND NOT is_late_judged AND frozen_at IS NULL LIMIT 1",
            [shards],
        )
        return cursor.fetchone() is not None


_OVER: Final = (
    " FROM incident n JOIN run r ON r.id = n.run_id WHERE n.kind = %s AND n.resolved_at IS NULL"
    " AND r.shard = ANY(%s) AND NOT r.is_active"
)


def _any_over(connection: psycopg.Connection[Any], shards: list[int]) -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1" + _OVER + " LIMIT 1", [DEADLINE_MISSED, shards])
        return cursor.fetchone() is not None


def _over(connection: psycopg.Connection[Any], shards: list[int]) -> list[dict[str, Any]]:
    with connection.cursor(row_factory=dict_row) as cursor:
        cursor.execute(
            "SELECT n.subject, r.state, r.ended_at, r.late_at" + _OVER, [DEADLINE_MISSED, shards]
        )
        return cursor.fetchall()


def _is_late(run: dict[str, Any]) -> bool:
    return bool(run["is_active"]) or run["ended_at"] > run["late_at"]


def _subject(run: dict[str, Any]) -> str:
    return f"run {run['id']}: {run['flow_id']} {run['run_key']}"[:SUBJECT_CHARACTERS_MAX]


def _message(run: dict[str, Any]) -> str:
    what = (
        f"still {run['state']}" if run["is_active"] else f"ended as {run['state']} only after that"
    )
    said = (
        f"Run {run['run_key']} of flow {run['flow_id']} should have ended by"
        f" {_moment(run['late_at'])}, and"
    )
    return f"{said} is {what}." if run["is_active"] else f"{said} {what}."


def _moment(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"


def _in_words(duration: timedelta) -> str:
    seconds = max(0, round(duration.total_seconds()))
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            left = seconds % size
            small = {"d": (3600, "h"), "h": (60, "min"), "min": (1, "s")}[unit]
            rest = f" {left // small[0]} {small[1]}" if left // small[0] else ""
            return f"{seconds // size} {unit}{rest}"
    return f"{seconds} s"
