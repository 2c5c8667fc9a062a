"""Any sequence of clears, marks, retries, failures and ticks: nothing is hidden, exceeded or lost."""

from __future__ import annotations

import itertools
import uuid
from typing import TYPE_CHECKING, Any, Final

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scheduler_app.models import Attempt, Run, TaskInstance
from scheduler_app.operations.clear import clear_run, clear_task_instances
from scheduler_app.operations.mark import mark_run, mark_task_instances
from scheduler_app.operations.undo_clear import undo_clear
from scheduler_app.queries.audit_visibility import compare
from scheduler_app.rules.clear import Options
from scheduler_app.rules.errors import Conflict, NotAllowed
from scheduler_app.rules.states import AttemptOutcome, TaskState
from scheduler_app.transitions import attempt as moves
from tests.world import chain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scheduler_app.transitions.attempt import Message
    from tests.world import World

TASKS: Final = ("a", "b", "c")
RETRIES: Final = 2
STEPS: Final = st.lists(
    st.one_of(
        st.tuples(st.just("tick")),
        st.tuples(st.just("tick")),
        st.tuples(st.just("claim")),
        st.tuples(st.just("succeed")),
        st.tuples(st.just("fail")),
        st.tuples(st.just("stop")),
        st.tuples(st.just("clear"), st.sampled_from(TASKS), st.booleans()),
        st.tuples(st.just("clear run"), st.booleans()),
        st.tuples(
            st.just("mark"),
            st.sampled_from(TASKS),
            st.sampled_from(["success", "failed", "skipped"]),
        ),
        st.tuples(st.just("mark run"), st.sampled_from(["success", "failed"])),
        st.tuples(st.just("undo")),
    ),
    min_size=4,
    max_size=22,
)
_numbers = itertools.count()


class Play:
    """One run, moved step by step, and what was seen on the way."""

    def __init__(self, world: World) -> None:
        self.world = world
        name = f"f{next(_numbers)}"
        flow = world.flow(name, chain(*TASKS, retries=RETRIES, retry_delay_s=0), max_active_runs=9)
        self.run_id = world.run(flow)
        world.messages.clear()
        self.issued: dict[uuid.UUID, Message] = {}
        self.running: list[Message] = []
        self.accepted: set[uuid.UUID] = set()
        self.plans: list[uuid.UUID] = []

    def step(self, what: str, *args: Any) -> None:
        getattr(self, what.replace(" ", "_"))(*args)
        self.check_caps()

    def tick(self) -> None:
        self.world.tick(self.run_id)
        for message in self.world.messages:
            self.issued[message.attempt_id] = message
        self.world.messages.clear()

    def claim(self) -> None:
        for message in self.issued.values():
            claimed = {one.attempt_id for one in self.running}
            if message.attempt_id not in claimed and self.world.claim(message) is not None:
                self.running.append(message)
                return

    def succeed(self) -> None:
        self._report(state=TaskState.SUCCESS, outcome=AttemptOutcome.SUCCESS, result={"v": 1})

    def fail(self) -> None:
        if not self.running:
            return
        ti = TaskInstance.objects.get(pk=self.running[0].ti_id)
        may_retry = ti.try_number <= ti.max_tries  # as a worker counts
        self._report(
            state=TaskState.UP_FOR_RETRY if may_retry else TaskState.FAILED,
            is_open=may_retry,
            outcome=AttemptOutcome.FAILED,
            retry_after_s=0.0 if may_retry else None,
        )

    def stop(self) -> None:
        """A worker ends what it was asked to end: restarting begins anew, else it reports."""
        if not self.running:
            return
        message = self.running.pop(0)
        if moves.begin_anew(self.world.connection, attempt_id=message.attempt_id, reason="stopped"):
            return
        self.running.insert(0, message)
        self._report(state=TaskState.FAILED, outcome=AttemptOutcome.TERMINATED)

    def clear(self, task_id: str, downstream: bool) -> None:
        options = Options(include_downstream=downstream)
        self._act(clear_task_instances, ti_ids=[self._ti(task_id)], options=options, dry_run=False)

    def clear_run(self, only_failed: bool) -> None:
        options = Options(only_failed=only_failed)
        self._act(clear_run, run_id=self.run_id, options=options, dry_run=False)

    def mark(self, task_id: str, state: str) -> None:
        self._act(mark_task_instances, ti_ids=[self._ti(task_id)], state=state)

    def mark_run(self, state: str) -> None:
        self._act(mark_run, run_id=self.run_id, state=state)

    def undo(self) -> None:
        if self.plans:
            self._act(undo_clear, plan_id=self.plans[-1])

    def end(self) -> None:
        """Everything goes on to its end by itself."""
        for _ in range(30):
            while self.running:
                self.stop()
            self.tick()
            self.claim()
            while self.running:
                ti = TaskInstance.objects.get(pk=self.running[0].ti_id)
                asked = ti.state == "restarting" or ti.stop_requested_at is not None
                (self.stop if asked else self.succeed)()
            if not Run.objects.get(pk=self.run_id).is_active:
                return
        raise AssertionError(f"the run does not end: {self.world.states(self.run_id)}")

    def _act(self, act: Any, **asked: Any) -> None:
        try:
            done = act(actor="ada", reason="r", **asked)
        except (Conflict, NotAllowed):
            return
        if hasattr(done, "included") and hasattr(done, "plan_id"):
            self.plans.append(done.plan_id)

    def _report(self, **to: Any) -> None:
        if not self.running:
            return
        message = self.running.pop(0)
        values = {"is_open": False, **to}
        run_id = moves.finish(
            self.world.connection,
            ti_id=message.ti_id,
            attempt_id=message.attempt_id,
            nonce=uuid.UUID(int=message.attempt_id.int),
            **values,
        )
        if run_id is None:  # refused: cleared meanwhile; its worker ends it
            moves.begin_anew(self.world.connection, attempt_id=message.attempt_id, reason="stopped")
        elif to["outcome"] == AttemptOutcome.SUCCESS:
            self.accepted.add(message.attempt_id)

    def _ti(self, task_id: str) -> int:
        return TaskInstance.objects.get(run_id=self.run_id, task_id=task_id).pk

    # -- what must hold --------------------------------------------------------------------------

    def check_caps(self) -> None:
        live = Attempt.objects.filter(run_id=self.run_id, is_live=True, kind="task")
        by_ti = [one.ti_id for one in live]
        assert len(by_ti) == len(set(by_ti)), "two executions of one task at once"
        for ti in TaskInstance.objects.filter(run_id=self.run_id):
            assert ti.try_number - ti.budget_start <= RETRIES + 1, "more tries than its budget"
            tries = Attempt.objects.filter(ti_id=ti.pk, try_number__gt=ti.budget_start)
            assert len({one.try_number for one in tries}) <= RETRIES + 1

    def check_whole(self) -> None:
        stored = {one.pk: one for one in Attempt.objects.filter(run_id=self.run_id, kind="task")}
        assert set(stored) == set(self.issued), "every attempt that was issued has its row"
        for attempt_id in self.accepted:
            one = stored[attempt_id]
            assert (one.is_accepted, one.outcome, one.result) == (True, "success", {"v": 1})
        for ti in TaskInstance.objects.filter(run_id=self.run_id):
            current = [a for a in stored.values() if a.ti_id == ti.pk and a.filter_code is None]
            assert len(current) <= 1
            assert all(a.filter_detail for a in stored.values() if a.filter_code is not None)
        assert [one for one in compare() if one.differences] == []


@settings(
    max_examples=20,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(steps=STEPS)
def test_whatever_is_done_in_whatever_order_no_attempt_result_or_cap_is_lost(
    world: World, steps: Sequence[tuple[Any, ...]]
) -> None:
    play = Play(world)
    for step in steps:
        play.step(*step)
    play.end()
    play.check_whole()
