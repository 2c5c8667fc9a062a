"""Ask a process to end in order, through its job row, wherever it runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from django.conf import settings
from django.db import connection, transaction

from scheduler_app.hints.notices import Notices
from scheduler_app.models import Attempt, Job, Lease, Trigger
from scheduler_app.operations.reasons import check_reason
from scheduler_app.rules.errors import Conflict, NotFound
from scheduler_app.rules.states import JobKind
from scheduler_app.transitions.audit import record_audit
from scheduler_app.transitions.job import ask_job_to_stop

if TYPE_CHECKING:
    from uuid import UUID

# An incarnation ends, and whoever keeps the number of processes makes another: see decision 0014.
REPLACED: Final = (
    "This one process ends. What supervises it (manage.py up, systemd, Kubernetes) starts another in its"
    " place; to run fewer, change the number there."
)

_notices = Notices(settings.CACHE_URL)


@dataclass(frozen=True, slots=True, kw_only=True)
class StopPlan:
    """What a stop does, or would do."""

    job_id: UUID
    kind: str
    hostname: str
    pid: int
    effects: tuple[str, ...]  # sentences
    is_asked: bool  # it was asked to stop before, or is now
    dry_run: bool


def stop_job(*, job_id: UUID, actor: str, reason: str = "", dry_run: bool = False) -> StopPlan:
    """The process reads within a second that it is to end; asking again changes nothing.

    A dry run changes nothing, needs no reason and is not audited. Raises ``NotFound``,
    ``InvalidInput``, or ``Conflict`` for a process that has ended or is taken for dead.
    """
    why = "" if dry_run else check_reason(reason)
    with transaction.atomic():
        job = Job.objects.select_for_update(no_key=True).filter(pk=job_id).first()
        if job is None:
            message = f"there is no job {job_id}"
            raise NotFound(message, field="job_id")
        _check_listens(job)
        plan = StopPlan(
            job_id=job.pk,
            kind=job.kind,
            hostname=job.hostname,
            pid=job.pid,
            effects=_effects(job),
            is_asked=not dry_run or job.stop_requested_at is not None,
            dry_run=dry_run,
        )
        if dry_run or not ask_job_to_stop(
            connection.connection, job_id=job.pk, actor=actor, reason=why
        ):
            return plan
        record_audit(
            connection.connection,
            actor=actor,
            action="stop_job",
            object_kind="job",
            object_id=str(job.pk),
            reason=why,
            before={"stop_requested": False, "state": job.state},
            after={
                "stop_requested": True,
                "kind": job.kind,
                "process": f"{job.hostname}:{job.pid}",
            },
        )
        transaction.on_commit(lambda: _notices.changed(["jobs", "home"]))
    return plan


def _check_listens(job: Job) -> None:
    """Raises ``Conflict`` unless the process may still read its row."""
    who = f"The {job.kind} {job.hostname}:{job.pid}"
    if job.ended_at is not None:
        raise Conflict(f"{who} has ended; there is nothing to stop.")
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT extract(epoch FROM clock_timestamp() - %s)::float8", [job.heartbeat_at]
        )
        (silent_s,) = cursor.fetchone()
    if job.state == "dead" or silent_s > settings.HEARTBEAT_DEAD_AFTER_S:
        raise Conflict(
            f"{who} was last heard {silent_s:.0f} s ago and is taken for dead: it would not read that"
            " it is to stop. If the process is still there, end it on its host."
        )


def _effects(job: Job) -> tuple[str, ...]:
    return tuple(filter(None, (_of_kind(job), _if_last(job), REPLACED)))


def _of_kind(job: Job) -> str:
    match job.kind:
        case JobKind.SCHEDULER:
            held = Lease.objects.filter(holder=job.pk).count()
            return f"It releases the leases of {_counted(held, 'shard')}; others take them at once."
        case JobKind.TRIGGERER:
            watched = Trigger.objects.filter(
                triggerer_job_id=job.pk, is_waiting=True, kind="watched"
            ).count()
            return f"It gives up {_counted(watched, 'trigger')}; others watch them from then on."
        case JobKind.WORKER:
            running = Attempt.objects.filter(worker_job_id=job.pk, is_live=True).count()
            return (
                f"It takes no more tasks. It executes {_counted(running, 'task')} now: what has not"
                f" ended after {settings.WORKER_DRAIN_S:g} s is handed back and starts elsewhere,"
                " without using up a retry."
            )
    return "It takes no more requests; open ones have 5 s to end."


def _if_last(job: Job) -> str:
    others = Job.objects.filter(kind=job.kind, ended_at__isnull=True, state="running")
    if others.exclude(pk=job.pk).exists():
        return ""
    missed = {
        JobKind.SCHEDULER: "nothing is decided or dispatched",
        JobKind.TRIGGERER: "no deferred task is woken",
        JobKind.WORKER: "no task is executed",
        JobKind.WEB: "pages and API do not answer",
    }.get(JobKind(job.kind), "nothing of its kind is done")
    return f"No other {job.kind} runs: until another starts, {missed}."


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
