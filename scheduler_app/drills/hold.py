"""Holds one drill from the first process to the last: set-up, fault, healing, findings, clearing away."""

from __future__ import annotations

import importlib
import pkgutil
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from scheduler_app.drills import faults
from scheduler_app.drills.stack import Stack
from scheduler_app.drills.stage import Drill, Stage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import FrameType

    from scheduler_app.drills.report import Report


def drills() -> dict[str, Drill]:
    """Every drill by its name: one for each module of ``faults``."""
    found = {}
    for module in pkgutil.iter_modules(faults.__path__, f"{faults.__name__}."):
        drill = importlib.import_module(module.name).DRILL
        found[drill.name] = drill
    return dict(sorted(found.items()))


def hold(
    drill: Drill,
    *,
    keep: bool,
    say: Callable[[str], None],
    ttl_s: float,
    options: Mapping[str, Any],
) -> Report:
    """The drill was held; what it found. Nothing of its stack is left, but for a folder to keep.

    Call it from the main thread: the stack ends with that. Raises ``DrillFailed`` when the drill
    could not be held, and ``KeyboardInterrupt`` when it was interrupted.
    """
    stack = Stack(
        flags=drill.flags,
        environment={
            "DAYLIGHT_LEASE_TTL": f"{ttl_s:g}",
            "DAYLIGHT_FAILPOINTS": ";".join(f"{k}={v}" for k, v in drill.points.items()),
            **drill.environment,
        },
    )
    stage = Stage(drill, stack, ttl_s=ttl_s, options=options, say=say)
    with _signals_raise():
        try:
            stage.say(f"starting a stack of its own in {stack.folder}")
            stack.start(list(drill.points))
            stage.say(f"ready on port {stack.port}")
            drill.play(stage)
            stage.settle()
            stage.judge()
        finally:
            with _signals_wait():
                stage.say("ending the stack")
                stack.end(keep=keep)
                if keep:
                    stage.say(f"kept: {stack.folder}")
    if keep:
        stage.report.kept = str(stack.folder)
    return stage.report


@contextmanager
def _signals_raise() -> Iterator[None]:
    """A wish to end interrupts the drill, so that it clears away."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        del number, frame
        raise KeyboardInterrupt

    wished = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, interrupt) for number in wished}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _signals_wait() -> Iterator[None]:
    """A second wish to end does not interrupt the clearing away, which is bounded."""
    wished = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, signal.SIG_IGN) for number in wished}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
