"""The flow of an attempt, and user code under a time limit: for tasks and callbacks alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

from django.conf import settings
from psycopg.rows import tuple_row

from scheduler_app.processes import bundles
from scheduler_app.rules.errors import NotFound

if TYPE_CHECKING:
    from collections.abc import Callable

    import psycopg

    from scheduler_app.authoring.flow import Flow
    from scheduler_app.worker.child import Child

LOAD_LIMIT_FACTOR: Final = 3  # a busy host may load a flow file slower than the catalog did

T = TypeVar("T")


def load_in_time(me: Child, attempt_id: str, *, digest: str, flow_id: str) -> Flow:
    """The flow, unless its top-level code takes too long."""
    limit_s = settings.FLOW_FILE_TIMEOUT_S * LOAD_LIMIT_FACTOR
    if digest in me.loaded:
        return _load(me, digest, flow_id)
    flow = within(me, attempt_id, lambda: _load(me, digest, flow_id), limit_s)
    me.loaded.add(digest)
    return flow


def within(me: Child, attempt_id: str, user_code: Callable[[], T], limit_s: float | None) -> T:
    """What it returns; the main process kills this child if it minds no limit of its own."""
    if limit_s is None:
        return me.guard.run(user_code, limit_s=None)
    me.tell_limit(attempt_id, limit_s)
    try:
        return me.guard.run(user_code, limit_s=limit_s)
    finally:
        me.tell_limit(attempt_id, None)


def _load(me: Child, digest: str, flow_id: str) -> Flow:
    """The flow as the run's version defines it."""

    def read_archive() -> bytes:
        return me.link.ask(
            lambda connection: _archive(connection, digest),
            give_up=me.guard.asked_to_stop,
        )

    return bundles.flow_of_bundle(digest, read_archive, flow_id, me.at.bundles)


def _archive(connection: psycopg.Connection[Any], digest: str) -> bytes:
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute("SELECT archive FROM bundle WHERE digest = %s", [digest])
        row = cursor.fetchone()
    if row is None:
        message = f"The source of this run's flow version (bundle {digest}) is no longer stored."
        raise NotFound(message)
    return bytes(row[0])
