"""Retries as authors write them: other delays for some exceptions, and words that a task says itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Unpack

from scheduler_app.authoring.faults import error_of, place_of_caller
from scheduler_app.authoring.options import (
    RETRIES_MAX,
    BadOption,
    backoff,
    check_options,
    duration_s,
    jitter,
    optional,
    whole_number,
)
from scheduler_app.rules.definition import RetryRule
from scheduler_app.rules.errors import InvalidInput
from scheduler_app.rules.retry import Failure

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import timedelta

    from scheduler_app.authoring.typed import RetryOptions

NAME_CHARACTERS_MAX: Final = 250
REASON_CHARACTERS_MAX: Final = 1_000

_RETRY_OPTIONS: Final[Mapping[str, tuple[str, Callable[[object], Any]]]] = {
    "retries": ("retries", whole_number(0, RETRIES_MAX)),
    "retry_delay": ("retry_delay_s", duration_s),
    "backoff": ("backoff", backoff),
    "max_retry_delay": ("max_retry_delay_s", duration_s),
    "jitter": ("jitter", optional(jitter)),
}


def retry(**options: Unpack[RetryOptions]) -> RetryRule:
    """How a task is tried again after one kind of exception.

    Written as ``retry_policies={OSError: retry(retries=5)}``. Options: retries (0: it fails at once), retry_delay, backoff, max_retry_delay, jitter. What is left
    out is as the task itself says. Raises ``DefinitionError``.
    """
    fields, faults = check_options(options, _RETRY_OPTIONS, place_of_caller(), "retry(...)")
    if faults:
        raise error_of(faults)
    return RetryRule(on=(), **fields)


class RetryAfter(BaseException):
    """Raised in a task: this try has failed, and the next one begins after so long.

    It uses a retry; where none is left the task fails. The delay stands in place of retry_delay and
    backoff; max_retry_delay cuts it. Not an ``Exception``, so that a task's own ``except Exception``
    does not catch it.
    """

    def __init__(self, delay: timedelta | float, reason: str = "") -> None:
        try:
            self.delay_s = duration_s(delay)
        except BadOption as wanted:
            raise InvalidInput(f"delay={delay!r}: give retry_after {wanted}.") from None
        self.reason = str(reason)
        super().__init__(f"asked for a retry after {self.delay_s:g} s{_because(self.reason)}")


class FailNow(BaseException):
    """Raised in a task: it fails, whatever retries are left. Not an ``Exception``: see ``RetryAfter``."""

    def __init__(self, reason: str = "") -> None:
        self.reason = str(reason)
        super().__init__(self.reason or "the task asked for no retry")


def failure_of(error: BaseException) -> Failure:
    """What retry rules need to know of what a task raised."""
    if isinstance(error, (FailNow, RetryAfter)):
        return Failure(
            names=() if error.__cause__ is None else _names(error.__cause__),
            is_final=isinstance(error, FailNow),
            retry_after_s=error.delay_s if isinstance(error, RetryAfter) else None,
            reason=error.reason[:REASON_CHARACTERS_MAX],
        )
    return Failure(names=_names(error))


def _names(error: BaseException) -> tuple[str, ...]:
    return tuple(
        f"{kind.__module__}.{kind.__qualname__}"[:NAME_CHARACTERS_MAX]
        for kind in type(error).__mro__
        if kind is not object
    )


def _because(reason: str) -> str:
    return f": {reason}" if reason else ""
