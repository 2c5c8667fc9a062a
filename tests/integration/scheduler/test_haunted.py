from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from django.db.models import F
from django.utils import timezone

from scheduler_app.models import Ghost, Incident, Job
from scheduler_app.rules import ghosts
from scheduler_app.scheduler.haunted import watch_for_ghosts
from scheduler_app.triggerer.schedulers import watch_for_schedulers
from tests import factories

if TYPE_CHECKING:
    import psycopg


def _haunt(kind: str, subject: str) -> None:
    now = timezone.now()
    Ghost.objects.create(
        kind=kind,
        subject=subject,
        seen_by="audit",
        policy="stop",
        first_seen_at=now,
        last_seen_at=now,
    )


def test_unknown_executions_are_told_at_once_and_others_if_they_stay(
    raw: psycopg.Connection[Any],
) -> None:
    _haunt(ghosts.SUPERSEDED, "a")
    _haunt(ghosts.SUSPECT_RUNNING, "b")
    watch_for_ghosts(raw, dead_after_s=20)
    assert not Incident.objects.exists(), "its worker ends it"
    Ghost.objects.update(first_seen_at=F("first_seen_at") - timedelta(seconds=21))
    watch_for_ghosts(raw, dead_after_s=20)
    incident = Incident.objects.get()
    assert incident.message.startswith("1 execution goes on")
    _haunt(ghosts.NO_RECORD, "c")
    watch_for_ghosts(raw, dead_after_s=20)
    incident.refresh_from_db()
    assert incident.message.startswith("2 executions go on")
    Ghost.objects.update(ended_at=timezone.now(), end_reason="gone")
    watch_for_ghosts(raw, dead_after_s=20)
    incident.refresh_from_db()
    assert incident.resolution == "None haunts any more."


def test_that_no_scheduler_gets_on_is_seen_by_another_process(raw: psycopg.Connection[Any]) -> None:
    watch_for_schedulers(raw, dead_after_s=20)
    assert "has got on ever" in Incident.objects.get().message
    job = factories.make_job(kind="scheduler")
    Job.objects.filter(pk=job.pk).update(progress_at=timezone.now())
    watch_for_schedulers(raw, dead_after_s=20)
    assert Incident.objects.get().resolution == "A scheduler gets on."
    Job.objects.filter(pk=job.pk).update(progress_at=timezone.now() - timedelta(seconds=21))
    for _ in range(3):
        watch_for_schedulers(raw, dead_after_s=20)
    again = Incident.objects.get()
    assert (again.count, again.resolved_at) == (2, None)
