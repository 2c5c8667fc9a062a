"""What workers do: deliveries, claims, user code, reports, beats, and the witness of each exit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from scheduler_app.rules import reconcile
from scheduler_app.rules.states import AttemptOutcome, AttemptState, TaskState
from tests.simulation import decisions
from tests.simulation.database import Judgement, UniqueViolation, Wait
from tests.simulation.state import (
    CHILDREN_MAX,
    CLAIMING,
    EXECUTING,
    REPORTING,
    RESUMES_MAX,
    Broken,
    Child,
    Exit,
    Report,
    State,
    Worker,
)

if TYPE_CHECKING:
    from tests.simulation.rows import Attempt

FINISH_TRIES: Final = 3
STOP_GRACE_S: Final = 5.0
RESCHEDULE_S: Final = 8.0
DUE_AFTER_S: Final = 6.0
TIMEOUT_S: Final = 25.0


class Workers(State):
    """Three workers with two children each."""

    # -- delivery and claim -------------------------------------------------------------------

    def deliver(self, r: int) -> bool:
        """A worker takes any of the messages and, most often, claims at once."""
        bag = self.bag
        if not bag:
            return False
        worker = self.workers[r % 3]
        if worker.is_paused or len(worker.children) >= CHILDREN_MAX:
            return False
        place = (r >> 8) % len(bag)
        message = bag[place]
        bag[place] = bag[-1]
        bag.pop()
        child = Child(worker, message, self.new_id(), self.new_id())
        worker.children.append(child)
        self.children.append(child)
        if r >> 20 & 3:
            self._claim(child, r >> 4)
        return True

    def claim(self, r: int) -> bool:
        """A child whose claim has no answer yet claims again, under the same nonce."""
        child = self._child(r, CLAIMING)
        if child is None:
            return False
        self._claim(child, r)
        return True

    def _child(self, r: int, phase: int) -> Child | None:
        """One of the children in this phase whose worker is not paused."""
        found = [c for c in self.children if c.phase == phase and not c.worker.is_paused]
        return found[r % len(found)] if found else None

    def _claim(self, child: Child, r: int) -> None:
        if self.may_abort and r >> 16 & 15 == 0:
            return
        claim = self.db.claim(child.message, child.nonce, child.worker.job, child.pid)
        if claim is None:
            self._refused(child)
            return
        if self.may_lose_answers and r >> 16 & 15 == 1:
            return
        child.claim = claim
        child.phase = EXECUTING
        self._started(child)

    def _started(self, child: Child) -> None:
        truth = self.truth
        claim = child.claim
        assert claim is not None
        if claim.ti_id in truth.held:
            message = f"P7: attempt {child.message.attempt_id} started while its task is frozen"
            raise Broken(message)
        truth.alive.add(child.nonce)
        key = (claim.ti_id, claim.try_number, claim.resume_index)
        truth.starts[key] = starts = truth.starts.get(key, 0) + 1
        if starts > 1:
            losses = sum(
                1
                for p in self.db.attempts.values()
                if (p.ti_id, p.try_number, p.resume_index) == key
                and p.outcome is AttemptOutcome.LOST
            )
            if starts > 1 + losses:
                message = f"I16: {key} was started {starts} times, with {losses} recorded losses"
                raise Broken(message)

    def _refused(self, child: Child) -> None:
        """Nothing is executed, and an event says why, unless nothing stands against it any more."""
        if self._refuse(child):
            self.truth.refusals += 1
            self._gone(child)

    def _refuse(self, child: Child) -> bool:
        """Whether the refusal is an event now, judged at birth."""
        message = child.message
        p, ti = self.db.facts(message.attempt_id)
        code = decisions.refusal(
            p,
            ti,
            self.db.run.state,
            child.nonce,
            is_same=p is not None and (p.token, p.fence) == (message.token, message.fence),
        )
        if code is None:
            return False  # it claims again
        given = decisions.verdict(
            reconcile.DELIVERY_REFUSED,
            p,
            ti,
            grace_over=False,
            worker_alive=True,
            refusal=code,
        )
        if given.verdict == "ghost":
            self.db.record_ghost(message.attempt_id, given.code or code, child.pid)
        if code == "refused_frozen":
            self.db.ask_for_publication(message.attempt_id)  # its message is used up
        return self.db.record_event(
            message.attempt_id,
            reconcile.DELIVERY_REFUSED,
            f"refused:{message.attempt_id}:{child.nonce}",
            Judgement(given.verdict, given.code),
            worker=child.worker.job,
            pid=child.pid,
        )

    def _gone(self, child: Child) -> None:
        child.worker.children.remove(child)
        self.children.remove(child)
        self.truth.alive.discard(child.nonce)

    # -- user code and its report -------------------------------------------------------------

    def work(self, r: int) -> bool:
        """User code ends: with success, failure, a deferral, or to be run again later."""
        child = self._child(r, EXECUTING)
        if child is None:
            return False
        claim = child.claim
        assert claim is not None
        choice = r >> 8 & 15
        kind = self.setup.deferring[claim.ti_id]
        can_resume = claim.resume_index < RESUMES_MAX
        if choice >= 8 and kind is not None and can_resume:
            child.report = Report(
                child, AttemptOutcome.DEFERRED, TaskState.DEFERRED, wait=_wait(kind, r >> 12)
            )
        elif choice in (6, 7):
            state, delay_s = decisions.after_failure(
                self.setup.tasks[claim.ti_id], claim.try_number, claim.max_tries
            )
            child.report = Report(child, AttemptOutcome.FAILED, state, delay_s)
        elif choice == 5 and can_resume:
            child.report = Report(
                child, AttemptOutcome.RESCHEDULED, TaskState.UP_FOR_RESCHEDULE, RESCHEDULE_S
            )
        else:
            child.report = Report(child, AttemptOutcome.SUCCESS, TaskState.SUCCESS)
        self.truth.said[child.nonce] = child.report.outcome
        child.phase = REPORTING
        if r >> 20 & 1:
            self._report(child, r)
        return True

    def report(self, r: int) -> bool:
        """A child sends its report."""
        child = self._child(r, REPORTING)
        if child is None:
            return False
        self._report(child, r)
        return True

    def _report(self, child: Child, r: int) -> None:
        report = child.report
        assert report is not None
        if self.may_abort and r >> 24 & 15 == 0:
            child.is_spooled = True
            return
        self.send(report)
        if self.may_lose_answers and r >> 24 & 15 == 1:
            child.is_spooled = True
            return
        child.worker.exits.append(Exit(child, decisions.exit_kind(report.outcome)))
        self._gone(child)

    def send(self, report: Report) -> None:
        """The report is accepted, or known to be, or an event says why it was not."""
        for _ in range(FINISH_TRIES):
            if self._finish(report):
                return
            p, ti = self.db.facts(report.attempt_id)
            is_mine = p is not None and p.nonce == report.nonce
            if p is not None and is_mine and p.is_accepted:
                return
            if not (
                p is not None
                and ti is not None
                and is_mine
                and ti.attempt_id == p.id
                and ti.state is TaskState.RUNNING
            ):
                break
        given = decisions.verdict(reconcile.LATE_REPORT, p, ti, grace_over=True, worker_alive=True)
        judgement = None
        if given.verdict != "pending":
            judgement = Judgement(given.verdict, given.code)
        self.db.record_event(
            report.attempt_id,
            reconcile.LATE_REPORT,
            f"late:{report.attempt_id}:{report.nonce}",
            judgement,
        )

    def _finish(self, report: Report) -> bool:
        try:
            if report.wait is not None:
                return self.db.defer(report.ti_id, report.attempt_id, report.nonce, report.wait)
            return self.db.finish(
                report.ti_id,
                report.attempt_id,
                report.nonce,
                report.state,
                report.outcome,
                report.delay_s,
            )
        except UniqueViolation:
            return False

    def send_leftover(self, r: int) -> bool:
        """A report that a dead worker spooled is sent by another, however late."""
        if not self.leftovers:
            return False
        self.send(self.leftovers.pop(r % len(self.leftovers)))
        return True

    # -- the main process ---------------------------------------------------------------------

    def witness(self, r: int) -> bool:
        """The main process writes how one of its executions ended."""
        found = [worker for worker in self.workers if worker.exits and not worker.is_paused]
        if not found:
            return False
        worker = found[r % len(found)]
        place = (r >> 8) % len(worker.exits)
        if self.may_abort and r >> 16 & 15 == 0:
            return False
        self._write_exit(worker.exits[place])
        if not (self.may_lose_answers and r >> 16 & 15 == 1):
            self.exits_seen.append(worker.exits.pop(place))
        return True

    def _write_exit(self, exit_: Exit) -> None:
        self._settle(exit_)
        self._tell(exit_)

    def _settle(self, exit_: Exit) -> None:
        """A report that was spooled is sent; what is handed back is."""
        if exit_.report is not None:
            self.send(exit_.report)
            exit_.report = None
        elif exit_.kind == reconcile.HANDED_BACK and not self._is_second(exit_):
            self._hand_back(exit_)

    def _hand_back(self, exit_: Exit) -> None:
        if not self.db.hand_back(exit_.attempt_id, exit_.worker):
            return
        p, _ = self.db.facts(exit_.attempt_id)
        if p is not None and p.nonce in self.truth.alive:
            raise Broken(f"I8: attempt {p.id} was handed back while it executes")

    def _tell(self, exit_: Exit) -> None:
        """The exit is an event, judged at once where nothing follows from it."""
        kind, refusal = exit_.kind, None
        if self._is_second(exit_):
            # It died with a second delivery in its hands.
            kind, refusal = reconcile.DELIVERY_REFUSED, "duplicate_delivery"
        p, ti = self.db.facts(exit_.attempt_id)
        given = decisions.verdict(kind, p, ti, grace_over=False, worker_alive=True, refusal=refusal)
        self.db.record_event(
            exit_.attempt_id,
            kind,
            f"exit:{exit_.attempt_id}:{exit_.worker}:{exit_.pid}",
            decisions.at_birth(given),
            worker=exit_.worker,
            pid=exit_.pid,
        )

    def _is_second(self, exit_: Exit) -> bool:
        """Whether another process than the one that ended claimed the attempt."""
        p, _ = self.db.facts(exit_.attempt_id)
        return p is not None and p.nonce is not None and not self._is_claimer(p, exit_)

    def _is_claimer(self, p: Attempt, exit_: Exit) -> bool:
        return (p.worker, p.pid) == (exit_.worker, exit_.pid)

    def beat(self, r: int) -> bool:
        """A worker beats for its executions, and stops those that are no longer wanted."""
        worker = self.workers[r % 3]
        if worker.is_paused:
            return False
        self.db.beat_job(worker.job)
        self._kill_overdue(worker)
        if not worker.children:
            return True
        by_attempt = {child.message.attempt_id: child for child in worker.children}
        for answer in sorted(self.db.beat(list(by_attempt), worker.job)):
            child = by_attempt[answer.attempt_id]
            if answer.is_wanted or answer.state is AttemptState.ISSUED:
                child.is_unwanted = False
            elif not child.is_unwanted:
                child.is_unwanted = True
            elif child.stop_at is None:
                child.stop_at = self.db.now + STOP_GRACE_S
                if r >> 8 & 1:
                    self._stop(child)
        return True

    def _stop(self, child: Child) -> None:
        """The child minds the polite request: it reports, or gives its unclaimed delivery up."""
        if child.phase == CLAIMING:
            self._gone(child)
        elif child.phase == EXECUTING:
            child.report = Report(child, AttemptOutcome.TERMINATED, TaskState.FAILED)
            self.truth.said[child.nonce] = child.report.outcome
            child.phase = REPORTING

    def _kill_overdue(self, worker: Worker) -> None:
        for child in [*worker.children]:
            if child.stop_at is None or self.db.now < child.stop_at or child.phase == REPORTING:
                continue
            attempt_id = child.message.attempt_id
            self._die(child)
            p, ti = self.db.facts(attempt_id)
            if p is None or ti is None or ti.attempt_id != p.id:
                continue
            if self._is_claimer(p, worker.exits[-1]):
                self.db.fail_killed(attempt_id, TaskState.FAILED, None)

    def drain(self, r: int) -> bool:
        """A worker shuts down: what executes is handed back; a new incarnation follows."""
        worker = self.workers[r % 3]
        if worker.is_paused:
            return False
        for child in [*worker.children]:
            if child.phase == EXECUTING:
                worker.exits.append(Exit(child, reconcile.HANDED_BACK))
                self._gone(child)
            elif child.report is not None:
                self.send(child.report)
                worker.exits.append(Exit(child, decisions.exit_kind(child.report.outcome)))
                self._gone(child)
            else:
                if r >> 12 & 1:
                    worker.exits.append(Exit(child, reconcile.HANDED_BACK))
                self._gone(child)
        written = worker.exits[: None if r >> 8 & 3 else 1]
        for exit_ in written:
            self._write_exit(exit_)
        self.exits_seen += written
        self.db.end_job(worker.job)
        self._restart(worker)
        return True

    # -- faults -------------------------------------------------------------------------------

    def kill_child(self, r: int) -> bool:
        """A child dies without a word, in any phase."""
        if not self.children:
            return False
        child = self.children[r % len(self.children)]
        if child.worker.is_paused:
            return False
        self._die(child)
        return True

    def exit_silently(self, r: int) -> bool:
        """A child's process ends well, without a report."""
        child = self._child(r, EXECUTING)
        if child is None:
            return False
        child.worker.exits.append(Exit(child, reconcile.EXIT_SUCCESS))
        self._gone(child)
        return True

    def _die(self, child: Child) -> None:
        spooled = child.report if child.is_spooled else None
        child.worker.exits.append(Exit(child, reconcile.EXIT_KILLED, spooled))
        self._gone(child)

    def kill_worker(self, r: int) -> bool:
        """A worker dies with its children; what was spooled is left on its disk."""
        worker = self.workers[r % 3]
        for child in [*worker.children]:
            if child.report is not None and child.is_spooled:
                self.leftovers.append(child.report)
            self._gone(child)
        self.leftovers += [one.report for one in worker.exits if one.report is not None]
        self._restart(worker)
        return True

    def pause_worker(self, r: int) -> bool:
        """A worker and its children are stopped; nobody knows."""
        worker = self.workers[r % 3]
        if worker.is_paused:
            return False
        worker.is_paused = True
        return True

    def resume_worker(self, r: int) -> bool:
        """A paused worker goes on as if nothing had happened."""
        worker = self.workers[r % 3]
        if not worker.is_paused:
            return False
        worker.is_paused = False
        return True

    def _restart(self, worker: Worker) -> None:
        worker.exits = []
        worker.is_paused = False
        worker.job = self.new_id()
        self.db.start_job(worker.job)


def _wait(kind: str, r: int) -> Wait:
    timeout_s = TIMEOUT_S if r & 1 else None
    return Wait(kind, DUE_AFTER_S if kind == "time" else None, timeout_s)
