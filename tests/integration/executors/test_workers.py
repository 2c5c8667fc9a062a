"""A whole worker process behind each executor: its life, its children's deaths, and its bounded end.

No scheduler runs: attempts are issued and published by hand.
"""

from __future__ import annotations

import os
import signal
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from django.conf import settings
from django.utils import timezone

from scheduler_app.models import Attempt, Job
from scheduler_app.processes import database
from scheduler_app.transitions.attempt import lose
from scheduler_app.worker import folder
from tests.integration.executors.conftest import SOON_S, flow_of, is_alive
from tests.workshop import log_of, wait_until

if TYPE_CHECKING:
    from tests.integration.executors.conftest import Hall
    from tests.workshop import Workshop

# Lines of start and end in a file of the test: what really ran, whatever the rows say.
NOTED = (
    "open({path!r}, 'a', buffering=1).write(f'start {{ctx.attempt_id}} {{os.getpid()}}\\n');"
    " time.sleep({seconds});"
    " open({path!r}, 'a', buffering=1).write(f'end {{ctx.attempt_id}} {{os.getpid()}}\\n')"
)


def noted(path: Path, seconds: float) -> str:
    return flow_of(NOTED.format(path=str(path), seconds=seconds))


def lines_of(path: Path) -> list[list[str]]:
    return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


def most_at_once(lines: list[list[str]]) -> int:
    now = most = 0
    for what, *_ in lines:
        now += 1 if what == "start" else -1
        most = max(most, now)
    return most


@contextmanager
def database_away(workshop: Workshop) -> Iterator[None]:
    """Nobody but the test has a connection to the database, or gets one."""
    name = settings.DATABASES["default"]["NAME"]
    server = settings.DATABASES["default"]
    with psycopg.connect(
        dbname="postgres",
        user=server["USER"],
        password=server["PASSWORD"],
        host=server["HOST"],
        port=server["PORT"],
        autocommit=True,
    ) as other:
        other.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS false')
        try:
            other.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s"
                " AND application_name LIKE 'daylight %%' AND pid <> %s",
                [name, workshop.connection.info.backend_pid],
            )
            yield
        finally:
            other.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS true')


def test_an_empty_queue_has_the_depth_zero(hall: Hall) -> None:
    hall.start_worker()
    assert hall.depth() == 0


def test_a_worker_executes_tells_and_ends_in_order(workshop: Workshop, hall: Hall) -> None:
    worker = hall.start_worker()
    message = workshop.issue_one(flow_of("print('hello'); return 1"))
    hall.publish(message)
    assert hall.ended(message).outcome == "success"
    (event,) = hall.events(message)
    assert (event.kind, event.verdict) == ("exit_success", "confirmed")
    wait_until(lambda: log_of(message) == b"hello\n", within_s=SOON_S)
    job = Job.objects.get(kind="worker")
    assert job.pid == worker.pid
    assert job.detail == {
        "queues": [hall.queue],
        "concurrency": 2,
        "carrier": hall.executor.carrier,
    }
    first = job.progress_at
    wait_until(lambda: Job.objects.get(kind="worker").progress_at > first, within_s=SOON_S)
    children = hall.children(worker)
    assert len(children) == 2
    worker.terminate()
    assert worker.wait(SOON_S) == 0
    job.refresh_from_db()
    assert (job.state, job.ended_at is not None) == ("ended", True)
    assert list((hall.data_dir / "spool").iterdir()) == []
    assert not any(is_alive(pid) for pid in children)


def test_fifty_at_once_run_two_at_a_time_and_each_once(
    workshop: Workshop, hall: Hall, tmp_path: Path
) -> None:
    hall.start_worker(concurrency=2)
    ran = tmp_path / "ran"
    messages = [workshop.issue_one(noted(ran, 0.05)) for _ in range(50)]
    hall.publish(*messages)
    assert [hall.ended(message).outcome for message in messages] == ["success"] * 50
    lines = lines_of(ran)
    assert most_at_once(lines) == 2
    assert sorted(attempt for what, attempt, _ in lines if what == "start") == sorted(
        str(message.attempt_id) for message in messages
    )
    assert len({pid for _, _, pid in lines}) == 2, "children go on from task to task"
    assert hall.depth() == 0


def test_two_workers_share_what_comes(workshop: Workshop, hall: Hall, tmp_path: Path) -> None:
    workers = [hall.start_worker(concurrency=1) for _ in range(2)]
    ran = tmp_path / "ran"
    messages = [workshop.issue_one(noted(ran, 0.5)) for _ in range(8)]
    hall.publish(*messages)
    attempts = [hall.ended(message) for message in messages]
    assert [attempt.outcome for attempt in attempts] == ["success"] * 8
    jobs = {str(job.id): job.pid for job in Job.objects.filter(kind="worker")}
    by_worker = [jobs[str(attempt.worker_job_id)] for attempt in attempts]
    assert all(by_worker.count(worker.pid) >= 2 for worker in workers), by_worker
    assert most_at_once(lines_of(ran)) == 2


def test_what_waits_behind_a_long_task_is_done_by_a_worker_that_comes_later(
    workshop: Workshop, hall: Hall
) -> None:
    hall.start_worker(concurrency=1)
    long = workshop.issue_one(flow_of("time.sleep(600)"))
    hall.publish(long)
    hall.running(long)
    waiting = [workshop.issue_one(flow_of("return 1")) for _ in range(5)]
    hall.publish(*waiting)
    assert hall.depth() == 5
    if hall.shows_messages:
        shown = hall.executor.waiting(hall.queue, limit=4)
        assert shown is not None
        assert {(each.queue, each.identity) for each in shown} == {(hall.queue, workshop.identity)}
        assert {each.attempt_id for each in shown} <= {message.attempt_id for message in waiting}
        assert (len(shown), hall.depth()) == (4, 5), "what is shown stays where it is"
    hall.start_worker(concurrency=1)
    assert [hall.ended(message).outcome for message in waiting] == ["success"] * 5
    assert workshop.attempt(long).state == "running"
    assert all(len(hall.events(message)) == 1 for message in waiting), "nothing came twice"


def test_a_killed_child_is_told_within_two_seconds_and_the_worker_goes_on(
    workshop: Workshop, hall: Hall
) -> None:
    hall.start_worker()
    message = workshop.issue_one(flow_of("time.sleep(600)"))
    hall.publish(message)
    attempt = hall.running(message)
    assert attempt.pid is not None
    killed_at = timezone.now()
    os.kill(attempt.pid, signal.SIGKILL)
    (event,) = hall.events(message)
    assert (event.kind, event.verdict, event.payload["signal_name"]) == (
        "exit_killed",
        "pending",
        "SIGKILL",
    )
    assert (event.received_at - killed_at).total_seconds() < 2
    more = [workshop.issue_one(flow_of("return 1")) for _ in range(4)]
    hall.publish(*more)
    assert [hall.ended(m).outcome for m in more] == ["success"] * 4


def test_an_idle_child_that_is_killed_is_replaced(workshop: Workshop, hall: Hall) -> None:
    worker = hall.start_worker()
    for pid in hall.children(worker):
        os.kill(pid, signal.SIGKILL)
    messages = [workshop.issue_one(flow_of("return 1")) for _ in range(4)]
    hall.publish(*messages)
    assert [hall.ended(message).outcome for message in messages] == ["success"] * 4
    wait_until(lambda: len(hall.children(worker)) == 2, within_s=SOON_S)


def test_a_task_may_do_anything_and_the_worker_goes_on(workshop: Workshop, hall: Hall) -> None:
    hall.start_worker()
    bodies = [
        "os.kill(os.getpid(), 9)",
        "os._exit(0)",
        "os.kill(os.getppid(), 0); os.kill(0, 9)",  # its own process group
        "import sys; sys.exit(1)",
        "raise MemoryError",
        "os.close(1); os.close(2); print('x')",
        "os.closerange(3, 1000); return 1",
        "import signal; signal.signal(signal.SIGTERM, signal.SIG_DFL); os.kill(os.getpid(), 15)",
    ]
    messages = [workshop.issue_one(flow_of(body)) for body in bodies]
    hall.publish(*messages)
    wait_until(lambda: all(workshop.events(message) for message in messages), within_s=2 * SOON_S)
    last = workshop.issue_one(flow_of("return 'still here'"))
    hall.publish(last)
    assert hall.ended(last).result == "still here"


def test_what_is_no_delivery_is_thrown_away_and_the_worker_goes_on(
    workshop: Workshop, hall: Hall
) -> None:
    worker = hall.start_worker()
    hall.send_garbage()
    message = workshop.issue_one(flow_of("return 1"))
    hall.publish(message)
    assert hall.ended(message).outcome == "success"
    wait_until(lambda: hall.depth() == 0, within_s=SOON_S)
    assert worker.poll() is None
    if hall.kind == "local":  # Celery's own consumer shows one for a task that it does not know
        assert "Traceback" not in hall.log.read_text()


def test_a_delivery_that_comes_twice_is_refused_once_and_disturbs_nothing(
    workshop: Workshop, hall: Hall, tmp_path: Path
) -> None:
    hall.start_worker()
    ran = tmp_path / "ran"
    message = workshop.issue_one(noted(ran, 2))
    hall.publish(message)
    hall.running(message)
    hall.publish(message)
    assert hall.ended(message).outcome == "success"
    events = hall.events(message, 2)
    assert sorted((e.kind, e.verdict, e.filter_code) for e in events) == [
        ("delivery_refused", "refused", "duplicate_delivery"),
        ("exit_success", "confirmed", None),
    ]
    assert [line[0] for line in lines_of(ran)] == ["start", "end"]


def test_no_message_waits_in_a_child_while_all_are_busy(workshop: Workshop, hall: Hall) -> None:
    hall.start_worker()
    messages = [workshop.issue_one(flow_of("time.sleep(600)")) for _ in range(4)]
    hall.publish(*messages)
    wait_until(lambda: Attempt.objects.filter(state="running").count() == 2, within_s=SOON_S)
    assert hall.depth() == 2


# -- limits ---------------------------------------------------------------------------------------


def test_a_task_that_reaches_its_time_limit_fails_and_says_so(
    workshop: Workshop, hall: Hall
) -> None:
    hall.start_worker()
    message = workshop.issue_one(flow_of("time.sleep(600)", "timeout=0.5"))
    hall.publish(message)
    attempt = hall.ended(message)
    assert attempt.error is not None
    assert (attempt.outcome, attempt.error["type"]) == ("failed", "TaskTimeout")
    (event,) = hall.events(message)
    assert (event.kind, event.verdict) == ("exit_failed", "confirmed")


def test_a_task_that_minds_no_limit_is_killed_with_its_child(
    workshop: Workshop, hall: Hall
) -> None:
    worker = hall.start_worker()
    body = "import signal; signal.pthread_sigmask(signal.SIG_BLOCK, [14, 15]); time.sleep(600)"
    message = workshop.issue_one(flow_of(body, "timeout=0.5"))
    hall.publish(message)
    pid = hall.running(message).pid
    assert hall.ended(message).outcome == "terminated"
    wait_until(lambda: not is_alive(pid or 0), within_s=SOON_S)
    wait_until(lambda: len(hall.children(worker)) == 2, within_s=SOON_S)


def test_an_attempt_that_beats_is_not_lost_and_one_that_is_lost_is_stopped(
    workshop: Workshop, hall: Hall
) -> None:
    hall.start_worker()
    message = workshop.issue_one(flow_of("time.sleep(600)"))
    hall.publish(message)
    hall.running(message)
    wait_until(lambda: workshop.attempt(message).heartbeat_at, within_s=SOON_S)
    with database.connect("scheduler") as connection:
        which: dict[str, Any] = {"attempt_ids": [message.attempt_id], "budget": 3, "source": "t"}
        assert lose(connection, **which, dead_after_s=SOON_S) == []
        assert lose(connection, **which, dead_after_s=0)
    late = wait_until(
        lambda: [e for e in workshop.events(message) if e.kind == "late_report"], within_s=SOON_S
    )
    assert late[0].filter_code == "late_after_terminal"


# -- the end --------------------------------------------------------------------------------------


def test_a_stopped_worker_lets_a_short_task_finish(workshop: Workshop, hall: Hall) -> None:
    worker = hall.start_worker(DAYLIGHT_WORKER_DRAIN_S="30")
    message = workshop.issue_one(flow_of("time.sleep(2); print('done'); return 1"))
    hall.publish(message)
    hall.running(message)
    worker.terminate()
    assert worker.wait(SOON_S) == 0
    assert workshop.attempt(message).outcome == "success"
    assert log_of(message) == b"done\n"
    assert [event.kind for event in workshop.events(message)] == ["exit_success"]


@pytest.mark.parametrize(
    "body",
    [
        "time.sleep(600)",
        # Minds no exception: it has to be killed.
        "import signal; signal.pthread_sigmask(signal.SIG_BLOCK, [15]); time.sleep(600)",
    ],
)
def test_a_stopped_worker_hands_a_long_task_back(workshop: Workshop, hall: Hall, body: str) -> None:
    worker = hall.start_worker()
    message = workshop.issue_one(flow_of(f"print('begun', flush=True); {body}", "retries=0"))
    hall.publish(message)
    attempt = hall.running(message)
    assert attempt.pid is not None
    worker.terminate()
    assert worker.wait(SOON_S) == 0
    assert not is_alive(attempt.pid)
    ti = workshop.ti(message)
    assert (ti.state, ti.infra_losses, ti.try_number) == ("scheduled", 0, 1)
    attempt = workshop.attempt(message)
    assert (attempt.outcome, attempt.is_accepted) == ("lost", False)
    assert [(e.kind, e.verdict) for e in workshop.events(message)] == [("handed_back", "confirmed")]
    assert log_of(message).startswith(b"begun\n")


def test_a_signal_to_every_process_of_the_worker_lets_tasks_finish_too(
    workshop: Workshop, hall: Hall
) -> None:
    """Service managers signal main process and children alike."""
    worker = hall.start_worker(DAYLIGHT_WORKER_DRAIN_S="30")
    message = workshop.issue_one(flow_of("time.sleep(2); return 1"))
    hall.publish(message)
    hall.running(message)
    for pid in hall.children(worker):
        os.kill(pid, signal.SIGTERM)
    worker.terminate()
    assert worker.wait(SOON_S) == 0
    assert workshop.attempt(message).outcome == "success"


def test_a_stopped_worker_leaves_waiting_messages_to_others(workshop: Workshop, hall: Hall) -> None:
    worker = hall.start_worker()
    messages = [workshop.issue_one(flow_of("time.sleep(600)")) for _ in range(5)]
    hall.publish(*messages)
    Attempt.objects.filter(state="issued").update(published_at=timezone.now())
    wait_until(lambda: Attempt.objects.filter(state="running").count() == 2, within_s=SOON_S)
    worker.terminate()
    assert worker.wait(SOON_S) == 0
    left = Attempt.objects.filter(state="issued")
    assert left.count() == 3
    # A broker has them still; the sockets' are given back at once, to be published again.
    assert hall.depth() == (3 if hall.kind == "celery" else 0)
    assert left.filter(published_at=None).count() == (0 if hall.kind == "celery" else 3)


def test_nothing_of_a_killed_worker_goes_on_and_its_log_is_shipped_by_the_next(
    workshop: Workshop, hall: Hall
) -> None:
    worker = hall.start_worker()
    message = workshop.issue_one(flow_of("print('last words', flush=True); time.sleep(600)"))
    hall.publish(message)
    attempt = hall.running(message)
    assert attempt.pid is not None
    spool = hall.data_dir / "spool"
    wait_until(
        lambda: any(path.stat().st_size for path in spool.glob(f"*/*{folder.RUNNING}")),
        within_s=SOON_S,
    )
    worker.kill()
    worker.wait()
    wait_until(lambda: not is_alive(attempt.pid or 0), within_s=SOON_S)
    assert workshop.attempt(message).state == "running"  # the scheduler's sweep decides
    hall.start_worker()
    wait_until(lambda: log_of(message) == b"last words\n", within_s=SOON_S)
    wait_until(lambda: len(list(spool.iterdir())) == 1, within_s=SOON_S)
    assert not list(spool.glob(f"*/*{folder.RUNNING}"))


# -- without the database -------------------------------------------------------------------------


def test_no_deliveries_are_taken_while_the_database_is_away(workshop: Workshop, hall: Hall) -> None:
    hall.start_worker()
    warm_up = workshop.issue_one(flow_of("return 1"))
    hall.publish(warm_up)
    hall.ended(warm_up)
    messages = [workshop.issue_one(flow_of("return 1")) for _ in range(6)]
    with database_away(workshop):
        hall.publish(*messages[:1])
        wait_until(lambda: "no deliveries are taken" in hall.log.read_text(), within_s=SOON_S)
        hall.publish(*messages[1:])
        time.sleep(1.5)
        waiting = hall.depth()
    assert waiting >= 4
    assert [hall.ended(m).outcome for m in messages] == ["success"] * 6
    assert all(not e.filter_code for m in messages for e in workshop.events(m))


def test_what_ends_while_the_database_is_away_is_kept_and_accepted_later(
    workshop: Workshop, hall: Hall, tmp_path: Path
) -> None:
    hall.start_worker()
    ran, gate = tmp_path / "ran", tmp_path / "gate"
    body = (
        f"open({str(ran)!r}, 'a').write('once ')\n"
        f"    while not os.path.exists({str(gate)!r}): time.sleep(0.05)\n"
        "    return 'kept'"
    )
    message = workshop.issue_one(flow_of(body))
    hall.publish(message)
    hall.running(message)
    with database_away(workshop):
        gate.touch()
        spool = hall.data_dir / "spool"
        wait_until(lambda: list(spool.glob(f"*/*{folder.REPORT}")), within_s=SOON_S)
    attempt = hall.ended(message)
    assert (attempt.outcome, attempt.result, attempt.is_accepted) == ("success", "kept", True)
    (event,) = hall.events(message)
    assert (event.kind, event.verdict) == ("exit_success", "confirmed")
    assert ran.read_text() == "once "


def test_a_delivery_of_another_database_is_refused(workshop: Workshop, hall: Hall) -> None:
    hall.start_worker()
    message = workshop.issue_one(flow_of("return 1"))
    workshop.identity = f"elsewhere:{uuid.uuid4()}"
    hall.publish(message)
    (event,) = hall.events(message)
    assert (event.verdict, event.filter_code) == ("refused", "fenced_other_database")
    assert workshop.attempt(message).state == "issued"
