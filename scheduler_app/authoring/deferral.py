"""Ending an attempt without ending the task: hand over to a trigger, or ask to be run again later."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from scheduler_app.authoring.options import BadOption, duration_s
from scheduler_app.authoring.triggers import Trigger
from scheduler_app.rules.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import timedelta

# Filled in by name in a method that a task resumes with.
CTX: Final = "ctx"
EVENT: Final = "event"
ERROR: Final = "error"
RESERVED: Final = frozenset({CTX, EVENT, ERROR})


class Defer(BaseException):
    """Raised in a task: it waits for the trigger, without a worker, and resumes in ``method``.

    The attempt ends here. The resume is a new attempt of the same try; it uses no retry. ``method``
    is the name of a function that ``@<task>.method`` registered, or of a method of a class task; it
    gets ``ctx``, the trigger's ``event`` and ``kwargs``. Past ``timeout`` it is not called, but
    ``DeferralTimeout`` is raised in its place, unless it has a parameter ``error``, which then holds
    it. Not an ``Exception``, so that a task's own ``except Exception`` does not catch it.
    """

    def __init__(
        self,
        trigger: Trigger,
        *,
        method: str | Callable[..., Any],
        kwargs: Mapping[str, Any] | None = None,
        timeout: timedelta | float | None = None,
    ) -> None:
        super().__init__(f"deferred to {trigger!r}")
        if not isinstance(trigger, Trigger):
            raise InvalidInput(f"A task defers to a Trigger, not to {trigger!r}.")
        name = method if isinstance(method, str) else getattr(method, "__name__", None)
        if not name:
            raise InvalidInput(f"method={method!r} is neither a name nor a function.")
        if taken := sorted(RESERVED & set(kwargs or {})):
            raise InvalidInput(
                f"kwargs of a deferral cannot be called {', '.join(taken)}: these are filled in "
                "by name when the task resumes. Choose another name."
            )
        self.trigger = trigger
        self.method: str = name
        self.kwargs = dict(kwargs or {})
        self.timeout_s = None if timeout is None else _duration_s("timeout", timeout)


class Reschedule(BaseException):
    """Raised in a task: it is run again from its beginning after so long, in the same try."""

    def __init__(self, after: timedelta | float) -> None:
        super().__init__(f"rescheduled after {after}")
        self.after_s = _duration_s("after", after)


class DeferralTimeout(Exception):
    """What the task waited for did not come within the deferral's time limit."""


class TriggerFailed(Exception):
    """The trigger that the task waited for raised an error, or could not be run."""

    def __init__(self, message: str, *, type: str = "", traceback: str = "") -> None:  # noqa: A002
        super().__init__(message)
        self.type = type
        self.trigger_traceback = traceback


def error_of(stored: Mapping[str, Any]) -> Exception:
    """The error that a stored wait ended with."""
    if stored.get("kind") == "timeout":
        return DeferralTimeout(
            f"What the task waited for did not come within {stored.get('after_s', 0):g} s."
        )
    kind, message = str(stored.get("type", "")), str(stored.get("message", ""))
    return TriggerFailed(
        f"The trigger failed: {kind}: {message}",
        type=kind,
        traceback=str(stored.get("traceback", "")),
    )


def _duration_s(name: str, value: timedelta | float) -> float:
    try:
        return duration_s(value)
    except BadOption as wanted:
        raise InvalidInput(f"{name}={value!r}: give {name} {wanted}.") from None
