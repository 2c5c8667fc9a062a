"""Flows and their versions: store, remove, pause; and what is wrong with a file."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from psycopg.rows import dict_row, tuple_row
from psycopg.types.json import Jsonb

from scheduler_app.rules import timetable
from scheduler_app.rules.definition import FlowDefinition, digest, to_dict
from scheduler_app.transitions.flow_cursor import set_cursor
from scheduler_app.transitions.freeze import take_turn

if TYPE_CHECKING:
    from collections.abc import Sequence

    import psycopg


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where a definition comes from."""

    folder: str
    path: str  # of the flow file, inside the folder
    bundle_digest: str
    archive: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """What became of a definition that was to be stored."""

    is_changed: bool  # another version is current now, or the flow came back
    owner: str | None = None  # the file that the flow belongs to, when it is another one


def store_version(
    connection: psycopg.Connection[Any],
    *,
    definition: FlowDefinition,
    source: Source,
    shard: int,
    own_folders: Sequence[str],
) -> Stored:
    """The flow's current version is this definition with this source; one transaction.

    The same content again changes nothing. A flow that another, present file defines keeps its
    owner, and nothing is written; the same path in a folder that is not among ``own_folders`` is
    the same file, as another host or an earlier start calls it. A new version sets the schedule's
    cursor, never behind the last interval that has its run.
    """
    version_digest = digest(definition, source.bundle_digest)
    # Before the transaction: of a large flow it takes longer than a transaction may do nothing.
    written = json.dumps(to_dict(definition))
    with connection.transaction():
        flow = _flow_for_update(connection, definition, source, shard)
        if flow["removed_at"] is None and (owner := _other_owner(flow, source, own_folders)):
            return Stored(is_changed=False, owner=owner)
        version_id = _version(connection, definition, written, source, version_digest)
        is_changed = flow["current_version_id"] != version_id or flow["removed_at"] is not None
        if is_changed or flow["folder"] != source.folder:
            _set_current(connection, definition, source, version_id)
        if is_changed:
            _set_cursor(connection, definition, flow)
        return Stored(is_changed=is_changed)


def _other_owner(flow: dict[str, Any], source: Source, own_folders: Sequence[str]) -> str | None:
    """The file that has the flow, if it is not this one."""
    if flow["path"] == source.path and (
        flow["folder"] == source.folder or flow["folder"] not in own_folders
    ):
        return None
    if flow["folder"] == source.folder:
        return str(flow["path"])
    return f"{flow['folder']}/{flow['path']}"


def _flow_for_update(
    connection: psycopg.Connection[Any], definition: FlowDefinition, source: Source, shard: int
) -> dict[str, Any]:
    # A freeze of its shard or of everything holds a new flow too, whichever of the two comes first.
    take_turn(connection, shared=True)
    with connection.cursor(row_factory=dict_row) as cursor:
        cursor.execute(
            "INSERT INTO flow (flow_id, shard, is_paused, folder, path, description, owner, tags,"
            " created_at, updated_at, frozen_at) VALUES (%(flow)s::varchar, %(shard)s::int, %(is_paused)s,"
            " %(folder)s, %(path)s, '', '', '[]', clock_timestamp(), clock_timestamp(),"
            ' (SELECT min(created_at) FROM "freeze" WHERE ended_at IS NULL'
            "   AND (scope_kind = 'all' OR scope_kind = 'flow' AND scope_id = %(flow)s::varchar"
            "        OR scope_kind = 'shard' AND scope_id = %(shard)s::int::text)))"
            " ON CONFLICT (flow_id) DO NOTHING",
            {
                "flow": definition.flow_id,
                "shard": shard,
                "is_paused": definition.is_paused_upon_creation,
                "folder": source.folder,
                "path": source.path,
            },
        )
        cursor.execute(
            "SELECT folder, path, is_paused, removed_at, current_version_id, last_interval_start,"
            " last_interval_end, in_line_from, clock_timestamp() AS now FROM flow WHERE flow_id = %s"
            " FOR NO KEY UPDATE",
            [definition.flow_id],
        )
        row = cursor.fetchone()
    assert row is not None, "flows are never deleted"
    return row


def _version(
    connection: psycopg.Connection[Any],
    definition: FlowDefinition,
    written: str,
    source: Source,
    version_digest: str,
) -> int:
    """Id of the version of this content."""
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(
            "SELECT id FROM flow_version WHERE flow_id = %s AND digest = %s",
            [definition.flow_id, version_digest],
        )
        if row := cursor.fetchone():
            return int(row[0])
        cursor.execute(
            "INSERT INTO bundle (digest, main_path, archive, created_at)"
            " VALUES (%s, %s, %s, clock_timestamp()) ON CONFLICT (digest) DO NOTHING",
            [source.bundle_digest, source.path, source.archive],
        )
        cursor.execute(
            "INSERT INTO flow_version (flow_id, number, digest, definition, bundle_id, created_at)"
            " SELECT %(flow)s::text, coalesce(max(number), 0) + 1, %(digest)s,"
            "  %(definition)s::text::jsonb, %(bundle)s,"
            "  clock_timestamp() FROM flow_version WHERE flow_id = %(flow)s::text RETURNING id",
            {
                "flow": definition.flow_id,
                "digest": version_digest,
                "definition": written,
                "bundle": source.bundle_digest,
            },
        )
        row = cursor.fetchone()
    assert row is not None
    return int(row[0])


def _set_current(
    connection: psycopg.Connection[Any], definition: FlowDefinition, source: Source, version_id: int
) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE flow SET current_version_id = %s, folder = %s, path = %s, description = %s,"
            " owner = %s, tags = %s, removed_at = NULL, updated_at = clock_timestamp()"
            " WHERE flow_id = %s",
            [
                version_id,
                source.folder,
                source.path,
                definition.description,
                definition.owner,
                Jsonb(list(definition.tags)),
                definition.flow_id,
            ],
        )


def _set_cursor(
    connection: psycopg.Connection[Any], definition: FlowDefinition, flow: dict[str, Any]
) -> None:
    last = None
    if flow["last_interval_start"] is not None and flow["last_interval_end"] is not None:
        last = timetable.DataInterval(
            start=flow["last_interval_start"], end=flow["last_interval_end"]
        )
    following = None
    if not flow["is_paused"]:  # else it is set by the unpause
        following = timetable.next_interval_of(
            definition, last=last, now=flow["now"], in_line_from=flow["in_line_from"]
        )
    set_cursor(connection, flow_id=definition.flow_id, following=following)


def remove_flows(
    connection: psycopg.Connection[Any],
    *,
    folder: str,
    path: str,
    except_flow_ids: Sequence[str] = (),
) -> list[str]:
    """Flows of this file other than the excepted ones are removed; the ids of those newly so.

    Their runs go on with the versions they have; a file that defines them again brings them back.
    """
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(
            "UPDATE flow SET removed_at = clock_timestamp(), in_line_from = NULL,"
            " updated_at = clock_timestamp()"
            " WHERE folder = %s AND path = %s AND removed_at IS NULL AND NOT flow_id = ANY(%s)"
            " RETURNING flow_id",
            [folder, path, list(except_flow_ids)],
        )
        return sorted(row[0] for row in cursor.fetchall())


def remove_unwatched(
    connection: psycopg.Connection[Any], *, folders: Sequence[str], dead_after_s: float
) -> list[str]:
    """Flows and files of folders that nobody watches are removed; the ids of those flows.

    Watched are ``folders`` and what living schedulers say in the detail of their job rows.
    """
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(
            "WITH unwatched AS ("
            "  SELECT folder FROM (SELECT folder FROM flow WHERE removed_at IS NULL"
            "   UNION SELECT folder FROM flow_file WHERE removed_at IS NULL) known"
            "  WHERE NOT folder = ANY(%(folders)s) AND NOT EXISTS (SELECT 1 FROM job j"
            "   WHERE j.kind = 'scheduler' AND j.ended_at IS NULL"
            "   AND j.heartbeat_at > clock_timestamp() - make_interval(secs => %(dead_after_s)s)"
            # One that has not said yet what it watches may watch anything.
            "   AND (j.detail->'catalog'->'folders' IS NULL"
            "    OR j.detail->'catalog'->'folders' ? known.folder))),"
            " files AS (UPDATE flow_file f SET removed_at = clock_timestamp() FROM unwatched u"
            "  WHERE f.folder = u.folder AND f.removed_at IS NULL)"
            " UPDATE flow f SET removed_at = clock_timestamp(), in_line_from = NULL,"
            "  updated_at = clock_timestamp()"
            " FROM unwatched u WHERE f.folder = u.folder AND f.removed_at IS NULL"
            " RETURNING f.flow_id",
            {"folders": list(folders), "dead_after_s": dead_after_s},
        )
        return sorted(row[0] for row in cursor.fetchall())


def wrongly_removed(
    connection: psycopg.Connection[Any], *, folders: Sequence[str]
) -> frozenset[tuple[str, str, str]]:
    """(folder, path, flow id) of removed flows of these folders; their watcher may know better."""
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(
            "SELECT folder, path, flow_id FROM flow"
            " WHERE removed_at IS NOT NULL AND folder = ANY(%s)",
            [list(folders)],
        )
        return frozenset(cursor.fetchall())


def set_flow_paused(connection: psycopg.Connection[Any], *, flow_id: str, is_paused: bool) -> None:
    """The flow's schedule creates no new runs, or does again; of a paused one nothing is due next.

    After an unpause the failures that went before no longer count towards the next pause.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE flow SET is_paused = %(paused)s, updated_at = clock_timestamp(),"
            " scheduled_since = CASE WHEN %(paused)s THEN scheduled_since ELSE clock_timestamp() END,"
            " in_line_from = NULL,"
            " next_interval_start = CASE WHEN %(paused)s THEN NULL ELSE next_interval_start END,"
            " next_interval_end = CASE WHEN %(paused)s THEN NULL ELSE next_interval_end END"
            " WHERE flow_id = %(flow)s",
            {"paused": is_paused, "flow": flow_id},
        )


def lock_unpaused(connection: psycopg.Connection[Any], *, flow_id: str) -> bool:
    """Whether the flow is there and not paused; it is locked then, FOR NO KEY UPDATE."""
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(
            "SELECT 1 FROM flow WHERE flow_id = %s AND NOT is_paused FOR NO KEY UPDATE", [flow_id]
        )
        return cursor.fetchone() is not None


def has_failed_in_a_row(connection: psycopg.Connection[Any], *, flow_id: str, number: int) -> bool:
    """Whether the flow's last ``number`` runs to end since its last unpause all failed.

    Counted are current scheduled and manual runs, one that begins again by its policy only when it does
    no more. The caller holds the flow.
    """
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(
            "SELECT count(*) = %(number)s AND bool_and(state = 'failed') FROM ("
            "  SELECT r.state FROM run r JOIN flow f ON f.flow_id = r.flow_id"
            "   WHERE r.flow_id = %(flow)s AND NOT r.is_active AND r.filter_code IS NULL"
            "    AND r.retry_at IS NULL AND r.run_type IN ('scheduled', 'manual')"
            "    AND r.ended_at > coalesce(f.scheduled_since, '-infinity')"
            "   ORDER BY r.ended_at DESC LIMIT %(number)s) latest",
            {"flow": flow_id, "number": number},
        )
        row = cursor.fetchone()
        return bool(row and row[0])


def record_flow_file(
    connection: psycopg.Connection[Any],
    *,
    folder: str,
    path: str,
    digest_of_file: str,
    errors: Sequence[dict[str, Any]],
    load_duration_s: float,
) -> tuple[str, ...]:
    """The file's row says when it was loaded, which flows it has and what is wrong; those flows."""
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(
            "INSERT INTO flow_file (folder, path, digest, flow_ids, errors, load_duration_s,"
            "  loaded_at) SELECT %(folder)s::text, %(path)s::text, %(digest)s,"
            "  coalesce(jsonb_agg(f.flow_id ORDER BY f.flow_id), '[]'), %(errors)s, %(duration_s)s,"
            "  clock_timestamp() FROM flow f"
            "  WHERE f.folder = %(folder)s::text AND f.path = %(path)s::text AND f.removed_at IS NULL"
            " ON CONFLICT (folder, path) DO UPDATE SET digest = excluded.digest,"
            "  flow_ids = excluded.flow_ids, errors = excluded.errors,"
            "  load_duration_s = excluded.load_duration_s, loaded_at = excluded.loaded_at,"
            "  removed_at = NULL RETURNING flow_ids",
            {
                "folder": folder,
                "path": path,
                "digest": digest_of_file,
                "errors": Jsonb(list(errors)),
                "duration_s": load_duration_s,
            },
        )
        row = cursor.fetchone()
    assert row is not None
    return tuple(row[0])


def remove_flow_files(
    connection: psycopg.Connection[Any], *, folder: str, kept_paths: Sequence[str]
) -> list[str]:
    """Files of the folder that are not among the kept ones are removed; paths of those newly so."""
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(
            "UPDATE flow_file SET removed_at = clock_timestamp() WHERE folder = %s"
            " AND removed_at IS NULL AND NOT path = ANY(%s) RETURNING path",
            [folder, list(kept_paths)],
        )
        return sorted(row[0] for row in cursor.fetchall())
