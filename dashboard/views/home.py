"""The first page: is it us, what broke, since when, who decides, and what was set aside."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from django.http import QueryDict
from django.urls import reverse

from dashboard import answer
from dashboard.addresses import in_address
from dashboard.leader_changes import together
from scheduler_app.queries import (
    attempts,
    executor_events,
    flow_files,
    ghosts,
    health,
    incidents,
    lens,
    now,
    runs,
    take_overs,
    task_instances,
)
from scheduler_app.queries.filters import (
    AttemptFilter,
    EventFilter,
    GhostFilter,
    IncidentFilter,
    RunFilter,
    TakeOverFilter,
)

if TYPE_CHECKING:
    from datetime import datetime

    from django.http import HttpRequest, HttpResponse

    from dashboard.answer import Reading
    from scheduler_app.queries.attempts import AttemptRow
    from scheduler_app.queries.runs import RunRow

WINDOW: Final = timedelta(hours=24)
INCIDENTS_MAX: Final = 5  # told one by one; the rest on their own page
TROUBLES_MAX: Final = 5
FAILED_MAX: Final = 200  # attempts looked at to find the first of each run
TAKE_OVERS_MAX: Final = 100  # looked at for the newest changes
CHANGES_MAX: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """A run that failed, and the first thing that went wrong in it."""

    run: RunRow
    attempt: AttemptRow | None  # of the first task instance that failed itself
    said: str  # what its attempt said, or why the run counts as failed
    blocked: int  # task instances that could not start because of it


@dataclass(frozen=True, slots=True, kw_only=True)
class AsideReason:
    """One code, how many records have it, and where they are listed."""

    code: str
    number: int
    href: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Aside:
    """How many records of one kind came in the window, and how many of them were set aside."""

    noun: str
    only: str  # address of the list of those alone
    reasons: tuple[AsideReason, ...]
    counts: lens.Counts


@answer.page
def home(request: HttpRequest) -> HttpResponse:
    """The state of the whole stack."""
    reading = answer.begin(request)
    # Whole minutes: what the page asks stays the same for a while, and is kept.
    since = (reading.now - WINDOW).replace(second=0, microsecond=0)
    _, components = health.components(reading.scope)
    failed = runs.page(
        RunFilter(state=("failed",), ended_at_gte=since, order="-ended_at", limit=TROUBLES_MAX),
        reading.scope,
    )
    asides, haunting = _asides(reading, since)
    context = {
        "components": components,
        "is_healthy": all(component.is_healthy for component in components),
        "sentence": _sentence(components),
        "numbers": now.now(reading.scope),
        "since": in_address(since),
        "failed": failed.counts,
        "troubles": _troubles(reading, failed.rows),
        "incidents": incidents.page(
            IncidentFilter(state=("open",), limit=INCIDENTS_MAX), reading.scope
        ),
        "faulty": flow_files.faulty(reading.scope),
        "asides": asides,
        "haunting": haunting,
        "changes": together(
            take_overs.page(TakeOverFilter(limit=TAKE_OVERS_MAX), reading.scope).rows
        )[:CHANGES_MAX],
    }
    return answer.answer(
        request,
        "dashboard/home.html",
        reading,
        context,
        topics=["home", "runs", "leases", "flows", "ghosts", "incidents"],
    )


def _sentence(components: tuple[health.Component, ...]) -> str:
    """What an on-call reader needs first, in one sentence."""
    sick = [component for component in components if not component.is_healthy]
    if not sick:
        return "Every component gets on."
    parts = [
        f"{component.kind}: none is running"
        if component.progress_age_s is None
        else f"{component.kind}: no progress for {component.progress_age_s:.0f} s"
        for component in sick
    ]
    return "Degraded. " + "; ".join(parts) + "."


def _troubles(reading: Reading, failed: tuple[RunRow, ...]) -> tuple[Trouble, ...]:
    ids = tuple(run.id for run in failed)
    if not ids:
        return ()
    # The run is over, so a current attempt without a success belongs to a task instance that failed.
    asked = AttemptFilter(
        run=ids,
        kind=("task",),
        outcome=("failed", "lost", "terminated"),
        order="-ended_at",
        limit=FAILED_MAX,
    )
    first = {attempt.run: attempt for attempt in attempts.page(asked, reading.scope).rows}
    tallies = task_instances.state_counts(reading.scope, ids)
    return tuple(
        Trouble(
            run=run,
            attempt=(attempt := first.get(run.id)),
            said=(attempt.outcome_reason if attempt else "") or run.state_reason,
            blocked=tallies[run.id].get("upstream_failed", 0),
        )
        for run in failed
    )


def _asides(reading: Reading, since: datetime) -> tuple[tuple[Aside, ...], int]:
    """What came in the window by kind, and how many ghosts and suspects there are now."""
    kinds: tuple[tuple[str, str, str, lens.Noun[Any], Any], ...] = (
        ("runs", "run_list", "created_at_gte", runs.NOUN, RunFilter),
        ("attempts", "attempt_list", "issued_at_gte", attempts.NOUN, AttemptFilter),
        (
            "executor events",
            "executor_event_list",
            "received_at_gte",
            executor_events.NOUN,
            EventFilter,
        ),
    )
    lists = [(source, kind(**{name: since})) for _, _, name, source, kind in kinds]
    *counted, haunting = lens.counts_together([*lists, (ghosts.NOUN, GhostFilter())], reading.scope)
    asides = tuple(
        _aside(noun, url_name, name, since, counts)
        for (noun, url_name, name, _, _), counts in zip(kinds, counted, strict=True)
    )
    return asides, haunting.shown


def _aside(noun: str, url_name: str, name: str, since: datetime, counts: lens.Counts) -> Aside:
    window = QueryDict(mutable=True)
    window.update({"filtered": "only", name: in_address(since)})
    only = f"{reverse(f'dashboard:{url_name}')}?{window.urlencode(safe=':')}"
    return Aside(
        noun=noun,
        only=only,
        reasons=tuple(
            AsideReason(code=code, number=number, href=f"{only}&why={code}")
            for code, number in counts.by_reason.items()
        ),
        counts=counts,
    )
