from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings

from scheduler_app.models import Audit, Job, Lease
from scheduler_app.operations.stop_job import REPLACED, stop_job
from scheduler_app.queries import shown
from scheduler_app.rules.errors import Conflict, InvalidInput, NotFound
from tests import factories

pytestmark = pytest.mark.django_db


def live(**overrides: Any) -> Job:
    """A process that beat just now."""
    job = factories.make_job(**overrides)
    Job.objects.filter(pk=job.pk).update(heartbeat_at=shown.CLOCK)
    return job


def test_a_stop_is_written_into_the_row_and_audited_once() -> None:
    job = live(kind="worker")
    plan = stop_job(job_id=job.pk, actor="ada", reason="  its disk is full ")
    assert (plan.kind, plan.pid, plan.is_asked, plan.dry_run) == ("worker", job.pid, True, False)
    stop_job(job_id=job.pk, actor="bob", reason="again")
    job.refresh_from_db()
    assert (job.stop_requested_by, job.stop_reason) == ("ada", "its disk is full")
    entry = Audit.objects.get()
    assert (entry.actor, entry.action, entry.object_id) == ("ada", "stop_job", str(job.pk))
    assert entry.reason == "its disk is full"
    assert entry.before == {"stop_requested": False, "state": "running"}
    assert entry.after is not None
    assert entry.after["process"] == f"{job.hostname}:{job.pid}"


def test_a_dry_run_needs_no_reason_and_changes_nothing() -> None:
    job = live()
    plan = stop_job(job_id=job.pk, actor="ada", dry_run=True)
    assert plan.dry_run
    assert not plan.is_asked
    job.refresh_from_db()
    assert job.stop_requested_at is None
    assert not Audit.objects.exists()


@pytest.mark.parametrize("reason", ["", "  \n", "x" * 1001, "a\x00b"])
def test_without_a_fit_reason_nothing_happens(reason: str) -> None:
    job = live()
    with pytest.raises(InvalidInput):
        stop_job(job_id=job.pk, actor="ada", reason=reason)
    job.refresh_from_db()
    assert job.stop_requested_at is None


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("scheduler", "It releases the leases of 2 shards"),
        ("triggerer", "It gives up 0 triggers"),
        ("worker", "handed back"),
        ("web", "It takes no more requests"),
    ],
)
def test_the_effects_say_what_follows_for_each_kind(kind: str, told: str) -> None:
    job = live(kind=kind)
    if kind == "scheduler":
        for shard in (1, 2):
            Lease.objects.filter(shard=shard).update(holder=job.pk, token=9)
    effects = stop_job(job_id=job.pk, actor="ada", dry_run=True).effects
    assert told in effects[0]
    assert f"No other {kind} runs" in effects[1]
    assert effects[2] == REPLACED
    live(kind=kind)
    assert len(stop_job(job_id=job.pk, actor="ada", dry_run=True).effects) == 2


def test_what_has_ended_or_is_dead_cannot_be_stopped() -> None:
    ended = factories.make_job(ended_at=factories.at(3))
    with pytest.raises(Conflict, match="has ended"):
        stop_job(job_id=ended.pk, actor="ada", reason="r")
    dead = factories.make_job()
    with pytest.raises(Conflict, match="taken for dead"):
        stop_job(job_id=dead.pk, actor="ada", dry_run=True)
    with pytest.raises(NotFound):
        stop_job(job_id=uuid.uuid4(), actor="ada", reason="r")


def test_a_process_that_only_missed_its_beats_may_be_asked() -> None:
    """It stalls; when it comes back, it reads its row first."""
    job = factories.make_job()
    late_s = settings.JOB_ALIVE_S + 1
    assert late_s < settings.HEARTBEAT_DEAD_AFTER_S
    Job.objects.filter(pk=job.pk).update(heartbeat_at=shown.CLOCK - timedelta(seconds=late_s))
    assert stop_job(job_id=job.pk, actor="ada", reason="r").is_asked
