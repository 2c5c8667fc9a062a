"""The database of the model: each statement of ``scheduler_app/sql`` and ``transitions``, in memory.

A call is atomic: it does everything or nothing. Its unique constraints can be switched off, so that
a simulation tests the protocol's logic and not only the index behind it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from scheduler_app.rules.states import (
    DISPATCHABLE,
    RUN_TERMINAL,
    AttemptOutcome,
    AttemptState,
    RunState,
    TaskState,
)
from tests.simulation.rows import (
    Attempt,
    ExecutorEvent,
    ExternalEvent,
    Job,
    Lease,
    Row,
    Run,
    TaskInstance,
    Trigger,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

TTL_S: Final = 15.0
DEAD_AFTER_S: Final = 20.0
QUEUED_TIMEOUT_S: Final = 30.0
UNPUBLISHED_AFTER_S: Final = 1.0
SERVED_WITHIN_S: Final = 10.0
IDLE_IN_TRANSACTION_S: Final = 4.0

_NONE: Final = TaskState.NONE
_SCHEDULED: Final = TaskState.SCHEDULED
_QUEUED: Final = TaskState.QUEUED
_RUNNING: Final = TaskState.RUNNING
_DEFERRED: Final = TaskState.DEFERRED
_FAILED: Final = TaskState.FAILED
_ISSUED: Final = AttemptState.ISSUED
_ATTEMPT_RUNNING: Final = AttemptState.RUNNING
_ENDED: Final = AttemptState.ENDED


class UniqueViolation(Exception):
    """A unique index refused the row; nothing was written."""


class Message(NamedTuple):
    """What a delivery carries."""

    attempt_id: int
    ti_id: int
    fence: int
    token: int


class Dispatch(NamedTuple):
    """One decision to execute a task instance."""

    ti_id: int
    attempt_id: int
    previous: int | None
    try_number: int
    resume_index: int
    dispatch_no: int
    cause: str | None


class Claim(NamedTuple):
    """What a worker learns from its claim."""

    ti_id: int
    try_number: int
    max_tries: int
    resume_index: int
    next_method: str | None


class Wait(NamedTuple):
    """What an attempt hands its task instance over to."""

    kind: str  # time, event or watched
    due_after_s: float | None
    timeout_s: float | None


class Fire(NamedTuple):
    """What a trigger came to."""

    trigger_id: int
    state: str
    payload: str | None  # null: what it kept while its task instance was held
    event_id: int | None = None


class Judgement(NamedTuple):
    """A verdict to be stored."""

    verdict: str
    code: str | None


class Unclaimed(NamedTuple):
    """An attempt whose message may be lost."""

    message: Message
    is_overtaken: bool


class Beat(NamedTuple):
    """The answer to a heartbeat."""

    attempt_id: int
    is_wanted: bool
    state: AttemptState


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How large the world is and what the database is told about it."""

    max_tries: tuple[int, ...]  # one a task
    slots: int  # of the one pool
    budget: int  # infrastructure losses in one try
    is_unique: bool  # whether the unique constraints are on


class Database:
    """All rows, and one method a statement. ``now`` is its clock."""

    def __init__(self, size: Size) -> None:
        self.slots = size.slots
        self.budget = size.budget
        self.is_unique = size.is_unique
        self.now = 0.0
        self.started_at = 0.0  # of the server
        self.lease = Lease()
        self.run = Run()
        self.tis = [TaskInstance(i, tries) for i, tries in enumerate(size.max_tries)]
        self.attempts: dict[int, Attempt] = {}
        self.live: dict[int, Attempt] = {}  # the index over live attempts
        self.triggers: list[Trigger] = []
        self.external: list[ExternalEvent] = []
        self.events: list[ExecutorEvent] = []
        self.pending: list[ExecutorEvent] = []  # the index over events without a verdict
        self.dedupe: set[str] = set()
        self.jobs: dict[int, Job] = {}
        self.touched: list[Row] = []  # by the last call or calls; whoever checks them empties it
        # Locks of transactions that are open across calls, by holder.
        self.proof_lock: int | None = None  # KEY SHARE on the lease
        self.run_lock: int | None = None
        self._last_fence = 0

    # -- transactions -------------------------------------------------------------------------
    # Every call is atomic by itself; only locks that outlive a call need to be modelled.

    def begin(self, holder: int) -> None:
        """What follows is one transaction, of this holder."""

    def commit(self) -> None:
        """The transaction is over."""

    def rollback(self) -> None:
        """The transaction is over, and its caller wrote nothing yet."""

    def lock_run(self, holder: int) -> bool:
        """Whether this transaction has the run's row; it skips one that is locked."""
        return self.run_lock is None or self.run_lock == holder

    def park(self, holder: int) -> None:
        """The transaction stays open, with the lease proved and the run locked."""
        self.proof_lock = self.run_lock = holder

    def unpark(self, holder: int) -> None:
        """What follows is that transaction again."""
        if self.proof_lock == holder:
            self.proof_lock = self.run_lock = None

    def lock_task(self, attempt_id: int) -> None:
        """Nobody else writes the attempt's task instance before this transaction is over."""

    def facts(self, attempt_id: int) -> tuple[Attempt | None, TaskInstance | None]:
        """The attempt and its task instance, where there are such."""
        p = self.attempts.get(attempt_id)
        return p, None if p is None or p.ti_id is None else self.tis[p.ti_id]

    # -- leases -------------------------------------------------------------------------------

    def acquire(self, holder: int) -> int | None:
        """The new token, if the lease was free or expired and nobody is proving it."""
        lease = self.lease
        if self.proof_lock is not None:
            return None
        if lease.holder is not None and not (
            lease.expires_at is not None and lease.expires_at < self.now
        ):
            return None
        lease.holder = holder
        lease.token += 1
        lease.expires_at = self.now + TTL_S
        return lease.token

    def renew(self, holder: int, token: int) -> bool:
        """Whether the term is still held; then it runs for another ttl."""
        lease = self.lease
        if lease.holder != holder or lease.token != token:
            return False
        lease.expires_at = self.now + TTL_S
        return True

    def release(self, holder: int, token: int) -> bool:
        """Whether the term was held; then the lease is free."""
        lease = self.lease
        if lease.holder != holder or lease.token != token:
            return False
        lease.holder = None
        lease.expires_at = self.now
        return True

    def prove(self, holder: int, token: int) -> bool:
        """Whether the term is held: first in every deciding transaction."""
        return self.lease.holder == holder and self.lease.token == token

    # -- the tick -----------------------------------------------------------------------------

    def use(self) -> int:
        """Slots of the pool that live attempts hold; issued ones of held task instances hold none."""
        used = 0
        for p in self.live.values():
            if p.filter_code is None and (
                p.state is not _ISSUED or not self.tis[p.ti_id or 0].held
            ):
                used += 1
        return used

    def start_run(self) -> None:
        """The queued run is running."""
        if self.run.state is RunState.QUEUED:
            self.run.state = RunState.RUNNING
            self.touched.append(self.run)

    def mark(self, marks: Iterable[tuple[int, TaskState]]) -> None:
        """Each task instance without an attempt takes the state that its upstream decided."""
        for ti_id, state in marks:
            ti = self.tis[ti_id]
            if (ti.state is _NONE or ti.state is _SCHEDULED) and not ti.held:
                ti.state = state
                ti.is_open = False
                self.touched.append(ti)

    def note_waits(self, ti_ids: Iterable[int]) -> None:
        """Ready task instances that found no room are scheduled."""
        for ti_id in ti_ids:
            ti = self.tis[ti_id]
            if ti.state is _NONE:
                ti.state = _SCHEDULED
                self.touched.append(ti)

    def dispatch(self, dispatches: Sequence[Dispatch], token: int) -> list[Message]:
        """An issued, current attempt for each task instance that is still as it was seen."""
        messages = []
        for d in dispatches:
            ti = self.tis[d.ti_id]
            if ti.held or ti.attempt_id != d.previous or ti.state not in DISPATCHABLE:
                continue
            previous = None if d.previous is None else self.attempts[d.previous]
            self._refuse_second_current(ti, previous)
            ti.state = _QUEUED
            ti.attempt_id = d.attempt_id
            ti.nonce = None
            if d.try_number > ti.try_number:
                ti.losses = 0
            ti.try_number = d.try_number
            ti.resume_index = d.resume_index
            ti.dispatch_no = d.dispatch_no
            ti.next_retry_at = None
            self.touched.append(ti)
            if previous is not None and previous.filter_code is None:
                previous.filter_code = d.cause
                previous.superseded_by = d.attempt_id
                self.touched.append(previous)
            messages.append(self.issue(ti, d.attempt_id, token))
        return messages

    def issue(self, ti: TaskInstance, attempt_id: int, token: int) -> Message:
        """The attempt's row exists, with the place that its task instance has now."""
        new = Attempt(attempt_id, ti.id, self.now)
        new.try_number = ti.try_number
        new.resume_index = ti.resume_index
        new.dispatch_no = ti.dispatch_no
        self._last_fence += 1
        new.fence = self._last_fence
        new.token = token
        self.attempts[attempt_id] = self.live[attempt_id] = new
        self.touched.append(new)
        return Message(attempt_id, ti.id, new.fence, token)

    def end_run(self, state: RunState) -> bool:
        """Whether the run ended: nothing is unfinished and no current attempt is live."""
        run = self.run
        if run.state is not RunState.RUNNING or run.frozen:
            return False
        if any(ti.is_open for ti in self.tis):
            return False
        if any(p.filter_code is None for p in self.live.values()):
            return False
        run.state = state
        self.touched.append(run)
        return True

    def _refuse_second_current(self, ti: TaskInstance, previous: Attempt | None) -> None:
        if not self.is_unique:
            return
        for p in self.attempts.values():
            if p.ti_id == ti.id and p.filter_code is None and p is not previous:
                raise UniqueViolation

    # -- publishing ---------------------------------------------------------------------------

    def message_of(self, p: Attempt) -> Message:
        """What a delivery of the attempt carries."""
        assert p.ti_id is not None
        assert p.fence is not None
        assert p.token is not None
        return Message(p.id, p.ti_id, p.fence, p.token)

    def note_published(self, attempt_ids: Iterable[int], *, is_first: bool = True) -> None:
        """Each attempt that waits and is not yet noted as published is, now.

        Where it is the first time, one that was given back since is left to the next sweep.
        """
        for attempt_id in attempt_ids:
            p = self.attempts[attempt_id]
            if p.state is not _ISSUED or p.published_at is not None:
                continue
            if p.publish_count == 0 or not is_first:
                p.published_at = self.now
                p.publish_count = max(p.publish_count, 1)
                self.touched.append(p)

    def note_republished(self, attempt_ids: Iterable[int]) -> None:
        """Each attempt that is still issued counts one publication more."""
        for attempt_id in attempt_ids:
            p = self.attempts[attempt_id]
            if p.state is _ISSUED:
                p.published_at = self.now
                p.publish_count += 1
                self.touched.append(p)

    def ask_for_publication(self, attempt_id: int) -> None:
        """The next sweep publishes the attempt, if it is still issued."""
        p = self.attempts[attempt_id]
        if p.state is _ISSUED:
            p.published_at = None
            p.publish_count = max(p.publish_count, 1)
            self.touched.append(p)

    def unpublished(self) -> list[Message]:
        """Messages of issued attempts that nobody noted as published."""
        limit = self.now - UNPUBLISHED_AFTER_S
        return [
            self.message_of(p)
            for p in self._current(_ISSUED)
            if p.published_at is None and p.issued_at is not None and p.issued_at < limit
        ]

    def unclaimed(self) -> list[Unclaimed]:
        """Attempts that were published long ago and not claimed since."""
        limit = self.now - QUEUED_TIMEOUT_S
        return [
            Unclaimed(self.message_of(p), self._is_overtaken(p))
            for p in self._current(_ISSUED)
            if p.published_at is not None and p.published_at < limit
        ]

    def _is_overtaken(self, p: Attempt) -> bool:
        limit = self.now - SERVED_WITHIN_S
        assert p.published_at is not None
        return any(
            q.id > p.id
            and q.published_at is not None
            and q.published_at > p.published_at
            and q.started_at is not None
            and q.started_at < limit
            for q in self.attempts.values()
        )

    def _current(self, state: AttemptState) -> list[Attempt]:
        found = []
        for p in self.live.values():
            if p.state is state and p.ti_id is not None:
                ti = self.tis[p.ti_id]
                if ti.attempt_id == p.id and not ti.held:
                    found.append(p)
        return found

    # -- the worker ---------------------------------------------------------------------------

    def claim(self, message: Message, nonce: int, worker: int, pid: int) -> Claim | None:
        """The attempt runs under this delivery's nonce, or nothing changed."""
        ti = self.tis[message.ti_id]
        if ti.attempt_id != message.attempt_id or ti.held:
            return None
        p = self.attempts[message.attempt_id]
        if p.token != message.token or p.fence != message.fence:
            return None
        if ti.state is not _QUEUED and not (ti.state is _RUNNING and ti.nonce == nonce):
            return None
        return self._start(ti, p, nonce, worker, pid)

    def _start(self, ti: TaskInstance, p: Attempt, nonce: int, worker: int, pid: int) -> Claim:
        ti.state = _RUNNING
        ti.nonce = nonce
        p.state = _ATTEMPT_RUNNING
        p.nonce = nonce
        p.worker = worker
        p.pid = pid
        if p.started_at is None:
            p.started_at = self.now
        if p.published_at is None:
            p.published_at = self.now
        p.publish_count = max(p.publish_count, 1)
        self.touched.append(ti)
        self.touched.append(p)
        return Claim(ti.id, ti.try_number, ti.max_tries, ti.resume_index, ti.next_method)

    def beat(self, attempt_ids: Sequence[int], worker: int) -> list[Beat]:
        """The heartbeat of each attempt of this worker is now; is it still wanted?"""
        answers = []
        for attempt_id in attempt_ids:
            p = self.attempts.get(attempt_id)
            if p is None:
                continue
            is_ours = p.state is _ATTEMPT_RUNNING and p.worker == worker
            ti = None if p.ti_id is None else self.tis[p.ti_id]
            is_wanted = (
                is_ours and ti is not None and ti.attempt_id == p.id and ti.state is _RUNNING
            )
            answers.append(Beat(p.id, is_wanted, p.state))
            if is_ours:
                p.heartbeat_at = self.now
                self.touched.append(p)
        return answers

    def start_job(self, job_id: int) -> None:
        """The worker's incarnation has a row."""
        self.jobs[job_id] = Job(job_id, self.now)

    def beat_job(self, job_id: int) -> None:
        """The worker's heartbeat is now."""
        job = self.jobs[job_id]
        if not job.has_ended:
            job.heartbeat_at = self.now

    def end_job(self, job_id: int) -> None:
        """The worker ended by itself."""
        self.jobs[job_id].has_ended = True

    def is_alive(self, job_id: int | None) -> bool:
        """Whether the worker beats."""
        job = None if job_id is None else self.jobs.get(job_id)
        return job is not None and not job.has_ended and job.heartbeat_at > self.now - DEAD_AFTER_S

    def finish(
        self,
        ti_id: int,
        attempt_id: int,
        nonce: int,
        state: TaskState,
        outcome: AttemptOutcome,
        retry_after_s: float | None,
    ) -> bool:
        """Whether the report was accepted; if not, nothing changed."""
        ti = self.tis[ti_id]
        if ti.attempt_id != attempt_id or ti.nonce != nonce or ti.state is not _RUNNING:
            return False
        p = self.attempts[attempt_id]
        self._accept(ti, p, outcome)
        ti.state = state
        ti.is_open = retry_after_s is not None
        ti.next_retry_at = None if retry_after_s is None else self.now + retry_after_s
        ti.next_method = None
        ti.event = None
        return True

    def defer(self, ti_id: int, attempt_id: int, nonce: int, wait: Wait) -> bool:
        """Whether the deferral was accepted; then its trigger waits."""
        ti = self.tis[ti_id]
        if ti.attempt_id != attempt_id or ti.nonce != nonce or ti.state is not _RUNNING:
            return False
        if self.is_unique and any(
            (g.ti_id, g.try_number, g.resume_index) == (ti_id, ti.try_number, ti.resume_index)
            for g in self.triggers
        ):
            raise UniqueViolation
        self._accept(ti, self.attempts[attempt_id], AttemptOutcome.DEFERRED)
        ti.state = _DEFERRED
        ti.next_method = "resumed"
        ti.event = None
        trigger = Trigger(len(self.triggers) + 1, ti, wait.kind)
        if wait.due_after_s is not None:
            trigger.due_at = self.now + wait.due_after_s
        if wait.timeout_s is not None:
            trigger.timeout_at = self.now + wait.timeout_s
        if wait.kind == "event":
            trigger.wake_at = self.now
        else:
            trigger.wake_at = _least(trigger.due_at, trigger.timeout_at)
        self.triggers.append(trigger)
        self.touched.append(trigger)
        return True

    def _accept(self, ti: TaskInstance, p: Attempt, outcome: AttemptOutcome) -> None:
        if self.is_unique and any(
            q.is_accepted
            and (q.ti_id, q.try_number, q.resume_index) == (p.ti_id, p.try_number, p.resume_index)
            for q in self.attempts.values()
        ):
            raise UniqueViolation
        p.is_accepted = True
        self.end(p, outcome)
        self.touched.append(ti)

    def end(self, p: Attempt, outcome: AttemptOutcome) -> None:
        """The attempt is over."""
        p.state = _ENDED
        p.is_live = False
        p.outcome = outcome
        self.live.pop(p.id, None)
        self.touched.append(p)

    def hand_back(self, attempt_id: int, worker: int) -> bool:
        """Whether the worker's running attempt was given back."""
        found = self._running_one(attempt_id)
        if found is None or found[1].worker != worker:
            return False
        ti, p = found
        ti.state = _SCHEDULED
        self.touched.append(ti)
        self.end(p, AttemptOutcome.LOST)
        return True

    def fail_killed(self, attempt_id: int, state: TaskState, retry_after_s: float | None) -> bool:
        """Whether the running attempt was terminated."""
        found = self._running_one(attempt_id)
        if found is None:
            return False
        ti, p = found
        ti.state = state
        ti.is_open = retry_after_s is not None
        ti.next_retry_at = None if retry_after_s is None else self.now + retry_after_s
        ti.next_method = None
        ti.event = None
        self.touched.append(ti)
        self.end(p, AttemptOutcome.TERMINATED)
        return True

    def _running_one(self, attempt_id: int) -> tuple[TaskInstance, Attempt] | None:
        p = self.live.get(attempt_id)
        if p is None or p.state is not _ATTEMPT_RUNNING or p.ti_id is None:
            return None
        ti = self.tis[p.ti_id]
        if ti.attempt_id != p.id or ti.state is not _RUNNING:
            return None
        return ti, p

    def stale(self) -> list[int]:
        """Running attempts whose heartbeat died, and whose end no event has told yet."""
        limit = self.now - DEAD_AFTER_S
        told = {event.attempt_id for event in self.pending}
        return [
            p.id
            for p in self._current(_ATTEMPT_RUNNING)
            if self._seen_at(p) < limit and p.id not in told
        ]

    def _seen_at(self, p: Attempt) -> float:
        seen = self.started_at
        if p.started_at is not None and p.started_at > seen:
            seen = p.started_at
        if p.heartbeat_at is not None and p.heartbeat_at > seen:
            seen = p.heartbeat_at
        return seen

    def lose(self, attempt_ids: Sequence[int]) -> list[int]:
        """Each attempt that is still silent is lost, told by a confirmed event; their ids."""
        limit = self.now - DEAD_AFTER_S
        lost = []
        for attempt_id in attempt_ids:
            found = self._running_one(attempt_id)
            if found is None or found[0].held or self._seen_at(found[1]) >= limit:
                continue
            self.give_up(*found)
            lost.append(attempt_id)
        return lost

    def give_up(self, ti: TaskInstance, p: Attempt) -> None:
        """The attempt is lost; its task is scheduled again or, past the budget, failed."""
        is_open = ti.losses < self.budget
        ti.state = _SCHEDULED if is_open else _FAILED
        ti.is_open = is_open
        if not is_open:
            ti.next_method = ti.event = None
        ti.losses += 1
        self.touched.append(ti)
        self.end(p, AttemptOutcome.LOST)
        self.record_event(
            p.id, "worker_lost", f"lost:{p.id}", Judgement("confirmed", "worker_lost")
        )

    # -- events -------------------------------------------------------------------------------

    def record_event(
        self,
        attempt_id: int,
        kind: str,
        dedupe_key: str | None,
        judgement: Judgement | None,
        *,
        worker: int | None = None,
        pid: int | None = None,
    ) -> bool:
        """Whether the event is new; without a judgement it waits for one."""
        if dedupe_key is not None:
            if dedupe_key in self.dedupe:
                return False
            self.dedupe.add(dedupe_key)
        event = ExecutorEvent(len(self.events) + 1, attempt_id, kind, self.now, worker, pid)
        self.events.append(event)
        self.touched.append(event)
        if judgement is None:
            self.pending.append(event)
        else:
            _judge(event, judgement)
        return True

    def judge_event(self, event_id: int, judgement: Judgement) -> bool:
        """Whether the event was pending; then it has its verdict."""
        event = self.events[event_id - 1]
        if event.verdict != "pending":
            return False
        _judge(event, judgement)
        self.pending.remove(event)
        self.touched.append(event)
        return True

    def is_pending(self, event_id: int) -> bool:
        """Whether the event has no verdict yet."""
        return self.events[event_id - 1].verdict == "pending"

    def record_ghost(self, attempt_id: int, code: str, pid: int | None) -> None:
        """An execution that nobody issued has a row."""
        if attempt_id in self.attempts:
            return
        ghost = Attempt(attempt_id, None, None)
        ghost.state = _ENDED
        ghost.is_live = False
        ghost.outcome = AttemptOutcome.LOST
        ghost.filter_code = code
        ghost.pid = pid
        self.attempts[attempt_id] = ghost
        self.touched.append(ghost)

    # -- triggers -----------------------------------------------------------------------------

    def waiting_triggers(self) -> list[Trigger]:
        """Triggers that a triggerer watches: whatever they wait for may happen."""
        return [g for g in self.triggers if g.is_waiting and g.state == "waiting"]

    def due(self) -> tuple[list[Fire], bool]:
        """What waiting triggers fire with now without anybody telling them; did some go to sleep?"""
        now = self.now
        due = [
            g
            for g in self.triggers
            if g.is_waiting
            and g.wake_at is not None
            and g.wake_at <= now
            and not self.tis[g.ti_id].held
        ]
        fires = []
        slept = False
        for g in sorted(due, key=lambda g: (g.wake_at, g.id)):
            fire = self._came_to(g)
            if fire is None:
                if g.kind == "event":
                    g.wake_at = g.timeout_at
                    self.touched.append(g)
                    slept = True
            else:
                fires.append(fire)
        return fires, slept

    def _came_to(self, g: Trigger) -> Fire | None:
        if g.state != "waiting":
            return Fire(g.id, g.state, None)
        now = self.now
        if (
            g.due_at is not None
            and g.due_at <= now
            and (g.timeout_at is None or g.due_at <= g.timeout_at)
        ):
            return Fire(g.id, "fired", "event")
        if g.kind == "event":
            for event in self.external:
                if event.ti_id == g.ti_id and event.trigger_id is None:
                    return Fire(g.id, "fired", "event", event.id)
        if g.timeout_at is not None and g.timeout_at <= now:
            return Fire(g.id, "timed_out", "error")
        return None

    def fire(self, one: Fire) -> str:
        """What the fire did: moved, kept, over or late."""
        g = self.triggers[one.trigger_id - 1]
        if not g.is_waiting or (g.state == "waiting") != (one.payload is not None):
            return "late"
        ti = self.tis[g.ti_id]
        if one.payload is not None:
            g.state = one.state
            g.payload = one.payload
        self.touched.append(g)
        if ti.state is not _DEFERRED or (ti.try_number, ti.resume_index) != (
            g.try_number,
            g.resume_index,
        ):
            what = "over"
            g.state = "cancelled"
        elif ti.held:
            what = "kept"
        else:
            what = "moved"
            ti.state = _SCHEDULED
            ti.resume_index += 1
            ti.event = g.payload
            self.touched.append(ti)
        g.is_waiting = what == "kept"
        g.wake_at = self.now if what == "kept" else None
        if one.event_id is not None and what != "over":
            event = self.external[one.event_id - 1]
            if event.trigger_id is None:
                event.trigger_id = g.id
        return what

    def record_external(self, ti_id: int) -> tuple[int, int | None]:
        """The external event's id, and the trigger that waits for it, if one does."""
        event = ExternalEvent(len(self.external) + 1, ti_id)
        self.external.append(event)
        ti = self.tis[ti_id]
        for g in self.triggers:
            if (
                g.ti_id == ti_id
                and g.kind == "event"
                and g.is_waiting
                and g.state == "waiting"
                and (g.try_number, g.resume_index) == (ti.try_number, ti.resume_index)
            ):
                return event.id, g.id
        return event.id, None

    # -- freeze -------------------------------------------------------------------------------

    def hold(self, ti_ids: Iterable[int]) -> None:
        """The unfinished task instances among these are held."""
        for ti_id in ti_ids:
            ti = self.tis[ti_id]
            if ti.is_open:
                ti.held = True
                self.touched.append(ti)

    def freeze_run(self) -> None:
        """The run is frozen, and everything unfinished of it held."""
        self.run.frozen = True
        self.hold(range(len(self.tis)))

    def thaw(self, ti_ids: Iterable[int]) -> None:
        """The run goes on, and so do these of its task instances."""
        self.run.frozen = False
        for ti_id in ti_ids:
            self.tis[ti_id].held = False
            self.touched.append(self.tis[ti_id])

    # -- the server ---------------------------------------------------------------------------

    def advance(self, seconds: float) -> None:
        """So much time passes."""
        self.now += seconds

    def restart(self) -> None:
        """Silence counts from now on. Whoever had a transaction open rolled it back."""
        self.started_at = self.now

    def is_run_over(self) -> bool:
        """Whether the run has ended."""
        return self.run.state in RUN_TERMINAL


def _judge(event: ExecutorEvent, judgement: Judgement) -> None:
    event.verdict, event.code = judgement
    if judgement.verdict in ("ignored", "refused", "ghost"):
        event.filter_code = judgement.code


def _least(first: float | None, second: float | None) -> float | None:
    if first is None or second is None:
        return second if first is None else first
    return min(first, second)
