"""A run of a flow in this process, by the same rules and a clock of its own: ``flow.test()``.

Nothing is stored and nothing waits: a retry, a reschedule and a wait for a moment move the clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID, uuid5

from scheduler_app.authoring.context import Context
from scheduler_app.authoring.deferral import Defer, Reschedule
from scheduler_app.authoring.retrying import failure_of
from scheduler_app.authoring.triggers import EventTrigger, TimeTrigger, Trigger
from scheduler_app.rules import callbacks, params, retry, run_outcome, ties, timetable, values
from scheduler_app.rules.errors import InvalidInput, NotFound
from scheduler_app.rules.states import TASK_TERMINAL, AttemptOutcome, RunState, TaskState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler_app.authoring.call import TaskCall
    from scheduler_app.rules.definition import FlowDefinition, TaskDefinition

NOON: Final = datetime(2026, 1, 1, 12, tzinfo=UTC)
ATTEMPTS_MAX: Final = 10_000
RESULT_BYTES_MAX: Final = 1024 * 1024
_NAMESPACE: Final = UUID("2b1f6c62-4bb3-5c5e-9f6a-6f0f0a3f7a11")
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Called:
    """A callback that would be called. It is not: what it tells goes to somebody."""

    task_id: str | None  # null: of the run
    on: str
    name: str
    at: datetime


@dataclass(slots=True, kw_only=True)
class Rehearsal:
    """What became of the run."""

    state: str = RunState.RUNNING
    reason: str = ""
    started_at: datetime
    ended_at: datetime
    states: dict[str, str] = field(default_factory=dict)  # by task
    results: dict[str, Any] = field(default_factory=dict)  # of the tasks that succeeded
    attempts: list[Tried] = field(default_factory=list)
    callbacks: list[Called] = field(default_factory=list)
    pushed: dict[tuple[str, str], Any] = field(default_factory=dict)  # by task and key
    artifacts: dict[tuple[str, str], tuple[str, Any]] = field(default_factory=dict)  # kind, body
    checkpoints: dict[tuple[str, str], Any] = field(default_factory=dict)  # by owner and key
    progress: dict[str, tuple[int, int | None]] = field(default_factory=dict)  # done, total

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


def rehearse(
    definition: FlowDefinition,
    calls: Mapping[str, TaskCall],
    *,
    conf: Mapping[str, Any] | None = None,
    logical_date: datetime | None = None,
    at: datetime | None = None,
    events: Mapping[str, Any] | None = None,
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
    now: datetime
    done: Rehearsal
    run_id: str = "rehearsal"
    fence: int = 0
    given_up: set[str] = field(default_factory=set)
    instances: dict[str, _Instance] = field(default_factory=dict)

    def play(self) -> Rehearsal:
        """Step by step, until nothing is left to start or to wait for."""
        known = ties.ties_of(self.definition)
        self.instances = {
            task.task_id: _Instance(task=task, max_tries=task.retries)
            for task in self.definition.tasks
        }
        while True:
            decision = self._decide(known)
            for (task_id, _), state in decision.marks.items():
                self._move(self.instances[task_id], state)
            failed = {g for g, state in decision.units.items() if state is ties.UnitState.FAILED}
            if failed - self.given_up:  # a group is not tried again here
                self.given_up |= failed
                continue
            if decision.state is not RunState.RUNNING:
                return self._end(decision.state, decision.reason)
            if len(self.done.attempts) >= ATTEMPTS_MAX:
                message = f"The run has made {ATTEMPTS_MAX:,} attempts and has not come to an end."
                raise InvalidInput(message)
            chosen = self._next([task_id for task_id, _ in decision.ready])
            if chosen is None:
                return self._end(
                    RunState.FAILED,
                    f"It was not through after its run_timeout of {self.definition.run_timeout_s:g} s.",
                )
            self._execute(chosen)

    def _decide(self, known: ties.Ties) -> run_outcome.RunDecision:
        return run_outcome.decide_run(
            upstream={task.task_id: task.upstream for task in self.definition.tasks},
            trigger_rules={task.task_id: task.trigger_rule for task in self.definition.tasks},
            instances=[
                run_outcome.InstanceState(task_id=task_id, map_index=-1, state=one.state)
                for task_id, one in self.instances.items()
            ],
            ties=known,
            choices={
                one: self.done.results[one] for one in known.pickers if one in self.done.results
            },
            given_up=self.given_up,
        )

    def _next(self, ready: list[str]) -> _Instance | None:
        """The task to execute now: one that is ready, else the first that comes due, and the clock moves."""
        if ready:
            order = list(self.instances)
            first = min(
                ready, key=lambda one: (-self.instances[one].task.priority, order.index(one))
            )
            return self.instances[first]
        due = [(one.due_at, n, one) for n, one in enumerate(self.instances.values()) if one.due_at]
        at, _, first_due = min(due, key=lambda one: one[:2])
        limit_s = self.definition.run_timeout_s
        if limit_s is not None and at > self.done.started_at + timedelta(seconds=limit_s):
            self.now = self.done.started_at + timedelta(seconds=limit_s)
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
        results = {name: self.done.results.get(name) for name in call.result_task_ids()}
        try:
            if wait is None:
                result = call.execute(ctx, results)
            else:
                result = call.resume(ctx, results, *wait)
            encoded = values.encode_result(result, RESULT_BYTES_MAX)
        except Defer as wanted:
            self._defer(one, call, wanted)
        except Reschedule as wanted:
            self._note(one, AttemptOutcome.RESCHEDULED)
            self._move(one, TaskState.UP_FOR_RESCHEDULE, wanted.after_s)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - user code may raise anything; all of it is a failure
            self._fail(one, error)
        else:
            self.done.results[one.task.task_id] = values.decode(encoded)
            self._note(one, AttemptOutcome.SUCCESS)
            self._move(one, TaskState.SUCCESS)

    def _fail(self, one: _Instance, error: BaseException) -> None:
        follows = retry.decide(
            one.task,
            failure_of(error),
            try_number=one.try_number,
            max_tries=one.max_tries,
            budget_start=0,
            jitter_key=f"{self.run_id}:{one.task.task_id}:-1",
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
        if isinstance(trigger, TimeTrigger):
            due = trigger.at or self.now + (trigger.after or timedelta())
            return max(0.0, (due - self.now).total_seconds()), due.isoformat()
        if task_id not in self.events:
            what = (
                f"the event {trigger.key!r}" if isinstance(trigger, EventTrigger) else repr(trigger)
            )
            message = (
                f"Task {task_id!r} waits for {what}, which nobody brings about here. Give"
                f" events={{{task_id!r}: ...}}: what the method gets, an exception for what goes wrong, or"
                " a function of the trigger that returns either."
            )
            raise InvalidInput(message)
        event = self.events[task_id]
        return 0.0, event(trigger) if callable(event) else event

    def _context(self, one: _Instance) -> Context:
        interval = timetable.interval_from(self.definition, self.logical_date)
        return Context(
            flow_id=self.definition.flow_id,
            run_id=self.run_id,
            task_id=one.task.task_id,
            map_index=-1,
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
            idempotency_key=str(uuid5(_NAMESPACE, one.task.task_id)),
            services=_Services(stage=self, task_id=one.task.task_id),
            elapsed=self.now - (one.began_at or self.now),
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
        self.done.states = {
            task_id: str(one.state if one.state in TASK_TERMINAL else TaskState.FAILED)
            for task_id, one in self.instances.items()
        }
        return self.done


@dataclass(frozen=True, slots=True, kw_only=True)
class _Services:
    """What a worker does for a task, in memory; values go through the same encoding."""

    stage: _Stage
    task_id: str

    def still_mine(self) -> bool:
        """It always is: nobody replaces an attempt here."""
        return True

    def result(self, task_id: str, map_index: int = -1) -> Any:
        """The result of a task of the flow; ``None`` for one that has not succeeded."""
        if task_id not in self.stage.instances or map_index != -1:
            message = f"This run has no task {task_id!r} with map index {map_index}."
            raise NotFound(message)
        return self.stage.done.results.get(task_id)

    def push(self, key: str, value: Any) -> None:
        """The value is kept."""
        self.stage.done.pushed[self.task_id, key] = _stored(value, "pushed value")

    def pull(
        self, task_id: str, key: str | None, *, map_index: int, include_prior_tries: bool
    ) -> tuple[bool, Any]:
        """What was pushed, or the result."""
        del map_index, include_prior_tries
        if key is None:
            return task_id in self.stage.done.results, self.stage.done.results.get(task_id)
        pushed = self.stage.done.pushed
        return (task_id, key) in pushed, pushed.get((task_id, key))

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

    def take(self, key: str) -> None:
        """Nobody else is here."""

    def let_go(self, key: str) -> None:
        """As before."""

    def _owner(self, scope: str) -> str:
        return self.task_id if scope == "task" else self.stage.definition.flow_id


def _stored(value: object, name: str) -> Any:
    return values.decode(values.encode_result(value, RESULT_BYTES_MAX, name))
