"""What was loaded is stored: a version where the content is new, faults where there are any."""

from __future__ import annotations

import hashlib
import zlib
from typing import TYPE_CHECKING, Any

from django.conf import settings
from psycopg.rows import tuple_row

from scheduler_app.processes import bundles
from scheduler_app.transitions.flow import (
    Source,
    record_flow_file,
    remove_flows,
    store_version,
)

if TYPE_CHECKING:
    import psycopg

    from scheduler_app.catalog.load import Loaded
    from scheduler_app.rules.definition import FlowDefinition


def shard_of(flow_id: str) -> int:
    """The shard that a new flow belongs to: the same on every host, whatever Python's hash does."""
    return zlib.crc32(flow_id.encode()) % settings.SHARD_COUNT


def store(connection: psycopg.Connection[Any], loaded: Loaded, *, taken: dict[str, str]) -> bool:
    """The file's flows have their versions, and its row says what is wrong; whether flows changed.

    ``taken`` maps the flow ids met so far in this scan to their files, and is added to: the first
    file that defines a flow owns it. Whatever a file that could not be loaded defined before stays.
    """
    is_changed = False
    faults = list(loaded.faults)
    flow_ids: list[str] = []
    if loaded.flows:
        bundle_digest, archive = bundles.pack_sources(loaded.path, loaded.sources)
        source = Source(
            folder=str(loaded.folder),
            path=loaded.path,
            bundle_digest=bundle_digest,
            archive=archive,
        )
        pools = _pools(connection)
        for definition in loaded.flows:
            owner = taken.setdefault(definition.flow_id, loaded.path)
            if owner == loaded.path:
                stored = store_version(
                    connection,
                    definition=definition,
                    source=source,
                    shard=shard_of(definition.flow_id),
                )
                is_changed |= stored.is_new_version
                owner = stored.owner or loaded.path
            if owner != loaded.path:
                faults.append(_owned_elsewhere(definition, loaded.path, owner))
                continue
            flow_ids.append(definition.flow_id)
            faults += _unknown_pools(definition, loaded.path, pools)
    if loaded.is_loaded:
        kept = [*flow_ids, *loaded.faulty_flow_ids]
        is_changed |= bool(remove_flows(connection, path=loaded.path, except_flow_ids=kept))
    record_flow_file(
        connection,
        folder=str(loaded.folder),
        path=loaded.path,
        digest_of_file=hashlib.sha256(loaded.sources.get(loaded.path, b"")).hexdigest(),
        flow_ids=[*flow_ids, *loaded.faulty_flow_ids],
        errors=faults,
        load_duration_s=loaded.duration_s,
    )
    return is_changed


def _pools(connection: psycopg.Connection[Any]) -> frozenset[str]:
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
    definition: FlowDefinition, path: str, pools: frozenset[str]
) -> list[dict[str, Any]]:
    return [
        {
            "file": path,
            "line": task.line or 1,
            "message": (
                f"Task {task.task_id!r} of flow {definition.flow_id!r} names pool {task.pool!r},"
                " which does not exist; it will wait."
            ),
            "remedy": f"Create the pool, or use one of: {', '.join(sorted(pools))}.",
        }
        for task in definition.tasks
        if task.pool not in pools
    ]
