"""Take a shard from its holder by hand: whoever leads it next begins a new term."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import psycopg
from django.conf import settings
from django.db import connection, transaction

from scheduler_app.hints.notices import Notices
from scheduler_app.models import Attempt, Job, Lease, Run
from scheduler_app.operations.reasons import check_reason
from scheduler_app.rules.errors import Conflict, NotFound
from scheduler_app.rules.states import JobKind
from scheduler_app.transitions.audit import record_audit
from scheduler_app.transitions.lease import force_release

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

WAIT_S: Final = 3  # for a deciding transaction of the holder; it lasts less than one

_notices = Notices(settings.CACHE_URL)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleasePlan:
    """What the release does, or would do."""

    shard: int
    token: int
    holder: UUID
    process: str  # host:pid of the holder
    expires_at: datetime | None
    active_runs: int
    live_attempts: int
    effects: tuple[str, ...]  # sentences
    dry_run: bool


def release_lease(
    *, shard: int, actor: str, reason: str = "", token: int | None = None, dry_run: bool = False
) -> ReleasePlan:
    """Nobody holds the shard; its holder's next write there is refused, and told.

    With ``token`` only if the lease still has it. A dry run changes nothing, needs no reason and is
    not audited. Raises ``NotFound``, ``InvalidInput``, and ``Conflict`` for a shard that nobody
    holds, another token, or a holder whose transaction does not end.
    """
    why = "" if dry_run else check_reason(reason)
    with transaction.atomic():
        lease = Lease.objects.filter(pk=shard).first()
        if lease is None:
            raise NotFound(f"there is no shard {shard}", field="shard")
        if lease.holder is None:
            raise Conflict(f"Nobody holds shard {shard}: there is nothing to release.")
        if token is not None and token != lease.token:
            raise _gone_on(shard, token)
        plan = _plan(lease, dry_run=dry_run)
        if dry_run:
            return plan
        try:
            with connection.cursor() as cursor:
                cursor.execute(f"SET LOCAL lock_timeout = '{WAIT_S}s'")
            if not force_release(
                connection.connection, shard=shard, token=lease.token, actor=actor, why=why
            ):
                raise _gone_on(shard, lease.token)
        except psycopg.errors.LockNotAvailable:
            raise Conflict(
                f"A transaction of {plan.process} has held shard {shard} for {WAIT_S} s. Nothing was"
                " changed. If that process is stopped, end it on its host; its transaction ends with it."
            ) from None
        record_audit(
            connection.connection,
            actor=actor,
            action="release_lease",
            object_kind="shard",
            object_id=str(shard),
            reason=why,
            before={"holder": str(plan.holder), "process": plan.process, "token": plan.token},
            after={"holder": None, "token": plan.token},
        )
        transaction.on_commit(_tell)
    return plan


def _gone_on(shard: int, token: int) -> Conflict:
    return Conflict(f"Shard {shard} has changed its leader since: token {token} is over.")


def _tell() -> None:
    _notices.wake(leases=1)
    _notices.changed(["leases", "home"])


def _plan(lease: Lease, *, dry_run: bool) -> ReleasePlan:
    assert lease.holder is not None, "asked before"
    holder = Job.objects.filter(pk=lease.holder).first()
    process = f"{holder.hostname}:{holder.pid}" if holder else f"job {lease.holder}"
    runs = Run.objects.filter(shard=lease.shard, is_active=True).count()
    live = Attempt.objects.filter(shard=lease.shard, is_live=True).count()
    return ReleasePlan(
        shard=lease.shard,
        token=lease.token,
        holder=lease.holder,
        process=process,
        expires_at=lease.expires_at,
        active_runs=runs,
        live_attempts=live,
        effects=(
            f"{process} holds it with token {lease.token}. Its next write there is refused and recorded:"
            " fencing keeps this safe whether or not that process is alive.",
            f"Whoever leads the shard next gets token {lease.token + 1}, and first goes over its"
            f" {_counted(live, 'live attempt')}: nothing that runs is stopped or started twice by that.",
            _who_follows(lease.holder, process),
        ),
        dry_run=dry_run,
    )


def _who_follows(holder: UUID, process: str) -> str:
    others = Job.objects.filter(
        kind=JobKind.SCHEDULER,
        ended_at__isnull=True,
        state="running",
        drain_requested_at__isnull=True,
    ).exclude(pk=holder)
    if others.exists():
        return f"If {process} takes part still, it may take the shard back: drain it first to keep it away."
    return (
        f"No other scheduler takes part: {process} takes the shard back if it is alive, and until a"
        " scheduler does, nobody decides for it."
    )


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
