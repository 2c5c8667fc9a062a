"""What the simulated world holds beside its database: processes, messages under way, and the truth.

The truth is what really happened to each execution. The product never sees it; the invariants do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from scheduler_app.rules.states import AttemptOutcome, TaskState
from tests.simulation import decisions
from tests.simulation.database import Claim, Database, Fire, Message, Size, Wait

if TYPE_CHECKING:
    from scheduler_app.rules.definition import TaskDefinition

SCHEDULERS: Final = 3
WORKERS: Final = 3
CHILDREN_MAX: Final = 2  # of one worker
RESUMES_MAX: Final = 2  # in one try

CLAIMING: Final = 0  # phases of a child
EXECUTING: Final = 1
REPORTING: Final = 2


class Broken(AssertionError):
    """A promise of the protocol was broken. Says which, and by what."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """One small world: its tasks, its limits, and the faults that may happen in it."""

    tasks: tuple[TaskDefinition, ...]
    deferring: tuple[str | None, ...]  # by task: the kind of its triggers; null: it never defers
    slots: int  # of the pool
    budget: int  # infrastructure losses that are made good in one try
    is_unique: bool  # whether the database's unique constraints are on
    faults: frozenset[str]

    def size(self) -> Size:
        """What the database is told of it."""
        return Size(
            max_tries=tuple(task.retries for task in self.tasks),
            slots=self.slots,
            budget=self.budget,
            is_unique=self.is_unique,
        )


class Scheduler:
    """What one scheduler process remembers."""

    __slots__ = ("boot", "messages", "name", "published", "stalled", "token")

    def __init__(self, name: int, boot: int) -> None:
        self.name = name
        self.boot = boot
        self.token: int | None = None  # of the term that it believes to hold
        self.messages: list[Message] = []  # committed, not published yet
        self.published: list[int] = []  # attempts published, not noted yet
        self.stalled: tuple[str, Any, float] | None = None  # a step, what it saw, since when


class Child:
    """One execution in a child of a worker's pool."""

    __slots__ = (
        "claim",
        "is_spooled",
        "is_unwanted",
        "message",
        "nonce",
        "phase",
        "pid",
        "report",
        "stop_at",
        "worker",
    )

    def __init__(self, worker: Worker, message: Message, nonce: int, pid: int) -> None:
        self.worker = worker
        self.message = message
        self.nonce = nonce
        self.pid = pid
        self.phase = CLAIMING
        self.claim: Claim | None = None
        self.report: Report | None = None
        self.is_spooled = False
        self.is_unwanted = False  # the last beat said so
        self.stop_at: float | None = None  # it was asked to stop, and is killed then


class Worker:
    """One worker's main process and what it has not written yet."""

    __slots__ = ("children", "exits", "is_paused", "job", "name")

    def __init__(self, name: int, job: int) -> None:
        self.name = name
        self.job = job
        self.children: list[Child] = []
        self.exits: list[Exit] = []
        self.is_paused = False


class Report:
    """What an execution came to, as it is sent to the database."""

    __slots__ = ("attempt_id", "delay_s", "nonce", "outcome", "state", "ti_id", "wait")

    def __init__(
        self,
        child: Child,
        outcome: AttemptOutcome,
        state: TaskState,
        delay_s: float | None = None,
        wait: Wait | None = None,
    ) -> None:
        self.ti_id = child.message.ti_id
        self.attempt_id = child.message.attempt_id
        self.nonce = child.nonce
        self.outcome = outcome
        self.state = state
        self.delay_s = delay_s
        self.wait = wait


class Exit:
    """How one execution ended, as the main process saw it."""

    __slots__ = ("attempt_id", "kind", "pid", "report", "worker")

    def __init__(self, child: Child, kind: str, report: Report | None = None) -> None:
        self.attempt_id = child.message.attempt_id
        self.kind = kind
        self.pid = child.pid
        self.worker = child.worker.job
        self.report = report  # spooled, not sent yet


class Truth:
    """What really happened."""

    __slots__ = ("alive", "deciding", "held", "refusals", "said", "starts")

    def __init__(self) -> None:
        self.alive: set[int] = set()  # executions (nonces) of user code whose process lives
        self.said: dict[int, AttemptOutcome] = {}  # what user code of this nonce came to
        self.starts: dict[tuple[int, int, int], int] = {}  # by (ti, try, resume)
        self.refusals = 0
        self.held: set[int] = set()
        self.deciding: tuple[int, int] | None = None  # holder and token of the last decision


class State:
    """Everything there is."""

    database_class: type[Database] = Database

    def __init__(self, setup: Setup, database: Database | None = None) -> None:
        self.setup = setup
        self.flow = decisions.flow_of(setup.tasks)
        self.slots = setup.slots
        self.db = database or self.database_class(setup.size())
        self.may_stall = "stall" in setup.faults
        self.may_lose_answers = "lose_answers" in setup.faults
        self.may_abort = "abort" in setup.faults
        self._last_id = 0
        self.truth = Truth()
        self.bag: list[Message] = []  # with the carrier
        self.fires: list[Fire] = []  # on their way to the database
        self.leftovers: list[Report] = []  # spooled by workers that are gone
        self.exits_seen: list[Exit] = []  # every exit ever written, for late echoes
        self.messages_seen: list[Message] = []
        self.schedulers = [Scheduler(i, self.new_id()) for i in range(SCHEDULERS)]
        self.workers = [Worker(i, self.new_id()) for i in range(WORKERS)]
        for worker in self.workers:
            self.db.start_job(worker.job)
        self.children: list[Child] = []

    def new_id(self) -> int:
        """A number that nothing else has: attempts, nonces, processes."""
        self._last_id += 1
        return self._last_id
