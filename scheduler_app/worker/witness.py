"""The main process as a witness: what its children execute, how each execution ended, who died.

The event loop tells of each step; a thread of its own watches the children's processes and writes
the exit events, all of a tenth of a second in one insert.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import signal
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import psycopg

from scheduler_app.processes.attempt_records import records_of
from scheduler_app.rules import reconcile
from scheduler_app.rules.states import AttemptOutcome
from scheduler_app.rules.stopping import Stage, ended_by, explain
from scheduler_app.transitions.attempt import hand_back
from scheduler_app.transitions.executor_event import Judgement, NewEvent, record_events
from scheduler_app.transitions.inquiry import Holding
from scheduler_app.worker.facts import Facts, facts_of
from scheduler_app.worker.folder import REPORT, SPARE, STOP
from scheduler_app.worker.link import KeptConnection
from scheduler_app.worker.memory import remembered
from scheduler_app.worker.offspring import Process, send
from scheduler_app.worker.outcome import HANDED_BACK, REPORTED, Outcome
from scheduler_app.worker.report import Report, signature, storable
from scheduler_app.worker.report import send as send_report
from scheduler_app.worker.stopped import Stopped, record_stopped

if TYPE_CHECKING:
    from collections.abc import Callable

    from scheduler_app.hints.notices import Notices
    from scheduler_app.rules.ghosts import Record
    from scheduler_app.worker.station import Station

FLUSH_INTERVAL_S: Final = 0.1
# A child that is seen dead may have said its last word; the event loop may still have to read it.
LAST_WORD_S: Final = 0.3
NOTE_S: Final = 5.0  # after which a note about an unknown delivery is about a past one
ANNOUNCE_AFTER_S: Final = 0.3
RETRY_S: Final = 1.0
EVENTS_MAX: Final = 1000  # in one insert
ERROR_MAX: Final = 2000  # characters

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Execution:
    """One delivery in the hands of a child. Moments are of the monotonic clock."""

    key: str  # the attempt's id as text, by which it is looked up
    pid: int
    since: float
    limit_s: float | None = None  # its own time limit
    limit_at: float | None = None  # that should have ended it by then
    stop_why: str = ""  # empty: nobody wants it to stop
    stage: Stage = Stage.EXCEPTION  # of stopping it
    next_stage_at: float | None = None  # null: who asked decides for itself
    may_retry: bool = False  # once it was stopped
    offspring: frozenset[Process] = frozenset()  # what it had started when a stage began
    is_handed_back: bool = False  # once it has ended without a report
    is_announced: bool = False  # pages were told that it runs
    known: Record | None = None  # what the database said of it then; it may lose its records
    is_pools: bool = False  # its pool alone tells of its end

    @property
    def attempt_id(self) -> UUID:
        """Of the attempt that it executes."""
        return UUID(self.key)


@dataclass(frozen=True, slots=True)
class Exit:
    """How one execution ended, not yet written."""

    attempt_id: UUID
    pid: int
    kind: str
    payload: dict[str, Any] = field(default_factory=dict)
    stopped: Stopped | None = None  # it ended without a report, and because it had to


class Witness:
    """Knows which child executes which attempt; writes one exit event per execution."""

    def __init__(self, at: Station, *, notices: Notices) -> None:
        self._at = at
        self._notices = notices
        self._source = signature(at.hostname)
        self._executions: dict[int, Execution] = {}  # by pid
        self._expected: dict[int, Execution] = {}  # by pid: what its child goes on with
        self.taken = 0  # deliveries that children were given
        self._exits: list[Exit] = []
        self._dead: list[tuple[float, int, int | None]] = []  # when seen, pid, exit code
        self._lock = threading.Lock()
        self._watch = ChildWatch()
        self._kept = KeptConnection("witness")
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work_forever, name="witness", daemon=True)
        self._notes: list[tuple[float, dict[str, Any]]] = []  # when read, and what it says
        # Ids of attempts that ended here of late, and before that: notes about them say nothing any more.
        self._past: set[str] = set()
        self._long_past: set[str] = set()
        self._past_until = time.monotonic() + NOTE_S
        self._waiting: set[int] = set()  # pids of children that wait for the database
        self.on_printed: Callable[[UUID, int], None] = lambda attempt_id, stored: None

    def start(self) -> None:
        """The thread runs."""
        self._thread.start()

    def stop(self, timeout_s: float) -> None:
        """Everything seen so far is written, as far as the database lets it in this time."""
        self._stopping.set()
        self._thread.join(timeout_s)

    # -- told by the event loop ---------------------------------------------------------------

    def accepted(self, pid: int, attempt_id: str, *, pool_tells: bool = False) -> None:
        """The child has the delivery. ``pool_tells``: ``lost`` is sure to be called if it dies.

        Otherwise its death is believed as soon as it is seen, whatever the pool will say of it later.
        """
        self._watch.add(pid)
        self.taken += 1
        execution = self._expected.get(pid)
        if execution is None or execution.key != attempt_id:
            execution = Execution(attempt_id, pid, 0.0)
        execution.since, execution.is_pools = time.monotonic(), pool_tells
        self._executions[pid] = execution
        self._expected.pop(pid, None)  # last: other threads find it in one of the two

    def expects(self, pid: int, attempt_id: str) -> None:
        """The child goes on with the delivery by itself, perhaps before the event loop hears of it."""
        self._expected[pid] = Execution(attempt_id, pid, time.monotonic())

    def expects_no_more(self, pid: int) -> None:
        """The delivery that the child was to go on with was taken out of its hands."""
        self._expected.pop(pid, None)

    def returned(self, pid: int | None, attempt_id: str, outcome: Outcome) -> None:
        """The child is through with the delivery."""
        execution = self._forget(pid, attempt_id)
        if execution is None:
            return
        if outcome.printed:
            self.on_printed(execution.attempt_id, outcome.log_stored)
        if outcome.what == HANDED_BACK:
            self._add(Exit(execution.attempt_id, execution.pid, reconcile.HANDED_BACK))
        elif outcome.what == REPORTED:
            is_success = outcome.outcome in _GOOD
            payload: dict[str, Any] = {"outcome": outcome.outcome}
            if outcome.outcome == AttemptOutcome.TERMINATED:
                payload |= {"why": execution.stop_why, "stopped_by": outcome.stopped_by}
            self._add(
                Exit(
                    execution.attempt_id,
                    execution.pid,
                    reconcile.EXIT_SUCCESS if is_success else reconcile.EXIT_FAILED,
                    payload,
                )
            )

    def lost(self, pid: int | None, attempt_id: str, exit_code: int | None) -> None:
        """The pool has seen that the child is gone, and has read its last words."""
        execution = self._forget(pid, attempt_id)
        if execution is not None:
            self._bury(execution, exit_code)

    def broke(self, pid: int | None, attempt_id: str, error: str) -> None:
        """The delivery ended in an error of this product's own code."""
        error = storable(error, ERROR_MAX)
        logger.error("a delivery broke", extra={"attempt_id": attempt_id, "error": error})
        execution = self._forget(pid, attempt_id)
        if execution is not None:
            self.on_printed(execution.attempt_id, 0)
            payload = {"error": error}
            self._add(Exit(execution.attempt_id, execution.pid, reconcile.EXIT_FAILED, payload))

    # -- asked by the other threads of the main process ---------------------------------------

    def executions(self) -> list[Execution]:
        """What the children execute now, or go on with."""
        return [*self._executions.values(), *self._expected.values()]

    def holdings(self) -> list[Holding]:
        """What the children have in their hands now, for whoever asks over the database."""
        now = time.monotonic()
        return [
            Holding(
                attempt_id=execution.attempt_id,
                pid=execution.pid,
                is_alive=_is_process(execution.pid),
                for_s=now - execution.since,
                report_waits=self._at.folder.read(execution.attempt_id, REPORT) is not None,
            )
            for execution in self.executions()
        ]

    def still_executes(self, execution: Execution) -> bool:
        """Whether that child is still at that delivery, as far as the event loop knows."""
        at_hand = self._executions.get(execution.pid), self._expected.get(execution.pid)
        return any(each is execution for each in at_hand)

    def is_database_away(self) -> bool:
        """Whether some child waits for the database with a delivery in its hands."""
        return bool(self._waiting)

    # -- the thread ---------------------------------------------------------------------------

    def _work_forever(self) -> None:
        while not self._stopping.is_set():
            self._turn(FLUSH_INTERVAL_S)
        deadline = time.monotonic() + LAST_WORD_S + FLUSH_INTERVAL_S
        while time.monotonic() < deadline or self._dead:
            self._turn(FLUSH_INTERVAL_S)
        self._kept.drop()

    def _turn(self, wait_s: float) -> None:
        try:
            now = time.monotonic()
            for pid, exit_code in self._watch.wait(wait_s):
                self._dead.append((now, pid, exit_code))
            now = time.monotonic()
            self._read_notes(now)
            self._bury_the_dead(now)
            self._write()
            self._announce(now)
        except psycopg.Error as error:
            logger.warning("exit events wait for the database", extra={"error": str(error).strip()})
            self._kept.drop()
            time.sleep(RETRY_S)
        except Exception:  # the witness must outlive any single fault
            logger.exception("a turn of the witness failed")
            time.sleep(RETRY_S)

    def _read_notes(self, now: float) -> None:
        """Notes are heeded; one about a delivery that the event loop has not told of yet waits."""
        if now >= self._past_until:
            self._past_until = now + NOTE_S
            self._past, self._long_past = set(), self._past
        self._notes += [(now, note) for note in self._at.notes.read(is_past=self._is_past)]
        self._notes = [
            (read_at, note)
            for read_at, note in self._notes
            if not self._heed(note, read_at) and now - read_at < NOTE_S
        ]

    def _heed(self, note: dict[str, Any], read_at: float) -> bool:
        """Whether the note is done with."""
        if "waits" in note:
            (self._waiting.add if note["waits"] else self._waiting.discard)(note["pid"])
            return True
        at_hand = self._executions.get(note["pid"]), self._expected.get(note["pid"])
        execution = next((e for e in at_hand if e and e.key == note["attempt"]), None)
        if execution is None:
            return self._is_past(note["attempt"])
        if "claimed" in note:
            execution.known = execution.known or remembered(execution.attempt_id, note["claimed"])
            return True
        limit_s = execution.limit_s = note["limit_s"]
        execution.limit_at = None if limit_s is None else read_at + limit_s
        return True

    def _is_past(self, attempt_id: str) -> bool:
        """Whether the attempt has ended here, as far as is still known; the same may come again."""
        if attempt_id not in self._past and attempt_id not in self._long_past:
            return False
        return all(each.key != attempt_id for each in self.executions())

    def _bury_the_dead(self, now: float) -> None:
        """Children that died and had time for their last word are buried with their executions."""
        waiting = []
        for seen_at, pid, exit_code in self._dead:
            if now - seen_at < LAST_WORD_S:
                waiting.append((seen_at, pid, exit_code))
                continue
            self._waiting.discard(pid)
            self._at.folder.drop(str(pid), SPARE)
            execution = self._executions.get(pid)
            if execution is not None and not execution.is_pools:
                self._executions.pop(pid, None)
                self._bury(execution, exit_code)
        self._dead = waiting

    def _bury(self, execution: Execution, exit_code: int | None) -> None:
        # What the child started must not go on unseen.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(execution.pid, signal.SIGKILL)
        send(execution.offspring, signal.SIGKILL)
        payload, stopped = _how(exit_code), None
        if execution.stop_why:
            stage = ended_by(execution.stage, exit_code=exit_code)
            payload |= {"why": execution.stop_why, "stopped_by": stage}
            if not execution.is_handed_back:
                stopped = Stopped(
                    reason=explain(execution.stop_why, stage), may_retry=execution.may_retry
                )
            self._at.folder.drop(execution.attempt_id, STOP)
        kind = reconcile.HANDED_BACK if execution.is_handed_back else reconcile.EXIT_KILLED
        self._add(Exit(execution.attempt_id, execution.pid, kind, payload, stopped))
        self.on_printed(execution.attempt_id, 0)

    def _write(self) -> None:
        with self._lock:
            exits, self._exits = self._exits[:EVENTS_MAX], self._exits[EVENTS_MAX:]
        if not exits:
            return
        try:
            self._record(self._kept.get(), exits)
        except BaseException:
            with self._lock:
                self._exits[:0] = exits
            raise

    def _record(self, connection: psycopg.Connection[Any], exits: list[Exit]) -> None:
        for exit_ in exits:
            if exit_.kind in (reconcile.EXIT_KILLED, reconcile.HANDED_BACK):
                self._settle(connection, exit_)
        found = facts_of(connection, [exit_.attempt_id for exit_ in exits])
        events = [self._event(exit_, found.get(exit_.attempt_id)) for exit_ in exits]
        with connection.transaction():
            record_events(connection, events=events)
        if found:
            # Of all children at once: what they execute may end several hundred times a second.
            topics = {"runs"}
            for facts in found.values():
                topics |= {f"run:{facts.run_id}", f"ti:{facts.ti_id}"}
            self._notices.changed(topics)
        if any(event.judgement is None for event in events):
            self._notices.wake(events=1)

    def _announce(self, now: float) -> None:
        """Pages show what runs; of a short execution they hear when it has ended."""
        young = [
            execution
            for execution in self.executions()
            if not execution.is_announced and now - execution.since >= ANNOUNCE_AFTER_S
        ]
        if not young:
            return
        found = records_of(self._kept.get(), [execution.attempt_id for execution in young])
        topics = {"runs"}
        for record in found.values():
            topics |= {f"run:{record.run}", f"ti:{record.ti_id}"}
        self._notices.changed(topics)
        for execution in young:
            execution.is_announced = True
            # What is recorded by now may be the ghost's, which says nothing of what it works for.
            execution.known = execution.known or found.get(execution.attempt_id)

    def _settle(self, connection: psycopg.Connection[Any], exit_: Exit) -> None:
        """A report that the child spooled before its end is sent; else what is given back is."""
        content = self._at.folder.read(exit_.attempt_id, REPORT)
        if content is not None:
            run_id = send_report(
                connection, Report(**content), source=self._source, job_id=self._at.job_id
            )
            self._at.folder.drop(exit_.attempt_id, REPORT)
        elif exit_.kind == reconcile.HANDED_BACK:
            facts = facts_of(connection, [exit_.attempt_id]).get(exit_.attempt_id)
            if facts is None or self._is_anothers(exit_, facts):
                return  # a second delivery; the first one may go on
            run_id = hand_back(
                connection,
                attempt_id=exit_.attempt_id,
                worker_job_id=self._at.job_id,
                reason="Its worker was stopped and gave it back.",
            )
        elif exit_.stopped is not None:
            moved = record_stopped(
                connection,
                exit_.stopped,
                attempt_id=exit_.attempt_id,
                job_id=self._at.job_id,
                pid=exit_.pid,
            )
            if moved is not None:
                self._notices.both(
                    runs=[moved.run_id],
                    topics=[f"run:{moved.run_id}", f"ti:{moved.ti_id}", "runs"],
                    callbacks=moved.has_callbacks,
                )
            return
        else:
            return
        if run_id is not None:
            self._notices.both(runs=[run_id], topics=[f"run:{run_id}", "runs"])

    def _event(self, exit_: Exit, facts: Facts | None) -> NewEvent:
        payload = {**exit_.payload, "hostname": self._at.hostname, "pid": exit_.pid}
        kind, refusal = exit_.kind, None
        if facts is not None and self._is_anothers(exit_, facts):
            # It died with a second delivery in its hands, which it would have refused.
            kind, refusal = reconcile.DELIVERY_REFUSED, "duplicate_delivery"
            payload |= {
                "claimed_nonce": str(facts.nonce),
                "claimed_by": f"{facts.hostname}:{facts.pid}",
            }
        verdict = reconcile.reconcile(
            reconcile.Event(kind=kind, attempt_id=str(exit_.attempt_id), claimed=payload),
            facts.of_attempt() if facts else None,
            facts.of_task() if facts else None,
            reconcile.Facts(grace_over=False, worker_alive=True, refusal=refusal),
        )
        return NewEvent(
            attempt_id=exit_.attempt_id,
            kind=kind,
            source=self._source,
            source_job_id=self._at.job_id,
            payload=payload,
            dedupe_key=f"exit:{exit_.attempt_id}:{self._at.job_id}:{exit_.pid}",
            judgement=_plain(verdict),
        )

    def _is_anothers(self, exit_: Exit, facts: Facts) -> bool:
        """Whether some other process claimed the attempt: this one only had a second delivery."""
        claimer = (facts.worker_job_id, facts.pid)
        return facts.nonce is not None and claimer != (self._at.job_id, exit_.pid)

    def _add(self, exit_: Exit) -> None:
        with self._lock:
            self._exits.append(exit_)

    def _forget(self, pid: int | None, attempt_id: str) -> Execution | None:
        if pid is None:
            return None
        execution = self._executions.get(pid)
        if execution is None or execution.key != attempt_id:
            return None
        if self._executions.pop(pid, None) is None:
            return None  # its thread was first
        self._past.add(attempt_id)
        if execution.stop_why:
            self._at.folder.drop(execution.attempt_id, STOP)
        return execution


def _is_process(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _plain(verdict: reconcile.Verdict) -> Judgement | None:
    """The verdict, where nothing follows from it; ``None`` leaves it to the scheduler."""
    if verdict.verdict not in ("confirmed", "ignored", "refused"):
        return None
    if verdict.action is not reconcile.Action.NONE:
        return None
    return Judgement(
        verdict=verdict.verdict, code=verdict.code, reason=verdict.reason, detail=verdict.detail
    )


_GOOD: Final = frozenset(
    {AttemptOutcome.SUCCESS, AttemptOutcome.DEFERRED, AttemptOutcome.RESCHEDULED}
)


class ChildWatch:
    """Tells which processes have ended, at once and without reaping them.

    Where the system has no process descriptors nothing is told: the pool notices by itself, later.
    """

    def __init__(self) -> None:
        self._fds: dict[int, int] = {}  # pid -> descriptor
        self._pids: dict[int, int] = {}
        self._poll = select.epoll() if hasattr(os, "pidfd_open") else None

    def add(self, pid: int) -> None:
        """The process is watched. Called for every delivery, so cheap for a known one."""
        if pid in self._fds or self._poll is None:
            return
        try:
            fd = os.pidfd_open(pid)
        except ProcessLookupError:
            return  # gone and reaped: the pool has noticed already
        self._fds[pid] = fd
        self._pids[fd] = pid
        self._poll.register(fd, select.EPOLLIN)

    def wait(self, timeout_s: float) -> list[tuple[int, int | None]]:
        """The pids that have ended since, each with its exit code, as far as that can be had."""
        if self._poll is None:
            time.sleep(timeout_s)
            return []
        ended = []
        for fd, _ in self._poll.poll(timeout_s):
            pid = self._pids.pop(fd)
            ended.append((pid, _exit_code(fd)))
            self._poll.unregister(fd)
            self._fds.pop(pid)
            os.close(fd)
        return ended


def _exit_code(fd: int) -> int | None:
    """The exit code, or minus the signal; null if somebody else has taken it."""
    try:
        status = os.waitid(os.P_PIDFD, fd, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return None
    if status is None:
        return None
    return status.si_status if status.si_code == os.CLD_EXITED else -status.si_status


def _how(exit_code: int | None) -> dict[str, Any]:
    if exit_code is None:
        return {}
    if exit_code >= 0:
        return {"exit_code": exit_code}
    return {"signal": -exit_code, "signal_name": signal.Signals(-exit_code).name}


_witness: Witness | None = None


def set_witness(one: Witness) -> None:
    """The event loop of this process tells this witness."""
    global _witness  # noqa: PLW0603 - one a process
    _witness = one


def witness() -> Witness:
    """This process's witness."""
    assert _witness is not None, "the worker's main process sets it before it consumes"
    return _witness
