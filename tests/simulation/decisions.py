"""Every decision of the simulation, made by the product's own pure functions and remembered.

The world of the model is small, so the same questions come again and again: each answer is kept by
everything that the product's function sees of the question.
"""

from __future__ import annotations

import uuid
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple

from scheduler_app.rules import reconcile, retry
from scheduler_app.rules.definition import FlowDefinition, TaskDefinition
from scheduler_app.rules.states import (
    RUN_TERMINAL,
    AttemptOutcome,
    AttemptState,
    RunState,
    TaskState,
)
from scheduler_app.scheduler import dispatch_attempts, room, tick
from scheduler_app.scheduler.pace import Pace
from scheduler_app.scheduler.run_views import Instance, RunView
from scheduler_app.scheduler.turns import Turns
from scheduler_app.scheduler.versions import Version, _version
from scheduler_app.worker import refuse, report, witness
from scheduler_app.worker.facts import Facts
from tests.simulation.database import Judgement

if TYPE_CHECKING:
    from scheduler_app.rules.reconcile import Verdict
    from scheduler_app.scheduler.dispatch_attempts import Ready
    from tests.simulation.rows import Attempt, TaskInstance

NOW: Final = datetime(2026, 1, 1, tzinfo=UTC)
FLOW_ID: Final = "simulated"
RUN_ID: Final = 1
_IDS: Final = [uuid.UUID(int=number) for number in range(4)]


class Seen(NamedTuple):
    """What the scheduler's view says of one task instance."""

    state: TaskState
    held: bool
    is_due: bool
    has_attempt: bool


class Plan(NamedTuple):
    """What one tick decides for the run. Task instances by their place in the flow."""

    state: RunState
    marks: tuple[tuple[int, TaskState], ...]
    chosen: tuple[int, ...]
    waiting: tuple[int, ...]


class Numbers(NamedTuple):
    """The identity of the next attempt, and why its predecessor is set aside."""

    try_number: int
    resume_index: int
    dispatch_no: int
    cause: str | None


@dataclass(frozen=True, slots=True)
class Flow:
    """The simulated flow, with what was decided about it before."""

    tasks: tuple[TaskDefinition, ...]
    version: Version = field(init=False)
    plans: dict[tuple[tuple[Seen, ...], int], Plan] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        definition = FlowDefinition(flow_id=FLOW_ID, tasks=self.tasks)
        object.__setattr__(self, "version", _version(1, definition))


@cache
def flow_of(tasks: tuple[TaskDefinition, ...]) -> Flow:
    """The flow of these tasks: one object, so that its plans are found again."""
    return Flow(tasks)


def plan(flow: Flow, seen: tuple[Seen, ...], free_slots: int, slots: int) -> Plan:
    """The tick's decision on a run whose task instances are as seen."""
    key = (seen, free_slots)
    known = flow.plans.get(key)
    if known is None:
        known = flow.plans[key] = _plan(flow, seen, free_slots, slots)
    return known


def _plan(flow: Flow, seen: tuple[Seen, ...], free_slots: int, slots: int) -> Plan:
    view = RunView(
        run_id=RUN_ID, flow_id=FLOW_ID, shard=0, token=1, run_attempt=1, version=flow.version
    )
    for place, one in enumerate(seen):
        instance = _instance(place, flow.tasks[place].task_id, one)
        view.put(instance, is_open=one.state not in _CLOSED)
    decision = tick._decision(view)
    ready: list[Ready] = []
    marks: dict[int, TaskState] = {}
    tick._collect(view, decision, NOW, marks, ready, tick.Outcome())
    left = room.room_for(
        ready,
        pools={"default": room.Pool(slots=slots)},
        usage=room.Usage(pool_slots=Counter({"default": slots - free_slots})),
        queue_slots={"default": 8},
        pace=Pace(),
    )
    choice = dispatch_attempts.choose(ready, room=left, turns=Turns(), now=NOW)
    return Plan(
        decision.state,
        tuple(sorted(marks.items())),
        choice.chosen,
        tuple(sorted(choice.waiting)),
    )


_CLOSED: Final = frozenset(
    {
        TaskState.SUCCESS,
        TaskState.FAILED,
        TaskState.SKIPPED,
        TaskState.UPSTREAM_FAILED,
        TaskState.REMOVED,
    }
)


def _instance(place: int, task_id: str, seen: Seen) -> Instance:
    return Instance(
        ti_id=place,
        task_id=task_id,
        map_index=-1,
        state=seen.state,
        try_number=1,
        resume_index=0,
        dispatch_no=1,
        attempt_id=_IDS[0] if seen.has_attempt else None,
        held=seen.held,
        pool="default",
        slots=1,
        queue="default",
        priority=0,
        next_retry_at=None if seen.is_due else NOW + timedelta(seconds=1),
        wait_mark="",
        ready_since=NOW,
    )


@cache
def numbers(
    state: TaskState,
    has_attempt: bool,
    outcome: AttemptOutcome | None,
    try_number: int,
    resume_index: int,
    dispatch_no: int,
) -> Numbers:
    """Which of the three numbers grows with the next attempt."""
    instance = _instance(0, "a", Seen(state, False, True, has_attempt))
    instance.try_number = try_number
    instance.resume_index = resume_index
    instance.dispatch_no = dispatch_no
    view = RunView(
        run_id=RUN_ID, flow_id=FLOW_ID, shard=0, token=1, run_attempt=1, version=_SINGLE.version
    )
    outcomes = {} if outcome is None else {_IDS[0]: outcome}
    made = dispatch_attempts._dispatch(
        dispatch_attempts.Ready(view=view, instance=instance), outcomes
    )
    return Numbers(made.try_number, made.resume_index, made.dispatch_no, made.cause)


_SINGLE: Final = flow_of((TaskDefinition(task_id="a"),))


@cache
def after_failure(
    task: TaskDefinition, try_number: int, max_tries: int
) -> tuple[TaskState, float | None]:
    """What follows a failure in this try: state, and seconds to the next one."""
    state, follows = report.after_failure(
        task,
        retry.Failure(names=("builtins.ValueError",)),
        try_number=try_number,
        max_tries=max_tries,
        budget_start=0,
        jitter_key="r:a:-1",
    )
    return state, follows.delay_s


# -- events ---------------------------------------------------------------------------------------


def verdict(
    kind: str,
    p: Attempt | None,
    ti: TaskInstance | None,
    *,
    grace_over: bool,
    worker_alive: bool,
    refusal: str | None = None,
    is_anothers: bool = False,
) -> Verdict:
    """What the event means, by the rules' own ``reconcile``."""
    if p is None:
        return _verdict_without_attempt(kind, refusal)
    return _verdict(
        kind,
        p.state,
        p.outcome,
        ti is not None and ti.attempt_id == p.id,
        None if ti is None else ti.state,
        None if ti is None else ti.next_method,
        ti is not None and ti.held,
        grace_over,
        worker_alive,
        refusal,
        is_anothers,
    )


@cache
def _verdict_without_attempt(kind: str, refusal: str | None) -> Verdict:
    facts = reconcile.Facts(grace_over=True, worker_alive=True, refusal=refusal)
    return reconcile.reconcile(reconcile.Event(kind=kind, attempt_id="1"), None, None, facts)


@cache
def _verdict(
    kind: str,
    state: AttemptState,
    outcome: AttemptOutcome | None,
    is_current: bool,
    task_state: TaskState | None,
    next_method: str | None,
    held: bool,
    grace_over: bool,
    worker_alive: bool,
    refusal: str | None,
    is_anothers: bool,
) -> Verdict:
    attempt = reconcile.AttemptFacts(
        attempt_id="1",
        state=state,
        outcome=outcome,
        is_current=is_current,
        superseded_by=None if is_current else "2",
    )
    task = None
    if task_state is not None:
        task = reconcile.TaskFacts(
            state=task_state, try_number=1, next_method=next_method, held=held
        )
    facts = reconcile.Facts(
        grace_over=grace_over, worker_alive=worker_alive, refusal=refusal, is_anothers=is_anothers
    )
    return reconcile.reconcile(reconcile.Event(kind=kind, attempt_id="1"), attempt, task, facts)


def at_birth(given: Verdict) -> Judgement | None:
    """The verdict that the worker stores at once; ``None`` leaves the event to the scheduler."""
    return None if witness._plain(given) is None else Judgement(given.verdict, given.code)


def exit_kind(outcome: AttemptOutcome) -> str:
    """What the main process says of a child that reported this outcome."""
    return reconcile.EXIT_SUCCESS if outcome in witness._GOOD else reconcile.EXIT_FAILED


# -- refusals -------------------------------------------------------------------------------------


def refusal(
    p: Attempt | None, ti: TaskInstance | None, run_state: RunState, nonce: int, *, is_same: bool
) -> str | None:
    """Why the claim found nothing, by the worker's own rule; ``None``: nothing is against it now.

    ``is_same``: token and fence are those of the message.
    """
    if p is None:
        return "ghost_no_record"
    return _refusal(
        is_same,
        ti is not None and ti.attempt_id == p.id,
        p.filter_code,
        None if p.nonce is None else p.nonce == nonce,
        p.state,
        run_state in RUN_TERMINAL,
        ti is not None and ti.held,
        None if ti is None else ti.state,
    )


@cache
def _refusal(
    is_same: bool,
    is_current: bool,
    filter_code: str | None,
    is_mine: bool | None,
    state: AttemptState,
    is_run_over: bool,
    held: bool,
    task_state: TaskState | None,
) -> str | None:
    delivery = refuse.Delivery(
        attempt_id=_IDS[1], ti_id=1, fence=1, token=1, identity="", nonce=_IDS[2]
    )
    nonce = None if is_mine is None else _IDS[2] if is_mine else _IDS[3]
    facts = Facts(
        attempt_id=_IDS[1],
        state=state,
        outcome=None,
        nonce=nonce,
        lease_token=1 if is_same else 2,
        fence=1,
        is_accepted=False,
        superseded_by=None,
        filter_code=filter_code,
        stop_reason=None,
        worker_job_id=None,
        hostname=None,
        pid=None,
        ti_id=1,
        current_attempt_id=_IDS[1] if is_current else _IDS[0],
        ti_state=task_state,
        ti_try_number=1,
        next_method=None,
        held_by=1 if held else None,
        infra_losses=0,
        run_id=RUN_ID,
        run_state=RunState.SUCCESS if is_run_over else RunState.RUNNING,
    )
    return refuse.refusal_code(delivery, facts)
