"""The scheduler's loop: wait for a hint or a due time, decide, publish, sweep."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import psycopg
from django.conf import settings

from scheduler_app.couriers.teller import Teller
from scheduler_app.hints.notices import Notices
from scheduler_app.processes import database, failpoints
from scheduler_app.processes.job import JobRow
from scheduler_app.rules.errors import Fenced
from scheduler_app.scheduler import callbacks, deadlines, orphans, reach, run_retries, sweep
from scheduler_app.scheduler.audit_ghosts import audit_ghosts
from scheduler_app.scheduler.backfills import advance_backfills
from scheduler_app.scheduler.contact import Contact
from scheduler_app.scheduler.create_runs import create_due_runs, seconds_to_next_due
from scheduler_app.scheduler.doorbell import Doorbell
from scheduler_app.scheduler.duplicate_runs import find_duplicate_runs
from scheduler_app.scheduler.failing_flows import pause_failing
from scheduler_app.scheduler.haunted import watch_for_ghosts
from scheduler_app.scheduler.judge import judge_pending
from scheduler_app.scheduler.leases import Leases
from scheduler_app.scheduler.publish import Publisher
from scheduler_app.scheduler.stopped_parents import end_with_their_tasks
from scheduler_app.scheduler.suspects import suspects
from scheduler_app.scheduler.take_over import follow_up, take_over
from scheduler_app.scheduler.thaw import thaw_due
from scheduler_app.scheduler.tick import Outcome, Ticker
from scheduler_app.scheduler.versions import Versions
from scheduler_app.transitions.counters import count
from scheduler_app.transitions.identity import database_identity
from scheduler_app.transitions.incident import raise_incident
from scheduler_app.transitions.task_stats import learn

if TYPE_CHECKING:
    from scheduler_app.executors.interface import Executor
    from scheduler_app.transitions.attempt import Message

POLL_INTERVAL_S: Final = 0.5  # in place of the sweep's interval while no hints are heard
TICK_GAP_MAX_S: Final = 0.02  # hints that come closer than this may share a tick
TICK_SHARE: Final = 0.5  # of the time that a tick took passes before the next one begins
EVENTS_INTERVAL_S: Final = 1.0  # while events wait for their grace to pass
ORPHANS_INTERVAL_S: Final = 30.0  # nothing of this product makes any
AGAIN_S: Final = 0.1  # runs that were locked, or that could not be finished with
ERROR_PAUSE_S: Final = 0.5
COPY_EXIT_CODE: Final = 75  # try again: started anew, it has an id of its own

logger = logging.getLogger(__name__)


# Keeps the flow versions in step with the flow folders until the event is set, and tells the first
# argument what each scan found. The catalog's; stations meet in rows and are wired by the command.
FlowWatch = Callable[[Callable[[dict[str, Any]], None], threading.Event], None]


class Scheduler:
    """One scheduler process. ``run`` returns after ``stop`` with all leases released."""

    def __init__(self, *, executor: Executor, watch_flows: FlowWatch, name: str = "") -> None:
        self._executor = executor
        self._publisher = Publisher(executor)
        self._watch_flows = watch_flows
        self._notices = Notices(settings.CACHE_URL)
        self._stopping = threading.Event()
        self._job = JobRow(
            kind="scheduler", name=name, detail={"carrier": executor.carrier}, on_stop=self.stop
        )
        self._leases = Leases(
            holder=self._job.id,
            ttl_s=settings.LEASE_TTL_S,
            renew_interval_s=settings.LEASE_RENEW_INTERVAL_S,
            deadline_s=settings.LEASE_DEADLINE_S,
            on_copied=self._copied,
        )
        self._doorbell = Doorbell(settings.CACHE_URL)
        self._teller = Teller(on_told=lambda: self._notices.changed(["incidents", "home"]))
        self._ticker = Ticker(self._leases)
        self._versions = Versions()
        self._started = time.monotonic()
        self._connection: psycopg.Connection[Any] | None = None
        self._contact = Contact(silence_max_s=settings.LEASE_DEADLINE_S)
        self._identity = ""
        self._dirty: set[int] = set()
        self._waiting: set[int] = set()  # no room last time; looked at whenever something ends
        self._queued: dict[str, set[int]] = {}  # runs that wait for a run of their flow to end
        self._retry_at: dict[int, float] = {}  # run -> monotonic time of its next retry
        self._queue_slots: dict[str, int] = {}
        self._unscanned: dict[int, int] = {}  # new terms whose live attempts were not gone over yet
        self._is_copy = False  # another process goes on under this one's id
        self._had_callbacks = False  # when the last sweep looked
        self._issued = 0  # attempts not counted yet: one write a sweep instead of one a tick
        self._refused = 0  # turns that the database refused and that are not counted yet
        self._next: dict[str, float] = dict.fromkeys(
            ("sweep", "balance", "runs", "events", "retries"), 0.0
        )
        self._orphans_at = 0.0  # looked for by the first sweep from then on
        # Not in the first moments of a stack, when workers have not said yet what they execute.
        self._next["audit"] = time.monotonic() + settings.GHOST_AUDIT_INTERVAL_S

    def stop(self, *_: object) -> None:
        """The loop ends at its next safe point. Callable from a signal handler or a thread."""
        self._stopping.set()
        self._doorbell.stop()

    def run(self) -> int:
        """Decides until stopped; the exit code. Raises ``psycopg.OperationalError`` without a database."""
        self._job.start()
        self._leases.start()
        self._doorbell.start()
        self._teller.start()
        self._notices.wake(leases=1)
        catalog = threading.Thread(
            target=self._watch_flows,
            args=(self._scanned, self._stopping),
            name="catalog",
            daemon=True,
        )
        catalog.start()
        try:
            while not self._stopping.is_set():
                self._guarded(self._turn)
        finally:
            self._teller.stop()
            self._leases.stop(None if self._is_copy else self._connection)
            if not self._is_copy:
                self._notices.wake(leases=1)
                self._notices.changed(["leases", "home"])
                self._job.end()
            self._executor.close()
        return COPY_EXIT_CODE if self._is_copy else 0

    def _copied(self) -> None:
        """A copy of this process goes on in its place: leases and job row are the copy's."""
        logger.error("another process runs under this one's job id; this one ends")
        self._is_copy = True
        self.stop()

    def _guarded(self, step: Callable[[], None]) -> None:
        """A fault of one turn is logged and the next turn starts afresh; the loop never ends by it."""
        try:
            step()
        except Fenced as error:
            logger.warning("a decision was refused", extra={"error": str(error)})
        except psycopg.Error as error:
            self._refused += 1
            logger.warning("the database refused a turn", extra={"error": str(error)})
            self._drop_connection(error)
            self._stopping.wait(ERROR_PAUSE_S)
        except Exception:  # the loop must outlive any single fault
            logger.exception("a turn of the scheduler failed")
            self._stopping.wait(ERROR_PAUSE_S)

    def _turn(self) -> None:
        wake = self._doorbell.wait(self._pause_s())
        failpoints.reach("turn.begin")
        if os.getpid() != self._job.pid:
            # A fork of a scheduler: its connections, threads and leases are its parent's.
            sys.stderr.write("This is a fork of a scheduler; only its parent decides.\n")
            os._exit(COPY_EXIT_CODE)
        now = time.monotonic()
        self._progressed(has_heard=False)
        connection = self._connect()
        self._dirty |= wake.runs
        self._ticker.doubt(wake.acted_on)
        if wake.runs or wake.room:
            # Something moved: there may be room for those that had none.
            self._dirty |= self._waiting
        if wake.leases or now >= self._next["balance"]:
            self._next["balance"] = now + settings.LEASE_RENEW_INTERVAL_S
            self._balance(connection)
            self._progressed()
        terms = {s: t for s, t in self._leases.terms().items() if s not in self._unscanned}
        if not terms:
            return
        if wake.flows or now >= self._next["runs"]:
            self._create_runs(connection, terms)
            self._progressed()
        if wake.events or now >= self._next["events"]:
            self._judge(connection, terms)
            self._progressed()
        if now >= self._next["sweep"]:
            self._sweep(connection, terms)
            self._progressed()
        if now >= self._next["retries"]:
            self._begin_run_attempts(connection, terms)
        if now >= self._next["audit"]:
            self._audit(connection, terms)
            self._progressed()
        due = {run_id for run_id, at in self._retry_at.items() if at <= now}
        self._dirty |= due
        if self._dirty:
            self._tick(connection, terms)
            self._contact.heard()
        if wake.callbacks:
            self._publish_callbacks(connection, terms)
        self._publisher.note(connection)

    def _progressed(self, *, has_heard: bool = True) -> None:
        """A step is done. Each counts: over a slow link a whole turn takes longer than a lease is trusted."""
        self._leases.loop_progressed()
        self._job.progressed()
        if has_heard:
            self._contact.heard()

    def _pause_s(self) -> float:
        now = time.monotonic()
        soonest = min(self._next.values())
        if self._retry_at:
            soonest = min(soonest, *self._retry_at.values())
        if self._dirty:
            soonest = min(soonest, now + AGAIN_S)
        if (noted_at := self._publisher.due_at()) is not None:
            soonest = min(soonest, noted_at)
        return max(0.0, min(soonest - now, settings.SCHEDULER_SWEEP_INTERVAL_S))

    def _tick(self, connection: psycopg.Connection[Any], terms: dict[int, int]) -> None:
        run_ids, self._dirty = self._dirty, set()
        began = time.monotonic()
        try:
            outcome = self._ticker.tick(
                connection, terms=terms, run_ids=run_ids, queue_slots=self._queue_slots
            )
        except Fenced as error:
            self._dirty |= run_ids
            self._leases.refused(connection, error, terms, "tick")
            raise
        except BaseException:
            self._dirty |= run_ids
            raise
        self._publish(connection, outcome.messages)
        self._issued += len(outcome.messages)
        if outcome.has_callbacks:
            self._publish_callbacks(connection, terms)
        self._remember(run_ids, outcome)
        if outcome.failing and pause_failing(
            connection, leases=self._leases, terms=terms, limits=outcome.failing
        ):
            self._notices.changed(["flows", "home"])
        for run_id, error_text in outcome.broken.items():
            raise_incident(
                connection,
                kind="run_not_decidable",
                subject=str(run_id),
                message=f"Run {run_id} cannot be decided: {error_text}",
            )
        if outcome.moved_runs:
            self._notices.changed(
                ["runs", "home", *(f"run:{run_id}" for run_id in outcome.moved_runs)]
            )
        # Hints that arrive meanwhile share the next tick. Where what waits in the queues lasts for a
        # while, nothing that is dispatched sooner would start sooner; where workers run dry, each
        # hint counts, and only as much time passes as keeps ticks from taking a whole core.
        took_s = time.monotonic() - began
        self._stopping.wait(min(TICK_GAP_MAX_S, max(TICK_SHARE * took_s, outcome.lasts_s / 2)))

    def _publish_callbacks(
        self, connection: psycopg.Connection[Any], terms: dict[int, int]
    ) -> None:
        """Callbacks that were issued, by whomever, are with the carrier as far as there is room."""
        messages = callbacks.unpublished(connection, terms=terms, queue_slots=self._queue_slots)
        self._publish(connection, messages)
        self._issued += len(messages)

    def _publish(
        self,
        connection: psycopg.Connection[Any],
        messages: list[Message],
        *,
        is_first: bool = True,
    ) -> None:
        self._publisher.publish(
            connection, identity=self._identity, messages=messages, is_first=is_first
        )

    def _remember(self, run_ids: set[int], outcome: Outcome) -> None:
        now = time.monotonic()
        self._dirty |= outcome.again
        self._waiting = (self._waiting - run_ids) | outcome.waiting_runs
        for run_id in run_ids:
            self._retry_at.pop(run_id, None)
        for run_id, in_s in outcome.retry_in_s.items():
            self._retry_at[run_id] = now + in_s
        for flow_id, queued in outcome.queued_runs.items():
            self._queued.setdefault(flow_id, set()).update(queued)
        for flow_id in outcome.ended_flows:
            self._dirty |= self._queued.pop(flow_id, set())
        if outcome.is_schedule_free:
            # A flow at its limit of active runs may go on with its schedule.
            self._next["runs"] = min(self._next["runs"], now)
        if outcome.is_retry_due:
            self._next["retries"] = min(self._next["retries"], now)

    def _create_runs(self, connection: psycopg.Connection[Any], terms: dict[int, int]) -> None:
        try:
            created = create_due_runs(connection, leases=self._leases, terms=terms)
            filled = advance_backfills(
                connection, leases=self._leases, terms=terms, versions=self._versions
            )
        except Fenced as error:
            self._leases.refused(connection, error, terms, "create_runs")
            raise
        self._dirty |= {*created.run_ids, *filled}
        if created.passed:
            self._notices.changed(["runs", "flows", "home"])
        if filled:
            self._ticker.forget(filled)
            self._notices.changed(["backfills", "runs", "home"])
        # Where a date was seen to, more may be due. What is due and was not is at its limit, or locked:
        # looked at again with the sweep.
        due_in_s = (
            0.0 if created.may_be_more else seconds_to_next_due(connection, shards=list(terms))
        )
        pause_s = settings.SCHEDULER_SWEEP_INTERVAL_S if due_in_s is None else max(due_in_s, 0.0)
        self._next["runs"] = time.monotonic() + min(pause_s, settings.SCHEDULER_SWEEP_INTERVAL_S)

    def _begin_run_attempts(
        self, connection: psycopg.Connection[Any], terms: dict[int, int]
    ) -> None:
        """What failed runs' policies ask for by now has begun."""
        try:
            moved, next_in_s = run_retries.begin_due(
                connection, leases=self._leases, terms=terms, versions=self._versions
            )
            if run_retries.resolve_overtaken(connection, leases=self._leases, terms=terms):
                self._notices.changed(["reviews", "home"])
        except Fenced as error:
            self._leases.refused(connection, error, terms, "run_retries")
            raise
        pause_s = settings.SCHEDULER_SWEEP_INTERVAL_S
        self._next["retries"] = time.monotonic() + min(next_in_s or pause_s, pause_s)
        if moved:
            self._dirty |= moved
            self._notices.changed(
                ["runs", "home", "reviews", *(f"run:{run_id}" for run_id in moved)]
            )

    def _judge(self, connection: psycopg.Connection[Any], terms: dict[int, int]) -> None:
        try:
            moved, waiting = judge_pending(connection, leases=self._leases, terms=terms)
        except Fenced as error:
            self._leases.refused(connection, error, terms, "judge")
            raise
        self._dirty |= moved
        if moved:
            self._notices.changed(["runs", *(f"run:{run_id}" for run_id in moved)])
            self._publish_callbacks(connection, terms)
        self._next["events"] = time.monotonic() + (
            EVENTS_INTERVAL_S if waiting else settings.SCHEDULER_SWEEP_INTERVAL_S
        )

    def _sweep(self, connection: psycopg.Connection[Any], terms: dict[int, int]) -> None:
        interval_s = (
            settings.SCHEDULER_SWEEP_INTERVAL_S if self._doorbell.connected else POLL_INTERVAL_S
        )
        self._next["sweep"] = time.monotonic() + interval_s
        self._watch(connection)
        self._progressed()
        active = sweep.active_runs(connection, shards=list(terms))
        self._dirty |= active
        self._ticker.doubt(active, by_the_way=True)
        self._waiting &= active
        self._retry_at = {run: at for run, at in self._retry_at.items() if run in active}
        # Also when nothing is active any more: what waited may just have ended.
        sweep.resolve_queue_incidents(connection)
        has_callbacks = callbacks.any_live(connection, terms)
        callbacks.forget_lost(connection)
        try:
            self._progressed()
            thawed = thaw_due(connection, leases=self._leases, terms=terms)
            if thawed:
                self._dirty |= thawed
                self._notices.deferred(
                    runs=thawed, topics=["runs", "home", *(f"run:{run_id}" for run_id in thawed)]
                )
            if ended := end_with_their_tasks(connection, leases=self._leases, terms=terms):
                self._dirty |= ended
                self._notices.changed(["runs", *(f"run:{run_id}" for run_id in ended)])
            if follow_up(connection, leases=self._leases, terms=terms):
                self._notices.changed(["leases"])
            deadlines.judge_deadlines(connection, leases=self._leases, terms=terms)
            deadlines.watch_for_expected(connection, leases=self._leases, terms=terms)
            if not (active or has_callbacks or self._had_callbacks):
                return
            self._had_callbacks = has_callbacks
            self._progressed()
            if has_callbacks:
                self._publish_callbacks(connection, terms)
            self._publisher.note(connection, all_of_them=True)
            messages = sweep.unpublished(
                connection, terms=terms, older_than_s=sweep.UNPUBLISHED_AFTER_S
            )
            self._publish(connection, messages, is_first=False)
            sweep.republish_unclaimed(
                connection,
                executor=self._executor,
                identity=self._identity,
                leases=self._leases,
                terms=terms,
                served=self._queue_slots,
            )
            self._progressed()
            sweep.watch_for_takers(connection, terms=terms, served=self._queue_slots)
            # Not in the first moments of a stack, when a triggerer may still be on its way.
            if time.monotonic() - self._started > settings.HEARTBEAT_DEAD_AFTER_S:
                sweep.watch_for_triggerers(connection, dead_after_s=settings.HEARTBEAT_DEAD_AFTER_S)
            moved = sweep.lose_silent(connection, leases=self._leases, terms=terms)
            if time.monotonic() >= self._orphans_at:
                self._orphans_at = time.monotonic() + ORPHANS_INTERVAL_S
                moved |= orphans.heal(connection, leases=self._leases, terms=terms)
        except Fenced as error:
            self._leases.refused(connection, error, terms, "sweep")
            raise
        if moved:
            self._dirty |= moved
            self._ticker.forget(moved)
            self._notices.changed(["runs", *(f"run:{run_id}" for run_id in moved)])

    def _watch(self, connection: psycopg.Connection[Any]) -> None:
        """Who is there is known, what is wrong with the stack is told, and what was done is counted."""
        stations = reach.alive(connection, alive_s=settings.JOB_ALIVE_S)
        self._queue_slots = reach.queue_slots(stations, carrier=self._executor.carrier)
        reach.watch_for_unreached(connection, stations)
        reach.watch_for_namesakes(connection, alive_s=settings.JOB_ALIVE_S)
        sweep.watch_for_leaderless(connection)
        issued, self._issued = self._issued, 0
        count(connection, "scheduler_attempts_issued_total", issued)
        refused, self._refused = self._refused, 0
        count(connection, "scheduler_turns_refused_total", refused)

    def _audit(self, connection: psycopg.Connection[Any], terms: dict[int, int]) -> None:
        """What should run, what does and what is under way are compared; tasks' histories grow."""
        self._next["audit"] = time.monotonic() + settings.GHOST_AUDIT_INTERVAL_S
        learn(connection)
        try:
            more = find_duplicate_runs(connection, leases=self._leases, terms=terms)
        except Fenced as error:
            self._leases.refused(connection, error, terms, "audit")
            raise
        self._progressed()
        more += suspects(connection, shards=list(terms))
        audited = audit_ghosts(
            connection,
            executor=self._executor,
            holder=self._job.id,
            shards=list(terms),
            more=more,
        )
        watch_for_ghosts(connection, dead_after_s=settings.HEARTBEAT_DEAD_AFTER_S)
        if audited.is_news:
            self._notices.changed(["ghosts", "home", "runs"])

    def _balance(self, connection: psycopg.Connection[Any]) -> None:
        """Shards are taken or given up; nothing is decided for a new one before it was gone over."""
        before = self._leases.terms()
        # A peer that has missed two beats may be the one whose lease ran out just now: nothing is
        # given up to it, and nothing kept free.
        self._unscanned |= self._leases.balance(
            connection, dead_after_s=settings.JOB_ALIVE_S, is_drained=self._job.is_drained
        )
        held = self._leases.terms()
        if before.keys() - held.keys():
            self._notices.wake(leases=1)
            self._notices.changed(["leases", "home"])
        self._unscanned = {s: t for s, t in self._unscanned.items() if held.get(s) == t}
        if not self._unscanned:
            return
        failpoints.reach("lease.acquired")
        try:
            take_over(connection, leases=self._leases, new_terms=self._unscanned)
        except Fenced as error:
            self._leases.refused(connection, error, self._unscanned, "take_over")
            raise
        self._unscanned = {}
        self._next.update(sweep=0.0, runs=0.0, events=0.0, retries=0.0)
        self._orphans_at = 0.0
        self._notices.changed(["leases", "home"])

    def _scanned(self, detail: dict[str, Any]) -> None:
        """A scan of the flow folders ended; called from the catalog's thread."""
        self._job.set_detail(catalog=detail)
        if detail.get("changed"):
            self._doorbell.ring(flows=True)
            self._notices.changed(["flows", "home"])

    def _connect(self) -> psycopg.Connection[Any]:
        if self._connection is None or self._connection.closed:
            try:
                self._connection = database.connect("scheduler")
            except psycopg.Error:
                self._contact.broke()
                raise
            self._identity = database_identity(self._connection)
        self._contact.tell(self._connection)
        return self._connection

    def _drop_connection(self, error: psycopg.Error) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            if connection.closed:
                self._contact.broke()
            logger.info("the connection is made anew", extra={"error": str(error)})
            connection.close()
