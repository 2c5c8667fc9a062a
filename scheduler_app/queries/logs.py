"""What an attempt printed, by byte offset."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from django.db.models import ExpressionWrapper, F, Max, OuterRef, Q, Subquery, Value
from django.db.models.fields import BooleanField
from django.db.models.functions import Length

from scheduler_app.models import AttemptLogChunk
from scheduler_app.queries import attempts, shown
from scheduler_app.rules import errors

if TYPE_CHECKING:
    from uuid import UUID

    from scheduler_app.queries.scope import Scope

PAGE_BYTES_DEFAULT: Final = 256 * 1024
PAGE_BYTES_MAX: Final = 4 * 1024 * 1024
LAST_CHUNK_GRACE: Final = timedelta(
    seconds=5
)  # its last chunk may be stored after an attempt ended


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPage:
    """Part of a log, any bytes. ``ended``: nothing follows ``size`` any more."""

    data: bytes
    next_offset: int
    size: int  # bytes stored so far
    ended: bool


def read_log(
    scope: Scope, attempt_id: UUID, start: int = 0, limit: int = PAGE_BYTES_DEFAULT
) -> LogPage:
    """The stored bytes from offset ``start``, at most ``limit``; a negative start counts from the end.

    Raises ``NotFound`` for an attempt that does not exist, ``InvalidInput`` for a limit of no use.
    """
    if not 1 <= limit <= PAGE_BYTES_MAX:
        raise errors.InvalidInput(
            f"limit: {limit} is not from 1 to {PAGE_BYTES_MAX} bytes. Read the log in parts.",
            parameter="limit",
        )
    is_over, size = _end_of(scope, attempt_id)
    chunks = AttemptLogChunk.objects.filter(attempt_id=attempt_id)
    start = max(0, size + start) if start < 0 else start
    # The newest chunk that begins at or before the offset holds it.
    first = (
        chunks.filter(start_offset__lte=start)
        .order_by("-start_offset")
        .values_list("start_offset", flat=True)
        .first()
    )
    wanted = chunks.filter(start_offset__gte=first or 0, start_offset__lt=start + limit)
    parts: list[bytes] = []
    offset = start
    for chunk_start, data in wanted.order_by("start_offset").values_list("start_offset", "data"):
        piece = bytes(data)[max(0, offset - chunk_start) :][
            : start + limit - max(offset, chunk_start)
        ]
        parts.append(piece)
        offset = max(offset, chunk_start) + len(piece)
    return LogPage(data=b"".join(parts), next_offset=offset, size=size, ended=is_over)


def _end_of(scope: Scope, attempt_id: UUID) -> tuple[bool, int]:
    """Whether nothing is printed any more, and how many bytes are stored, of one snapshot."""
    over = ExpressionWrapper(
        Q(is_live=False, ended_at__lte=shown.CLOCK - Value(LAST_CHUNK_GRACE)),
        output_field=BooleanField(),
    )
    stored = (
        AttemptLogChunk.objects.filter(attempt_id=OuterRef("id"))
        .order_by()
        .values("attempt_id")
        .values(size=Max(F("start_offset") + Length("data")))
    )
    of_it = attempts.visible(scope).filter(id=attempt_id)
    found = of_it.values_list(over, Subquery(stored)).first()
    if found is None:
        raise errors.NotFound(f"There is no attempt {attempt_id}, or you may not see it.")
    return bool(found[0]), int(found[1] or 0)
