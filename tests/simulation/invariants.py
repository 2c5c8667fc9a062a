"""What must hold after every step: promises P1-P7 and invariants I1-I17, where the model has them.

A step can break only what it touched, so only those rows are looked at; ``check_all`` looks at
every row and is asked at the end of each world, also against a row that was written unseen.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final

from scheduler_app.rules import reconcile, visibility
from scheduler_app.rules.states import (
    ATTEMPT_MOVES,
    RUN_MOVES,
    RUN_TERMINAL,
    TASK_MOVES,
    TASK_TERMINAL,
    AttemptOutcome,
    AttemptState,
    RunState,
    TaskState,
)
from tests.simulation.rows import Attempt, ExecutorEvent, Run, TaskInstance, Trigger
from tests.simulation.state import Broken

if TYPE_CHECKING:
    from tests.simulation.rows import Row
    from tests.simulation.world import World

_WITHOUT_ATTEMPT: Final = frozenset({TaskState.NONE, TaskState.SKIPPED, TaskState.UPSTREAM_FAILED})
_SEALED: Final = ("state", "outcome", "is_accepted", "nonce", "is_live")
_EXITS: Final = frozenset(
    {reconcile.EXIT_SUCCESS, reconcile.EXIT_FAILED, reconcile.EXIT_KILLED, reconcile.WORKER_LOST}
)


class Invariants:
    """Remembers what was true before, and raises ``Broken`` when a step broke a promise."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.db = world.db
        self._run_state = RunState.QUEUED
        self._task_states = [TaskState.NONE] * len(world.db.tis)
        self._fences = [0] * len(world.db.tis)
        self._attempt_states: dict[int, AttemptState] = {}
        self._accepted: dict[tuple[int | None, int | None, int | None], int] = {}
        self._ended: dict[int, tuple[object, ...]] = {}
        self._verdicts: dict[int, tuple[str, str | None]] = {}
        self._token = 0

    def check(self) -> None:
        """Everything that the last step touched is as promised."""
        touched = self.db.touched
        self._check_lease()
        if not touched:
            return
        for row in touched:
            self._check_row(row)
        if self.db.run.state in RUN_TERMINAL:
            self._check_end()
        if len(self.db.live) > 1 and self.db.use() > self.db.slots:
            raise Broken(f"I12: {self.db.use()} slots of {self.db.slots} are used")
        touched.clear()

    def check_all(self) -> None:
        """Every row is as promised."""
        db = self.db
        for row in (*db.tis, *db.attempts.values(), *db.triggers, *db.events, db.run):
            self._check_row(row)
        if db.run.state in RUN_TERMINAL:
            self._check_end()
        self._check_standing()
        self._check_refusals()

    def _check_row(self, row: Row) -> None:
        if type(row) is TaskInstance:
            self._check_task(row)
        elif type(row) is Attempt:
            self._check_attempt(row)
        elif type(row) is ExecutorEvent:
            self._check_event(row)
        elif type(row) is Run:
            self._check_run(row)
        elif type(row) is Trigger:
            self._check_trigger(row)

    # -- leases -------------------------------------------------------------------------------

    def _check_lease(self) -> None:
        lease = self.db.lease
        if lease.token < self._token:
            raise Broken(f"I14: the token fell from {self._token} to {lease.token}")
        self._token = lease.token
        deciding = self.world.truth.deciding
        if deciding is not None:
            self.world.truth.deciding = None
            if deciding != (lease.holder, lease.token):
                raise Broken(
                    f"P6: scheduler {deciding[0]} decided under token {deciding[1]}; the lease is"
                    f" {lease.holder}'s, with token {lease.token}"
                )

    # -- run ----------------------------------------------------------------------------------

    def _check_run(self, run: Run) -> None:
        old = self._run_state
        if run.state is not old:
            if run.state not in RUN_MOVES[old] or old in RUN_TERMINAL:
                raise Broken(f"I7: the run moved from {old} to {run.state}")
            self._run_state = run.state

    def _check_end(self) -> None:
        for ti in self.db.tis:
            if ti.state not in TASK_TERMINAL:
                raise Broken(f"P5: the run ended while task {ti.id} is {ti.state}")
        for p in self.db.live.values():
            if p.filter_code is None:
                raise Broken(f"P5: the run ended while attempt {p.id} is {p.state}")

    # -- task instances -----------------------------------------------------------------------

    def _check_task(self, ti: TaskInstance) -> None:
        old, state = self._task_states[ti.id], ti.state
        if state is not old:
            if old in TASK_TERMINAL:
                raise Broken(f"P4: task {ti.id} moved from {old} to {state} by itself")
            if state not in TASK_MOVES[old]:
                raise Broken(f"I7: task {ti.id} moved from {old} to {state}")
            self._task_states[ti.id] = state
        if ti.is_open is (state in TASK_TERMINAL):
            raise Broken(f"rows: task {ti.id} is {state} and open: {ti.is_open}")
        if ti.attempt_id is None:
            if state in _WITHOUT_ATTEMPT or state is TaskState.SCHEDULED:
                return
            raise Broken(f"P1: task {ti.id} is {state} without an attempt")
        self._check_against_attempt(ti, self.db.attempts[ti.attempt_id])

    def _check_against_attempt(self, ti: TaskInstance, p: Attempt) -> None:
        state = ti.state
        if state is TaskState.QUEUED:
            fits = p.state is AttemptState.ISSUED
        elif state is TaskState.RUNNING:
            fits = p.state is AttemptState.RUNNING and p.nonce == ti.nonce
        else:
            fits = p.state is AttemptState.ENDED
        if not fits:
            raise Broken(f"rows: task {ti.id} is {state} and its attempt {p.id} is {p.state}")
        if state is TaskState.SUCCESS and not (
            p.is_accepted and p.outcome is AttemptOutcome.SUCCESS
        ):
            raise Broken(f"I17: task {ti.id} succeeded without a report: {p.outcome}")
        if state is TaskState.DEFERRED:
            waiting = [
                g
                for g in self.db.triggers
                if g.is_waiting
                and (g.ti_id, g.try_number, g.resume_index)
                == (ti.id, ti.try_number, ti.resume_index)
            ]
            if len(waiting) != 1:
                raise Broken(
                    f"rows: task {ti.id} is deferred and {len(waiting)} triggers wait for it"
                )

    # -- attempts -----------------------------------------------------------------------------

    def _check_attempt(self, p: Attempt) -> None:
        if p.ti_id is None:
            if p.filter_code is None:
                raise Broken(f"P2: ghost {p.id} is current")
            return
        ti = self.db.tis[p.ti_id]
        old = self._attempt_states.get(p.id)
        if old is None:
            if p.fence is None or p.fence <= self._fences[ti.id]:
                raise Broken(f"rows: the fence of attempt {p.id} does not grow")
            self._fences[ti.id] = p.fence
        elif p.state is not old and p.state not in ATTEMPT_MOVES[old]:
            raise Broken(f"I7: attempt {p.id} moved from {old} to {p.state}")
        self._attempt_states[p.id] = p.state
        if (p.filter_code is None) is not (ti.attempt_id == p.id):
            raise Broken(
                f"P2: attempt {p.id} has standing {p.filter_code}; its task's is {ti.attempt_id}"
            )
        if (p.outcome is None) is (p.state is AttemptState.ENDED):
            raise Broken(f"rows: attempt {p.id} is {p.state} with outcome {p.outcome}")
        if p.filter_code is not None and p.is_live:
            raise Broken(f"I1: attempt {p.id} was set aside while it is {p.state}")
        if p.state is AttemptState.ENDED:
            self._check_ended(p)

    def _check_ended(self, p: Attempt) -> None:
        seal = tuple([getattr(p, name) for name in _SEALED])
        if self._ended.setdefault(p.id, seal) != seal:
            raise Broken(f"P4: attempt {p.id} changed after its end: {seal}")
        if not p.is_accepted:
            if p.outcome is AttemptOutcome.TERMINATED and (
                p.nonce is None or p.nonce in self.world.truth.alive
            ):
                raise Broken(f"I8: attempt {p.id} was failed from outside, and nothing of it died")
            return
        key = (p.ti_id, p.try_number, p.resume_index)
        first = self._accepted.setdefault(key, p.id)
        if first != p.id:
            raise Broken(f"P3: attempts {first} and {p.id} were both accepted for {key}")
        said = self.world.truth.said.get(p.nonce or 0)
        if said is not p.outcome:
            raise Broken(f"I17: attempt {p.id} is {p.outcome}; its execution came to {said}")

    # -- triggers and events ------------------------------------------------------------------

    def _check_trigger(self, g: Trigger) -> None:
        if g.is_waiting and g.wake_at is None and g.kind != "watched" and g.timeout_at is not None:
            raise Broken(f"rows: nothing wakes trigger {g.id}")

    def _check_event(self, event: ExecutorEvent) -> None:
        if event.verdict == "pending":
            return
        now = (event.verdict, event.code)
        first = self._verdicts.setdefault(event.id, now)
        if first is now:
            self._check_verdict(event)
        elif first != now:
            raise Broken(f"I15: the verdict of event {event.id} changed to {now}")
        if event.filter_code != visibility.derive_event_standing(event.verdict, event.code):
            raise Broken(f"P2: event {event.id} is {now} with standing {event.filter_code}")

    def _check_verdict(self, event: ExecutorEvent) -> None:
        """The verdict is true as it is given."""
        now = (event.verdict, event.code)
        p = self.db.attempts.get(event.attempt_id)
        if p is None:
            raise Broken(f"P1: event {event.id} is {now} of an attempt without a row")
        if event.kind in _EXITS and p.outcome is AttemptOutcome.DEFERRED:
            if event.code != "stale_after_defer":
                raise Broken(f"I8: event {event.id} of a deferred attempt is {now}")
        elif event.code == reconcile.KILLED_EXTERNALLY:
            if p.outcome is not AttemptOutcome.TERMINATED:
                raise Broken(f"I15: event {event.id} is {now}; attempt {p.id} is {p.outcome}")
        elif event.code == reconcile.LOST and p.outcome is not AttemptOutcome.LOST:
            raise Broken(f"I15: event {event.id} is {now}; attempt {p.id} is {p.outcome}")

    # -- at the end ---------------------------------------------------------------------------

    def _check_standing(self) -> None:
        """Each standing is what the product's own rules derive from the facts."""
        for ti in self.db.tis:
            attempts = sorted(
                (p for p in self.db.attempts.values() if p.ti_id == ti.id),
                key=lambda p: p.fence or 0,
            )
            for p, after in pairwise([*attempts, None]):
                assert p is not None
                derived = visibility.derive_attempt_standing(
                    visibility.AttemptStanding(
                        is_current=ti.attempt_id == p.id,
                        place=_place(p),
                        successor=None if after is None else _place(after),
                    )
                )
                if p.filter_code != derived:
                    raise Broken(f"P2: attempt {p.id} is {p.filter_code}; facts say {derived}")
                if p.superseded_by != (None if after is None else after.id):
                    raise Broken(f"P2: attempt {p.id} names {p.superseded_by} as its successor")

    def _check_refusals(self) -> None:
        told = sum(1 for event in self.db.events if event.kind == reconcile.DELIVERY_REFUSED)
        if told < self.world.truth.refusals:
            raise Broken(f"P1: {self.world.truth.refusals} refusals, {told} of them with a row")

    def check_over(self) -> None:
        """Nothing is left to do: every event judged, every trigger over, nothing live."""
        db = self.db
        if db.run.state not in RUN_TERMINAL:
            states = [str(ti.state) for ti in db.tis]
            raise Broken(f"I11: the run is still {db.run.state}, its tasks {states}")
        if db.live or db.pending or any(g.is_waiting for g in db.triggers):
            raise Broken(
                f"I11: left over: {len(db.live)} live attempts, {len(db.pending)} pending events"
            )


def _place(p: Attempt) -> visibility.Place:
    return visibility.Place(
        run_attempt=1,
        try_number=p.try_number or 0,
        resume_index=p.resume_index or 0,
        dispatch_no=p.dispatch_no or 0,
    )
