"""Errors that the product raises on purpose: each says what, where and what to do."""

from __future__ import annotations


class SchedulerError(Exception):
    """Something that a person or a caller can act on went wrong. Do not raise directly.

    ``code`` is stable and machine-readable; doors (API, pages, command line) translate it.
    Instances are picklable, so that they can cross a process.
    """

    code = "scheduler_error"

    def __init__(self, message: str = "", **extra: object) -> None:
        super().__init__(message or (self.__doc__ or self.code).strip().splitlines()[0])
        self.extra = extra

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), str(self), self.extra))


def _rebuild(kind: type[SchedulerError], message: str, extra: dict[str, object]) -> SchedulerError:
    return kind(message, **extra)


class InvalidInput(SchedulerError):
    """A value that was given is not acceptable; the message names it and the rule."""

    code = "invalid_input"


class DefinitionError(SchedulerError):
    """A flow definition is faulty; ``file``, ``line`` and ``remedy`` are in ``extra``."""

    code = "definition_error"


class NotFound(SchedulerError):
    """No such record exists, or it is not visible to the caller."""

    code = "not_found"


class Conflict(SchedulerError):
    """The request contradicts what exists already, or the world moved since it was prepared."""

    code = "conflict"


class Fenced(SchedulerError):
    """A deciding write was refused because the lease that it relied on is no longer held."""

    code = "fenced"


class NotAllowed(SchedulerError):
    """The state of the record does not allow this."""

    code = "not_allowed"


class NotAuthenticated(SchedulerError):
    """The name or the password is wrong, or the account is closed."""

    code = "not_authenticated"


class TooManyFailures(SchedulerError):
    """Too many passwords were wrong; ``retry_after_s`` in ``extra`` says how long the next one waits."""

    code = "too_many_failures"


class HeldForReview(SchedulerError):
    """A guard stopped an automatic action; it waits for a person. ``review`` in ``extra`` names it."""

    code = "held_for_review"
