"""Sensors: class tasks that wait. Without a worker where a trigger can, else asked again on one."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, NoReturn

from scheduler_app.authoring.deferral import DeferralTimeout, Reschedule
from scheduler_app.authoring.faults import fault
from scheduler_app.authoring.task import Task
from scheduler_app.authoring.triggers import (
    EventTrigger,
    FileTrigger,
    HttpTrigger,
    RunTrigger,
    SqlTrigger,
    TimeTrigger,
)
from scheduler_app.rules.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from scheduler_app.authoring.building import Building
    from scheduler_app.authoring.context import Context
    from scheduler_app.authoring.faults import Fault
    from scheduler_app.authoring.triggers import PollTrigger, Trigger

DEFER: Final = "defer"
RESCHEDULE: Final = "reschedule"


class Sensor(Task):
    """The base of sensors that ask on a worker: write ``poke(self, ctx)``.

    While that returns something false, the task is up for reschedule: it holds no slot, and is run
    again after ``poll_interval``. What it returns at last is the task's result. Past
    ``give_up_after`` since the try began it fails.
    """

    poll_interval: timedelta = timedelta(seconds=60)
    give_up_after: timedelta | None = None

    def poke(self, ctx: Context) -> Any:
        """Something true once the wait is over."""
        raise NotImplementedError

    def execute(self, ctx: Context) -> Any:
        """The first true answer of ``poke``."""
        found = self.poke(ctx)
        if not found:
            _ask_again(ctx, self.poll_interval, self.give_up_after)
        return found

    def faults(self, flow: Building) -> list[Fault]:
        """What is wrong with the instance: as for every class task, and the missing ``poke``."""
        found = super().faults(flow)
        if type(self).poke is Sensor.poke and not found:
            name = type(self).__name__
            found.append(
                fault(
                    self.call.place,
                    f"Sensor {name!r} has no poke method.",
                    "Write def poke(self, ctx) in it.",
                )
            )
        return found


class _Deferring(Task):
    """Waits for the trigger that ``trigger`` makes; the event is the result."""

    give_up_after: timedelta | None = None

    def trigger(self) -> Trigger:
        """What it waits for."""
        raise NotImplementedError

    def execute(self, ctx: Context) -> Any:
        """Hands over to the trigger."""
        self.defer(trigger=self.trigger(), method_name="came", timeout=self.give_up_after)

    def came(self, event: Any) -> Any:
        """The result."""
        return event


class _Polling(_Deferring):
    """The same; ``mode="reschedule"`` looks on a worker instead of in a triggerer."""

    poll_interval: timedelta = timedelta(seconds=30)
    mode: str = DEFER

    def trigger(self) -> PollTrigger:
        """What it looks for."""
        raise NotImplementedError

    def execute(self, ctx: Context) -> Any:
        """What it looked for, if it is there; else it waits in its mode."""
        if self.mode not in (DEFER, RESCHEDULE):
            raise InvalidInput(f"mode={self.mode!r}: give {DEFER!r} or {RESCHEDULE!r}.")
        if self.mode == DEFER:
            return super().execute(ctx)
        found = self.trigger().look()
        if found is None:
            _ask_again(ctx, self.poll_interval, self.give_up_after)
        return found


class WaitForTime(_Deferring):
    """Waits until a moment, or for a duration."""

    at: datetime | None = None
    after: timedelta | None = None

    def trigger(self) -> TimeTrigger:
        """The moment."""
        return TimeTrigger(at=self.at, after=self.after)


class WaitForFile(_Polling):
    """Waits until the path exists; the result is the path."""

    path: str
    poll_interval: timedelta = timedelta(seconds=5)

    def trigger(self) -> FileTrigger:
        """The file."""
        return FileTrigger(self.path, poll_interval=self.poll_interval)


class WaitForHttp(_Polling):
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
            poll_interval=self.poll_interval,
        )


class WaitForSql(_Polling):
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
            poll_interval=self.poll_interval,
        )


class WaitForRun(_Deferring):
    """Waits until another run, or a task of it, has ended; fails unless it ended as wanted.

    Without ``run_id`` and ``logical_date`` it is the run with this run's own logical date.
    """

    flow_id: str
    run_id: str | None = None
    logical_date: datetime | None = None
    wait_task_id: str | None = None
    states: Sequence[str] = ("success",)

    def execute(self, ctx: Context) -> Any:
        """Hands over to the trigger."""
        if self.run_id is None and self.logical_date is None:
            self.logical_date = ctx.logical_date
        return super().execute(ctx)

    def trigger(self) -> RunTrigger:
        """The run."""
        return RunTrigger(
            self.flow_id,
            run_id=self.run_id,
            logical_date=self.logical_date,
            task_id=self.wait_task_id,
        )

    def came(self, event: Any) -> Any:
        """How it ended; fails unless that is wanted."""
        if event["state"] not in self.states:
            message = (
                f"Run {event['run_id']} of flow {self.flow_id!r} ended as {event['state']}, "
                f"not as {' or '.join(self.states)}."
            )
            raise UnwantedEnd(message)
        return event


class UnwantedEnd(Exception):
    """The run or task that was waited for ended otherwise than wanted."""


class WaitForEvent(_Deferring):
    """Waits until an event with this key is sent to this task; the result is its payload."""

    key: str = "event"

    def trigger(self) -> EventTrigger:
        """The event."""
        return EventTrigger(self.key)


def _ask_again(ctx: Context, every: timedelta, give_up_after: timedelta | None) -> NoReturn:
    """The task is run again later, unless it has waited long enough in this try."""
    if give_up_after is not None and ctx.elapsed >= give_up_after:
        message = f"Nothing came within {give_up_after.total_seconds():g} s."
        raise DeferralTimeout(message)
    raise Reschedule(after=every)
