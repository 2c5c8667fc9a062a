"""The rows of the model: what the statements of the dispatch protocol read and write, and no more.

Times are seconds of the simulation's own clock. Ids are small numbers.
"""

from __future__ import annotations

from typing import Any, ClassVar

from scheduler_app.rules.states import AttemptOutcome, AttemptState, RunState, TaskState


class Row:
    """A mutable row that can be compared with one that was read from a real database."""

    __slots__: ClassVar[tuple[str, ...]] = ()
    # Columns of the model alone, or that name another row and not a value.
    hidden: ClassVar[frozenset[str]] = frozenset()

    def values(self) -> dict[str, Any]:
        """The columns by name."""
        return {name: getattr(self, name) for name in self.__slots__ if name not in self.hidden}


class Lease(Row):
    """The one lease of the one shard."""

    __slots__ = ("expires_at", "holder", "token")

    def __init__(self) -> None:
        self.holder: int | None = None
        self.token = 0
        self.expires_at: float | None = None


class Run(Row):
    """The one run."""

    __slots__ = ("frozen", "state")

    def __init__(self) -> None:
        self.state = RunState.QUEUED
        self.frozen = False


class TaskInstance(Row):
    """One task of the run; the row that every claim, report and loss compares with."""

    __slots__ = (
        "attempt_id",
        "dispatch_no",
        "event",
        "held",
        "id",
        "is_open",
        "losses",
        "max_tries",
        "next_method",
        "next_retry_at",
        "nonce",
        "resume_index",
        "state",
        "try_number",
    )

    def __init__(self, ti_id: int, max_tries: int) -> None:
        self.id = ti_id
        self.state = TaskState.NONE
        self.is_open = True
        self.try_number = 0
        self.max_tries = max_tries
        self.resume_index = 0
        self.dispatch_no = 0
        self.attempt_id: int | None = None
        self.nonce: int | None = None
        self.held = False
        self.losses = 0
        self.next_method: str | None = None
        self.event: str | None = None  # what the trigger fired with, in next_kwargs
        self.next_retry_at: float | None = None


class Attempt(Row):
    """One dispatch. ``ti_id`` null: a ghost, which nobody issued."""

    __slots__ = (
        "dispatch_no",
        "fence",
        "filter_code",
        "heartbeat_at",
        "id",
        "is_accepted",
        "is_live",
        "issued_at",
        "nonce",
        "outcome",
        "pid",
        "publish_count",
        "published_at",
        "resume_index",
        "started_at",
        "state",
        "superseded_by",
        "ti_id",
        "token",
        "try_number",
        "worker",
    )
    # A sequence may leave gaps; that fences grow is an invariant.
    hidden = frozenset({"fence"})

    def __init__(self, attempt_id: int, ti_id: int | None, issued_at: float | None) -> None:
        self.id = attempt_id
        self.ti_id = ti_id
        self.try_number: int | None = None
        self.resume_index: int | None = None
        self.dispatch_no: int | None = None
        self.fence: int | None = None
        self.token: int | None = None
        self.state = AttemptState.ISSUED
        self.is_live = True
        self.is_accepted = False
        self.outcome: AttemptOutcome | None = None
        self.filter_code: str | None = None
        self.superseded_by: int | None = None
        self.nonce: int | None = None
        self.worker: int | None = None
        self.pid: int | None = None
        self.issued_at = issued_at
        self.published_at: float | None = None
        self.publish_count = 0
        self.started_at: float | None = None
        self.heartbeat_at: float | None = None


class Trigger(Row):
    """What a deferred task instance waits for."""

    __slots__ = (
        "due_at",
        "id",
        "is_waiting",
        "kind",
        "payload",
        "resume_index",
        "state",
        "ti_id",
        "timeout_at",
        "try_number",
        "wake_at",
    )

    def __init__(self, trigger_id: int, ti: TaskInstance, kind: str) -> None:
        self.id = trigger_id
        self.ti_id = ti.id
        self.try_number = ti.try_number
        self.resume_index = ti.resume_index
        self.kind = kind
        self.state = "waiting"
        self.is_waiting = True
        self.payload: str | None = None
        self.due_at: float | None = None
        self.timeout_at: float | None = None
        self.wake_at: float | None = None


class ExternalEvent(Row):
    """Something outside told a task instance something."""

    __slots__ = ("id", "ti_id", "trigger_id")

    def __init__(self, event_id: int, ti_id: int) -> None:
        self.id = event_id
        self.ti_id = ti_id
        self.trigger_id: int | None = None


class ExecutorEvent(Row):
    """What a witness said, and its verdict."""

    __slots__ = (
        "attempt_id",
        "code",
        "filter_code",
        "id",
        "kind",
        "pid",
        "received_at",
        "verdict",
        "worker",
    )

    def __init__(
        self,
        event_id: int,
        attempt_id: int,
        kind: str,
        received_at: float,
        worker: int | None = None,
        pid: int | None = None,
    ) -> None:
        self.id = event_id
        self.attempt_id = attempt_id
        self.kind = kind
        self.received_at = received_at
        self.worker = worker  # of the execution that ended
        self.pid = pid
        self.verdict = "pending"
        self.code: str | None = None
        self.filter_code: str | None = None


class Job(Row):
    """One incarnation of a worker."""

    __slots__ = ("has_ended", "heartbeat_at", "id")

    def __init__(self, job_id: int, now: float) -> None:
        self.id = job_id
        self.heartbeat_at = now
        self.has_ended = False
