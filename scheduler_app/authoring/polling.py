"""How a task that waits asks again: on a worker, up for reschedule, or deferred in between."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from scheduler_app.authoring.deferral import Defer, DeferralTimeout, Reschedule
from scheduler_app.authoring.skipping import Skip
from scheduler_app.authoring.triggers import TimeTrigger, grown

if TYPE_CHECKING:
    from collections.abc import Callable

    from scheduler_app.authoring.context import Context

AGAIN: Final = "again"  # the method that a deferred one resumes in


class Mode(StrEnum):
    """Where a task is while it waits."""

    DEFER = "defer"  # deferred: a trigger is watched for it
    RESCHEDULE = "reschedule"  # up for reschedule: asked again on a worker, no slot in between
    POKE = "poke"  # on its worker all the while, with its slot: for short waits


@dataclass(frozen=True, slots=True, kw_only=True)
class Polling:
    """How often and how long it is asked, and what becomes of it at the end."""

    mode: Mode
    interval: timedelta
    backoff: float = 1.0  # each interval is so many times the one before
    interval_max: timedelta | None = None
    give_up_after: timedelta | None = None  # since the try began
    soft_fail: bool = False  # skipped where it would have failed
    silent_failures: bool = False  # an ask that raises is asked again

    def pause(self, asked: int, waited: timedelta) -> timedelta:
        """Until it is asked the next time, after so many asks. Raises ``DeferralTimeout``."""
        if self.give_up_after is None:
            return grown(self.interval, self.backoff, self.interval_max, asked)
        left = self.give_up_after - waited
        if left <= timedelta():
            message = f"Nothing came within {self.give_up_after.total_seconds():g} s."
            raise DeferralTimeout(message)
        return min(left, grown(self.interval, self.backoff, self.interval_max, asked))


def ask(ctx: Context, look: Callable[[], Any], how: Polling) -> Any:
    """The first answer of ``look`` that is not None; until then the task waits in its mode.

    Raises ``Defer``, ``Reschedule``, ``DeferralTimeout``, ``Skip``, and what ``look`` raises.
    """
    asked = ctx.resume_index
    while True:
        try:
            found = look()
        except Exception as error:
            if not how.silent_failures:
                raise softened(error, how) from error
            ctx.log.warning("Asked again later: %s: %s", type(error).__name__, error)
            found = None
        if found is not None:
            return found
        try:
            pause = how.pause(asked, ctx.elapsed)
        except DeferralTimeout as error:
            raise softened(error, how) from None
        wait(ctx, pause, how.mode)
        asked += 1


def wait(ctx: Context, pause: timedelta, mode: Mode) -> None:
    """So much time has passed, in the task's place. Raises ``Defer`` and ``Reschedule`` elsewhere."""
    if mode is Mode.RESCHEDULE:
        raise Reschedule(after=pause)
    if mode is Mode.DEFER:
        raise Defer(TimeTrigger(after=pause), method=AGAIN)
    ctx.services.pause(pause.total_seconds())


def softened(error: Exception, how: Polling) -> BaseException:
    """The error, or the skip that stands in its place."""
    return Skip(f"{type(error).__name__}: {error}") if how.soft_fail else error
