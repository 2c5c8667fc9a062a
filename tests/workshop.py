"""A worker by hand: flows from source, attempts issued without a scheduler, children forked by the test.

A child runs the same code as a child of the pool, in a process of its own; what it returns comes
back over a pipe.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import textwrap
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.utils import timezone

from scheduler_app.hints.notices import Notices
from scheduler_app.models import (
    Attempt,
    AttemptLogChunk,
    Bundle,
    ExecutorEvent,
    Flow,
    FlowVersion,
    TaskInstance,
)
from scheduler_app.processes import bundles
from scheduler_app.rules import definition
from scheduler_app.rules.states import RunType
from scheduler_app.transitions.attempt import Dispatch, Message, dispatch
from scheduler_app.transitions.identity import database_identity
from scheduler_app.transitions.ids import uuid7
from scheduler_app.transitions.run import NewRun, create_run, start_runs
from scheduler_app.worker import child, folder
from scheduler_app.worker.execute import execute_delivery
from scheduler_app.worker.station import NotePipe, Station, set_station

if TYPE_CHECKING:
    from pathlib import Path

    import psycopg

    from scheduler_app.worker.outcome import Outcome

TOKEN = 1
HOSTNAME = "host-1"


@dataclass(slots=True)
class Forked:
    """A child that the test forked; ``outcome`` waits for it."""

    pid: int
    read_fd: int

    def outcome(self, *, within_s: float = 30.0) -> Outcome:
        """What the child returned. Fails if it died before."""
        with os.fdopen(self.read_fd, "rb") as pipe, _deadline(within_s, self.pid):
            answer = pipe.read()
        status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        assert status == 0, f"the child ended with {status}"
        outcome: Outcome = pickle.loads(answer)
        return outcome

    def status(self, *, within_s: float = 30.0) -> int:
        """How the child ended: its exit code, or minus a signal."""
        with _deadline(within_s, self.pid):
            return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


class Hints(Notices):
    """Hints, which go over the edge of the process, kept instead."""

    def __init__(self) -> None:
        super().__init__("redis://127.0.0.1:1/0")
        self.sent: list[dict[str, Any]] = []

    def _send_many(self, messages: Iterable[tuple[str, dict[str, object]]]) -> None:
        self.sent += [message for _, message in messages]


class Workshop:
    """One worker of the test's own, with a folder and a station."""

    def __init__(self, connection: psycopg.Connection[Any], data_dir: Path) -> None:
        self.connection = connection
        self.folder = folder.create(data_dir / "spool", job_id=uuid7())
        self.station = Station(
            job_id=uuid.UUID(self.folder.path.name),
            hostname=HOSTNAME,
            main_pid=os.getpid(),
            folder=self.folder,
            bundles=data_dir / "bundles",
            notes=NotePipe.open(),
        )
        self.identity = database_identity(connection)
        set_station(self.station)

    # -- rows ---------------------------------------------------------------------------------

    def flow(self, source: str) -> FlowVersion:
        """The one flow that the source defines, stored as a version."""
        text = textwrap.dedent(source).encode()
        digest, archive = bundles.pack_sources("flow.py", {"flow.py": text})
        scratch = self.folder.path.parent.parent / "defined"
        scratch.mkdir(exist_ok=True)
        (scratch / "flow.py").write_bytes(text)
        (made,) = bundles.load_file(scratch, "flow.py").flows().values()
        said = made.definition()
        now = timezone.now()
        bundle, _ = Bundle.objects.get_or_create(
            digest=digest, defaults={"main_path": "flow.py", "archive": archive, "created_at": now}
        )
        flow, _ = Flow.objects.get_or_create(
            flow_id=made.flow_id, defaults={"shard": 3, "created_at": now, "updated_at": now}
        )
        version, _ = FlowVersion.objects.get_or_create(
            flow=flow,
            digest=definition.digest(said, digest),
            defaults={
                "number": flow.versions.count() + 1,
                "definition": definition.to_dict(said),
                "bundle": bundle,
                "created_at": now,
            },
        )
        return version

    def run(self, version: FlowVersion, *, conf: dict[str, Any] | None = None) -> int:
        """A running run of the version."""
        now = timezone.now()
        with self.connection.transaction():
            run_id = create_run(
                self.connection,
                new=NewRun(
                    flow_id=version.flow_id,
                    run_key=f"manual__{uuid.uuid4()}",
                    shard=3,
                    run_type=RunType.MANUAL,
                    version_id=version.pk,
                    logical_date=now,
                    data_interval_start=now,
                    data_interval_end=now,
                    conf=conf or {},
                ),
                definition=definition.from_dict(version.definition),
            )
            assert run_id is not None
            start_runs(self.connection, run_ids=[run_id])
        return run_id

    def issue(
        self,
        run_id: int,
        task_id: str = "t",
        *,
        map_index: int = -1,
        on_execute: tuple[str, ...] = (),
    ) -> Message:
        """The next attempt of the task is issued; its predecessor, if any, is set aside."""
        ti = TaskInstance.objects.get(run_id=run_id, task_id=task_id, map_index=map_index)
        is_retry = ti.state == "up_for_retry"
        is_again = ti.state == "up_for_reschedule"
        with self.connection.transaction():
            (message,) = dispatch(
                self.connection,
                dispatches=[
                    Dispatch(
                        ti_id=ti.pk,
                        attempt_id=uuid7(),
                        previous=ti.attempt_id,
                        try_number=ti.try_number + (1 if is_retry or not ti.try_number else 0),
                        resume_index=0 if is_retry else ti.resume_index + is_again,
                        dispatch_no=1 if is_retry else ti.dispatch_no + 1,
                        run_attempt=1,
                        token=TOKEN,
                        cause=None if ti.attempt_id is None else "superseded_by_retry",
                        on_execute=on_execute,
                    )
                ],
            )
        return message

    def issue_one(self, source: str, *, conf: dict[str, Any] | None = None) -> Message:
        """The attempt of task ``t`` of a new run of the flow that the source defines."""
        return self.issue(self.run(self.flow(source), conf=conf))

    # -- children -----------------------------------------------------------------------------

    def fork(self, body: Callable[[], Any]) -> Forked:
        """A child of the pool runs ``body``."""
        read_fd, write_fd = os.pipe()
        pid = os.fork()
        if pid:
            os.close(write_fd)
            return Forked(pid, read_fd)
        code = 1
        try:
            os.close(read_fd)
            child.start_child()
            answer = pickle.dumps(body())
            with os.fdopen(write_fd, "wb") as pipe:
                pipe.write(answer)
            code = 0
        finally:
            os._exit(code)

    def start(self, message: Message, **changed: Any) -> Forked:
        """A child has a delivery of the message, some of whose arguments may be changed."""
        arguments = {
            "attempt_id": str(message.attempt_id),
            "ti_id": message.ti_id,
            "fence": message.fence,
            "token": message.lease_token,
            "identity": self.identity,
            **changed,
        }
        return self.fork(lambda: execute_delivery(**arguments))

    def deliver(self, message: Message, **changed: Any) -> Outcome:
        """What came of a delivery of the message."""
        return self.start(message, **changed).outcome()

    # -- looking ------------------------------------------------------------------------------

    def attempt(self, message: Message) -> Attempt:
        """The attempt's row."""
        return Attempt.objects.get(pk=message.attempt_id)

    def ti(self, message: Message) -> TaskInstance:
        """The task instance's row."""
        return TaskInstance.objects.get(pk=message.ti_id)

    def events(self, message: Message) -> list[ExecutorEvent]:
        """The events about the attempt, oldest first."""
        return list(ExecutorEvent.objects.filter(attempt_id=message.attempt_id).order_by("id"))

    def printed(self, message: Message) -> str:
        """What the attempt printed, as far as it has not been shipped."""
        for suffix in (folder.RUNNING, folder.PRINTED, folder.KILLED):
            with (
                contextlib.suppress(FileNotFoundError),
                open(
                    self.folder.file(message.attempt_id, suffix), encoding="utf-8", errors="replace"
                ) as file,
            ):
                return file.read()
        return ""


def log_of(message: Message) -> bytes:
    """The attempt's log as it is stored."""
    chunks = AttemptLogChunk.objects.filter(attempt_id=message.attempt_id).order_by("start_offset")
    return b"".join(bytes(chunk.data) for chunk in chunks)


def wait_until(condition: Callable[[], Any], *, within_s: float = 30.0) -> Any:
    """The first true value of ``condition``; fails without one.

    Asked ever more seldom, so that a long wait costs no core: after a twentieth of the time so far.
    """
    began = time.monotonic()
    while (waited_s := time.monotonic() - began) < within_s:
        if value := condition():
            return value
        time.sleep(min(max(0.02, waited_s / 20), 0.2))
    raise AssertionError("it did not come to pass in time")


@contextlib.contextmanager
def _deadline(within_s: float, pid: int) -> Iterator[None]:
    """The child is killed if the block takes longer."""

    def end(*_: object) -> None:
        os.kill(pid, signal.SIGKILL)

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, within_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
