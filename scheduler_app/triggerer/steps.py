"""User code in the loop, step by step: whose step it is, since when, and the source it imports from.

A coroutine runs in steps between its awaits. Each step of a trigger's code, and of every task that it
starts, is announced here, so that the watchdog can name the trigger that does not give the loop back,
and so that an import inside of it finds the modules of its own flow version.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Coroutine, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextvars import Context
    from types import TracebackType


class Blocked(BaseException):
    """The step kept the loop for too long. Raised in user code; past a catch of ``Exception``."""


class Exited(Exception):
    """The trigger's code called ``sys.exit`` or interrupted itself; that ends the trigger only."""


@dataclass(slots=True, kw_only=True, eq=False)
class Owner:
    """Whose code it is. ``enter`` makes its imports find its own modules."""

    trigger_id: int
    label: str  # for people: class, flow, run, task
    subject: str = ""  # what an incident about its code is about: flow and class
    enter: Callable[[], None] | None = None  # null: code of the product or of a package
    main: asyncio.Task[Any] | None = None
    tasks: set[asyncio.Task[Any]] = field(default_factory=set)  # that its code started
    is_blocked: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A step that runs now."""

    number: int
    owner: Owner
    since: float  # monotonic


class Steps:
    """The step that the loop is at, as the loop's thread sets it and the watchdog reads it."""

    def __init__(self, note: Callable[[int], None] = lambda _: None) -> None:
        self.current: Step | None = None
        self.begun = threading.Event()  # a step, since whoever waits for one has cleared this
        self._note = note  # told whose step it is; 0: nobody's
        self._interrupted: int | None = None  # number of the step that is told to end
        self._numbers = itertools.count(1)

    @contextmanager
    def of(self, owner: Owner) -> Iterator[None]:
        """What runs in the block is a step of this owner."""
        before = self.current
        self.current = Step(number=next(self._numbers), owner=owner, since=time.monotonic())
        if not self.begun.is_set():
            self.begun.set()
        self._note(owner.trigger_id)
        try:
            if owner.enter is not None:
                owner.enter()
            yield
        finally:
            self.current = before
            self._note(0)

    def interrupt(self, step: Step) -> None:
        """The next signal ends this step, and no other. Called by the watchdog."""
        self._interrupted = step.number

    def is_told(self) -> None:
        """Whose step it is has been told; the next triggerer need not find out."""
        self._note(0)

    def on_signal(self, *_: object) -> None:
        """Raises ``Blocked`` in the step that the watchdog means, if the loop is still at it."""
        step = self.current
        if step is not None and step.number == self._interrupted:
            self._interrupted = None
            step.owner.is_blocked = True
            message = f"{step.owner.label} kept the triggerer's loop for too long"
            raise Blocked(message)


_owner: Final[ContextVar[Owner | None]] = ContextVar("daylight_trigger_owner", default=None)


class Stepwise(Coroutine[Any, Any, Any]):
    """A coroutine of user code whose every step is announced."""

    def __init__(self, inner: Coroutine[Any, Any, Any], owner: Owner, steps: Steps) -> None:
        self._inner = inner
        self._owner = owner
        self._steps = steps

    def send(self, value: Any) -> Any:
        """One step. A ``SystemExit`` or ``KeyboardInterrupt`` in it does not end the loop."""
        return self._step(lambda: self._inner.send(value))

    def throw(
        self,
        kind: Any,
        value: Any = None,
        traceback: TracebackType | None = None,
    ) -> Any:
        """One step that starts with an exception."""
        del value, traceback  # asyncio throws instances
        return self._step(lambda: self._inner.throw(kind))

    def close(self) -> None:
        """The coroutine has ended."""
        with self._steps.of(self._owner):
            self._inner.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        return _awaited(self)

    def _step(self, act: Callable[[], Any]) -> Any:
        owner = self._owner
        try:
            with self._steps.of(owner):
                future = act()
            if owner.is_blocked:
                self._inner.close()
                message = f"{owner.label} kept the triggerer's loop, and caught being told so"
                raise Blocked(message)
        except (SystemExit, KeyboardInterrupt) as error:
            raise Exited(f"the trigger's code raised {type(error).__name__}({error})") from error
        except Blocked:
            if owner.main is not None and owner.main is not asyncio.current_task():
                owner.main.cancel()
            raise
        return future


def _awaited(coroutine: Stepwise) -> Generator[Any, Any, Any]:
    value: Any = None
    error: BaseException | None = None
    while True:
        try:
            future = coroutine.send(value) if error is None else coroutine.throw(error)
        except StopIteration as stop:
            return stop.value
        value, error = None, None
        try:
            value = yield future
        except GeneratorExit:
            coroutine.close()
            raise
        except BaseException as thrown:  # noqa: BLE001 - handed on to where it belongs
            error = thrown


async def run_as(owner: Owner, coroutine: Coroutine[Any, Any, Any], steps: Steps) -> Any:
    """What the coroutine returns; its steps, and those of tasks that it starts, are the owner's.

    Tasks that it left behind are cancelled. To be run as a task of its own.
    """
    _owner.set(owner)
    owner.main = asyncio.current_task()
    try:
        return await Stepwise(coroutine, owner, steps)
    finally:
        for task in list(owner.tasks):
            task.cancel()


def task_factory(steps: Steps) -> Callable[..., asyncio.Task[Any]]:
    """Tasks started by a trigger's code belong to its owner."""

    def make(
        loop: asyncio.AbstractEventLoop,
        coroutine: Coroutine[Any, Any, Any],
        *,
        context: Context | None = None,
    ) -> asyncio.Task[Any]:
        owner = _owner.get()
        if owner is None:
            return asyncio.Task(coroutine, loop=loop, context=context)
        task = asyncio.Task(Stepwise(coroutine, owner, steps), loop=loop, context=context)
        owner.tasks.add(task)
        task.add_done_callback(owner.tasks.discard)
        return task

    return make
