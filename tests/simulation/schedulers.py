"""What schedulers do: each method is one action and says whether anything was there to do.

A decision is always made of what was read before; with the fault ``stall`` it is written later,
when the world has moved on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from scheduler_app.rules.reconcile import Action
from scheduler_app.rules.states import RUN_TERMINAL, RunState
from tests.simulation import decisions
from tests.simulation.database import IDLE_IN_TRANSACTION_S, Dispatch, Judgement, Message
from tests.simulation.decisions import Plan, Seen
from tests.simulation.state import Scheduler, State

if TYPE_CHECKING:
    from scheduler_app.rules.reconcile import Verdict
    from tests.simulation.rows import Attempt, ExecutorEvent, TaskInstance

GRACE_S: Final = 5.0


class Decided(NamedTuple):
    """What a tick is going to write."""

    plan: Plan
    dispatches: list[Dispatch]
    is_start: bool


class Schedulers(State):
    """Leases, ticks, publishing, judging, sweeps."""

    # -- leases -------------------------------------------------------------------------------

    def _holder(self, r: int) -> Scheduler | None:
        """One of those that believe to hold the lease."""
        found = [s for s in self.schedulers if s.token is not None]
        return found[r % len(found)] if found else None

    def acquire(self, r: int) -> bool:
        """A scheduler without a term tries to take the lease."""
        s = self.schedulers[r % 3]
        if s.token is not None or s.stalled is not None:
            return False
        token = self.db.acquire(s.boot)
        if token is None:
            return False
        if self.may_lose_answers and r >> 8 & 7 == 0:
            return True
        s.token = token
        if r >> 9 & 3:
            self._sweep_silent(s, r)  # as the first thing in its term
        return True

    def renew(self, r: int) -> bool:
        """A holder renews, or learns that it is none."""
        s = self._holder(r)
        if s is None:
            return False
        assert s.token is not None
        if not self.db.renew(s.boot, s.token):
            s.token = None
        return True

    def release(self, r: int) -> bool:
        """A holder gives the lease up at a safe point."""
        s = self._holder(r)
        if s is None or s.stalled is not None:
            return False
        assert s.token is not None
        self.db.release(s.boot, s.token)
        s.token = None
        return True

    def _begin(self, s: Scheduler) -> bool:
        """A transaction is open and starts with the proof; without the lease it is over again."""
        assert s.token is not None
        self.db.begin(s.boot)
        if self._prove(s):
            return True
        self.db.rollback()
        s.token = None
        return False

    def _prove(self, s: Scheduler) -> bool:
        assert s.token is not None
        return self.db.prove(s.boot, s.token)

    def _is_stalling(self, r: int) -> bool:
        return self.may_stall and r >> 12 & 1 == 0

    # -- the tick -----------------------------------------------------------------------------

    def tick(self, r: int) -> bool:
        """A holder decides for the run, in one transaction that may stay open for a while."""
        s = self._holder(r)
        if s is None or s.stalled is not None:
            return False
        if self.db.run.state in RUN_TERMINAL:
            return False
        if not self._begin(s):
            return True
        if not self.db.lock_run(s.boot) or self.db.run.frozen:
            self.db.rollback()
            return False
        decided = self._decide()
        if decided is None:
            self.db.rollback()
            return False
        if self._is_stalling(r):
            self.db.park(s.boot)
            s.stalled = ("tick", decided, self.db.now)
            return True
        self._write_tick(s, decided, r)
        return True

    def _decide(self) -> Decided | None:
        """What the run asks for now; ``None``: nothing."""
        db = self.db
        now = db.now
        tis = db.tis
        is_start = db.run.state is RunState.QUEUED
        seen = tuple(
            [
                Seen(
                    ti.state,
                    ti.held,
                    ti.next_retry_at is None or ti.next_retry_at <= now,
                    ti.attempt_id is not None,
                )
                for ti in tis
            ]
        )
        plan = self._plan(seen)
        if not is_start and not plan.marks and not plan.chosen and plan.state is RunState.RUNNING:
            return None
        dispatches = [self._dispatch_of(tis[place]) for place in plan.chosen]
        return Decided(plan, dispatches, is_start)

    def _plan(self, seen: tuple[Seen, ...]) -> Plan:
        return decisions.plan(self.flow, seen, self.slots - self.db.use(), self.slots)

    def _dispatch_of(self, ti: TaskInstance) -> Dispatch:
        outcome = None if ti.attempt_id is None else self.db.attempts[ti.attempt_id].outcome
        numbers = decisions.numbers(
            ti.state,
            ti.attempt_id is not None,
            outcome,
            ti.try_number,
            ti.resume_index,
            ti.dispatch_no,
        )
        return Dispatch(ti.id, self.new_id(), ti.attempt_id, *numbers)

    def _write_tick(self, s: Scheduler, decided: Decided, r: int) -> None:
        if self.may_abort and r >> 16 & 15 == 0:
            self.db.rollback()
            return
        db = self.db
        plan = decided.plan
        assert s.token is not None
        self.truth.deciding = (s.boot, s.token)
        if decided.is_start:
            db.start_run()
        if plan.marks:
            db.mark(plan.marks)
        messages: list[Message] = []
        if decided.dispatches:
            messages = db.dispatch(decided.dispatches, s.token)
        if plan.waiting and r >> 20 & 1:
            db.note_waits(plan.waiting)
        if plan.state is not RunState.RUNNING:
            db.end_run(plan.state)
        db.commit()
        if self.may_lose_answers and r >> 16 & 15 == 1:
            return  # committed, and nobody knows: the sweep finds the unpublished ones
        s.messages += messages

    # -- publishing ---------------------------------------------------------------------------

    def publish(self, r: int) -> bool:
        """The messages of a committed tick are with the carrier."""
        found = [s for s in self.schedulers if s.messages]
        if not found:
            return False
        self._publish(found[r % len(found)], r)
        return True

    def _publish(self, s: Scheduler, r: int) -> None:
        self.bag += s.messages
        self.messages_seen += s.messages
        s.published += [message.attempt_id for message in s.messages]
        s.messages = []
        if r >> 8 & 1:
            self._note(s)

    def note(self, r: int) -> bool:
        """What was published is noted as such."""
        found = [s for s in self.schedulers if s.published]
        if not found:
            return False
        self._note(found[r % len(found)])
        return True

    def _note(self, s: Scheduler) -> None:
        self.db.note_published(s.published)
        s.published = []

    def publish_unpublished(self, r: int) -> bool:
        """Issued attempts whose publication nobody noted are published."""
        s = self._holder(r)
        if s is None:
            return False
        found = self.db.unpublished()
        if not found:
            return False
        s.messages += sorted(found)
        self._publish(s, r)
        self.db.note_published(s.published, is_first=False)
        s.published = []
        return True

    def republish(self, r: int) -> bool:
        """Attempts whose message seems lost are published again: the same attempts."""
        s = self._holder(r)
        if s is None or s.stalled is not None:
            return False
        is_empty = not self.bag
        again = [row.message for row in self.db.unclaimed() if is_empty or row.is_overtaken]
        if not again:
            return False
        again.sort()
        if self._is_stalling(r):
            s.stalled = ("republish", again, self.db.now)
        else:
            self._write_republish(s, again, r)
        return True

    def _write_republish(self, s: Scheduler, again: list[Message], r: int) -> None:
        if not self._begin(s):
            return
        assert s.token is not None
        self.truth.deciding = (s.boot, s.token)
        self.db.note_republished([message.attempt_id for message in again])
        self.db.commit()
        if not (self.may_lose_answers and r >> 16 & 15 == 0):
            self.bag += again
            self.messages_seen += again

    # -- events -------------------------------------------------------------------------------

    def judge(self, r: int) -> bool:
        """A pending event gets its verdict, and what follows from it is written."""
        s = self._holder(r)
        if s is None or s.stalled is not None:
            return False
        event = self._judgeable(r >> 24)
        if event is None:
            return False
        if self._is_stalling(r):
            s.stalled = ("judge", event, self.db.now)
        else:
            self._write_judge(s, event, r)
        return True

    def _judgeable(self, start: int) -> ExecutorEvent | None:
        """A pending event that can be judged now."""
        pending = self.db.pending
        for place in range(len(pending)):
            event = pending[(start + place) % len(pending)]
            p, ti = self.db.facts(event.attempt_id)
            if ti is not None and ti.held:
                continue  # replayed at thaw
            if self._verdict(event, p, ti).verdict != "pending":
                return event
        return None

    def _verdict(self, event: ExecutorEvent, p: Attempt | None, ti: TaskInstance | None) -> Verdict:
        return decisions.verdict(
            event.kind,
            p,
            ti,
            grace_over=self.db.now - event.received_at >= GRACE_S,
            worker_alive=p is not None and self.db.is_alive(p.worker),
            is_anothers=self._is_anothers(event, p),
        )

    def _is_anothers(self, event: ExecutorEvent, p: Attempt | None) -> bool:
        """Whether the witness saw another process end than the one that claimed."""
        return (
            p is not None
            and event.pid is not None
            and (event.worker, event.pid) != (p.worker, p.pid)
        )

    def _write_judge(self, s: Scheduler, event: ExecutorEvent, r: int) -> None:
        if not self._begin(s):
            return
        db = self.db
        if self.may_abort and r >> 16 & 15 == 0:
            db.rollback()
            return
        # Read again, with the task instance locked.
        db.lock_task(event.attempt_id)
        p, ti = db.facts(event.attempt_id)
        if not db.is_pending(event.id) or (ti is not None and ti.held):
            db.rollback()
            return
        verdict = self._verdict(event, p, ti)
        if verdict.verdict == "pending" or not self._act(verdict, event, ti):
            db.rollback()
            return
        assert s.token is not None
        self.truth.deciding = (s.boot, s.token)
        db.judge_event(event.id, Judgement(verdict.verdict, verdict.code))
        db.commit()

    def _act(self, verdict: Verdict, event: ExecutorEvent, ti: TaskInstance | None) -> bool:
        """Whether what follows from the verdict is written."""
        db = self.db
        attempt_id = event.attempt_id
        match verdict.action:
            case Action.NONE:
                if verdict.verdict == "ghost":
                    db.record_ghost(attempt_id, verdict.code or "ghost_no_record", event.pid)
                return True
            case Action.PUBLISH_AGAIN:
                db.ask_for_publication(attempt_id)
                return True
            case Action.FAIL_KILLED:
                assert ti is not None
                return self.fail_killed(attempt_id, ti)
            case Action.MARK_LOST:
                return bool(db.lose([attempt_id]))
            case Action.BEGIN_ANEW | Action.CLOSE | Action.REPEAT_CALLBACK:
                message = "nobody clears, marks or calls back in this model"
                raise AssertionError(message)

    def fail_killed(self, attempt_id: int, ti: TaskInstance) -> bool:
        """Whether the attempt is terminated."""
        state, delay_s = decisions.after_failure(
            self.setup.tasks[ti.id], ti.try_number, ti.max_tries
        )
        return self.db.fail_killed(attempt_id, state, delay_s)

    # -- sweeps -------------------------------------------------------------------------------

    def lose(self, r: int) -> bool:
        """Attempts of silent workers are lost."""
        s = self._holder(r)
        if s is None or s.stalled is not None:
            return False
        return self._sweep_silent(s, r)

    def _sweep_silent(self, s: Scheduler, r: int) -> bool:
        stale = self.db.stale()
        if not stale:
            return False
        if self._is_stalling(r):
            s.stalled = ("lose", stale, self.db.now)
        else:
            self._write_lose(s, stale)
        return True

    def _write_lose(self, s: Scheduler, stale: list[int]) -> None:
        if self._begin(s):
            assert s.token is not None
            self.truth.deciding = (s.boot, s.token)
            self.db.lose(stale)
            self.db.commit()

    # -- stalled decisions --------------------------------------------------------------------

    def go_on(self, r: int) -> bool:
        """A stalled scheduler writes what it had decided."""
        found = [s for s in self.schedulers if s.stalled is not None]
        if not found:
            return False
        s = found[r % len(found)]
        assert s.stalled is not None
        step, decided, _ = s.stalled
        if s.token is None:
            self.abort_tick(s)
            return True
        s.stalled = None
        if step == "tick":
            self.db.unpark(s.boot)
            self._write_tick(s, decided, r)
        elif step == "judge":
            self._write_judge(s, decided, r)
        elif step == "lose":
            self._write_lose(s, decided)
        else:
            self._write_republish(s, decided, r)
        return True

    def end_idle_transactions(self) -> None:
        """The server ended the transactions that were idle for too long."""
        for s in self.schedulers:
            if (
                s.stalled is not None
                and s.stalled[0] == "tick"
                and self.db.now - s.stalled[2] > IDLE_IN_TRANSACTION_S
            ):
                self.abort_tick(s)

    def abort_tick(self, s: Scheduler) -> None:
        """The open transaction of a stalled tick is rolled back."""
        if s.stalled is not None and s.stalled[0] == "tick":
            self.db.unpark(s.boot)
            self.db.rollback()
        s.stalled = None

    def kill_scheduler(self, r: int) -> bool:
        """A scheduler dies, with all it remembers; another starts in its place."""
        s = self.schedulers[r % 3]
        self.abort_tick(s)
        s.boot = self.new_id()
        s.token = None
        s.messages = []
        s.published = []
        return True
