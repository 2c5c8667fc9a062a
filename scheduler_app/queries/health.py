"""Whether the parts of the stack get on: the last progress of each, by the database's clock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from django.conf import settings
from django.db import connection

from scheduler_app.models import Incident, Job
from scheduler_app.queries import shown
from scheduler_app.rules.states import JobKind

if TYPE_CHECKING:
    from datetime import datetime

    from scheduler_app.queries.scope import Scope

COMPONENTS: Final = tuple(JobKind)


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """One kind of process. Healthy: one of them made progress a short while ago."""

    kind: str
    is_healthy: bool
    alive: int  # incarnations
    progress_at: datetime | None  # the newest
    heartbeat_at: datetime | None
    progress_age_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """All components, and what is open."""

    now: datetime  # of the database
    is_healthy: bool
    components: tuple[Component, ...]
    open_incidents: int


def health(scope: Scope) -> Health:
    """How each component does, and how many incidents are open."""
    at, found = components(scope)
    return Health(
        now=at,
        is_healthy=all(component.is_healthy for component in found),
        components=found,
        open_incidents=scope.shared(Incident.objects.filter(resolved_at__isnull=True)).count(),
    )


def components(scope: Scope) -> tuple[datetime, tuple[Component, ...]]:
    """The database's clock, and how each component does by it."""
    dead_after_s = settings.HEARTBEAT_DEAD_AFTER_S
    now: datetime | None = None
    running: dict[str, list[tuple[bool, datetime, datetime]]] = {kind: [] for kind in COMPONENTS}
    rows = scope.shared(Job.objects.filter(ended_at__isnull=True))
    for kind, is_alive, heartbeat_at, progress_at, clock in rows.values_list(
        "kind", shown.JOB_ALIVE, "heartbeat_at", "progress_at", shown.CLOCK
    ):
        now = clock
        running.setdefault(kind, []).append((is_alive, heartbeat_at, progress_at))
    at = now or clock_of_database()
    return at, tuple(_component(kind, beats, at, dead_after_s) for kind, beats in running.items())


def clock_of_database() -> datetime:
    """The only clock, now. Fails when the database does not answer."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        now: datetime = cursor.fetchall()[0][0]
    return now


def revision() -> int:
    """The revision of what is read after this call: the database's clock in microseconds."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint")
        now: int = cursor.fetchall()[0][0]
    return now


def _component(
    kind: str, beats: list[tuple[bool, datetime, datetime]], now: datetime, dead_after_s: float
) -> Component:
    alive = sum(is_alive for is_alive, _, _ in beats)
    progress_at = max((progress for _, _, progress in beats), default=None)
    age_s = max(0.0, (now - progress_at).total_seconds()) if progress_at else None
    return Component(
        kind=kind,
        is_healthy=alive > 0 and age_s is not None and age_s <= dead_after_s,
        alive=alive,
        progress_at=progress_at,
        heartbeat_at=max((beat for _, beat, _ in beats), default=None),
        progress_age_s=age_s,
    )
