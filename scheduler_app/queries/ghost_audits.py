"""The three-way audits of database, broker and workers: how many, and what they compared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from django.db.models import Q

from scheduler_app.models import GhostAudit
from scheduler_app.queries import lens

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime
    from uuid import UUID

    from django.db.models import QuerySet

    from scheduler_app.queries.filters import GhostAuditFilter
    from scheduler_app.queries.scope import Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class GhostAuditRow:
    """The audits of one scheduler within one hour."""

    id: int
    holder: UUID  # job id of the scheduler
    hour: datetime
    first_at: datetime
    last_at: datetime
    audits: int
    compared: int  # records, executions and messages, of all its audits
    last_compared: int
    last: Mapping[str, Any]  # what the newest read, by source
    open_ghosts: Mapping[str, int]  # kind -> how many the newest found
    duration_ms: int  # of the newest
    is_complete: bool  # every source of the newest answered


def _rows(scope: Scope) -> QuerySet[GhostAudit]:
    return scope.shared(GhostAudit.objects.annotate(filter_code=lens.NEVER_FILTERED))


NOUN: Final = lens.Noun(name="ghost-audits", model=GhostAudit, row=GhostAuditRow, rows=_rows)


def page(asked: GhostAuditFilter, scope: Scope) -> lens.Page[GhostAuditRow]:
    """One page of audits."""
    return lens.page(NOUN, asked, scope)


def one(scope: Scope, audit: int) -> GhostAuditRow:
    """The audits with this number. Raises ``NotFound``."""
    return lens.one(NOUN, scope, Q(id=audit), f"ghost audit {audit}")
