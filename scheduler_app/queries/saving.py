"""What tasks save while they run: progress, checkpoints with their history, pushed values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from django.db.models import F, OuterRef, Q, Subquery
from django.db.models.functions import JSONObject

from scheduler_app.models import Checkpoint, CheckpointSave, Progress, PushedValue
from scheduler_app.rules import errors

if TYPE_CHECKING:
    from collections.abc import Collection
    from datetime import datetime
    from uuid import UUID

    from scheduler_app.queries.scope import Scope
    from scheduler_app.queries.task_instances import TaskInstanceRow

CHECKPOINTS_MAX: Final = 100  # of one task instance, or written by it
SAVES_SHOWN: Final = 20  # of each checkpoint of a list
SAVES_MAX: Final = 500  # of one checkpoint
PUSHED_MAX: Final = 500  # of one attempt


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointRow:
    """A value that outlives attempts, as it is stored. ``version`` counts its saves."""

    id: int
    scope: str
    owner: str
    key: str
    value: Any
    version: int
    attempt_id: UUID  # which saved it
    try_number: int
    saved_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveRow:
    """One save of a checkpoint. ``ti``: the number of the task instance."""

    version: int
    value: Any
    ti: int
    attempt_id: UUID
    try_number: int
    resume_index: int
    saved_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class PushedRow:
    """A value that an attempt handed out."""

    key: str
    value: Any
    at: datetime


_SAVE_COLUMNS: Final = tuple(name for name in SaveRow.__dataclass_fields__ if name != "ti")


def progress_of(attempt_id: str) -> Subquery:
    """The progress of the attempt whose id the column of the outer query has; null without any."""
    return Subquery(
        Progress.objects.filter(attempt_id=OuterRef(attempt_id)).values(
            told=JSONObject(done="done", total="total", note="note", at="at")
        )
    )


def of_task(scope: Scope, ti: TaskInstanceRow) -> list[CheckpointRow]:
    """The checkpoints of the task instance, and those of flow or name that it saved last, by key."""
    rows = _of(scope, ti).order_by("-scope", "owner", "key")[:CHECKPOINTS_MAX]
    names = tuple(CheckpointRow.__dataclass_fields__)
    return [CheckpointRow(**row) for row in rows.values(*names)]


def history(scope: Scope, ti: TaskInstanceRow, checkpoint: int) -> list[SaveRow]:
    """The kept saves of one of ``of_task``, newest first. Raises ``NotFound``."""
    if not _of(scope, ti).filter(id=checkpoint).exists():
        raise errors.NotFound(f"Task instance {ti.id} has no checkpoint {checkpoint}.")
    rows = CheckpointSave.objects.filter(checkpoint_id=checkpoint).order_by("-version")
    return [SaveRow(**row) for row in rows.values(*_SAVE_COLUMNS, ti=F("ti_id"))[:SAVES_MAX]]


def newest_saves(checkpoints: Collection[CheckpointRow]) -> dict[int, list[SaveRow]]:
    """Of each of these checkpoints the newest saves, newest first."""
    # One read of a bounded part of each history, by its unique index.
    wanted = Q()
    for row in checkpoints:
        wanted |= Q(checkpoint_id=row.id, version__gt=row.version - SAVES_SHOWN)
    found: dict[int, list[SaveRow]] = {row.id: [] for row in checkpoints}
    if checkpoints:
        rows = CheckpointSave.objects.filter(wanted).order_by("checkpoint_id", "-version")
        for row in rows.values(*_SAVE_COLUMNS, "checkpoint_id", ti=F("ti_id")):
            found[row.pop("checkpoint_id")].append(SaveRow(**row))
    return found


def pushed_by(attempt_id: UUID) -> list[PushedRow]:
    """What the attempt pushed, by key."""
    rows = PushedValue.objects.filter(attempt_id=attempt_id).order_by("key")[:PUSHED_MAX]
    return [PushedRow(**row) for row in rows.values("key", "value", "at")]


def _of(scope: Scope, ti: TaskInstanceRow) -> Any:
    # Walks checkpoint_unique, and checkpoint_save_of_ti for those that it shares with others.
    shared = CheckpointSave.objects.filter(ti_id=ti.id).values("checkpoint_id")
    of_it = Q(scope="task", owner=str(ti.id)) | Q(id__in=shared)
    return scope.owned(Checkpoint.objects.filter(of_it), "flow_id")
