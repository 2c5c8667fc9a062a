"""What stops with a run, and how: three stages, each for what the one before did not end."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final

from scheduler_app.rules.states import TASK_TERMINAL, TaskState

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping


class Stage(StrEnum):
    """What user code is told to stop with, in this order."""

    EXCEPTION = "exception"  # raised in it, so that it can tidy up
    SIGNAL = "signal"  # SIGTERM to it and to what it started
    KILL = "kill"  # SIGKILL to it and to what it started


_NEXT: Final = {Stage.EXCEPTION: Stage.SIGNAL, Stage.SIGNAL: Stage.KILL}
_WORDS: Final = {
    Stage.EXCEPTION: "Its code ended at the exception that asked it to.",
    Stage.SIGNAL: "Its code took no notice of an exception; SIGTERM ended it.",
    Stage.KILL: "Its code took no notice of an exception, nor of SIGTERM; it was killed.",
}


# A setup in one of these has made something, or may have by the time it has stopped.
_MADE: Final = frozenset({TaskState.SUCCESS, TaskState.RUNNING, TaskState.RESTARTING})
_NOT_BEGUN: Final = frozenset({TaskState.NONE, TaskState.SCHEDULED})


def spared(
    setups: Mapping[str, Collection[str]], states: Mapping[str, Collection[str]]
) -> frozenset[str]:
    """The teardowns that outlive the end of their whole run: they still go by their rule.

    ``setups`` are those of each teardown, ``states`` of all instances of each of these tasks. Spared is
    what has begun, and what has something to take away.
    """
    return frozenset(
        teardown
        for teardown, own in setups.items()
        if set(states.get(teardown, ())) - TASK_TERMINAL - _NOT_BEGUN
        or any(state in _MADE for setup in own for state in states.get(setup, ()))
    )


def following(stage: Stage) -> Stage:
    """What comes when this stage ended nothing; a kill is repeated."""
    return _NEXT.get(stage, Stage.KILL)


def ended_by(stage: Stage, *, exit_code: int | None) -> Stage | None:
    """Which stage ended a process that was told to stop.

    ``exit_code`` is minus the signal that ended it, or what it exited with: code that heeds SIGTERM
    exits in its own way. Null where nobody could tell: then it was the stage that had been reached.
    Null as an answer: something else ended it.
    """
    if stage is Stage.EXCEPTION:
        return None
    if exit_code is None:
        return stage
    if exit_code == -SIGKILL:
        return Stage.KILL if stage is Stage.KILL else None
    return Stage.SIGNAL if exit_code in (-SIGTERM, *range(256)) else None


def explain(why: str, stage: Stage | None) -> str:
    """The request and what ended the code, as sentences."""
    said = why if why.endswith((".", "!", "?")) else f"{why}."
    told = _WORDS[stage] if stage else "Its process ended by itself."
    return f"{said} {told}"


SIGKILL: Final = 9  # as everywhere; this room imports no system
SIGTERM: Final = 15
