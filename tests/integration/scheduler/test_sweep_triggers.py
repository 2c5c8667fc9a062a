"""Somebody is told when tasks wait for triggers and nobody watches them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scheduler_app.models import Incident
from scheduler_app.scheduler.sweep import watch_for_triggerers
from scheduler_app.transitions.ids import uuid7
from scheduler_app.transitions.job import beat_job, start_job
from tests.world import World, chain

if TYPE_CHECKING:
    import psycopg


def _open(raw: psycopg.Connection[Any]) -> int:
    watch_for_triggerers(raw, dead_after_s=10)
    return Incident.objects.filter(kind="no_triggerer", resolved_at=None).count()


def test_an_incident_is_open_while_triggers_wait_and_no_triggerer_gets_on(
    world: World, raw: psycopg.Connection[Any]
) -> None:
    assert _open(raw) == 0, "nothing waits"
    run_id = world.run(world.flow("f", chain("a")))
    world.tick(run_id)
    world.claim(world.messages[0])
    trigger_id = world.defer(world.messages[0])
    assert _open(raw) == 1
    assert _open(raw) == 1, "one, however often it is seen"
    job_id = uuid7()
    start_job(raw, job_id=job_id, kind="triggerer", name="", hostname="h", pid=1, detail={})
    assert _open(raw) == 0
    raw.execute("UPDATE job SET progress_at = progress_at - interval '1 min'")
    beat_job(raw, job_id=job_id, progressed=False)
    assert _open(raw) == 1, "its heartbeat alone proves nothing"
    world.fire(trigger_id)
    assert _open(raw) == 0
