"""What attempts show of their work."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from scheduler_app.models import Artifact

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from scheduler_app.queries.task_instances import TaskInstanceRow

READ_MAX: Final = 200  # artifacts of a task instance, the newest attempts first


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactRow:
    """A link, table or note. ``is_newest``: no later attempt of its task published its key again."""

    key: str
    kind: str
    title: str
    body: Any
    try_number: int
    attempt_id: UUID
    at: datetime
    is_newest: bool


def of_task(ti: TaskInstanceRow) -> list[ArtifactRow]:
    """The artifacts of every attempt of the task instance that the reader has, newest attempt first."""
    seen: set[str] = set()
    found = []
    # Walks artifact_of_ti backwards.
    rows = Artifact.objects.filter(ti_id=ti.id).order_by("-fence", "id")[:READ_MAX]
    for row in rows.values("key", "kind", "title", "body", "try_number", "attempt_id", "at"):
        found.append(ArtifactRow(**row, is_newest=row["key"] not in seen))
        seen.add(row["key"])
    return found


def of_attempt(attempt_id: UUID) -> list[ArtifactRow]:
    """What this attempt, which the reader has, published, by key; whatever later ones published."""
    rows = Artifact.objects.filter(attempt_id=attempt_id).order_by("key", "id")[:READ_MAX]
    found = rows.values("key", "kind", "title", "body", "try_number", "attempt_id", "at")
    return [ArtifactRow(**row, is_newest=True) for row in found]


def newest(rows: list[ArtifactRow]) -> list[ArtifactRow]:
    """Of each key the newest, by key."""
    return sorted((row for row in rows if row.is_newest), key=lambda row: row.key)
