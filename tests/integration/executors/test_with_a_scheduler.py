"""Scheduler, worker and triggerer processes behind each executor: what is lost is made good."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

from django.conf import settings

from scheduler_app.models import Attempt, ExecutorEvent, Incident, TaskInstance
from tests.integration.executors.conftest import SOON_S, flow_of
from tests.workshop import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.executors.conftest import Hall
    from tests.workshop import Workshop


def run_of(workshop: Workshop, hall: Hall, body: str, options: str = "") -> int:
    """A run of a flow with one task on the hall's queue."""
    more = f", {options}" if options else ""
    return workshop.run(workshop.flow(flow_of(body, f"queue={hall.queue!r}{more}")))


def long_at_first(begun: Path) -> str:
    """Sleeps until it is killed, and ends at once when it is executed again."""
    return (
        f"is_first = not os.path.exists({str(begun)!r})\n"
        f"    open({str(begun)!r}, 'w').close()\n"
        "    time.sleep(600 if is_first else 0)"
    )


def running_in(hall: Hall, run_id: int) -> Attempt:
    """The attempt of the run that runs, once there is one."""
    found: Attempt = wait_until(
        lambda: Attempt.objects.filter(run_id=run_id, state="running").first(), within_s=SOON_S
    )
    return found


def test_a_run_ends_and_so_does_a_fan_of_fifty(workshop: Workshop, hall: Hall) -> None:
    hall.start_scheduler()
    hall.start_worker()
    run_id = run_of(workshop, hall, "return 7")
    assert hall.run_ended(run_id) == "success"
    (attempt,) = hall.attempts(run_id)
    assert (attempt.result, attempt.dispatch_no) == (7, 1)
    assert attempt.publish_count <= 1, "0 where its claim came before the note of its publishing"
    fan = flow_of("return 1", f"queue={hall.queue!r}").replace(
        "    t()", "    [t() for _ in range(50)]"
    )
    run_id = workshop.run(workshop.flow(fan.replace("def f", "def fan")))
    assert hall.run_ended(run_id) == "success"
    assert len(hall.attempts(run_id)) == 50


def test_a_child_that_is_killed_from_outside_uses_up_a_retry(
    workshop: Workshop, hall: Hall
) -> None:
    hall.start_scheduler()
    hall.start_worker()
    run_id = run_of(
        workshop, hall, "time.sleep(600 if ctx.try_number == 1 else 0)", "retries=1, retry_delay=0"
    )
    first = running_in(hall, run_id)
    assert first.pid is not None
    os.kill(first.pid, signal.SIGKILL)
    assert hall.run_ended(run_id) == "success"
    killed, second = hall.attempts(run_id)
    assert (killed.outcome, killed.filter_code) == ("terminated", "superseded_by_retry")
    assert (second.try_number, second.outcome) == (2, "success")
    (event,) = [
        e for e in ExecutorEvent.objects.filter(attempt_id=killed.pk) if e.kind == "exit_killed"
    ]
    assert event.verdict == "confirmed"


def test_without_a_retry_left_a_killed_child_fails_its_task(workshop: Workshop, hall: Hall) -> None:
    hall.start_scheduler()
    hall.start_worker()
    run_id = run_of(workshop, hall, "os.kill(os.getpid(), 9)", "retries=0")
    assert hall.run_ended(run_id) == "failed"
    (attempt,) = hall.attempts(run_id)
    assert attempt.outcome == "terminated"


def test_a_worker_that_is_killed_costs_a_new_attempt_and_no_retry(
    workshop: Workshop, hall: Hall, tmp_path: Path
) -> None:
    hall.start_scheduler()
    worker = hall.start_worker()
    run_id = run_of(workshop, hall, long_at_first(tmp_path / "begun"), "retries=0")
    running_in(hall, run_id)
    wait_until((tmp_path / "begun").exists, within_s=SOON_S)
    worker.kill()
    worker.wait()
    hall.start_worker()
    assert hall.run_ended(run_id) == "success"
    lost, second = hall.attempts(run_id)
    assert (lost.outcome, lost.is_accepted) == ("lost", False)
    assert (second.try_number, second.dispatch_no, second.outcome) == (1, 2, "success")
    assert TaskInstance.objects.get(run_id=run_id).infra_losses == 1


def test_a_worker_that_is_stopped_hands_its_task_to_another(
    workshop: Workshop, hall: Hall, tmp_path: Path
) -> None:
    hall.start_scheduler()
    worker = hall.start_worker()
    run_id = run_of(workshop, hall, long_at_first(tmp_path / "begun"), "retries=0")
    running_in(hall, run_id)
    wait_until((tmp_path / "begun").exists, within_s=SOON_S)
    worker.terminate()
    assert worker.wait(SOON_S) == 0
    hall.start_worker()
    assert hall.run_ended(run_id) == "success"
    ti = TaskInstance.objects.get(run_id=run_id)
    assert (ti.try_number, ti.infra_losses) == (1, 0)


def test_messages_that_are_lost_are_published_again_for_the_same_attempts(
    workshop: Workshop, hall: Hall
) -> None:
    hall.start_scheduler()
    worker = hall.start_worker(concurrency=1)
    busy = run_of(workshop, hall, "time.sleep(600)")
    running_in(hall, busy)
    runs = [run_of(workshop, hall, "return 1") for _ in range(3)]
    wait_until(
        lambda: (
            Attempt.objects.filter(run_id__in=runs, published_at__isnull=False).count() == 3
            and hall.depth() == 3
        ),
        within_s=SOON_S,
    )
    issued = {attempt.pk for run_id in runs for attempt in hall.attempts(run_id)}
    # A broker forgets, a worker dies with what it had not started.
    hall.forget_messages()
    worker.kill()
    worker.wait()
    hall.start_worker()
    assert [hall.run_ended(run_id) for run_id in runs] == ["success"] * 3
    after = [attempt for run_id in runs for attempt in hall.attempts(run_id)]
    assert {attempt.pk for attempt in after} == issued
    assert all(attempt.publish_count >= 2 for attempt in after)
    assert all(attempt.filter_code is None for attempt in after)


def test_what_waits_with_a_worker_that_is_stopped_does_not_wait_to_be_missed(
    workshop: Workshop, local: Hall
) -> None:
    local.start_scheduler()
    worker = local.start_worker(concurrency=1)
    busy = run_of(workshop, local, "time.sleep(600)")
    running_in(local, busy)
    runs = [run_of(workshop, local, "return 1") for _ in range(3)]
    wait_until(lambda: local.depth() == 3, within_s=SOON_S)
    worker.terminate()
    assert worker.wait(SOON_S) == 0
    local.start_worker()
    assert [local.run_ended(run_id) for run_id in runs] == ["success"] * 3
    for run_id in runs:
        (attempt,) = local.attempts(run_id)
        # Given back and published once more at the next sweep, not counted as lost after a timeout.
        assert attempt.publish_count == 1


def test_a_queue_that_nobody_serves_is_an_incident_until_somebody_does(
    workshop: Workshop, hall: Hall
) -> None:
    hall.start_scheduler()
    hall.start_worker(queue="another")
    run_id = run_of(workshop, hall, "return 1")
    incident = hall.incident("nobody_listens")
    assert incident.subject == hall.queue
    assert f"--queues {hall.queue}" in incident.message
    assert TaskInstance.objects.get(run_id=run_id).state == "queued"
    hall.start_worker()
    assert hall.run_ended(run_id) == "success"
    wait_until(
        lambda: not Incident.objects.filter(kind="nobody_listens", resolved_at=None).exists(),
        within_s=SOON_S,
    )
    assert len(hall.attempts(run_id)) == 1


def test_a_worker_of_the_other_executor_is_an_incident_that_says_what_to_do(
    workshop: Workshop, hall: Hall
) -> None:
    hall.start_scheduler()
    hall.start_worker(
        DAYLIGHT_EXECUTOR="local" if hall.kind == "celery" else "celery",
        BROKER_URL=settings.BROKER_URL,
    )
    run_id = run_of(workshop, hall, "return 1")
    assert "DAYLIGHT_EXECUTOR" in hall.incident("worker_not_reached").message
    assert hall.incident("nobody_listens").subject == hall.queue
    assert TaskInstance.objects.get(run_id=run_id).state == "queued"


def test_a_callback_is_called_for_a_task_that_was_killed(
    workshop: Workshop, hall: Hall, tmp_path: Path
) -> None:
    hall.start_scheduler()
    hall.start_worker()
    told = tmp_path / "told"
    source = f"""
import os
from scheduler_app.authoring import *
def tell(context):
    with open({str(told)!r}, "a") as file:
        file.write(context["callback"] + " ")
@task(queue={hall.queue!r}, retries=0, on_failure_callback=tell)
def t(ctx):
    os.kill(os.getpid(), 9)
@flow
def f():
    t()
"""
    run_id = workshop.run(workshop.flow(source))
    assert hall.run_ended(run_id) == "failed"
    wait_until(
        lambda: Attempt.objects.filter(run_id=run_id, kind="callback", state="ended").exists(),
        within_s=SOON_S,
    )
    killed, callback = hall.attempts(run_id)
    assert (killed.outcome, callback.outcome) == ("terminated", "success")
    assert told.read_text() == "on_failure "


def test_a_task_defers_waits_without_a_worker_and_is_resumed(
    workshop: Workshop, hall: Hall
) -> None:
    hall.start_scheduler()
    hall.start("triggerer")
    hall.start_worker()
    source = f"""
from datetime import timedelta
from scheduler_app.authoring import *
@task(queue={hall.queue!r})
def t(ctx):
    raise Defer(TimeTrigger(timedelta(seconds=1)), method="came")
@t.method
def came(event):
    return "resumed"
@flow
def f():
    t()
"""
    run_id = workshop.run(workshop.flow(source))
    assert hall.run_ended(run_id) == "success"
    deferred, resumed = hall.attempts(run_id)
    assert (deferred.outcome, resumed.outcome, resumed.result) == ("deferred", "success", "resumed")
    assert (deferred.try_number, resumed.try_number, resumed.resume_index) == (1, 1, 1)
    assert resumed.filter_code is None
