"""Sensors: tasks that wait. Deferred, up for reschedule, or on their worker, as ``mode`` says."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    ParamSpec,
    TypeVar,
    Unpack,
    cast,
    overload,
)

from scheduler_app.authoring.building import POLLING, current
from scheduler_app.authoring.call import FunctionBody, InstanceBody, finished
from scheduler_app.authoring.deferral import DeferralTimeout
from scheduler_app.authoring.faults import fault, place_of_caller
from scheduler_app.authoring.options import (
    BadOption,
    check_options,
    duration_s,
    flag,
    growth,
    optional,
    positive_duration_s,
)
from scheduler_app.authoring.polling import AGAIN, Mode, Polling, ask, softened, wait
from scheduler_app.authoring.signatures import faults_of_poke
from scheduler_app.authoring.skipping import Skip
from scheduler_app.authoring.task import Task, TaskFunction, task_function
from scheduler_app.authoring.template import Template
from scheduler_app.authoring.triggers import (
    EventTrigger,
    FileTrigger,
    HttpTrigger,
    PollTrigger,
    RunTrigger,
    SqlTrigger,
    TimeTrigger,
)
from scheduler_app.authoring.wiring import Step, leaves_in
from scheduler_app.rules.errors import InvalidInput
from scheduler_app.rules.states import RUN_TERMINAL, TASK_TERMINAL

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from scheduler_app.authoring.building import Building
    from scheduler_app.authoring.context import Context
    from scheduler_app.authoring.faults import Fault, Place
    from scheduler_app.authoring.mapping import MappedArgument
    from scheduler_app.authoring.triggers import Trigger
    from scheduler_app.authoring.typed import MakesSensor, SensorOptions, TakesContext
    from scheduler_app.authoring.wiring import Leaf

P = ParamSpec("P")
R = TypeVar("R")
NOT_GIVEN: Final[Any] = object()
RUN_ENDS: Final = frozenset(str(state) for state in RUN_TERMINAL)
TASK_ENDS: Final = frozenset(str(state) for state in TASK_TERMINAL)
_PRODUCT: Final = __name__.rpartition(".")[0]
SENSOR_INTERVAL: Final = timedelta(seconds=60)


def mode(value: object) -> Mode:
    """One of the modes."""
    try:
        return Mode(cast("Any", value))
    except ValueError:
        raise BadOption(f"one of {', '.join(repr(one.value) for one in Mode)}") from None


def duration(value: object) -> timedelta:
    """A duration that is longer than nothing."""
    return timedelta(seconds=positive_duration_s(value))


def span(name: str, value: object) -> timedelta | None:
    """The duration of an argument, or none. Raises ``InvalidInput``."""
    if value is None:
        return None
    try:
        return timedelta(seconds=duration_s(value))
    except BadOption as wanted:
        raise InvalidInput(f"{name}={value!r}: give {name} {wanted}.") from None


# option -> (field of Polling, check)
POLLING_OPTIONS: Final[Mapping[str, tuple[str, Callable[[object], Any]]]] = {
    "mode": ("mode", mode),
    "poll_interval": ("interval", duration),
    "poll_backoff": ("backoff", growth),
    "poll_interval_max": ("interval_max", optional(duration)),
    "give_up_after": ("give_up_after", optional(duration)),
    "soft_fail": ("soft_fail", flag),
    "silent_failures": ("silent_failures", flag),
}


class Waiting(Task):
    """The base of all that wait: what they take beside their own arguments and a task's options.

    Where the wait fails (it takes longer than ``give_up_after`` since the try began, or what is asked
    raises), ``soft_fail`` makes the task skipped. With ``silent_failures`` an ask that raises counts
    as not yet. Each interval is ``poll_backoff`` times the one before, up to ``poll_interval_max``.
    """

    mode: str = Mode.DEFER
    poll_interval: timedelta = timedelta(seconds=30)
    poll_backoff: float = 1.0
    poll_interval_max: timedelta | None = None
    give_up_after: timedelta | None = None
    soft_fail: bool = False
    silent_failures: bool = False

    def __init__(self, *args: object, **options: object) -> None:
        given = options.keys() & POLLING_OPTIONS.keys()
        super().__init__(*args, **options)
        for name, (field, _) in POLLING_OPTIONS.items():
            default = self.call.defaults.get(f"{POLLING}{field}", NOT_GIVEN)
            if default is not NOT_GIVEN and name not in given and not self._says_itself(name):
                setattr(self, name, default)

    @classmethod
    def _says_itself(cls, name: str) -> bool:
        """Whether the author's class says how it waits, so that no ``default_args`` does."""
        return any(
            name in vars(base) for base in cls.__mro__ if not base.__module__.startswith(_PRODUCT)
        )

    def polling(self) -> Polling:
        """How it waits. Raises ``InvalidInput``."""
        given = {name: getattr(self, name) for name in POLLING_OPTIONS}
        fields = {}
        for name, (field, check) in POLLING_OPTIONS.items():
            try:
                fields[field] = check(given[name])
            except BadOption as wanted:
                raise InvalidInput(f"{name}={given[name]!r}: give {name} {wanted}.") from None
        return Polling(**fields)

    def faults(self, flow: Building) -> list[Fault]:
        """What is wrong with the instance: as for every class task, and how it waits."""
        given = {
            name: getattr(self, name)
            for name in POLLING_OPTIONS
            if not isinstance(getattr(self, name), (Step, Template))
        }
        name = type(self).__name__
        place = self.call.place if "call" in vars(self) else flow.place
        _, wrong = check_options(given, POLLING_OPTIONS, place, f"Sensor {name!r}")
        found = [*super().faults(flow), *wrong]
        if found or next(leaves_in(self.arguments()), None) is not None or self._takes_more():
            return found
        try:
            self.check()
        except (InvalidInput, TypeError, ValueError, AttributeError) as error:
            said, mark, wanted = str(error).partition(": give ")
            remedy = f"Give {wanted}" if mark else f"Correct the arguments of {name}."
            found.append(fault(place, f"{name} cannot wait so: {said.rstrip('.')}.", remedy))
        return found

    def check(self) -> None:
        """Raises what is wrong with arguments that are known while the flow is being built."""

    def _takes_more(self) -> bool:
        """Whether arguments come with the elements that it maps over."""
        return isinstance(self.call.body, InstanceBody) and self.call.body.spread is not None


class Sensor(Waiting):
    """The base of sensors that ask on a worker: write ``poke(self, ctx)``.

    While that returns something false, the task waits: up for reschedule, or as ``mode`` says. It
    holds no slot then, unless ``mode="poke"``. What it returns at last is the task's result.
    """

    mode: str = Mode.RESCHEDULE
    poll_interval: timedelta = SENSOR_INTERVAL

    def poke(self, ctx: Context) -> Any:
        """Something true once the wait is over."""
        raise NotImplementedError

    def execute(self, ctx: Context) -> Any:
        """The first true answer of ``poke``."""
        return ask(ctx, lambda: finished(self.poke(ctx)) or None, self.polling())

    def again(self, ctx: Context) -> Any:
        """The same, where it was deferred in between."""
        return self.execute(ctx)

    def faults(self, flow: Building) -> list[Fault]:
        """What is wrong with the instance: as of all that wait, and the missing ``poke``."""
        found = super().faults(flow)
        kind = type(self)
        if found:
            return found
        if kind.poke is not Sensor.poke:
            return faults_of_poke(kind, kind.poke)
        message = f"Sensor {kind.__name__!r} has no poke method."
        return [fault(self.call.place, message, "Write def poke(self, ctx) in it.")]


class TriggerSensor(Waiting):
    """Waits for the trigger that ``trigger`` makes: deferred, a triggerer looks; else a worker does."""

    def trigger(self) -> Trigger:
        """What it waits for."""
        raise NotImplementedError

    def check(self) -> None:
        """Raises what is wrong with its trigger."""
        self.trigger()

    def execute(self, ctx: Context) -> Any:
        """What it waited for, if it is there; else it waits in its mode."""
        how = self.polling()
        if how.mode is Mode.DEFER:
            self.defer(trigger=self.trigger(), method_name="came", timeout=how.give_up_after)
        return self.found(ask(ctx, lambda: ctx.services.look(self.looked_at()), how))

    def looked_at(self) -> RunTrigger | PollTrigger:
        """The trigger, where this task itself looks. Raises ``InvalidInput``."""
        trigger = self.trigger()
        if not isinstance(trigger, (RunTrigger, PollTrigger)):
            raise InvalidInput(
                f"mode={str(self.mode)!r}: {type(trigger).__name__} has no look; wait with mode='defer'."
            )
        return trigger

    def came(self, event: Any, error: Exception | None) -> Any:
        """The result."""
        if error is not None:
            raise softened(error, self.polling())
        return self.found(event)

    def found(self, event: Any) -> Any:
        """What the event makes of the task: its result."""
        return event

    def polled(self) -> dict[str, Any]:
        """How its trigger is asked again."""
        how = self.polling()
        return {
            "poll_interval": how.interval,
            "poll_backoff": how.backoff,
            "poll_interval_max": how.interval_max,
            "silent_failures": how.silent_failures,
        }


class WaitForTime(TriggerSensor):
    """Waits until a moment, for a duration, or until the data interval ended so long ago.

    ``at`` may be ISO 8601 text; ``after`` counts from the beginning of the try. The result is the
    moment.
    """

    at: datetime | str | None = None
    after: timedelta | float | None = None  # a number counts seconds
    after_interval: timedelta | float | None = None

    def execute(self, ctx: Context) -> Any:
        """The moment, once it has come."""
        how, services = self.polling(), ctx.services
        waited = ctx.elapsed
        due, after = self._due(ctx), span("after", self.after)
        if how.mode is Mode.DEFER:
            counted = None if after is None else TimeTrigger(after=after - waited)
            trigger = counted or TimeTrigger(at=due)
            self.defer(trigger=trigger, method_name="came", timeout=how.give_up_after)
        due = due or services.now() - waited + (after or timedelta())
        while (left := due - services.now()) > timedelta():
            pause = left
            if how.give_up_after is not None:
                pause = min(pause, how.give_up_after - ctx.elapsed)
                if pause <= timedelta():
                    message = f"Nothing came within {how.give_up_after.total_seconds():g} s."
                    raise softened(DeferralTimeout(message), how)
            wait(ctx, pause, how.mode)
        return due

    def check(self) -> None:
        """Raises what is wrong with its moment."""
        if sum(one is not None for one in (self.at, self.after, self.after_interval)) != 1:
            raise InvalidInput("WaitForTime takes one of at=, after= and after_interval=.")
        span("after", self.after)
        span("after_interval", self.after_interval)
        self._at()

    def _at(self) -> datetime | None:
        at = datetime.fromisoformat(self.at) if isinstance(self.at, str) else self.at
        return None if at is None else TimeTrigger(at=at).at

    def _due(self, ctx: Context) -> datetime | None:
        """The moment; ``None`` where it is counted from the beginning of the try."""
        self.check()
        if self.after_interval is not None:
            end = ctx.data_interval_end or ctx.logical_date
            if end is None:
                raise InvalidInput("This run has no data interval: give WaitForTime at= or after=.")
            return end + (span("after_interval", self.after_interval) or timedelta())
        return self._at()


class WaitForFile(TriggerSensor):
    """Waits until the path exists; the result is the path."""

    path: str
    poll_interval: timedelta = timedelta(seconds=5)

    def trigger(self) -> FileTrigger:
        """The file."""
        return FileTrigger(self.path, **self.polled())


class WaitForHttp(TriggerSensor):
    """Waits until the address answers as wanted; the result has ``status`` and ``body``."""

    url: str
    method: str = "GET"
    headers: Mapping[str, str] = {}
    statuses: Sequence[int] = (200, 201, 202, 203, 204)
    contains: str | None = None

    def trigger(self) -> HttpTrigger:
        """The answer."""
        return HttpTrigger(
            self.url,
            method=self.method,
            headers=dict(self.headers),
            statuses=tuple(self.statuses),
            contains=self.contains,
            **self.polled(),
        )


class WaitForSql(TriggerSensor):
    """Waits until the statement gives a row whose first column is true; the result is the row."""

    sql: str
    connection: str
    parameters: Sequence[Any] = ()
    driver: str = "psycopg"

    def trigger(self) -> SqlTrigger:
        """The row."""
        return SqlTrigger(
            self.sql,
            self.connection,
            parameters=tuple(self.parameters),
            driver=self.driver,
            **self.polled(),
        )


class WaitForRun(TriggerSensor):
    """Waits until another run, or a task of it, has ended; fails unless it ended as wanted.

    Without ``run_id`` and ``logical_date`` it is the run with this run's own logical date, less
    ``execution_delta``. Ended as one of ``skip_states``, it makes this task skipped.
    """

    flow_id: str
    run_id: str | None = None
    logical_date: datetime | None = None
    execution_delta: timedelta | float | None = None
    wait_task_id: str | None = None
    wait_map_index: int = -1
    states: Sequence[str] = ("success",)
    skip_states: Sequence[str] = ()

    def check(self) -> None:
        """Raises what is wrong with the run that it waits for, and how that is to end."""
        known = TASK_ENDS if self.wait_task_id else RUN_ENDS
        for name in ("states", "skip_states"):
            given = getattr(self, name)
            if isinstance(given, str) or not set(given) <= known:
                wanted = ", ".join(repr(one) for one in sorted(known))
                raise InvalidInput(f"{name}={given!r} is no list of {wanted}")
        span("execution_delta", self.execution_delta)
        if self.run_id is not None or self.logical_date is not None:
            self.trigger()
        else:
            RunTrigger(self.flow_id, run_id="some", task_id=self.wait_task_id)

    def execute(self, ctx: Context) -> Any:
        """Waits for the run in its mode."""
        if self.run_id is None and self.logical_date is None:
            if ctx.logical_date is None:
                raise InvalidInput(
                    "This run has no logical date: give WaitForRun one, or a run_id."
                )
            delta = span("execution_delta", self.execution_delta)
            self.logical_date = ctx.logical_date - (delta or timedelta())
        return super().execute(ctx)

    def trigger(self) -> RunTrigger:
        """The run."""
        return RunTrigger(
            self.flow_id,
            run_id=self.run_id,
            logical_date=self.logical_date,
            task_id=self.wait_task_id,
            map_index=self.wait_map_index,
        )

    def found(self, event: Any) -> Any:
        """How it ended; fails unless that is wanted."""
        state = event["state"]
        if state in self.states:
            return event
        what = f"Task {event['task_id']} of run" if event.get("task_id") else "Run"
        message = (
            f"{what} {event['run_id']} of flow {self.flow_id!r} ended as {state}, "
            f"not as {' or '.join(self.states)}."
        )
        if state in self.skip_states:
            raise Skip(message)
        raise softened(UnwantedEnd(message), self.polling())


class UnwantedEnd(Exception):
    """The run or task that was waited for ended otherwise than wanted."""


class WaitForEvent(TriggerSensor):
    """Waits until an event with this key is sent to this task; the result is its payload."""

    key: str = "event"

    @classmethod
    def _says_itself(cls, name: str) -> bool:
        """No ``default_args`` says its mode: there is one only."""
        return name == "mode" or super()._says_itself(name)

    def trigger(self) -> EventTrigger:
        """The event."""
        return EventTrigger(self.key)

    def faults(self, flow: Building) -> list[Fault]:
        """As of all that wait; an event is told to a task that is deferred."""
        found = super().faults(flow)
        if not found and self.mode in (Mode.RESCHEDULE, Mode.POKE):
            found.append(
                fault(
                    self.call.place,
                    f"WaitForEvent has mode={str(self.mode)!r}; an event is told to a task that waits"
                    " for it, not found by looking.",
                    "Leave mode out: it is deferred, and holds no slot.",
                )
            )
        return found


# --- functions as sensors -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class SensorBody:
    """A function that is asked until it returns something true."""

    asked: FunctionBody
    how: Polling

    def arguments(self) -> object:
        """The values in which results of other tasks are looked for."""
        return self.asked.arguments()

    def spreading(self, spread: MappedArgument) -> SensorBody:
        """The same with a dict of further arguments for each instance."""
        return replace(self, asked=self.asked.spreading(spread))

    def execute(self, ctx: Context, result_of: Callable[[Leaf], object]) -> Any:
        """The first true answer."""
        return ask(ctx, lambda: self.asked.execute(ctx, result_of) or None, self.how)

    def method(self, name: str, result_of: Callable[[Leaf], object] | None) -> Callable[..., Any]:
        """The function again, where it was deferred in between; else what was registered."""
        if name != AGAIN:
            return self.asked.method(name, result_of)

        def again(ctx: Context) -> Any:
            assert result_of is not None, "it is called"
            return self.execute(ctx, result_of)

        return again


class SensorFunction(TaskFunction[P, R]):
    """A function made into a sensor."""

    def __init__(
        self,
        function: Callable[..., R],
        options: Mapping[str, object],
        place: Place,
        how: Mapping[str, Any] | None = None,
    ) -> None:
        mine = {name: value for name, value in options.items() if name in POLLING_OPTIONS}
        rest = {name: value for name, value in options.items() if name not in POLLING_OPTIONS}
        super().__init__(function, rest, place)
        subject = f"Sensor {function.__name__!r}"
        fields, faults = check_options(mine, POLLING_OPTIONS, place, subject)
        self._faults += faults
        self._how = {**(how or {}), **fields}  # what it says itself

    def override(self, **options: Unpack[SensorOptions]) -> SensorFunction[P, R]:
        """The same sensor with other options; ``task_id`` given here is taken exactly."""
        changed: SensorFunction[P, R] = SensorFunction(
            self.function, options, place_of_caller(), self._how
        )
        self._hand_on(changed)
        return changed

    def body(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """What a call of it executes."""
        asked = FunctionBody(
            function=self.function, args=args, kwargs=kwargs, methods=self._methods
        )
        defaults = current("A sensor is called", "it is a task of one flow.").task_defaults
        by_default = {
            field: defaults[f"{POLLING}{field}"]
            for field, _ in POLLING_OPTIONS.values()
            if f"{POLLING}{field}" in defaults
        }
        usual = {"mode": Mode.RESCHEDULE, "interval": SENSOR_INTERVAL}
        return SensorBody(asked=asked, how=Polling(**{**usual, **by_default, **self._how}))


@overload
def sensor(function: TakesContext[P, R], /) -> SensorFunction[P, R]: ...


@overload
def sensor(function: Callable[P, R], /) -> SensorFunction[P, R]: ...


@overload
def sensor(**options: Unpack[SensorOptions]) -> MakesSensor: ...


def sensor(function: Callable[..., Any] | None = None, /, **options: Unpack[SensorOptions]) -> Any:
    """The function as a sensor: asked until it returns something true, which is the result.

    Options, beside those of ``@task``: mode ("reschedule", "defer" or "poke"), poll_interval (60 s),
    poll_backoff, poll_interval_max, give_up_after, soft_fail, silent_failures.
    """
    place = place_of_caller()

    def made(decorated: Any) -> SensorFunction[..., Any]:
        return task_function(decorated, options, place, "sensor", kind=SensorFunction)

    return made if function is None else made(function)
