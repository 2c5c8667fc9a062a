"""Inquiries: who was asked which attempts it runs, and who answered what, and when."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from django.db.models import Case, CharField, Q, Value, When

from scheduler_app.models import Inquiry
from scheduler_app.queries import lens

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime, timedelta
    from uuid import UUID

    from django.db.models import QuerySet

    from scheduler_app.queries.filters import InquiryFilter
    from scheduler_app.queries.scope import Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class InquiryRow:
    """One question to one worker; ``asked_by`` and ``worker_job_id`` are job ids."""

    id: int
    ask_id: UUID
    reason: str  # take_over, silent_attempt
    asked_by: UUID
    worker_job_id: UUID
    hostname: str
    pid: int
    state: str  # waiting, answered
    asked_at: datetime
    answered_at: datetime | None
    took_s: float | None  # from the question to the answer
    holdings: list[Mapping[str, Any]] | None  # attempt_id, pid, is_alive, for_s, report_waits


def _rows(scope: Scope) -> QuerySet[Inquiry]:
    return scope.shared(Inquiry.objects.annotate(filter_code=lens.NEVER_FILTERED))


def _took_s(read: Mapping[str, Any]) -> float | None:
    if read["answered_at"] is None:
        return None
    took: timedelta = read["answered_at"] - read["asked_at"]
    return round(took.total_seconds(), 3)


NOUN: Final = lens.Noun(
    name="inquiries",
    model=Inquiry,
    row=InquiryRow,
    rows=_rows,
    columns={
        "reason": "why",
        "state": Case(
            When(answered_at__isnull=True, then=Value("waiting")),
            default=Value("answered"),
            output_field=CharField(),
        ),
    },
    derived={"took_s": _took_s},
)


def page(asked: InquiryFilter, scope: Scope) -> lens.Page[InquiryRow]:
    """One page of inquiries."""
    return lens.page(NOUN, asked, scope)


def one(scope: Scope, inquiry: int) -> InquiryRow:
    """The inquiry with this number. Raises ``NotFound``."""
    return lens.one(NOUN, scope, Q(id=inquiry), f"inquiry {inquiry}")
