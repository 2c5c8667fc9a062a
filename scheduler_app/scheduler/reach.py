"""Which workers this scheduler's executor reaches, and who is out of everybody's reach."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from psycopg.rows import class_row, tuple_row

from scheduler_app.transitions.incident import raise_incident, resolve_incident

if TYPE_CHECKING:
    from collections.abc import Container, Iterable
    from uuid import UUID

    import psycopg

NO_LIMIT: Final = 1_000_000  # slots of a worker that makes a process per task
NOT_REACHED: Final = "worker_not_reached"
SAME_NAME: Final = "same_name"


@dataclass(frozen=True, slots=True, kw_only=True)
class Station:
    """A worker or a scheduler that is alive."""

    id: UUID
    kind: str
    hostname: str
    pid: int
    detail: dict[str, Any]

    @property
    def carrier(self) -> str:
        """What carries its deliveries; rows of before there was a choice do not say it."""
        return str(self.detail.get("carrier", "celery"))

    def queues(self) -> list[str]:
        """What a worker serves."""
        return list(self.detail.get("queues", ()))

    def slots(self) -> int:
        """How many tasks a worker executes at a time."""
        concurrency = self.detail.get("concurrency")
        return NO_LIMIT if concurrency == 0 else int(concurrency or 0)


def alive(connection: psycopg.Connection[Any], *, alive_s: float) -> list[Station]:
    """Workers and schedulers that beat lately."""
    with connection.cursor(row_factory=class_row(Station)) as cursor:
        cursor.execute(
            "SELECT id, kind, hostname, pid, detail FROM job"
            " WHERE kind IN ('worker', 'scheduler') AND ended_at IS NULL"
            "  AND job_is_alive(ended_at, heartbeat_at, %s)",
            [alive_s],
        )
        return cursor.fetchall()


def queue_slots(stations: Iterable[Station], *, carrier: str) -> dict[str, int]:
    """Slots of the workers that this carrier reaches, by queue."""
    slots: dict[str, int] = {}
    for station in stations:
        if station.kind == "worker" and station.carrier == carrier:
            for queue in station.queues():
                slots[queue] = slots.get(queue, 0) + station.slots()
    return slots


def watch_for_unreached(connection: psycopg.Connection[Any], stations: Iterable[Station]) -> None:
    """An incident is open for each live worker whose carrier is no live scheduler's.

    While no scheduler beats, this one's own beats included, nothing is known and nothing changes.
    """
    stations = list(stations)
    carriers = {station.carrier for station in stations if station.kind == "scheduler"}
    if not carriers:
        return
    unreached = {
        f"{station.hostname}:{station.pid}": station
        for station in stations
        if station.kind == "worker" and station.carrier not in carriers
    }
    for subject, worker in unreached.items():
        raise_incident(
            connection,
            kind=NOT_REACHED,
            subject=subject,
            message=(
                f"The worker {subject} gets no tasks: it takes what comes by {worker.carrier!r}, and"
                f" the schedulers send by {' and '.join(map(repr, sorted(carriers)))}. Start both"
                " with the same DAYLIGHT_EXECUTOR; local ones on one machine, with the same"
                " DAYLIGHT_DATA_DIR."
            ),
        )
    _resolve_others(connection, kind=NOT_REACHED, subjects=unreached)


def watch_for_namesakes(connection: psycopg.Connection[Any], *, alive_s: float) -> None:
    """An incident is open for each name that several live processes of one kind carry.

    Nothing hangs on a name, so they disturb nobody; but who reads one cannot know which is meant. A
    process that was killed and started anew has no namesake: the old one never beat beside the new.
    """
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(
            "SELECT a.kind, a.name, array_agg(DISTINCT a.hostname || ':' || a.pid ORDER BY"
            "   a.hostname || ':' || a.pid)"
            "  FROM job a JOIN job b ON b.kind = a.kind AND b.name = a.name AND b.id <> a.id"
            " WHERE a.name <> '' AND a.ended_at IS NULL AND b.ended_at IS NULL"
            "  AND job_is_alive(a.ended_at, a.heartbeat_at, %(alive_s)s)"
            "  AND job_is_alive(b.ended_at, b.heartbeat_at, %(alive_s)s)"
            "  AND a.heartbeat_at > b.started_at AND b.heartbeat_at > a.started_at"
            " GROUP BY a.kind, a.name",
            {"alive_s": alive_s},
        )
        shared = {f"{kind} {name}": (kind, name, who) for kind, name, who in cursor.fetchall()}
    for subject, (kind, name, who) in shared.items():
        raise_incident(
            connection,
            kind=SAME_NAME,
            subject=subject,
            message=(
                f"{len(who)} live processes are called {kind} {name!r}: {', '.join(who)}. They"
                " work side by side, each under its own id; give each its own --name so that"
                " people can tell them apart."
            ),
        )
    _resolve_others(connection, kind=SAME_NAME, subjects=shared)


def _resolve_others(
    connection: psycopg.Connection[Any], *, kind: str, subjects: Container[str]
) -> None:
    """No incident of the kind is open but those of these subjects."""
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(
            "SELECT subject FROM incident WHERE kind = %s AND resolved_at IS NULL", [kind]
        )
        open_subjects = [row[0] for row in cursor.fetchall()]
    for subject in open_subjects:
        if subject not in subjects:
            resolve_incident(connection, kind=kind, subject=subject)
