"""What a deferred task can wait for: a moment, a file, an answer, a row, a run, an event, own code."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import importlib
import logging
import math
import os
import sys
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Final

from scheduler_app.rules.definition import FLOW_OR_TASK_ID, ID_RULE
from scheduler_app.rules.errors import InvalidInput
from scheduler_app.rules.run_keys import check_run_key

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ENVIRONMENT_PREFIX: Final = "env:"
KEY_CHARACTERS_MAX: Final = 250
BODY_BYTES_MAX: Final = 64 * 1024  # of an HTTP answer, handed to the resumed task
POLL_INTERVAL_MIN_S: Final = 0.1
INTERVAL_MAX: Final = timedelta(days=1)  # that a growing interval comes to, where nobody says
_LOG: Final = logging.getLogger("daylight.trigger")
_LOST: Final = ("OperationalError", "InterfaceError")  # of a database driver: asked again later


class Trigger:
    """The base of everything that a deferred task waits for.

    To write one, derive a frozen dataclass at the top level of a module and give it ``async def
    run``: what that returns is the event that the task resumes with; what it raises fails the wait.
    Its fields are stored, so they hold what a task may return. A triggerer runs it, perhaps
    several one after the other, each from the beginning, until the first result.
    """

    async def run(self) -> Any:
        """The event, once what is waited for has happened. Never block the loop in here."""
        message = f"{type(self).__name__} has no run method; write `async def run(self)` in it."
        raise NotImplementedError(message)

    def told(self) -> str:
        """What is waited for, as people read it after "Waits for"."""
        return repr(self)

    def kwargs(self) -> dict[str, Any]:
        """What makes an equal trigger again: ``type(self)(**kwargs)``. A dataclass's fields."""
        try:
            items = dataclasses.fields(self)  # type: ignore[arg-type] # told by the TypeError
        except TypeError:
            name = type(self).__name__
            raise InvalidInput(
                f"Trigger {name} is no dataclass, so its arguments are not known. "
                "Put @dataclass(frozen=True) on it, or give it a kwargs() method."
            ) from None
        return {item.name: getattr(self, item.name) for item in items if item.init}


@dataclass(frozen=True)
class TimeTrigger(Trigger):
    """A moment: so long after the deferral, or a date and time. Zero or past fires at once."""

    after: timedelta | None = None
    at: datetime | None = None

    def __post_init__(self) -> None:
        if (self.after is None) == (self.at is None):
            raise InvalidInput("TimeTrigger takes either after=timedelta(...) or at=datetime(...).")
        if self.after is not None and not isinstance(self.after, timedelta):
            raise InvalidInput(f"TimeTrigger takes after=timedelta(...), not {self.after!r}.")
        if self.at is not None and (not isinstance(self.at, datetime) or self.at.tzinfo is None):
            raise InvalidInput(
                f"TimeTrigger takes at=datetime(...) with a time zone, not {self.at!r}. "
                "Write at=datetime(..., tzinfo=ZoneInfo(...))."
            )

    async def run(self) -> datetime:
        """Waits by this machine's clock; a deferred task waits by the database's."""
        due = self.at or datetime.now(UTC) + (self.after or timedelta())
        await asyncio.sleep(max(0.0, (due - datetime.now(UTC)).total_seconds()))
        return due


@dataclass(frozen=True)
class EventTrigger(Trigger):
    """An event with this key, sent to the task from outside; also one that came before it waits."""

    key: str = "event"

    def __post_init__(self) -> None:
        check_event_key(self.key)


def check_event_key(key: object) -> str:
    """The key, if events may have it. Raises ``InvalidInput``."""
    if not isinstance(key, str) or not 0 < len(key) <= KEY_CHARACTERS_MAX or not key.isprintable():
        raise InvalidInput(
            f"An event's key is a printable text of 1 to {KEY_CHARACTERS_MAX} characters, "
            f"not {key!r}.",
            field="key",
        )
    return key


@dataclass(frozen=True)
class RunTrigger(Trigger):
    """The end of another run, or of a task of it: by run id, or the newest run of a logical date.

    Fires when that run or task has ended, however it did; the event says how. A run that does not
    exist yet is waited for.
    """

    flow_id: str
    run_id: str | None = None
    logical_date: datetime | None = None
    task_id: str | None = None
    map_index: int = -1

    def __post_init__(self) -> None:
        if (self.run_id is None) == (self.logical_date is None):
            raise InvalidInput("RunTrigger takes either run_id=... or logical_date=....")
        if self.logical_date is not None and (
            not isinstance(self.logical_date, datetime) or self.logical_date.tzinfo is None
        ):
            raise InvalidInput(
                "RunTrigger takes a logical_date with a time zone, datetime(..., tzinfo=...), not"
                f" {self.logical_date!r:.80}."
            )
        for name in (self.flow_id, *(() if self.task_id is None else (self.task_id,))):
            if not isinstance(name, str) or not FLOW_OR_TASK_ID.fullmatch(name):
                raise InvalidInput(f"{name!r:.300} is no id of a flow or task: {ID_RULE}.")
        if self.run_id is not None:
            check_run_key(self.run_id)

    def told(self) -> str:
        """Which run or task, in words."""
        if self.run_id is not None:
            run = f"run {self.run_id} of flow {self.flow_id!r}"
        else:
            run = f"the run of flow {self.flow_id!r} for {self.logical_date}"
        if self.task_id is None:
            return f"the end of {run}"
        index = f" [{self.map_index}]" if self.map_index >= 0 else ""
        return f"the end of task {self.task_id!r}{index} in {run}"


@dataclass(frozen=True)
class PollTrigger(Trigger):
    """The base of triggers that look again and again: write ``look``, which may block.

    It runs in a thread, every ``poll_interval``, until it returns something other than None.
    """

    poll_interval: timedelta = field(default=timedelta(seconds=30), kw_only=True)
    poll_backoff: float = field(
        default=1.0, kw_only=True
    )  # each interval is so many times the last
    poll_interval_max: timedelta | None = field(default=None, kw_only=True, repr=False)
    silent_failures: bool = field(
        default=False, kw_only=True, repr=False
    )  # a look that raises is repeated
    is_quick: ClassVar[bool] = False  # looks take microseconds: many share a thread

    def __post_init__(self) -> None:
        if self.poll_interval.total_seconds() < POLL_INTERVAL_MIN_S:
            raise InvalidInput(
                f"{type(self).__name__} has poll_interval={self.poll_interval}; give it "
                f"{POLL_INTERVAL_MIN_S} s or more."
            )

    def look(self) -> Any | None:
        """The event if it has happened, else None."""
        message = f"{type(self).__name__} has no look method; write `def look(self)` in it."
        raise NotImplementedError(message)

    async def run(self) -> Any:
        """The first answer of ``look``."""
        looked = 0
        while (found := await asyncio.to_thread(self.looked)) is None:
            await asyncio.sleep(self.interval(looked).total_seconds())
            looked += 1
        return found

    def looked(self) -> Any | None:
        """What ``look`` says; with ``silent_failures`` an error counts as nothing yet."""
        try:
            return self.look()
        except Exception as error:
            if not self.silent_failures:
                raise
            _LOG.warning(
                "%s is asked again: %s: %s", type(self).__name__, type(error).__name__, error
            )
            return None

    def interval(self, looked: int) -> timedelta:
        """From one look to the next, after so many before it."""
        return grown(self.poll_interval, self.poll_backoff, self.poll_interval_max, looked)


@dataclass(frozen=True)
class FileTrigger(PollTrigger):
    """A file or folder, on a disk that triggerers see. The event is its path."""

    path: str
    poll_interval: timedelta = field(default=timedelta(seconds=5), kw_only=True)
    is_quick = True

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "path", os.fspath(self.path))
        except TypeError:
            raise InvalidInput(
                f"FileTrigger takes path, a text or a Path, not {self.path!r:.80}."
            ) from None
        super().__post_init__()

    def look(self) -> str | None:
        """The path, once it is there."""
        return self.path if os.path.exists(self.path) else None


@dataclass(frozen=True)
class HttpTrigger(PollTrigger):
    """An answer of a web server: with one of these statuses and, if given, this text in it.

    A value of ``headers`` that reads ``env:NAME`` is taken from the triggerer's environment, so that
    no secret is stored. The event has ``status`` and ``body``.
    """

    url: str
    method: str = "GET"
    headers: Mapping[str, str] = field(default_factory=dict)
    statuses: Sequence[int] = (200, 201, 202, 203, 204)
    contains: str | None = None
    answer_within: timedelta = timedelta(seconds=10)

    def __post_init__(self) -> None:
        if not isinstance(self.url, str) or not self.url.startswith(("http://", "https://")):
            raise InvalidInput(f"HttpTrigger takes an http or https address, not {self.url!r:.80}.")
        if not all(isinstance(one, int) for one in self.statuses):
            raise InvalidInput(
                f"HttpTrigger takes statuses, a list of numbers, not {self.statuses!r:.80}."
            )
        super().__post_init__()

    def look(self) -> dict[str, Any] | None:
        """The answer, once it is as wanted; a server that does not answer is asked again."""
        import urllib.error  # noqa: PLC0415 - a tenth of a second that few flow files need
        import urllib.request  # noqa: PLC0415

        request = urllib.request.Request(  # noqa: S310 - checked above
            self.url,
            method=self.method,
            headers={name: from_environment(value) for name, value in self.headers.items()},
        )
        try:
            # Only the addresses that the flow's author wrote are asked.
            with urllib.request.urlopen(  # noqa: S310
                request, timeout=self.answer_within.total_seconds()
            ) as answer:
                status, body = answer.status, answer.read(BODY_BYTES_MAX)
        except urllib.error.HTTPError as error:
            with error:
                status, body = error.code, error.read(BODY_BYTES_MAX)
        except OSError:
            return None
        text = body.decode("utf-8", "replace")
        if status not in self.statuses or (self.contains is not None and self.contains not in text):
            return None
        return {"status": status, "body": text}


@dataclass(frozen=True)
class SqlTrigger(PollTrigger):
    """A row of a database whose first column is true. The event is the row, as a list.

    ``connection`` is the address that the driver connects to; ``env:NAME`` takes it from the
    triggerer's environment, so that no password is stored. ``driver`` is any module of the DB-API.
    """

    sql: str
    connection: str
    parameters: Sequence[Any] = ()
    driver: str = "psycopg"

    def __post_init__(self) -> None:
        for name in ("sql", "connection", "driver"):
            if not isinstance(getattr(self, name), str):
                raise InvalidInput(
                    f"SqlTrigger takes {name}, a text, not {getattr(self, name)!r:.80}."
                )
        super().__post_init__()

    def look(self) -> list[Any] | None:
        """The row, once there is one; a database that is away is asked again."""
        driver = importlib.import_module(self.driver)
        lost = tuple(getattr(driver, name) for name in _LOST)
        try:
            with contextlib.closing(driver.connect(from_environment(self.connection))) as opened:
                cursor = opened.cursor()
                cursor.execute(self.sql, tuple(self.parameters))
                row = cursor.fetchone()
        except lost:
            return None
        return list(row) if row and row[0] else None


def grown(interval: timedelta, backoff: float, greatest: timedelta | None, times: int) -> timedelta:
    """The interval, so many times longer by the factor; at most the greatest, or a day."""
    most = (greatest or max(interval, INTERVAL_MAX)).total_seconds()
    seconds = interval.total_seconds()
    if backoff > 1 and seconds < most:
        # As many doublings as matter: a power of what was asked for years is no number.
        steps = min(times, math.ceil(math.log(most / seconds, backoff)))
        seconds *= backoff**steps
    return timedelta(seconds=min(seconds, most))


def from_environment(value: str) -> str:
    """The value, or what the variable holds that ``env:NAME`` names. Raises ``InvalidInput``."""
    if not value.startswith(ENVIRONMENT_PREFIX):
        return value
    name = value.removeprefix(ENVIRONMENT_PREFIX)
    found = os.environ.get(name)
    if found is None:
        raise InvalidInput(
            f"The environment variable {name!r} is not set here. Set it where `manage.py up` or "
            "the triggerers are started; names that end in _URL are kept back from user code."
        )
    return found


# --- how a trigger is stored ----------------------------------------------------------------------


def classpath_of(trigger: Trigger) -> str:
    """Module and name of the trigger's class, by which a triggerer finds it. ``InvalidInput`` else."""
    kind = type(trigger)
    found: Any = sys.modules.get(kind.__module__)
    for name in kind.__qualname__.split("."):
        found = getattr(found, name, None)
    if found is not kind:
        raise InvalidInput(
            f"Trigger class {kind.__qualname__!r} cannot be found again by its name. "
            "Define it at the top level of the flow file, or of a module that it imports."
        )
    return f"{kind.__module__}:{kind.__qualname__}"


def make_trigger(classpath: str, kwargs: Mapping[str, Any]) -> Trigger:
    """The trigger that was stored so. Raises ``InvalidInput``, and what its class raises."""
    module, _, qualname = classpath.partition(":")
    found: Any = sys.modules.get(module) or importlib.import_module(module)
    for name in qualname.split("."):
        found = getattr(found, name, None)
    if not isinstance(found, type) or not issubclass(found, Trigger):
        raise InvalidInput(f"{classpath!r} is no trigger class in this version of the flow.")
    return found(**kwargs)
