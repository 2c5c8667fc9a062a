"""Worlds with one rule of the protocol broken: the invariants must catch each of them.

The first nine are those of the protocol's design; the others are faults that the simulation found
in this product, put back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from scheduler_app.rules import reconcile
from scheduler_app.rules.reconcile import Action, Verdict
from scheduler_app.rules.states import (
    RUN_TERMINAL,
    TASK_TERMINAL,
    AttemptOutcome,
    AttemptState,
    RunState,
    TaskState,
)
from tests.simulation import decisions
from tests.simulation.database import Claim, Database, Message
from tests.simulation.decisions import Plan, Seen
from tests.simulation.state import Exit, Scheduler, Setup
from tests.simulation.world import World

if TYPE_CHECKING:
    from tests.simulation.rows import Attempt, ExecutorEvent, TaskInstance

_MISMATCHING: Final = frozenset({TaskState.SCHEDULED, TaskState.QUEUED, TaskState.RUNNING})


class EventByTry(World):
    """Events name task and try alone; ``next_method`` excuses a success while the resume waits."""

    excused: frozenset[TaskState] = frozenset({TaskState.SCHEDULED, TaskState.QUEUED})

    def _verdict(self, event: ExecutorEvent, p: Attempt | None, ti: TaskInstance | None) -> Verdict:
        if p is None or ti is None or event.kind == reconcile.LATE_REPORT:
            return super()._verdict(event, p, ti)
        if p.try_number != ti.try_number or ti.state not in _MISMATCHING:
            return _say("ignored", "stale_superseded")
        is_success = event.kind == reconcile.EXIT_SUCCESS
        if is_success and ti.next_method is not None and ti.state in self.excused:
            return _say("ignored", "stale_after_defer")
        if self.db.now - event.received_at < 5:
            return _say("pending", None)
        return _say("confirmed", None, Action.FAIL_KILLED)

    def _act(self, verdict: Verdict, event: ExecutorEvent, ti: TaskInstance | None) -> bool:
        if verdict.action is not Action.FAIL_KILLED or ti is None or ti.attempt_id is None:
            return super()._act(verdict, event, ti)
        # Whatever attempt the task has by now is the one that "was killed externally".
        state, delay_s = decisions.after_failure(
            self.setup.tasks[ti.id], ti.try_number, ti.max_tries
        )
        ti.state = state
        ti.is_open = delay_s is not None
        ti.next_retry_at = None if delay_s is None else self.db.now + delay_s
        self.db.touched.append(ti)
        p = self.db.attempts[ti.attempt_id]
        if p.is_live:
            self.db.end(p, AttemptOutcome.TERMINATED)
        return True

    def _tell(self, exit_: Exit) -> None:
        self.db.record_event(exit_.attempt_id, exit_.kind, None, None)


class EventByTryWidest(EventByTry):
    """The same, and a running resume is excused too."""

    excused = _MISMATCHING


class NoFence(World):
    """Nobody asks whether the lease is still held."""

    def _prove(self, s: Scheduler) -> bool:
        del s
        return True


class _FinishesBlindly(Database):
    def finish(
        self,
        ti_id: int,
        attempt_id: int,
        nonce: int,
        state: TaskState,
        outcome: AttemptOutcome,
        retry_after_s: float | None,
    ) -> bool:
        p = self.attempts[attempt_id]
        if p.is_accepted:
            return super().finish(ti_id, attempt_id, nonce, state, outcome, retry_after_s)
        ti = self.tis[ti_id]
        self._accept(ti, p, outcome)
        ti.state = state
        ti.is_open = retry_after_s is not None
        ti.next_retry_at = None if retry_after_s is None else self.now + retry_after_s
        return True


class FinishBlind(World):
    """A report is accepted whether or not its attempt is still the one that counts."""

    database_class = _FinishesBlindly


class _ClaimsBlindly(Database):
    def claim(self, message: Message, nonce: int, worker: int, pid: int) -> Claim | None:
        p = self.attempts.get(message.attempt_id)
        ti = self.tis[message.ti_id]
        if p is None or ti.attempt_id != message.attempt_id or ti.held or ti.state in TASK_TERMINAL:
            return None
        return self._start(ti, p, nonce, worker, pid)


class ClaimBlind(World):
    """A delivery is claimed whether or not another one claimed before."""

    database_class = _ClaimsBlindly


class BlindReset(World):
    """What was read as silent is reset without looking again."""

    def _write_lose(self, s: Scheduler, stale: list[int]) -> None:
        if not self._begin(s):
            return
        for attempt_id in stale:
            p, ti = self.db.facts(attempt_id)
            assert p is not None
            assert ti is not None
            self.db.give_up(ti, p)
        self.db.commit()


class ResendNew(World):
    """A message that seems lost is replaced by a new attempt, not sent again."""

    def _write_republish(self, s: Scheduler, again: list[Message], r: int) -> None:
        del r
        if not self._begin(s):
            return
        for message in again:
            p, ti = self.db.facts(message.attempt_id)
            assert p is not None
            assert ti is not None
            if ti.attempt_id != p.id or ti.held:
                continue
            new_id = self.new_id()
            p.filter_code, p.superseded_by = "lost_worker", new_id
            self.db.touched.append(p)
            ti.state = TaskState.QUEUED
            ti.attempt_id = new_id
            ti.nonce = None
            ti.dispatch_no += 1
            self.db.touched.append(ti)
            self.bag.append(self.db.issue(ti, new_id, s.token or 0))
        self.db.commit()


class _EndsEarly(Database):
    def end_run(self, state: RunState) -> bool:
        if self.run.state in RUN_TERMINAL or self.live:
            return False
        if any(ti.is_open and ti.state is not TaskState.DEFERRED for ti in self.tis):
            return False
        self.run.state = state
        self.touched.append(self.run)
        return True


class TerminalEarly(World):
    """Who ends the run forgets that a deferred task is not over."""

    database_class = _EndsEarly

    def _plan(self, seen: tuple[Seen, ...]) -> Plan:
        plan = super()._plan(seen)
        if plan.state is RunState.RUNNING and not plan.chosen and not plan.waiting:
            return plan._replace(state=RunState.SUCCESS)
        return plan


class TrustExit(World):
    """A process that ended with 0 makes its task a success."""

    def _act(self, verdict: Verdict, event: ExecutorEvent, ti: TaskInstance | None) -> bool:
        if event.kind == reconcile.EXIT_SUCCESS and ti is not None and ti.attempt_id is not None:
            p = self.db.attempts[ti.attempt_id]
            if p.id == event.attempt_id and p.state is AttemptState.RUNNING:
                ti.state, ti.is_open = TaskState.SUCCESS, False
                self.db.touched.append(ti)
                self.db.end(p, AttemptOutcome.SUCCESS)
                return True
        return super()._act(verdict, event, ti)


# -- faults that were found in this product ---------------------------------------------------------


class SecondDeliveryUnseen(World):
    """Who judges an event does not ask which process claimed."""

    def _is_anothers(self, event: ExecutorEvent, p: Attempt | None) -> bool:
        del event, p
        return False


class SecondDeliveryKilled(World):
    """A worker that kills a child ends the attempt, whoever claimed it."""

    def _is_claimer(self, p: Attempt, exit_: Exit) -> bool:
        del p, exit_
        return True


class VerdictOfBefore(World):
    """The verdict is what was true when the event was first looked at."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.given: dict[int, Verdict] = {}

    def _verdict(self, event: ExecutorEvent, p: Attempt | None, ti: TaskInstance | None) -> Verdict:
        if event.id not in self.given:
            verdict = super()._verdict(event, p, ti)
            if verdict.verdict == "pending":
                return verdict
            self.given[event.id] = verdict
        return self.given[event.id]

    def _act(self, verdict: Verdict, event: ExecutorEvent, ti: TaskInstance | None) -> bool:
        super()._act(verdict, event, ti)
        return True


def _say(verdict: reconcile.VerdictName, code: str | None, action: Action = Action.NONE) -> Verdict:
    return Verdict(verdict=verdict, code=code, reason="", action=action)
