"""What a flow says about its failed runs, and about what may be done to it automatically."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Final

from scheduler_app.authoring import options as option_checks
from scheduler_app.authoring.faults import error_of, place_of_caller
from scheduler_app.authoring.options import BadOption, check_options
from scheduler_app.rules.guards import GuardLimits
from scheduler_app.rules.run_retry import How, RetryScope, RunRetryPolicy, Siblings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import timedelta

ATTEMPTS_MAX: Final = 1000
ON_MAX: Final = 50
COUNT_MAX: Final = 1_000_000


class RunRetry:
    """A failed run is begun again, as a run attempt of the same run.

    ``max_attempts`` counts the first go. ``cooldown`` lies between the end of one and the next, times
    ``backoff`` from go to go, at most ``max_cooldown``. ``scope``: ``"failed"`` repeats what failed,
    ``"all"`` every task from its beginning, ``"from_checkpoint"`` every task from what it saved.
    ``siblings``: ``"wait"`` for tasks that run on, or ``"stop"`` them once the run cannot succeed any
    more. ``on``: exceptions (classes or names) and words (``failed timed_out lost killed
    deadlocked``); the run is retried only if every task that failed matches one. Raises
    ``DefinitionError`` with the file and line that wrote it.
    """

    def __init__(
        self,
        max_attempts: int,
        cooldown: timedelta | float = 0,
        backoff: float = 0,
        scope: str = RetryScope.FAILED.value,
        on: object = (),
        *,
        max_cooldown: timedelta | float | None = None,
        siblings: str = Siblings.WAIT.value,
    ) -> None:
        given = {
            "max_attempts": max_attempts,
            "cooldown": cooldown,
            "backoff": backoff,
            "scope": scope,
            "on": on,
            "max_cooldown": max_cooldown,
            "siblings": siblings,
        }
        self.policy = RunRetryPolicy(**_checked(given, _RUN_RETRY, "RunRetry"))

    def __repr__(self) -> str:
        return f"<RunRetry max_attempts={self.policy.max_attempts}>"


class Guards:
    """How much may be done to the flow automatically before a person is asked.

    Run retries and the clears of services count. ``cooldown`` lies between two of the same kind;
    there are at most ``max_actions`` of a kind in a ``window``; one may touch at most ``max_runs`` and
    ``max_task_instances``. What is left out is as the installation has it. Raises ``DefinitionError``.
    """

    def __init__(
        self,
        *,
        cooldown: timedelta | float | None = None,
        max_actions: int | None = None,
        window: timedelta | float | None = None,
        max_runs: int | None = None,
        max_task_instances: int | None = None,
    ) -> None:
        given = {
            "cooldown": cooldown,
            "max_actions": max_actions,
            "window": window,
            "max_runs": max_runs,
            "max_task_instances": max_task_instances,
        }
        self.limits = GuardLimits(**_checked(given, _GUARDS, "Guards"))

    def __repr__(self) -> str:
        return f"<Guards {self.limits}>"


def run_retry(value: object) -> RunRetryPolicy | None:
    """The policy of the option ``run_retry``."""
    if value is None:
        return None
    if not isinstance(value, RunRetry):
        raise BadOption("RunRetry(max_attempts=3, cooldown=timedelta(minutes=10)), or None")
    return value.policy


def guards(value: object) -> GuardLimits | None:
    """The limits of the option ``guards``."""
    if value is None:
        return None
    if not isinstance(value, Guards):
        raise BadOption("Guards(cooldown=timedelta(minutes=5), max_actions=10), or None")
    return value.limits


def _checked(
    given: Mapping[str, object],
    known: Mapping[str, tuple[str, Callable[[object], Any]]],
    subject: str,
) -> dict[str, Any]:
    fields, faults = check_options(given, known, place_of_caller(), subject)
    if faults:
        raise error_of(faults)
    return fields


def _one_of(words: type[RetryScope] | type[Siblings]) -> Callable[[object], str]:
    known = [word.value for word in words]

    def check(value: object) -> str:
        if not isinstance(value, str) or value not in known:
            raise BadOption(f"one of {', '.join(known)}")
        return str(value)

    return check


def _on(value: object) -> tuple[str, ...]:
    several = value if isinstance(value, (list, tuple, set, frozenset)) else (value,)
    if len(several) > ON_MAX:
        raise BadOption(f"at most {ON_MAX} exceptions and words")
    return tuple(sorted({_name(one) for one in several}))


def _name(one: object) -> str:
    """The full name of an exception as a failure is recorded: without a module where it is built in."""
    if inspect.isclass(one) and issubclass(one, BaseException):
        return (
            one.__qualname__
            if one.__module__ == "builtins"
            else f"{one.__module__}.{one.__qualname__}"
        )
    is_word = isinstance(one, str) and one in {how.value for how in How}
    is_name = isinstance(one, str) and all(part.isidentifier() for part in one.split("."))
    if not (is_word or is_name) or len(str(one)) > option_checks.NAME_CHARACTERS_MAX:
        raise BadOption(
            "exceptions, as classes or names such as 'requests.Timeout', or words of"
            f" {', '.join(how.value for how in How)}"
        )
    return str(one)


_optional: Final = option_checks.optional
_RUN_RETRY: Final[Mapping[str, tuple[str, Callable[[object], Any]]]] = {
    "max_attempts": ("max_attempts", option_checks.whole_number(1, ATTEMPTS_MAX)),
    "cooldown": ("cooldown_s", option_checks.duration_s),
    "backoff": ("backoff", option_checks.backoff),
    "scope": ("scope", _one_of(RetryScope)),
    "on": ("on", _on),
    "max_cooldown": ("max_cooldown_s", _optional(option_checks.duration_s)),
    "siblings": ("siblings", _one_of(Siblings)),
}
_GUARDS: Final[Mapping[str, tuple[str, Callable[[object], Any]]]] = {
    "cooldown": ("cooldown_s", _optional(option_checks.duration_s)),
    "max_actions": ("actions_max", _optional(option_checks.whole_number(0, COUNT_MAX))),
    "window": ("window_s", _optional(option_checks.positive_duration_s)),
    "max_runs": ("runs_max", _optional(option_checks.whole_number(0, COUNT_MAX))),
    "max_task_instances": (
        "task_instances_max",
        _optional(option_checks.whole_number(0, COUNT_MAX)),
    ),
}
