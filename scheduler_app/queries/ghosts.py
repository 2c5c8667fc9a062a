"""Ghosts and suspects: what haunts now, and what did."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from django.db.models import Case, CharField, F, Q, Value, When
from django.db.models.functions import JSONObject

from scheduler_app.models import Ghost
from scheduler_app.queries import lens, reviewed, shown
from scheduler_app.rules import ghosts

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime
    from uuid import UUID

    from django.db.models import QuerySet

    from scheduler_app.queries.filters import GhostFilter
    from scheduler_app.queries.scope import Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class GhostRow(lens.Standing):
    """One sighting: current while it haunts, filtered once it is over."""

    id: int
    kind: str
    state: str  # haunting, over
    flow_id: str | None
    run_id: str | None
    run: int | None
    ti: int | None
    task_id: str | None
    map_index: int | None
    try_number: int | None
    attempt_id: UUID | None
    current_attempt_id: UUID | None  # of its task instance, if another
    hostname: str | None
    pid: int | None
    worker_job_id: UUID | None
    shard: int | None
    lease_token: int | None
    seen_by: str  # beat, claim, audit
    detail: Mapping[str, Any]  # the compared values
    first_seen_at: datetime
    last_seen_at: datetime
    policy: str  # stop, leave, human
    stop_requested_at: datetime | None
    stop_requested_by: str | None
    ended_at: datetime | None
    end_reason: str | None
    reviewed: Mapping[str, Any] | None  # by, at, note: of who has looked at it

    @property
    def sentence(self) -> str:
        """What was seen, with the compared values."""
        return ghosts.explain(self.kind, self.detail)

    @property
    def said_flow_id(self) -> str | None:
        """The flow, of its run or as it was remembered."""
        return self.flow_id or self.detail.get("flow_id")

    @property
    def title(self) -> str:
        """What this kind is called."""
        kind = ghosts.KINDS.get(self.kind)
        return kind.title if kind else self.kind

    @property
    def chip(self) -> str:
        """The word that pages show beside it."""
        kind = ghosts.KINDS.get(self.kind)
        return kind.chip if kind else "OTHER"

    @property
    def remedy(self) -> str:
        """What a person does about it."""
        kind = ghosts.KINDS.get(self.kind)
        return kind.remedy if kind else ""

    @property
    def is_suspect(self) -> bool:
        """Whether its record is current and only takes too long."""
        return self.kind in ghosts.SUSPECTS

    @property
    def can_be_stopped(self) -> bool:
        """Whether somebody may still ask its worker to end it."""
        return (
            self.ended_at is None
            and self.stop_requested_at is None
            and self.kind == ghosts.NO_RECORD
            and self.policy != ghosts.Policy.STOP
        )


def _rows(scope: Scope) -> QuerySet[Ghost]:
    over = Case(When(ended_at__isnull=False, then=Value("ghost_over")), output_field=CharField())
    rows = Ghost.objects.annotate(
        filter_code=over,
        filtered_at=F("ended_at"),
        filter_detail=JSONObject(reason=F("end_reason"), rule=Value("ghosts.is_over")),
    )
    return scope.owned(rows, "run__flow_id")


NOUN: Final = lens.Noun(
    name="ghosts",
    model=Ghost,
    row=GhostRow,
    rows=_rows,
    columns={
        "superseded_by": Value(None, output_field=CharField()),
        "state": shown.GHOST_SHOWN,
        "flow_id": "run__flow_id",
        "run_id": "run__run_key",
        "run": "run_id",
        "ti": "ti_id",
        "reviewed": reviewed.of(reviewed.OF_GHOST),
    },
)


def page(asked: GhostFilter, scope: Scope) -> lens.Page[GhostRow]:
    """One page of ghosts."""
    return lens.page(NOUN, asked, scope)


def one(scope: Scope, ghost: int) -> GhostRow:
    """The ghost with this number. Raises ``NotFound``."""
    return lens.one(NOUN, scope, Q(id=ghost), f"ghost {ghost}")
