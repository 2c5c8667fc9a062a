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
    """The chunks are stored, all in one insert.

    The first starts where the writer believes that the log ends. Raises ``UniqueViolation``, and
    stores nothing, if another writer went on from there: so chunks never overlap or leave a gap.
    """
    if not chunks:
        return
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO attempt_log_chunk (attempt_id, start_offset, data, at)"
            " SELECT u.attempt_id, u.start_offset, u.data, clock_timestamp()"
            " FROM unnest(%s::uuid[], %s::bigint[], %s::bytea[]) AS u(attempt_id, start_offset, data)",
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
            "SELECT start_offset + length(data) FROM attempt_log_chunk WHERE attempt_id = %s"
            " ORDER BY start_offset DESC LIMIT 1",
            [attempt_id],
        )
        row = cursor.fetchone()
    return 0 if row is None else int(row[0])
