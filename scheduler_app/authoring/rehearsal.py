"""A run of a flow in this process, by the same rules and a clock of its own: ``flow.test()``.

Nothing is stored and nothing waits: a retry, a reschedule and a wait for a moment move the clock.
"""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID, uuid5

from scheduler_app.authoring.child_runs import ChildRun
from scheduler_app.authoring.context import Context
from scheduler_app.authoring.deferral import Defer, Reschedule, TriggerFailed
from scheduler_app.authoring.retrying import failure_of
from scheduler_app.authoring.skipping import Skip
from scheduler_app.authoring.triggers import (
    EventTrigger,
    PollTrigger,
    RunTrigger,
    TimeTrigger,
    Trigger,
)
from scheduler_app.rules import (
    callbacks,
    group_retry,
    mapping,
    params,
    retry,
    run_outcome,
    ties,
    timetable,
    values,
)
from scheduler_app.rules.errors import InvalidInput, NotFound
from scheduler_app.rules.group_retry import Act, GroupAttemptFacts, GroupState
from scheduler_app.rules.states import TASK_TERMINAL, AttemptOutcome, RunState, TaskState

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from scheduler_app.authoring.call import TaskCall
    from scheduler_app.authoring.child_runs import Ask
    from scheduler_app.authoring.flow import Flow
    from scheduler_app.rules.definition import FlowDefinition, TaskDefinition
    from scheduler_app.rules.mapping import MappedTask

NOON: Final = datetime(2026, 1, 1, 12, tzinfo=UTC)
ATTEMPTS_MAX: Final = 10_000
DEPTH_MAX: Final = 20  # of runs that trigger each other
RESULT_BYTES_MAX: Final = 1024 * 1024
MAP_LENGTH_MAX: Final = 1024  # where the task says nothing else
_WORST_FIRST: Final = ("failed", "upstream_failed", "removed", "skipped", "success")
_NAMESPACE: Final = UUID("2b1f6c62-4bb3-5c5e-9f6a-6f0f0a3f7a11")
TIME_LIMIT: Final = retry.Failure(names=("TaskTimeout", "builtins.TimeoutError"))
_DUE: Final = (TaskState.UP_FOR_RETRY, TaskState.UP_FOR_RESCHEDULE, TaskState.DEFERRED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """One attempt: what it came to, when by the rehearsal's clock, and what it raised."""

    task_id: str
    try_number: int
    resume_index: int
    outcome: str  # success, failed, deferred, rescheduled
    at: datetime
    error: BaseException | None = None
    why: str = ""  # of a failure: when another try follows, or why none does
    map_index: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Called:
    """A callback that would be called. It is not: what it tells goes to somebody."""

    task_id: str | None  # null: of the run
    on: str
    name: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Triggered:
    """A run of a flow that a task asked for."""

    task_id: str
    flow_id: str
    run_id: str
    conf: Mapping[str, Any]
    logical_date: datetime | None
    at: datetime
    # What became of it, if its flow was among ``flows``: else it was only asked for.
    run: Rehearsal | None = None


class TaskTimeout(BaseException):
    """The task took longer than its ``timeout``."""


@dataclass(slots=True, kw_only=True)
class Rehearsal:
    """What became of the run."""

    state: str = RunState.RUNNING
    reason: str = ""
    started_at: datetime
    ended_at: datetime
    states: dict[str, str] = field(default_factory=dict)  # by task; of a mapped one the worst
    # Of the tasks that succeeded; of a mapped one the list of what its instances returned.
    results: dict[str, Any] = field(default_factory=dict)
    # By task and map index: of the instances of mapped tasks.
    mapped_states: dict[tuple[str, int], str] = field(default_factory=dict)
    mapped_labels: dict[tuple[str, int], str] = field(default_factory=dict)
    attempts: list[Tried] = field(default_factory=list)
    callbacks: list[Called] = field(default_factory=list)
    pushed: dict[tuple[str, str], Any] = field(default_factory=dict)  # by task and key
    artifacts: dict[tuple[str, str], tuple[str, Any]] = field(default_factory=dict)  # kind, body
    checkpoints: dict[tuple[str, str], Any] = field(default_factory=dict)  # by owner and key
    progress: dict[str, tuple[int, int | None]] = field(default_factory=dict)  # done, total
    triggered: list[Triggered] = field(default_factory=list)  # runs of other flows
    group_attempts: dict[str, int] = field(default_factory=dict)  # of groups with retry

    def of(self, task_id: str) -> list[Tried]:
        """The attempts of the task, oldest first."""
        return [one for one in self.attempts if one.task_id == task_id]


@dataclass(slots=True, kw_only=True)
class _Instance:
    task: TaskDefinition
    state: TaskState = TaskState.NONE
    try_number: int = 0
    resume_index: int = 0
    due_at: datetime | None = None
    began_at: datetime | None = None  # of the try
    wait: tuple[str, dict[str, Any]] | None = None  # method, and what it resumes with
    max_tries: int = 0
    budget_start: int = 0
    map_index: int = -1
    result: Any = None

    @property
    def key(self) -> tuple[str, int]:
        return (self.task.task_id, self.map_index)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Child:
    """The newest run that a task asked for under one key."""

    asked: Triggered
    try_number: int
    waits: bool

    @property
    def is_bad(self) -> bool:
        return self.asked.run is not None and self.asked.run.state == RunState.FAILED

    def as_event(self) -> dict[str, Any]:
        """What a trigger says of its end."""
        ended = self.asked.run
        return {
            "flow_id": self.asked.flow_id,
            "run_id": self.asked.run_id,
            "task_id": None,
            "state": str(ended.state) if ended else "success",
            "ended_at": ended.ended_at if ended else self.asked.at,
            "reason": ended.reason if ended else "",
            "run": 0,
        }


def rehearse(
    definition: FlowDefinition,
    calls: Mapping[str, TaskCall],
    *,
    conf: Mapping[str, Any] | None = None,
    logical_date: datetime | None = None,
    at: datetime | None = None,
    events: Mapping[str, Any] | None = None,
    flows: Sequence[Flow] = (),
    depth: int = 0,
) -> Rehearsal:
    """The run, from its beginning to its end: see ``Flow.test``."""
    whole = {**definition.params, **(conf or {})}
    params.check(definition.param_schemas, whole)
    began = at or logical_date or NOON
    for given in (at, logical_date):
        if given is not None and given.utcoffset() is None:
            raise InvalidInput(f"{given!r} has no zone; write datetime(..., tzinfo=UTC).")
    stage = _Stage(
        definition=definition,
        calls=calls,
        conf=whole,
        logical_date=logical_date or began,
        events=events or {},
        flows={one.flow_id: one for one in flows},
        depth=depth,
        now=began,
        done=Rehearsal(started_at=began, ended_at=began),
    )
    return stage.play()


@dataclass(slots=True, kw_only=True)
class _Stage:
    definition: FlowDefinition
    calls: Mapping[str, TaskCall]
    conf: Mapping[str, Any]
    logical_date: datetime
    events: Mapping[str, Any]
    flows: Mapping[str, Flow]
    depth: int  # of this run below the one that was asked for
    now: datetime
    done: Rehearsal
    run_id: str = "rehearsal"
    fence: int = 0
    is_overdue: bool = False
    began_at: datetime | None = None  # the attempt that is being executed, by this clock
    limit_s: float | None = None  # of it
    given_up: set[str] = field(default_factory=set)
    group_attempts: dict[str, GroupAttemptFacts] = field(default_factory=dict)
    children: dict[tuple[str, str], _Child] = field(default_factory=dict)  # by task and key
    instances: dict[tuple[str, int], _Instance] = field(default_factory=dict)
    mapped: Mapping[str, MappedTask] = field(default_factory=dict)
    producers: frozenset[str] = frozenset()
    tried: dict[tuple[str, int], int] = field(default_factory=dict)  # before a group began anew

    def play(self) -> Rehearsal:
        """Step by step, until nothing is left to start or to wait for."""
        known = ties.ties_of(self.definition)
        self.mapped = mapping.mapped_tasks(self.definition)
        self.producers = mapping.producers(self.definition)
        self.instances = {
            (task.task_id, -1): _Instance(task=task, max_tries=task.retries)
            for task in self.definition.tasks
        }
        while True:
            decision = self._decide(known)
            for key, state in decision.marks.items():
                self._move(self.instances[key], state)
            expanded = [self._expand(task_id) for task_id in decision.expandable]
            if self._take_groups(known, decision) or any(expanded):
                continue
            if decision.state is not RunState.RUNNING:
                return self._end(decision.state, decision.reason)
            if len(self.done.attempts) >= ATTEMPTS_MAX:
                message = f"The run has made {ATTEMPTS_MAX:,} attempts and has not come to an end."
                raise InvalidInput(message)
            chosen = self._next(self._let_go(decision))
            if chosen is None and not self.is_overdue:
                continue  # a group begins anew
            if chosen is None:
                return self._end(
                    RunState.FAILED,
                    f"It was not through after its run_timeout of {self.definition.run_timeout_s:g} s.",
                )
            self._execute(chosen)

    def _let_go(self, decision: run_outcome.RunDecision) -> list[tuple[str, int]]:
        """The tasks that are ready, less those of a group that is about to begin anew."""
        waiting = {
            one for one, now in self.group_attempts.items() if now.state == GroupState.UP_FOR_RETRY
        }
        units = ties.ties_of(self.definition).units
        held = {task_id for group_id in waiting for task_id in units[group_id].members}
        return [key for key in decision.ready if key[0] not in held]

    def _decide(self, known: ties.Ties) -> run_outcome.RunDecision:
        return run_outcome.decide_run(
            upstream={task.task_id: task.upstream for task in self.definition.tasks},
            trigger_rules={task.task_id: task.trigger_rule for task in self.definition.tasks},
            instances=[
                run_outcome.InstanceState(task_id=task_id, map_index=map_index, state=one.state)
                for (task_id, map_index), one in self.instances.items()
            ],
            mapped=self.mapped,
            ties=known,
            choices={
                key: one.result
                for key, one in self.instances.items()
                if key[0] in known.pickers and one.state is TaskState.SUCCESS
            },
            given_up=self.given_up,
        )

    def _take_groups(self, known: ties.Ties, decision: run_outcome.RunDecision) -> bool:
        """Whether something of a group that is one unit has changed: begun, begun anew, given up."""
        has_changed = False
        for unit in known.units.values():
            members = [one for key, one in self.instances.items() if key[0] in unit.members]
            failed = [one for one in members if one.state is TaskState.FAILED]
            states = {one.state for one in members}
            useless = TaskState.UPSTREAM_FAILED in states and not failed
            attempt = self.group_attempts.get(unit.group_id)
            lets_go = any(task_id in unit.members for task_id, _ in decision.ready)
            follows = group_retry.decide(
                unit=decision.units[unit.group_id],
                has_begun=lets_go or states != {TaskState.NONE},
                attempt=attempt,
                retry=unit.retry,
                failure=", ".join(one.task.task_id for one in failed) + " failed.",
                barred="What it waits for failed." if useless else "",
                now=self.now,
            )
            has_changed |= self._take_group(unit, attempt, follows)
        return has_changed

    def _take_group(
        self, unit: ties.Unit, attempt: GroupAttemptFacts | None, follows: group_retry.GroupDecision
    ) -> bool:
        number = 0 if attempt is None else attempt.number
        match follows.act:
            case Act.NOTHING:
                return False
            case Act.BEGIN | Act.RETRY:
                number += 1
                state = GroupState.RUNNING
                if follows.act is Act.RETRY:
                    self._fold(unit.members)
                    for task_id in unit.members:
                        self._begin_anew(self.instances[task_id, -1])
            case Act.WAIT:
                state = GroupState.UP_FOR_RETRY
            case Act.SUCCEED:
                state = GroupState.SUCCESS
            case Act.GIVE_UP:
                state = GroupState.FAILED
                self.given_up.add(unit.group_id)
        self.done.group_attempts[unit.group_id] = number
        self.group_attempts[unit.group_id] = GroupAttemptFacts(
            number=number, budget_start=0, state=state, retry_at=follows.retry_at
        )
        return True

    def _fold(self, task_ids: Sequence[str]) -> None:
        """Mapped tasks among these have a summary again, to be expanded anew."""
        before, self.instances = self.instances, {}
        for key, one in before.items():
            task_id = key[0]
            if task_id not in task_ids or key[1] < 0:
                self.instances[key] = one
                continue
            self.tried[key] = one.try_number
            if (task_id, -1) not in self.instances:
                self.instances[task_id, -1] = replace(one, map_index=-1, result=None)

    def _begin_anew(self, one: _Instance) -> None:
        """The task has its whole budget again; its try does not fall."""
        one.budget_start = one.try_number
        one.max_tries = one.try_number + one.task.retries
        one.state, one.due_at, one.wait = TaskState.NONE, None, None
        self.done.results.pop(one.task.task_id, None)
        for key in [key for key in self.children if key[0].partition("[")[0] == one.task.task_id]:
            del self.children[key]

    def _expand(self, task_id: str) -> bool:
        """Whether the summary is gone: it has become the instances, or is marked."""
        own, summary = self.mapped[task_id], self.instances[task_id, -1]
        try:
            wanted = mapping.count(own.over, self).count
        except InvalidInput:
            self._move(summary, TaskState.UPSTREAM_FAILED)
            return True
        if wanted is None:
            inputs = [one for key, one in self.instances.items() if key[0] in own.inputs]
            if all(one.state in TASK_TERMINAL for one in inputs):
                self._move(summary, TaskState.UPSTREAM_FAILED)
                return True
            return False
        if wanted == 0:
            self._move(summary, TaskState.SKIPPED)
            return True
        # In the place of the summary, so that the order stays that of the flow.
        before = list(self.instances.items())
        self.instances = {}
        for key, one in before:
            if key != summary.key:
                self.instances[key] = one
                continue
            for index in range(wanted):
                tried = self.tried.get((task_id, index), 0)
                self.instances[task_id, index] = _Instance(
                    task=one.task,
                    try_number=tried,
                    budget_start=tried,
                    max_tries=tried + one.task.retries,
                    map_index=index,
                )
                self._label(own, one.task, index)
        return True

    def _label(self, own: MappedTask, task: TaskDefinition, index: int) -> None:
        if task.map_label:
            with suppress(InvalidInput, LookupError):
                arguments = mapping.arguments_at(own.over, index, self)
                label = mapping.label(task.map_label, arguments, index)
                self.done.mapped_labels[task.task_id, index] = label

    # -- what is mapped over: Items of authoring/mapping.py, and a Reader without live functions --

    def length(self, task_id: str) -> int | None:
        """How many elements the result has, or how many results a mapped task."""
        found = self._elements(task_id)
        return None if found is None else len(found)

    def item(self, task_id: str, place: int) -> Any:
        """The element at this place. Raises ``IndexError``."""
        return (self._elements(task_id) or [])[place]

    def whole(self, task_id: str) -> Any:
        """The whole result."""
        return self.done.results.get(task_id)

    def transformed(self, slot: int, value: Any) -> Any:
        """Only the call itself has its functions."""
        raise LookupError(slot, value)

    def _elements(self, task_id: str) -> list[Any] | None:
        of_task = [one for key, one in self.instances.items() if key[0] == task_id]
        if any(one.state not in TASK_TERMINAL for one in of_task):
            return None
        if task_id in self.mapped:
            return [
                one.result
                for one in of_task
                if one.state is TaskState.SUCCESS and one.result is not None
            ]
        found = self.done.results.get(task_id)
        if isinstance(found, dict):
            return list(found.items())
        return list(found) if isinstance(found, (list, tuple)) else None

    def seen(self, one: _Instance, task_id: str) -> Any:
        """The result of the task as this instance sees it."""
        own, other = self.mapped.get(one.task.task_id), self.mapped.get(task_id)
        if other is None:
            return self.done.results.get(task_id)
        if own and own.group and own.group == other.group and one.map_index >= 0:
            return self.instances[task_id, one.map_index].result
        return self.done.results.get(task_id, [])

    def _next(self, ready: list[tuple[str, int]]) -> _Instance | None:
        """The task to execute now: one that is ready, else the first that comes due, and the clock moves."""
        if ready:
            order = {key: place for place, key in enumerate(self.instances)}
            first = min(ready, key=lambda one: (-self.instances[one].task.priority, order[one]))
            return self.instances[first]
        due: list[tuple[datetime, int, _Instance | None]] = [
            (one.due_at, n, one) for n, one in enumerate(self.instances.values()) if one.due_at
        ]
        due += [(one.retry_at, -1, None) for one in self.group_attempts.values() if one.retry_at]
        at, _, first_due = min(due, key=lambda one: one[:2])
        limit_s = self.definition.run_timeout_s
        if limit_s is not None and at > self.done.started_at + timedelta(seconds=limit_s):
            self.now = self.done.started_at + timedelta(seconds=limit_s)
            self.is_overdue = True
            return None
        self.now = max(self.now, at)
        return first_due

    def _execute(self, one: _Instance) -> None:
        if one.state in (TaskState.NONE, TaskState.UP_FOR_RETRY):
            one.try_number, one.resume_index, one.began_at = one.try_number + 1, 0, self.now
            if one.task.callbacks:
                self._call(one.task.task_id, callbacks.due(one.task.callbacks, TaskState.RUNNING))
        else:
            one.resume_index += 1
        one.due_at = None
        self.fence += 1
        call, wait = self.calls[one.task.task_id], one.wait
        one.wait = None
        ctx = self._context(one)
        results = {name: self.seen(one, name) for name in call.result_task_ids()}
        self.began_at, self.limit_s = self.now, one.task.timeout_s
        try:
            with _limited(one.task.timeout_s):
                if wait is None:
                    result = call.execute(ctx, results, self)
                else:
                    result = call.resume(ctx, results, *wait, self)
            encoded = values.encode_result(result, RESULT_BYTES_MAX)
            if one.task.task_id in self.producers:
                mapping.check_returned(
                    result,
                    is_mapped=one.task.task_id in self.mapped,
                    limit=one.task.max_map_length or MAP_LENGTH_MAX,
                    task_id=one.task.task_id,
                )
        except Defer as wanted:
            self._defer(one, call, wanted)
        except Reschedule as wanted:
            self._note(one, AttemptOutcome.RESCHEDULED)
            self._move(one, TaskState.UP_FOR_RESCHEDULE, wanted.after_s)
        except Skip as wanted:
            self._note(one, AttemptOutcome.SUCCESS, why=f"Skipped: {wanted}")
            self._move(one, TaskState.SKIPPED)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - user code may raise anything; all of it is a failure
            self._fail(one, error)
        else:
            one.result = values.decode(encoded)
            self._note(one, AttemptOutcome.SUCCESS)
            self._move(one, TaskState.SUCCESS)
            self._keep_result(one)

    def _keep_result(self, one: _Instance) -> None:
        task_id = one.task.task_id
        if one.map_index < 0:
            self.done.results[task_id] = one.result
            return
        of_task = [other for key, other in self.instances.items() if key[0] == task_id]
        self.done.results[task_id] = mapping.collected(
            {
                other.map_index: other.result
                for other in of_task
                if other.state is TaskState.SUCCESS and other.result is not None
            }
        )

    def _fail(self, one: _Instance, error: BaseException) -> None:
        follows = retry.decide(
            one.task,
            TIME_LIMIT if isinstance(error, TaskTimeout) else failure_of(error),
            try_number=one.try_number,
            max_tries=one.max_tries,
            budget_start=one.budget_start,
            jitter_key=f"{self.run_id}:{one.task.task_id}:{one.map_index}",
        )
        one.max_tries = max(one.max_tries, follows.max_tries or 0)
        self._note(one, AttemptOutcome.FAILED, error, retry.told(follows.why or {}))
        state = TaskState.UP_FOR_RETRY if follows.retries else TaskState.FAILED
        self._move(one, state, follows.delay_s)

    def _defer(self, one: _Instance, call: TaskCall, wanted: Defer) -> None:
        call.check_resume(wanted.method, wanted.kwargs)
        kwargs = values.decode(values.encode_result(wanted.kwargs, RESULT_BYTES_MAX, "kwargs"))
        stored: dict[str, Any] = {"kwargs": kwargs}
        after_s, event = self._fired(one.task.task_id, wanted.trigger)
        if wanted.timeout_s is not None and (
            after_s > wanted.timeout_s or isinstance(event, TimeoutError)
        ):
            after_s = wanted.timeout_s
            stored["error"] = {"kind": "timeout", "after_s": after_s}
        elif isinstance(event, BaseException):
            stored["error"] = {"type": type(event).__name__, "message": str(event)}
        else:
            stored["event"] = event
        one.wait = (wanted.method, stored)
        self._note(one, AttemptOutcome.DEFERRED)
        self._move(one, TaskState.DEFERRED, after_s)

    def _fired(self, task_id: str, trigger: Trigger) -> tuple[float, Any]:
        """After how many seconds the trigger fires here, and with which event."""
        if (child := self._child_of(trigger)) is not None and child.asked.run is not None:
            event = child.as_event()
            return max(0.0, (event["ended_at"] - self.now).total_seconds()), event
        if isinstance(trigger, TimeTrigger):
            due = trigger.at or self.now + (trigger.after or timedelta())
            return max(0.0, (due - self.now).total_seconds()), due.isoformat()
        return 0.0, self._event(task_id, trigger)

    def _event(self, task_id: str, trigger: Trigger) -> Any:
        """What the test says that the trigger fires with."""
        child = self._child_of(trigger)
        if task_id not in self.events:
            what = (
                f"the event {trigger.key!r}" if isinstance(trigger, EventTrigger) else repr(trigger)
            )
            instead = (
                f" Or give flows=[...] with flow {child.asked.flow_id!r} in it." if child else ""
            )
            message = (
                f"Task {task_id!r} waits for {what}, which nobody brings about here. Give"
                f" events={{{task_id!r}: ...}}: what the method gets, an exception for what goes wrong, or"
                f" a function of the trigger that returns either.{instead}"
            )
            raise InvalidInput(message)
        event = self.events[task_id]
        given = event(trigger) if callable(event) else event
        if child is not None and isinstance(given, str):  # how the run ended
            return {**child.as_event(), "state": given}
        return given

    def _child_of(self, trigger: Trigger) -> _Child | None:
        """The run that a task of this one asked for, if that is what is waited for."""
        if not isinstance(trigger, RunTrigger) or trigger.task_id is not None:
            return None
        place = (trigger.flow_id, trigger.run_id)
        found = self.children.values()
        return next((c for c in found if (c.asked.flow_id, c.asked.run_id) == place), None)

    def look(self, task_id: str, trigger: RunTrigger | PollTrigger) -> Any | None:
        """The event, for a task that looks itself: by this clock, or as the test says."""
        if (child := self._child_of(trigger)) is not None and child.asked.run is not None:
            event = child.as_event()
            return event if event["ended_at"] <= self.now else None
        given = self._event(task_id, trigger)
        if isinstance(given, TimeoutError):
            return None
        if isinstance(given, BaseException):
            raise TriggerFailed(str(given), type=type(given).__name__)
        return given

    def pause(self, seconds: float) -> None:
        """The clock moves; past the time limit of the attempt it stops there."""
        began = self.began_at or self.now
        self.now += timedelta(seconds=seconds)
        if self.limit_s is not None and self.now - began > timedelta(seconds=self.limit_s):
            self.now = began + timedelta(seconds=self.limit_s)
            raise _too_long(self.limit_s)

    def trigger_flow(self, one: _Instance, ask: Ask) -> ChildRun | None:
        """The run is noted, and rehearsed if its flow is at hand; once, as the product has it."""
        task_id, place = one.task.task_id, (_owner_of(one), ask.key)
        known = self.children.get(place)
        if known is not None and (known.try_number == one.try_number or not known.is_bad):
            return self._as_child(known, "joined")
        if self.depth + 1 > DEPTH_MAX:
            message = (
                f"Runs trigger each other {DEPTH_MAX} times over, the last one flow {ask.flow_id!r}:"
                " let one of them stop."
            )
            raise InvalidInput(message)
        number = len(self.done.triggered) + 1
        asked = Triggered(
            task_id=task_id,
            flow_id=ask.flow_id,
            run_id=ask.run_id or f"triggered__{number}",
            conf=ask.conf,
            logical_date=ask.logical_date,
            at=self.now,
        )
        if (target := self.flows.get(ask.flow_id)) is not None:
            prefix = f"{ask.flow_id}."
            run = rehearse(
                target.definition(),
                target.calls,
                conf=ask.conf,
                logical_date=ask.logical_date,
                at=self.now,
                events={
                    name.removeprefix(prefix): event
                    for name, event in self.events.items()
                    if name.startswith(prefix)
                },
                flows=list(self.flows.values()),
                depth=self.depth + 1,
            )
            asked = replace(asked, run=run)
        self.done.triggered.append(asked)
        child = _Child(asked=asked, try_number=one.try_number, waits=ask.waits)
        self.children[place] = child
        return self._as_child(child, "created")

    def _as_child(self, child: _Child, how: str) -> ChildRun:
        ended = child.asked.run
        is_over = ended is not None and ended.ended_at <= self.now
        return ChildRun(
            id=0,
            flow_id=child.asked.flow_id,
            run_id=child.asked.run_id,
            state=str(ended.state) if ended is not None and is_over else str(RunState.QUEUED),
            how=how,
        )

    def _context(self, one: _Instance) -> Context:
        interval = timetable.interval_from(self.definition, self.logical_date)
        return Context(
            flow_id=self.definition.flow_id,
            run_id=self.run_id,
            task_id=one.task.task_id,
            map_index=one.map_index,
            logical_date=self.logical_date,
            data_interval_start=interval.start,
            data_interval_end=interval.end,
            conf=self.conf,
            params=self.conf,
            try_number=one.try_number,
            resume_index=one.resume_index,
            run_attempt=1,
            attempt_id=str(UUID(int=self.fence)),
            fence=self.fence,
            services=_Services(stage=self, task_id=one.task.task_id, of=one),
            elapsed_before=self.now - (one.began_at or self.now),
        )

    def _move(self, one: _Instance, state: TaskState, after_s: float | None = None) -> None:
        one.state = state
        one.due_at = self.now + timedelta(seconds=after_s or 0.0) if state in _DUE else None
        self._call(one.task.task_id, callbacks.due(one.task.callbacks, state))

    def _note(
        self,
        one: _Instance,
        outcome: AttemptOutcome,
        error: BaseException | None = None,
        why: str = "",
    ) -> None:
        self.done.attempts.append(
            Tried(
                task_id=one.task.task_id,
                map_index=one.map_index,
                try_number=one.try_number,
                resume_index=one.resume_index,
                outcome=outcome,
                at=self.now,
                error=error,
                why=why,
            )
        )

    def _call(self, task_id: str | None, calls: tuple[callbacks.Call, ...]) -> None:
        self.done.callbacks += [
            Called(task_id=task_id, on=call.on, name=call.name, at=self.now) for call in calls
        ]

    def _end(self, state: RunState, reason: str) -> Rehearsal:
        self._call(None, callbacks.due(self.definition.callbacks, state))
        self.done.state, self.done.reason, self.done.ended_at = state, reason, self.now
        for (task_id, map_index), one in self.instances.items():
            came_to = str(one.state if one.state in TASK_TERMINAL else TaskState.FAILED)
            worst = min(came_to, self.done.states.get(task_id, came_to), key=_WORST_FIRST.index)
            self.done.states[task_id] = worst
            if map_index >= 0:
                self.done.mapped_states[task_id, map_index] = came_to
        return self.done


@dataclass(frozen=True, slots=True, kw_only=True)
class _Services:
    """What a worker does for a task, in memory; values go through the same encoding."""

    stage: _Stage
    task_id: str
    of: _Instance
    asked: dict[str, int] = field(default_factory=dict)

    def still_mine(self) -> bool:
        """It always is: nobody replaces an attempt here."""
        return True

    def idempotency_key(self) -> str:
        """The same for every try of the instance."""
        return str(uuid5(_NAMESPACE, _owner_of(self.of)))

    def result(self, task_id: str, map_index: int = -1) -> Any:
        """The result of a task of the flow; ``None`` for one that has not succeeded."""
        found = self.stage.instances.get((task_id, map_index))
        if map_index == -1 and (found is not None or task_id in self.stage.mapped):
            return self.stage.seen(self.of, task_id)
        if found is None:
            message = f"This run has no task {task_id!r} with map index {map_index}."
            raise NotFound(message)
        return found.result

    def push(self, key: str, value: Any) -> None:
        """The value is kept."""
        self.stage.done.pushed[_owner_of(self.of), key] = _stored(value, "pushed value")

    def pull(
        self, task_id: str, key: str | None, *, map_index: int, include_prior_tries: bool
    ) -> tuple[bool, Any]:
        """What was pushed, or the result."""
        del include_prior_tries
        if key is None:
            if task_id in self.stage.mapped and map_index >= 0:
                found = self.stage.instances.get((task_id, map_index))
                return found is not None and found.result is not None, found and found.result
            return task_id in self.stage.done.results, self.stage.seen(self.of, task_id)
        pushed = self.stage.done.pushed
        if task_id in self.stage.mapped and map_index < 0:
            keys = [(_owner(*at), key) for at in self.stage.instances if at[0] == task_id]
            every = [pushed[one] for one in keys if one in pushed]
            return bool(every), every
        one = (_owner(task_id, map_index), key)
        return one in pushed, pushed.get(one)

    def checkpoint(self, scope: str, owner: str | None, key: str) -> tuple[bool, Any]:
        """What was saved."""
        kept, place = self.stage.done.checkpoints, (owner or self._owner(scope), key)
        return place in kept, kept.get(place)

    def save(self, scope: str, owner: str | None, values: Mapping[str, Any]) -> None:
        """The values are kept."""
        for key, value in values.items():
            place = (owner or self._owner(scope), key)
            self.stage.done.checkpoints[place] = _stored(value, "checkpoint")

    def flush(self) -> None:
        """Nothing waits to be saved."""

    def tell_progress(self, done: int, total: int | None, note: str) -> None:
        """The numbers are kept."""
        del note
        self.stage.done.progress[self.task_id] = (done, total)

    def publish(self, key: str, kind: str, title: str, body: Any) -> None:
        """The artifact is kept."""
        del title
        self.stage.done.artifacts[self.task_id, key] = (kind, body)

    def trigger_flow(self, ask: Ask) -> ChildRun | None:
        """The run is noted, and rehearsed if its flow is at hand."""
        return self.stage.trigger_flow(self.of, ask)

    def asked_before(self, key: str) -> int:
        """How often this attempt has asked under this key before; it has once more now."""
        self.asked[key] = self.asked.get(key, 0) + 1
        return self.asked[key] - 1

    def look(self, trigger: RunTrigger | PollTrigger) -> Any | None:
        """The event, by this clock or as the test says."""
        return self.stage.look(self.task_id, trigger)

    def pause(self, seconds: float) -> None:
        """The clock moves."""
        self.stage.pause(seconds)

    def here(self) -> timedelta:
        """For how long this attempt has been executing."""
        return self.stage.now - (self.stage.began_at or self.stage.now)

    def now(self) -> datetime:
        """The present moment of the rehearsal."""
        return self.stage.now

    def take(self, key: str) -> None:
        """Nobody else is here."""

    def let_go(self, key: str) -> None:
        """As before."""

    def _owner(self, scope: str) -> str:
        return _owner_of(self.of) if scope == "task" else self.stage.definition.flow_id


def _owner_of(one: _Instance) -> str:
    return _owner(one.task.task_id, one.map_index)


def _owner(task_id: str, map_index: int) -> str:
    """How what a task instance keeps is filed."""
    return task_id if map_index < 0 else f"{task_id}[{map_index}]"


def _too_long(limit_s: float) -> TaskTimeout:
    return TaskTimeout(f"The task took longer than its timeout of {limit_s:g} s.")


@contextmanager
def _limited(limit_s: float | None) -> Iterator[None]:
    """Real time is limited too, where signals can reach the code: so that a test does not hang."""
    in_main = threading.current_thread() is threading.main_thread()
    if limit_s is None or not in_main or signal.getitimer(signal.ITIMER_REAL)[0]:
        yield
        return

    def end(*_: object) -> None:
        raise _too_long(limit_s)

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, limit_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _stored(value: object, name: str) -> Any:
    return values.decode(values.encode_result(value, RESULT_BYTES_MAX, name))
