"""Files of the flow folders, and what was wrong with them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from scheduler_app.models import FlowFile

if TYPE_CHECKING:
    from datetime import datetime

    from scheduler_app.queries.scope import Scope

FILES_MAX: Final = 200  # with faults, shown at once


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault of one file, with what to do about it."""

    file: str
    line: int | None
    message: str
    remedy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultyFile:
    """A file whose last load was not clean; its flows run on with their last good version."""

    folder: str
    path: str
    flow_ids: tuple[str, ...]
    faults: tuple[Fault, ...]
    loaded_at: datetime | None


def faulty(scope: Scope) -> tuple[FaultyFile, ...]:
    """Each present file with faults, by path."""
    rows = (
        scope.shared(FlowFile.objects.filter(removed_at__isnull=True))
        .exclude(errors=[])
        .order_by("folder", "path")
    )
    return tuple(
        FaultyFile(
            folder=row.folder,
            path=row.path,
            flow_ids=tuple(row.flow_ids),
            faults=tuple(
                Fault(
                    file=str(fault.get("file") or row.path),
                    line=fault.get("line"),
                    message=str(fault.get("message", "")),
                    remedy=str(fault.get("remedy") or ""),
                )
                for fault in row.errors
            ),
            loaded_at=row.loaded_at,
        )
        for row in rows[:FILES_MAX]
    )
