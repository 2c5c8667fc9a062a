"""Which workers count for a scheduler, and what is said of those that nobody reaches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scheduler_app.models import Attempt, Incident, Job
from scheduler_app.scheduler import reach, sweep
from scheduler_app.transitions.ids import uuid7
from scheduler_app.transitions.job import beat_job, start_job
from tests.world import World, chain

if TYPE_CHECKING:
    import psycopg

LOCAL = "local at here:/data/workers"


def start(raw: psycopg.Connection[Any], kind: str, *, pid: int = 4711, **detail: Any) -> None:
    start_job(raw, job_id=uuid7(), kind=kind, name="", hostname="host-1", pid=pid, detail=detail)


def incidents(kind: str) -> list[str]:
    return [*Incident.objects.filter(kind=kind, resolved_at=None).values_list("message", flat=True)]


def test_live_processes_of_one_kind_and_name_are_told_of_until_they_are_not(
    raw: psycopg.Connection[Any],
) -> None:
    """F5: they work side by side, and whoever reads the name is warned."""
    ids = [uuid7() for _ in range(4)]
    for pid, (job_id, kind, name) in enumerate(
        zip(ids, ("scheduler",) * 3 + ("worker",), ("a", "a", "b", "a"), strict=True)
    ):
        start_job(raw, job_id=job_id, kind=kind, name=name, hostname="h", pid=pid, detail={})
    reach.watch_for_namesakes(raw, alive_s=20)
    assert incidents(reach.SAME_NAME) == [], "the first of them may have ended just before"
    for job_id in ids:
        beat_job(raw, job_id=job_id, progressed=True)
    reach.watch_for_namesakes(raw, alive_s=20)
    (message,) = incidents(reach.SAME_NAME)
    assert "called scheduler 'a': h:0, h:1." in message
    raw.execute("UPDATE job SET heartbeat_at = heartbeat_at - interval '1 hour' WHERE pid = 0")
    reach.watch_for_namesakes(raw, alive_s=20)
    assert incidents(reach.SAME_NAME) == []


def test_a_process_that_was_killed_and_started_anew_has_no_namesake(
    raw: psycopg.Connection[Any],
) -> None:
    """It counts as alive for some seconds more, but it never beat beside its successor."""
    for pid in (1, 2):
        job_id = uuid7()
        start_job(raw, job_id=job_id, kind="worker", name="w", hostname="h", pid=pid, detail={})
    beat_job(raw, job_id=job_id, progressed=True)
    reach.watch_for_namesakes(raw, alive_s=20)
    assert incidents(reach.SAME_NAME) == []


def test_without_a_name_nobody_has_a_namesake(raw: psycopg.Connection[Any]) -> None:
    for pid in (1, 2):
        start(raw, "worker", pid=pid)
    raw.execute("UPDATE job SET heartbeat_at = clock_timestamp() + interval '1 second'")
    reach.watch_for_namesakes(raw, alive_s=20)
    assert incidents(reach.SAME_NAME) == []


def worker(raw: psycopg.Connection[Any], *queues: str, concurrency: int = 2, **detail: Any) -> None:
    start(raw, "worker", queues=list(queues), concurrency=concurrency, **detail)


def slots(raw: psycopg.Connection[Any], carrier: str) -> dict[str, int]:
    return reach.queue_slots(reach.alive(raw, alive_s=20), carrier=carrier)


def test_the_workers_of_the_own_carrier_count_and_no_others(
    raw: psycopg.Connection[Any],
) -> None:
    worker(raw, "default", "wide", concurrency=3, carrier=LOCAL)
    worker(raw, "default", carrier=LOCAL)
    worker(raw, "default", concurrency=50, carrier="local at here:/elsewhere")
    worker(raw, "default", concurrency=70, carrier="celery")
    worker(raw, "old", concurrency=4)  # of before there was a choice
    assert slots(raw, LOCAL) == {"default": 5, "wide": 3}
    assert slots(raw, "celery") == {"default": 70, "old": 4}


def test_the_dead_do_not_count(raw: psycopg.Connection[Any]) -> None:
    worker(raw, "default", carrier=LOCAL)
    raw.execute("UPDATE job SET heartbeat_at = heartbeat_at - interval '1 minute'")
    assert slots(raw, LOCAL) == {}


def test_a_worker_without_limit_leaves_the_limits_to_the_pools(
    raw: psycopg.Connection[Any], world: World
) -> None:
    worker(raw, "default", concurrency=0, carrier=LOCAL)
    world.queue_slots = slots(raw, LOCAL)
    tasks = [task for n in range(60) for task in chain(f"t{n}")]
    run_id = world.run(world.flow("f", tasks, max_active_tasks=50))
    world.tick(run_id)
    assert len(world.messages) == 50


def test_a_worker_of_another_carrier_is_an_incident_until_it_ends(
    raw: psycopg.Connection[Any],
) -> None:
    def look() -> list[str]:
        reach.watch_for_unreached(raw, reach.alive(raw, alive_s=20))
        found = Incident.objects.filter(resolved_at=None)
        return [incident.message for incident in found]

    start(raw, "scheduler", carrier=LOCAL)
    worker(raw, "default", carrier=LOCAL)
    assert look() == []
    worker(raw, "default", carrier="celery")
    (message,) = look()
    assert "host-1:4711 gets no tasks: it takes what comes by 'celery'" in message
    assert LOCAL in message
    assert "DAYLIGHT_EXECUTOR" in message
    assert len(look()) == 1
    start(raw, "scheduler", carrier="celery")  # two schedulers, each with its own workers
    assert look() == []
    Job.objects.filter(kind="scheduler", detail__carrier="celery").update(state="ended")
    raw.execute("UPDATE job SET ended_at = clock_timestamp() WHERE state = 'ended'")
    assert len(look()) == 1
    raw.execute("UPDATE job SET ended_at = clock_timestamp() WHERE kind = 'worker'")
    assert look() == []


def test_nobody_is_out_of_reach_while_no_scheduler_s_beat_is_young(
    raw: psycopg.Connection[Any],
) -> None:
    start(raw, "scheduler", carrier=LOCAL)
    raw.execute("UPDATE job SET heartbeat_at = heartbeat_at - interval '1 minute'")
    worker(raw, "default", carrier="celery")  # it beat again sooner after an outage
    reach.watch_for_unreached(raw, reach.alive(raw, alive_s=20))
    assert not Incident.objects.exists()


def test_a_queue_whose_messages_nobody_takes_is_an_incident_that_names_it(
    raw: psycopg.Connection[Any], world: World
) -> None:
    run_id = world.run(world.flow("f", chain("a", queue="gpu")))
    world.tick(run_id)
    terms = world.leases.terms()
    sweep.watch_for_takers(raw, terms=terms, served=set())
    assert not Incident.objects.exists(), "not before its time"
    raw.execute("UPDATE attempt SET issued_at = issued_at - interval '1 hour'")
    sweep.watch_for_takers(raw, terms=terms, served={"gpu"})
    incident = Incident.objects.get(resolved_at=None)
    assert (incident.kind, incident.subject) == ("carrier_away", "gpu"), "workers are there"
    sweep.watch_for_takers(raw, terms=terms, served={"default"})
    incident = Incident.objects.get(kind="nobody_listens", resolved_at=None)
    assert incident.subject == "gpu"
    assert "was taken by no worker. Start a worker with --queues gpu." in incident.message
    assert Attempt.objects.get().published_at is None, "the next sweep offers it again"
    assert world.states(run_id) == {"a": "queued"}
