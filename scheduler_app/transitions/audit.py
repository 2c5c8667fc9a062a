"""Audit entries: append-only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from psycopg.types.json import Jsonb

if TYPE_CHECKING:
    import psycopg


def record_audit(
    connection: psycopg.Connection[Any],
    *,
    actor: str,
    action: str,
    object_kind: str,
    object_id: str,
    flow_id: str | None = None,
    reason: str = "",
    before: dict[str, Any] | None = None,
    after: dict[str, Any] | None = None,
) -> None:
    """An entry says who did what to what, why, and what it was before and after."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO audit (at, actor, action, object_kind, object_id, flow_id, reason, before,"
            " after) VALUES (clock_timestamp(), %s, %s, %s, %s, %s, %s, %s, %s)",
            [
                actor,
                action,
                object_kind,
                object_id,
                flow_id,
                reason,
                None if before is None else Jsonb(before),
                None if after is None else Jsonb(after),
            ],
        )
