"""Real processes around one executor: whatever is tested here holds for both of them."""

from __future__ import annotations

import os
import signal
import socket
import sys
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import psycopg
import pytest
import redis
from celery import Celery
from django.conf import settings
from django.db import connections

from scheduler_app.config.celery import app
from scheduler_app.executors.celery import TASK_NAME, CeleryExecutor, broker_queue
from scheduler_app.executors.local import LocalExecutor
from scheduler_app.executors.local_wire import socket_folder
from scheduler_app.models import Attempt, Incident, Run
from tests.nurseries import Nurseries, Process
from tests.workshop import Workshop, wait_until

if TYPE_CHECKING:
    from scheduler_app.executors.interface import Executor
    from scheduler_app.models import ExecutorEvent
    from scheduler_app.transitions.attempt import Message

TTL_S = 3.0  # heartbeats each second, dead after four, published again after six
DRAIN_S = 1.0
SOON_S = 60.0  # on a loaded machine; a tenth of it on an idle one
HEAD = "import os, time\nfrom scheduler_app.authoring import *\n"


def flow_of(body: str, options: str = "") -> str:
    """A flow with one task ``t``."""
    return f"{HEAD}@task({options})\ndef t(ctx):\n    {body}\n@flow\ndef f():\n    t()\n"


def celery_of(broker_url: str) -> Celery:
    """An application with a broker of its own, which nobody else gets who asks for the current one."""
    return Celery("tests", broker=broker_url, fixups=[], set_as_current=False)


class Hall:
    """Workers, schedulers and triggerers of one executor, all on the test's database."""

    def __init__(
        self,
        kind: str,
        workshop: Workshop,
        folder: Path,
        nurseries: Nurseries,
        *,
        broker_url: str = "",
    ) -> None:
        self.kind = kind
        self.nurseries = nurseries
        self.workshop = workshop
        self.data_dir = folder
        self.queue = f"q{uuid.uuid4().hex[:8]}"
        self.log = folder / "hall.log"
        self.log.touch()
        self.broker_url = broker_url or settings.BROKER_URL
        self.shows_messages = not self.broker_url.startswith("amqp")
        self.executor: Executor = (
            LocalExecutor(socket_folder(folder))
            if kind == "local"
            else CeleryExecutor(celery_of(broker_url) if broker_url else app)
        )
        self.processes: list[Process] = []
        self.workers: list[Process] = []

    # -- processes ----------------------------------------------------------------------------

    def start(self, *arguments: str, **environment: str) -> Process:
        """A ``manage.py`` process runs."""
        server = settings.DATABASES["default"]
        environ = {
            **os.environ,
            "DATABASE_URL": (
                f"postgresql://{quote(server['USER'])}:{quote(server['PASSWORD'])}@/{server['NAME']}"
                f"?host={quote(server['HOST'], safe='/')}&port={server['PORT']}"
            ),
            "BROKER_URL": self.broker_url,
            "DAYLIGHT_DATA_DIR": str(self.data_dir),
            "DAYLIGHT_NO_EXAMPLES": "1",
            "DAYLIGHT_EXECUTOR": self.kind,
            "DAYLIGHT_LEASE_TTL": str(TTL_S),
            "DAYLIGHT_WORKER_DRAIN_S": str(DRAIN_S),
            **environment,
        }
        if self.kind == "local":
            # Nothing but the database carries anything, unless a process is told otherwise.
            for name in {"BROKER_URL", "CACHE_URL"} - environment.keys():
                del environ[name]
        environ.pop("DJANGO_SETTINGS_MODULE", None)
        process = self.nurseries.start(*arguments, environ=environ, log=self.log)
        self.processes.append(process)
        return process

    def start_worker(self, *, concurrency: int = 2, queue: str = "", **environment: str) -> Process:
        """One more worker takes deliveries."""
        before = self.log.read_text().count("the worker takes deliveries")
        worker = self.start(
            *("worker", "--queues", queue or self.queue, "--concurrency", str(concurrency)),
            **environment,
        )
        wait_until(
            lambda: self.log.read_text().count("the worker takes deliveries") > before,
            within_s=SOON_S,
        )
        self.workers.append(worker)
        return worker

    def start_scheduler(self) -> Process:
        """A scheduler decides."""
        return self.start("scheduler")

    def end(self) -> None:
        """Nothing runs any more; what was said is shown with a failed test."""
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.wait()
        self.executor.close()
        sys.stderr.write(self.log.read_text())

    # -- messages -----------------------------------------------------------------------------

    def publish(self, *messages: Message) -> None:
        """The messages are with the carrier."""
        sent = self.executor.publish(
            [replace(message, queue=self.queue) for message in messages],
            identity=self.workshop.identity,
        )
        assert sent == {message.attempt_id for message in messages}

    def depth(self) -> int:
        """How many messages wait in the queue."""
        depth = self.executor.queue_depth(self.queue)
        assert depth is not None
        return depth

    def forget_messages(self) -> None:
        """What waits in the broker is gone; local workers keep theirs."""
        if self.kind == "local":
            return
        if self.broker_url.startswith("redis"):
            redis.Redis.from_url(self.broker_url).flushall()
            return
        with celery_of(self.broker_url).connection_for_read() as connection:
            channel: Any = connection.default_channel
            channel.queue_purge(broker_queue(self.queue))

    def send_garbage(self) -> None:
        """What is no delivery has reached the worker."""
        bodies: list[Any] = [[], ["no uuid", 1, 2, 3, "x"], [None] * 5, [str(uuid.uuid4())]]
        if self.kind == "celery":
            for args in bodies:
                app.send_task(TASK_NAME, args=args, queue=broker_queue(self.queue))
            app.send_task("no.such.task", args=[1], queue=broker_queue(self.queue))
            return
        for line in GARBAGE:
            self.say(line)

    def say(self, line: bytes) -> bytes:
        """What the local worker answers to this before it closes the connection."""
        (path,) = socket_folder(self.data_dir).glob("*.sock")
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(SOON_S)
            client.connect(str(path))
            answer = b""
            try:
                client.sendall(line)
                client.shutdown(socket.SHUT_WR)
                while data := client.recv(65536):
                    answer += data
            except OSError:  # it was closed before all was sent
                pass
            return answer

    # -- looking ------------------------------------------------------------------------------

    def children(self, worker: Process) -> list[int]:
        """Pids of the worker's children."""
        text = Path(f"/proc/{worker.pid}/task/{worker.pid}/children").read_text()
        return [int(pid) for pid in text.split()]

    def ended(self, message: Message) -> Attempt:
        """The attempt once it has ended."""
        attempt = wait_until(
            lambda: Attempt.objects.filter(pk=message.attempt_id, state="ended").first(),
            within_s=SOON_S,
        )
        assert isinstance(attempt, Attempt)
        return attempt

    def running(self, message: Message) -> Attempt:
        """The attempt once it runs."""
        wait_until(lambda: self.workshop.attempt(message).state == "running", within_s=SOON_S)
        return self.workshop.attempt(message)

    def events(self, message: Message, number: int = 1) -> list[ExecutorEvent]:
        """The events about the attempt once there are so many."""
        wait_until(lambda: len(self.workshop.events(message)) >= number, within_s=SOON_S)
        return self.workshop.events(message)

    def run_ended(self, run_id: int) -> str:
        """The state of the run once it has ended."""
        wait_until(lambda: not Run.objects.get(pk=run_id).is_active, within_s=1.5 * SOON_S)
        return str(Run.objects.get(pk=run_id).state)

    def attempts(self, run_id: int) -> list[Attempt]:
        """The attempts of the run, oldest first."""
        return list(Attempt.objects.filter(run_id=run_id).order_by("fence"))

    def incident(self, kind: str) -> Incident:
        """The open incident of this kind once there is one."""
        found: Incident = wait_until(
            lambda: Incident.objects.filter(kind=kind, resolved_at=None).first(), within_s=SOON_S
        )
        return found


GARBAGE = (
    b"\n",
    b"{\n",
    b"[]\n",
    b"null\n",
    b"\xff\xfe\x00\n",
    b'{"ask": "money"}\n',
    b'{"take": 5}\n',
    b'{"take": [[1]]}\n',
    b'{"take": [["default", ["no uuid", 1, 2, 3, "x"]]]}\n',
    b'{"give": "all"}\n',
    b"[" * 100_000 + b"\n",
    b"GET / HTTP/1.1\r\n\r\n",
    b"x" * (5 * 1024 * 1024),
)


@pytest.fixture
def workshop(raw: psycopg.Connection[Any], tmp_path: Path) -> Workshop:
    """Attempts by hand."""
    return Workshop(raw, tmp_path)


@pytest.fixture
def halls(workshop: Workshop, place: Path) -> Iterator[list[Hall]]:
    """The halls of one test, ended with it."""
    made: list[Hall] = []
    yield made
    for hall in made:
        hall.end()
    connections.close_all()


@pytest.fixture(params=["celery", "local"])
def hall(
    request: pytest.FixtureRequest,
    workshop: Workshop,
    place: Path,
    halls: list[Hall],
    nurseries: Nurseries,
) -> Hall:
    """Nothing runs yet."""
    redis.Redis.from_url(settings.BROKER_URL).flushall()
    halls.append(Hall(request.param, workshop, place, nurseries))
    return halls[-1]


@pytest.fixture
def local(workshop: Workshop, place: Path, halls: list[Hall], nurseries: Nurseries) -> Hall:
    """Nothing runs yet, and only the local executor is meant."""
    halls.append(Hall("local", workshop, place, nurseries))
    return halls[-1]


def is_alive(pid: int) -> bool:
    """Whether the process is there and no zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"
