"""The log of an attempt: chunks of bytes at their offsets, appended once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from psycopg.rows import tuple_row

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    import psycopg


@dataclass(frozen=True, slots=True, kw_only=True)
class LogChunk:
    """Bytes that an attempt printed, and where in its log they stand."""

    attempt_id: UUID
    start_offset: int
    data: bytes


def append_log_chunks(connection: psycopg.Connection[Any], *, chunks: Sequence[LogChunk]) -> None:
    """Each chunk is stored; one whose offset is taken already changes nothing. One insert."""
    if not chunks:
        return
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO attempt_log_chunk (attempt_id, start_offset, data, at)"
            " SELECT u.attempt_id, u.start_offset, u.data, clock_timestamp()"
            " FROM unnest(%s::uuid[], %s::bigint[], %s::bytea[]) AS u(attempt_id, start_offset, data)"
            " ON CONFLICT (attempt_id, start_offset) DO NOTHING",
            [
                [chunk.attempt_id for chunk in chunks],
                [chunk.start_offset for chunk in chunks],
                [chunk.data for chunk in chunks],
            ],
        )


def log_length(connection: psycopg.Connection[Any], *, attempt_id: UUID) -> int:
    """How many bytes of the attempt's log are stored: where the next chunk belongs."""
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(
            "SELECT coalesce(max(start_offset + length(data)), 0) FROM attempt_log_chunk"
            " WHERE attempt_id = %s",
            [attempt_id],
        )
        row = cursor.fetchone()
    assert row is not None, "an aggregate gives one row"
    return int(row[0])
