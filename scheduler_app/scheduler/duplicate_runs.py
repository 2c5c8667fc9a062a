"""Runs that exist twice for one logical date: one is kept, the others are set aside, and a ghost says so.

A unique index rules them out. They come with a restored or imported database, in which that index
could not be made; so the rows are searched only where it is missing, and a person hears of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from psycopg.rows import dict_row, tuple_row

from scheduler_app.rules import duplicate_runs, ghosts
from scheduler_app.transitions.incident import raise_incident, resolve_incident
from scheduler_app.transitions.standing import end_runs_set_aside, set_run_aside

if TYPE_CHECKING:
    import psycopg

    from scheduler_app.scheduler.leases import Leases

GUARD: Final = "run_logical_date_unique"
GUARD_STATEMENT: Final = (
    f"CREATE UNIQUE INDEX {GUARD} ON run (flow_id, logical_date)"
    " WHERE run_type = 'scheduled' AND filter_code IS NULL"
)
DATES_MAX: Final = 200  # in one go

_TWICE = """
WITH twice AS (
  SELECT flow_id, logical_date FROM run
   WHERE shard = ANY(%(shards)s) AND run_type = 'scheduled' AND filter_code IS NULL
     AND logical_date IS NOT NULL
   GROUP BY flow_id, logical_date HAVING count(*) > 1 LIMIT %(max)s)
SELECT r.id, r.flow_id, r.run_key AS run_id, r.logical_date, r.shard, r.state, r.actor,
       EXISTS (SELECT 1 FROM run_attempt ra WHERE ra.run_id = r.id) AS has_run_attempt,
       (SELECT count(*) FROM attempt p WHERE p.run_id = r.id AND p.is_accepted) AS accepted_results
  FROM run r JOIN twice USING (flow_id, logical_date)
 WHERE r.run_type = 'scheduled' AND r.filter_code IS NULL
 ORDER BY r.flow_id, r.logical_date, r.id
"""
# Of a run that the database forgot, an execution was found; the schedule has made the run again.
_MADE_AGAIN = """
SELECT o.id, o.flow_id, o.filter_detail->>'run_id' AS run_id, o.logical_date, o.filter_code, o.shard,
       k.id AS kept_id, k.run_key AS kept_run_id
  FROM ghost g
  JOIN run o ON o.id = g.run_id AND o.filter_code = 'ghost_run'
  JOIN run k ON k.flow_id = o.flow_id AND k.filter_code IS NULL
   AND (k.run_key = o.filter_detail->>'run_id'
        OR (k.logical_date = o.logical_date AND k.run_type = o.run_type AND k.run_type = 'scheduled'))
 WHERE g.ended_at IS NULL AND g.kind = %s AND o.shard = ANY(%s)
"""
# Every run of this product has a run attempt from its birth.
_NOBODYS = """
SELECT r.id, r.flow_id, r.run_key AS run_id, r.logical_date, r.shard FROM run r
 WHERE r.is_active AND r.shard = ANY(%s) AND r.filter_code IS NULL
   AND NOT EXISTS (SELECT 1 FROM run_attempt ra WHERE ra.run_id = r.id)
"""


def find_duplicate_runs(
    connection: psycopg.Connection[Any], *, leases: Leases, terms: dict[int, int]
) -> list[ghosts.Sighting]:
    """Runs that exist twice are set aside but for one; a sighting for each. Raises ``Fenced``."""
    shards = sorted(terms)
    found = _made_again(connection, terms)
    is_guarded = _is_guarded(connection)
    twice = [] if is_guarded else _rows(connection, _TWICE, {"shards": shards, "max": DATES_MAX})
    nobodys = _rows(connection, _NOBODYS, [shards])
    with connection.transaction():
        leases.prove(connection, terms)
        for row in nobodys:
            _set_aside(connection, terms, row, None, "ghost_run")
        for group in _by_date(twice):
            found += _keep_one(connection, terms, group)
        end_runs_set_aside(connection, shards=shards)
    _tell(connection, is_guarded=is_guarded)
    return found


def _keep_one(
    connection: psycopg.Connection[Any], terms: dict[int, int], group: list[dict[str, Any]]
) -> list[ghosts.Sighting]:
    rows = {row["id"]: row for row in group}
    candidates = [
        duplicate_runs.Candidate(
            id=row["id"],
            run_id=row["run_id"],
            state=row["state"],
            actor=row["actor"],
            has_run_attempt=row["has_run_attempt"],
            accepted_results=row["accepted_results"],
        )
        for row in group
    ]
    found = []
    for aside in duplicate_runs.choose(candidates):
        row, kept = rows[aside.run.id], rows[aside.kept.id]
        if _set_aside(connection, terms, row, kept, aside.code):
            found.append(
                ghosts.run_twice(
                    kept=kept,
                    other=row,
                    other_code=aside.code,
                    shard=row["shard"],
                    token=terms[row["shard"]],
                )
            )
    return found


def _set_aside(
    connection: psycopg.Connection[Any],
    terms: dict[int, int],
    row: dict[str, Any],
    kept: dict[str, Any] | None,
    code: str,
) -> bool:
    date = row["logical_date"]
    detail = {
        "rule": "duplicate_runs.choose" if kept else "no run attempt was written with it",
        "run_id": row["run_id"],
        "logical_date": date.isoformat() if date else None,
        "kept_run_id": kept["run_id"] if kept else None,
        "kept_run": kept["id"] if kept else None,
        "shard": row["shard"],
        "token": terms[row["shard"]],
    }
    return set_run_aside(
        connection,
        run_id=row["id"],
        code=code,
        detail=detail,
        kept=kept["id"] if kept else None,
    )


def _made_again(
    connection: psycopg.Connection[Any], terms: dict[int, int]
) -> list[ghosts.Sighting]:
    return [
        ghosts.run_twice(
            kept={
                "id": row["kept_id"],
                "flow_id": row["flow_id"],
                "run_id": row["kept_run_id"],
                "logical_date": row["logical_date"],
            },
            other={"id": row["id"], "run_id": row["run_id"]},
            other_code=row["filter_code"],
            shard=row["shard"],
            token=terms[row["shard"]],
        )
        for row in _rows(connection, _MADE_AGAIN, [ghosts.NO_RECORD, sorted(terms)])
    ]


def _by_date(rows: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    groups: dict[tuple[str, Any], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["flow_id"], row["logical_date"]), []).append(row)
    return list(groups.values())


def _is_guarded(connection: psycopg.Connection[Any]) -> bool:
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(
            "SELECT EXISTS (SELECT 1 FROM pg_index WHERE indexrelid = to_regclass(%s)"
            " AND indisvalid AND indisunique)",
            [GUARD],
        )
        row = cursor.fetchone()
        return bool(row and row[0])


def _tell(connection: psycopg.Connection[Any], *, is_guarded: bool) -> None:
    if is_guarded:
        resolve_incident(connection, kind="unguarded_runs", subject=GUARD)
        return
    raise_incident(
        connection,
        kind="unguarded_runs",
        subject=GUARD,
        message=(
            "The database lost the index that keeps a schedule from running twice for one date, as"
            " happens when a backup with doubled runs is restored. Doubled runs are set aside as"
            f" they are found. Make it again: {GUARD_STATEMENT};"
        ),
    )


def _rows(
    connection: psycopg.Connection[Any], statement: str, parameters: Any
) -> list[dict[str, Any]]:
    with connection.cursor(row_factory=dict_row) as cursor:
        cursor.execute(statement, parameters)
        return cursor.fetchall()
