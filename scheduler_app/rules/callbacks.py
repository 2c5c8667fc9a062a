"""Callbacks: which of a definition's callables are due once a task instance or a run has moved.

A move calls for at most one list of callables, and each of them is called by an attempt of its own
that is written with the move. So what is due is decided once, by whoever makes the move.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from scheduler_app.rules.states import TaskState

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# How often one callback is begun: its first call, and again after its process or worker was lost.
CALLS_MAX: Final = 3


class CallbackOn(StrEnum):
    """What a callback is about. Authors write ``<value>_callback=...``."""

    EXECUTE = "on_execute"  # a try of the task begins on a worker
    RETRY = "on_retry"  # a try failed and another follows
    SUCCESS = "on_success"
    FAILURE = "on_failure"  # and no other try follows
    SKIPPED = "on_skipped"


OF_TASK: Final = tuple(CallbackOn)
OF_RUN: Final = (CallbackOn.SUCCESS, CallbackOn.FAILURE)
OF_GROUP: Final = (CallbackOn.RETRY, CallbackOn.SUCCESS, CallbackOn.FAILURE)

# Upstream failed is not here: the task that failed has said so already, once.
_AFTER: Final[Mapping[str, CallbackOn]] = {
    TaskState.RUNNING: CallbackOn.EXECUTE,
    TaskState.UP_FOR_RETRY: CallbackOn.RETRY,
    TaskState.SUCCESS: CallbackOn.SUCCESS,
    TaskState.FAILED: CallbackOn.FAILURE,
    TaskState.SKIPPED: CallbackOn.SKIPPED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One callable that is due: the ``index``-th of its list."""

    on: str  # a CallbackOn
    index: int
    name: str  # of the callable, for people


def due(callbacks: Mapping[str, Sequence[str]], state: str) -> tuple[Call, ...]:
    """The callables that a move to ``state`` calls for, in the order of their list.

    ``state``: of a task instance, a run or a group attempt.
    """
    on = _AFTER.get(state)
    if on is None or on not in callbacks:
        return ()
    return tuple(
        Call(on=on.value, index=index, name=name) for index, name in enumerate(callbacks[on])
    )


def may_call_again(calls: int) -> bool:
    """Whether a callback whose process or worker was lost is begun once more after so many calls."""
    return calls < CALLS_MAX
