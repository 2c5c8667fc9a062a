"""What was loaded is stored: a version where the content is new, faults where there are any."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from psycopg.rows import tuple_row

from scheduler_app.processes import bundles
from scheduler_app.rules import leadership
from scheduler_app.transitions.flow import (
    Source,
    record_flow_file,
    remove_flows,
    store_version,
)
from scheduler_app.transitions.shards import shard_count

if TYPE_CHECKING:
    from collections.abc import Sequence

    import psycopg

    from scheduler_app.catalog.load import Loaded
    from scheduler_app.rules.definition import FlowDefinition


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What storing a file came to."""

    flow_ids: tuple[str, ...] = ()  # that belong to the file
    removed: tuple[str, ...] = ()  # that it defined before
    faults: int = 0
    is_changed: bool = False  # a flow has a new current version, came or went
    has_conflict: bool = False  # a flow of it belongs to another file
    unknown_pools: frozenset[str] = frozenset()


def store(
    connection: psycopg.Connection[Any], loaded: Loaded, *, own_folders: Sequence[str]
) -> Outcome:
    """The file's flows have their versions, and its row says what is wrong.

    The first file that defines a flow owns it. Whatever a file that could not be loaded defined
    before stays, and so does the last good version of a flow that is faulty now, or that names a
    pool which does not exist.
    """
    outcome = Outcome()
    faults = list(loaded.faults)
    flow_ids: list[str] = []
    refused: list[str] = []
    if loaded.flows:
        source = _source(loaded)
        known = pools(connection)
        shards = shard_count(connection)
        for definition in loaded.flows:
            unknown = {task.pool for task in definition.tasks} - known
            if unknown:
                # Its tasks would wait for ever.
                outcome.unknown_pools |= unknown
                faults += _unknown_pools(definition, loaded.path, known)
                refused.append(definition.flow_id)
                continue
            stored = store_version(
                connection,
                definition=definition,
                source=source,
                shard=leadership.shard_of(definition.flow_id, shards),
                own_folders=own_folders,
            )
            outcome.is_changed |= stored.is_changed
            if stored.owner is not None:
                outcome.has_conflict = True
                faults.append(_owned_elsewhere(definition, loaded.path, stored.owner))
                continue
            flow_ids.append(definition.flow_id)
    folder = str(loaded.folder)
    if loaded.is_loaded:
        kept = [*flow_ids, *refused, *loaded.faulty_flow_ids]
        outcome.removed = tuple(
            remove_flows(connection, folder=folder, path=loaded.path, except_flow_ids=kept)
        )
    outcome.faults = len(faults)
    outcome.flow_ids = record_flow_file(
        connection,
        folder=folder,
        path=loaded.path,
        digest_of_file=hashlib.sha256(loaded.sources.get(loaded.path, b"")).hexdigest(),
        errors=faults,
        load_duration_s=loaded.duration_s,
    )
    return outcome


def _source(loaded: Loaded) -> Source:
    bundle_digest, archive = bundles.pack_sources(loaded.path, loaded.sources)
    return Source(
        folder=str(loaded.folder),
        path=loaded.path,
        bundle_digest=bundle_digest,
        archive=archive,
    )


def pools(connection: psycopg.Connection[Any]) -> frozenset[str]:
    """The names of the pools that exist."""
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute("SELECT name FROM pool")
        return frozenset(row[0] for row in cursor.fetchall())


def _owned_elsewhere(definition: FlowDefinition, path: str, owner: str) -> dict[str, Any]:
    return {
        "file": path,
        "line": min((task.line or 1 for task in definition.tasks), default=1),
        "message": (
            f"Flow {definition.flow_id!r} is defined by {owner} already; this one in {path} is not"
            " stored."
        ),
        "remedy": "Rename one of the two flows, or take one of the files out of the folder.",
    }


def _unknown_pools(
    definition: FlowDefinition, path: str, known: frozenset[str]
) -> list[dict[str, Any]]:
    return [
        {
            "file": path,
            "line": task.line or 1,
            "message": (
                f"Task {task.task_id!r} of flow {definition.flow_id!r} names pool {task.pool!r},"
                " which does not exist; this version of the flow is not registered."
            ),
            "remedy": f"Create the pool, or use one of: {', '.join(sorted(known))}.",
        }
        for task in definition.tasks
        if task.pool not in known
    ]
