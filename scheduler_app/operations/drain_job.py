"""Drain a scheduler: it gives up its shards and takes none, and goes on running; and the way back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from django.conf import settings
from django.db import connection, transaction

from scheduler_app.hints.notices import Notices
from scheduler_app.models import Job, Lease
from scheduler_app.operations.reasons import check_reason
from scheduler_app.rules.errors import Conflict, NotFound
from scheduler_app.rules.states import JobKind
from scheduler_app.transitions.audit import record_audit
from scheduler_app.transitions.job import drain_job as mark_drained
from scheduler_app.transitions.job import undrain_job as mark_undrained

if TYPE_CHECKING:
    from uuid import UUID

_notices = Notices(settings.CACHE_URL)


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainPlan:
    """What draining, or ending it, does or would do."""

    job_id: UUID
    hostname: str
    pid: int
    shards: int  # that it holds
    effects: tuple[str, ...]  # sentences
    is_drained: bool  # afterwards
    dry_run: bool

    @property
    def process(self) -> str:
        """Which process it is: ``host:pid``."""
        return f"{self.hostname}:{self.pid}"


def drain_job(*, job_id: UUID, actor: str, reason: str = "", dry_run: bool = False) -> DrainPlan:
    """The scheduler gives up its shards within seconds and stands by; draining again changes nothing.

    Holds until it is undrained or the process ends: another incarnation is not drained. A dry run
    changes nothing, needs no reason and is not audited. Raises ``NotFound``, ``InvalidInput``, and
    ``Conflict`` for what is no scheduler or has ended.
    """
    return _set(job_id=job_id, actor=actor, reason=reason, dry_run=dry_run, is_drained=True)


def undrain_job(*, job_id: UUID, actor: str, reason: str = "", dry_run: bool = False) -> DrainPlan:
    """The scheduler takes its share of the shards again. Raises as ``drain_job``."""
    return _set(job_id=job_id, actor=actor, reason=reason, dry_run=dry_run, is_drained=False)


def _set(*, job_id: UUID, actor: str, reason: str, dry_run: bool, is_drained: bool) -> DrainPlan:
    why = "" if dry_run else check_reason(reason)
    with transaction.atomic():
        job = Job.objects.select_for_update(no_key=True).filter(pk=job_id).first()
        if job is None:
            raise NotFound(f"there is no job {job_id}", field="job_id")
        who = f"The {job.kind} {job.hostname}:{job.pid}"
        if job.kind != JobKind.SCHEDULER:
            raise Conflict(f"{who} leads no shards: only schedulers are drained. Stop it instead.")
        if job.ended_at is not None:
            raise Conflict(f"{who} has ended; another incarnation of it is another job.")
        held = Lease.objects.filter(holder=job.pk).count()
        plan = DrainPlan(
            job_id=job.pk,
            hostname=job.hostname,
            pid=job.pid,
            shards=held,
            effects=_of_drain(job, held) if is_drained else _of_undrain(job),
            is_drained=(job.drain_requested_at is not None) if dry_run else is_drained,
            dry_run=dry_run,
        )
        if dry_run or is_drained == (job.drain_requested_at is not None):
            return plan
        raw = connection.connection
        if is_drained:
            mark_drained(raw, job_id=job.pk, actor=actor, reason=why)
        else:
            mark_undrained(raw, job_id=job.pk)
        record_audit(
            raw,
            actor=actor,
            action="drain_job" if is_drained else "undrain_job",
            object_kind="job",
            object_id=str(job.pk),
            reason=why,
            before={"drained": not is_drained, "shards": held},
            after={"drained": is_drained, "process": plan.process},
        )
        transaction.on_commit(_tell)
    return plan


def _tell() -> None:
    _notices.wake(leases=1)
    _notices.changed(["leases", "jobs", "home"])


def _of_drain(job: Job, held: int) -> tuple[str, ...]:
    others = Job.objects.filter(
        kind=JobKind.SCHEDULER,
        ended_at__isnull=True,
        state="running",
        drain_requested_at__isnull=True,
    ).exclude(pk=job.pk)
    number = others.count()
    follow = (
        f"{_counted(number, 'other scheduler')} take{'s' if number == 1 else ''} them at once."
        if number
        else "No other scheduler takes part: until one does, nothing is decided or dispatched."
    )
    return (
        f"It releases the leases of {_counted(held, 'shard')} at its next safe point. {follow}",
        "What runs goes on, and no execution is started twice by it. The process stays up and stands by.",
        "It holds until it is undrained. A process that is started anew is not drained.",
    )


def _of_undrain(job: Job) -> tuple[str, ...]:
    if job.drain_requested_at is None:
        return ("It is not drained: nothing changes.",)
    return (
        f"It was drained by {job.drain_requested_by}: {job.drain_reason}",
        "It takes its fair share of the shards again, as the others reach safe points.",
    )


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
