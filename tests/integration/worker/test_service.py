"""A whole worker process at a real broker: its life, its children's deaths, and its bounded end."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import psycopg
import pytest
from celery import Celery
from django.conf import settings
from django.utils import timezone

from scheduler_app.config.celery import app
from scheduler_app.executors.celery import TASK_NAME, CeleryExecutor, broker_queue
from scheduler_app.launch import embedded
from scheduler_app.models import Attempt, Job
from scheduler_app.processes import database
from scheduler_app.worker import folder
from tests.workshop import log_of, wait_until

if TYPE_CHECKING:
    from scheduler_app.transitions.attempt import Message
    from tests.workshop import Workshop

CHECKOUT = Path(__file__).parents[3]
DRAIN_S = 1.0
END_WITHIN_S = DRAIN_S + 5.0
HEAD = "import os, time\nfrom scheduler_app.authoring import flow, task\n"


def _flow(body: str, options: str = "") -> str:
    return f"{HEAD}@task({options})\ndef t(ctx):\n    {body}\n@flow\ndef f():\n    t()\n"


class Running:
    """``manage.py worker`` on a queue of its own."""

    def __init__(self, workshop: Workshop, data_dir: Path, *, broker_url: str = "") -> None:
        self.broker_url = broker_url or settings.BROKER_URL
        self.executor = CeleryExecutor(Celery("tests", broker=broker_url) if broker_url else app)
        self.workshop = workshop
        self.data_dir = data_dir
        self.queue = f"q{uuid.uuid4().hex[:8]}"
        self.log = data_dir / "worker.log"
        self.started = 0
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """The worker takes deliveries."""
        server = settings.DATABASES["default"]
        environment = {
            **os.environ,
            "DATABASE_URL": (
                f"postgresql://{quote(server['USER'])}:{quote(server['PASSWORD'])}@/{server['NAME']}"
                f"?host={quote(server['HOST'], safe='/')}&port={server['PORT']}"
            ),
            "BROKER_URL": self.broker_url,
            "DAYLIGHT_DATA_DIR": str(self.data_dir),
            "DAYLIGHT_EXAMPLES": "0",
            "DAYLIGHT_LEASE_TTL": "3",
            "DAYLIGHT_WORKER_DRAIN_S": str(DRAIN_S),
        }
        environment.pop("DJANGO_SETTINGS_MODULE", None)
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "manage.py",
                    "worker",
                    "--queues",
                    self.queue,
                    "--concurrency",
                    "2",
                ],
                cwd=CHECKOUT,
                env=environment,
                stdout=log,
                stderr=log,
            )
        self.started += 1
        wait_until(
            lambda: self.log.read_text().count("takes deliveries") == self.started, within_s=30
        )

    @property
    def pid(self) -> int:
        """Of the main process."""
        assert self.process is not None
        return self.process.pid

    def publish(self, *messages: Message) -> None:
        """The messages are in the queue."""
        sent = self.executor.publish(
            [replace(message, queue=self.queue) for message in messages],
            identity=self.workshop.identity,
        )
        assert len(sent) == len(messages)

    def depth(self) -> int:
        """How many messages wait in the queue."""
        depth = self.executor.queue_depth(self.queue)
        assert depth is not None
        return depth

    def children(self) -> list[int]:
        """Pids of the pool's children."""
        text = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text()
        return [int(pid) for pid in text.split()]

    def end(self, number: int = signal.SIGTERM, *, within_s: float = END_WITHIN_S) -> int:
        """The exit code after this signal; fails if it takes longer."""
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(timeout=within_s)

    def kill(self) -> None:
        """No process of the worker is left."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()


@pytest.fixture
def running(workshop: Workshop, tmp_path: Path) -> Iterator[Running]:
    made = Running(workshop, tmp_path / "worker-data")
    made.data_dir.mkdir()
    made.start()
    yield made
    made.kill()


def _ended(workshop: Workshop, message: Message) -> Attempt:
    attempt = wait_until(
        lambda: Attempt.objects.filter(pk=message.attempt_id, state="ended").first(), within_s=20
    )
    assert isinstance(attempt, Attempt)
    return attempt


def _running(workshop: Workshop, message: Message) -> Attempt:
    wait_until(lambda: workshop.attempt(message).state == "running", within_s=20)
    return workshop.attempt(message)


def _is_alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def test_an_empty_queue_has_the_depth_zero(running: Running) -> None:
    assert running.depth() == 0


def test_a_worker_executes_tells_and_ends_in_order(workshop: Workshop, running: Running) -> None:
    message = workshop.issue_one(_flow("print('hello'); return 1"))
    running.publish(message)
    assert _ended(workshop, message).outcome == "success"
    (event,) = wait_until(lambda: workshop.events(message))
    assert (event.kind, event.verdict) == ("exit_success", "confirmed")
    wait_until(lambda: log_of(message) == b"hello\n")
    job = Job.objects.get(kind="worker")
    assert job.pid == running.pid
    assert job.detail == {"queues": [running.queue], "concurrency": 2}
    first = job.progress_at
    wait_until(lambda: Job.objects.get(kind="worker").progress_at > first)
    children = running.children()
    assert running.end() == 0
    job.refresh_from_db()
    assert (job.state, job.ended_at is not None) == ("ended", True)
    assert list((running.data_dir / "spool").iterdir()) == []
    assert not any(_is_alive(pid) for pid in children)


def test_a_killed_child_is_told_within_two_seconds_and_the_worker_goes_on(
    workshop: Workshop, running: Running
) -> None:
    message = workshop.issue_one(_flow("time.sleep(60)"))
    running.publish(message)
    attempt = _running(workshop, message)
    assert attempt.pid is not None
    killed_at = timezone.now()
    os.kill(attempt.pid, signal.SIGKILL)
    (event,) = wait_until(lambda: workshop.events(message))
    assert (event.kind, event.verdict, event.payload["signal_name"]) == (
        "exit_killed",
        "pending",
        "SIGKILL",
    )
    assert (event.received_at - killed_at).total_seconds() < 2
    more = [workshop.issue_one(_flow("return 1")) for _ in range(4)]
    running.publish(*more)
    assert [_ended(workshop, m).outcome for m in more] == ["success"] * 4


def test_a_task_may_do_anything_and_the_worker_goes_on(
    workshop: Workshop, running: Running
) -> None:
    bodies = [
        "os.kill(os.getpid(), 9)",
        "os._exit(0)",
        "os.kill(os.getppid(), 0); os.kill(0, 9)",  # its own process group
        "import sys; sys.exit(1)",
        "raise MemoryError",
        "os.close(1); os.close(2); print('x')",
        "import signal; signal.signal(signal.SIGTERM, signal.SIG_DFL); os.kill(os.getpid(), 15)",
    ]
    messages = [workshop.issue_one(_flow(body)) for body in bodies]
    running.publish(*messages)
    wait_until(lambda: all(workshop.events(message) for message in messages), within_s=20)
    last = workshop.issue_one(_flow("return 'still here'"))
    running.publish(last)
    assert _ended(workshop, last).result == "still here"


def test_what_is_no_delivery_is_thrown_away_and_the_worker_goes_on(
    workshop: Workshop, running: Running
) -> None:
    for args in ([], ["no uuid", 1, 2, 3, "x"], [None] * 5, [str(uuid.uuid4())]):
        app.send_task(TASK_NAME, args=args, queue=broker_queue(running.queue))
    app.send_task("no.such.task", args=[1], queue=broker_queue(running.queue))
    message = workshop.issue_one(_flow("return 1"))
    running.publish(message)
    assert _ended(workshop, message).outcome == "success"
    assert running.depth() == 0


def test_no_message_waits_in_a_worker_whose_children_are_busy(
    workshop: Workshop, running: Running
) -> None:
    messages = [workshop.issue_one(_flow("time.sleep(60)")) for _ in range(4)]
    running.publish(*messages)
    wait_until(lambda: Attempt.objects.filter(state="running").count() == 2)
    time.sleep(0.5)
    assert running.depth() == 2


def test_a_stopped_worker_lets_a_short_task_finish(workshop: Workshop, running: Running) -> None:
    message = workshop.issue_one(_flow(f"time.sleep({DRAIN_S * 0.5}); print('done'); return 1"))
    running.publish(message)
    _running(workshop, message)
    assert running.end() == 0
    assert workshop.attempt(message).outcome == "success"
    assert log_of(message) == b"done\n"
    assert [event.kind for event in workshop.events(message)] == ["exit_success"]


@pytest.mark.parametrize(
    "body",
    [
        "time.sleep(60)",
        # Minds no exception: it has to be killed.
        "import signal; signal.pthread_sigmask(signal.SIG_BLOCK, [15]); time.sleep(60)",
    ],
)
def test_a_stopped_worker_hands_a_long_task_back(
    workshop: Workshop, running: Running, body: str
) -> None:
    message = workshop.issue_one(_flow(f"print('begun', flush=True); {body}", "retries=0"))
    running.publish(message)
    attempt = _running(workshop, message)
    assert attempt.pid is not None
    assert running.end() == 0
    assert not _is_alive(attempt.pid)
    ti = workshop.ti(message)
    assert (ti.state, ti.infra_losses, ti.try_number) == ("scheduled", 0, 1)
    attempt = workshop.attempt(message)
    assert (attempt.outcome, attempt.is_accepted) == ("lost", False)
    assert [(e.kind, e.verdict) for e in workshop.events(message)] == [("handed_back", "confirmed")]
    assert log_of(message).startswith(b"begun\n")


def test_a_signal_to_every_process_of_the_worker_lets_tasks_finish_too(
    workshop: Workshop, running: Running
) -> None:
    """Service managers signal main process and children alike."""
    message = workshop.issue_one(_flow(f"time.sleep({DRAIN_S * 0.5}); return 1"))
    running.publish(message)
    _running(workshop, message)
    for pid in running.children():
        os.kill(pid, signal.SIGTERM)
    assert running.end() == 0
    assert workshop.attempt(message).outcome == "success"


def test_a_stopped_worker_leaves_waiting_messages_to_others(
    workshop: Workshop, running: Running
) -> None:
    messages = [workshop.issue_one(_flow("time.sleep(60)")) for _ in range(5)]
    running.publish(*messages)
    wait_until(lambda: Attempt.objects.filter(state="running").count() == 2)
    assert running.end() == 0
    assert running.depth() == 3
    assert Attempt.objects.filter(state="issued").count() == 3


def test_nothing_of_a_killed_worker_goes_on_and_its_log_is_shipped_by_the_next(
    workshop: Workshop, running: Running
) -> None:
    message = workshop.issue_one(_flow("print('last words', flush=True); time.sleep(60)"))
    running.publish(message)
    attempt = _running(workshop, message)
    assert attempt.pid is not None
    wait_until(lambda: (running.data_dir / "spool").glob(f"*/{message.attempt_id}*"))
    time.sleep(0.2)
    assert running.end(signal.SIGKILL) == -signal.SIGKILL
    wait_until(lambda: not _is_alive(attempt.pid or 0), within_s=2)
    assert workshop.attempt(message).state == "running"  # the scheduler's sweep decides
    running.start()
    wait_until(lambda: log_of(message) == b"last words\n")
    spool = running.data_dir / "spool"
    wait_until(lambda: len(list(spool.iterdir())) == 1)
    assert not list(spool.glob(f"*/*{folder.RUNNING}"))


def test_no_deliveries_are_taken_while_the_database_is_away(
    workshop: Workshop, running: Running
) -> None:
    warm_up = workshop.issue_one(_flow("return 1"))
    running.publish(warm_up)
    _ended(workshop, warm_up)
    messages = [workshop.issue_one(_flow("return 1")) for _ in range(6)]
    name = settings.DATABASES["default"]["NAME"]
    with _server() as server:
        server.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS false')
        server.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s"
            " AND application_name LIKE 'daylight %%' AND pid <> %s",
            [name, workshop.connection.info.backend_pid],
        )
        running.publish(*messages[:1])
        wait_until(lambda: "no deliveries are taken" in running.log.read_text())
        running.publish(*messages[1:])
        time.sleep(1.5)
        waiting = running.depth()
        server.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS true')
    assert waiting >= 4
    assert [_ended(workshop, m).outcome for m in messages] == ["success"] * 6
    assert all(not e.filter_code for m in messages for e in workshop.events(m))


def _server() -> Any:
    """A connection to another database of the same server."""
    server = settings.DATABASES["default"]
    return psycopg.connect(
        dbname="postgres",
        user=server["USER"],
        password=server["PASSWORD"],
        host=server["HOST"],
        port=server["PORT"],
        autocommit=True,
    )


def test_a_broker_that_comes_back_empty_costs_no_running_task(
    workshop: Workshop, tmp_path: Path
) -> None:
    place = Path(tempfile.mkdtemp(dir="/tmp"))
    place.chmod(0o755)
    broker = embedded.start_valkey(place)
    running = Running(workshop, tmp_path / "worker-data", broker_url=broker.url)
    running.data_dir.mkdir()
    try:
        running.start()
        long = workshop.issue_one(_flow("time.sleep(3); return 'went on'"))
        running.publish(long)
        _running(workshop, long)
        broker.stop()
        broker = embedded.start_valkey(place)
        after = [workshop.issue_one(_flow("return 1")) for _ in range(4)]
        running.publish(*after)
        assert [_ended(workshop, m).outcome for m in after] == ["success"] * 4
        assert _ended(workshop, long).result == "went on"
        seen_at = Job.objects.get(kind="worker").progress_at
        wait_until(lambda: Job.objects.get(kind="worker").progress_at > seen_at)
        assert running.end() == 0
    finally:
        running.kill()
        broker.stop()
        shutil.rmtree(place, ignore_errors=True)


def test_an_attempt_that_beats_is_not_lost_and_one_that_is_lost_is_stopped(
    workshop: Workshop, running: Running
) -> None:
    message = workshop.issue_one(_flow("time.sleep(60)"))
    running.publish(message)
    attempt = _running(workshop, message)
    assert attempt.pid is not None
    wait_until(lambda: workshop.attempt(message).heartbeat_at)
    from scheduler_app.transitions.attempt import lose  # noqa: PLC0415 - only here

    with database.connect("scheduler") as connection:
        assert (
            lose(
                connection, attempt_ids=[message.attempt_id], dead_after_s=10, budget=3, source="t"
            )
            == []
        )
        assert lose(
            connection, attempt_ids=[message.attempt_id], dead_after_s=0, budget=3, source="t"
        )
    late = wait_until(lambda: [e for e in workshop.events(message) if e.kind == "late_report"])
    assert late[0].filter_code == "late_after_terminal"
