"""What becomes of a transactional group: begun, ended, tried again as a whole, or given up."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from scheduler_app.rules.roles import Running
from scheduler_app.rules.ties import UnitState

if TYPE_CHECKING:
    from datetime import datetime

    from scheduler_app.rules.definition import GroupRetry

DELAY_MAX_S: Final = 10 * 366 * 86_400.0


class GroupState(StrEnum):
    """States of a group attempt."""

    RUNNING = "running"
    UP_FOR_RETRY = "up_for_retry"  # a task of it failed; the next attempt begins at ``retry_at``
    SUCCESS = "success"
    FAILED = "failed"  # and no other attempt follows: the group is given up


class Cause(StrEnum):
    """Why a group attempt was begun."""

    BEGUN = "begun"  # a task of the group was let go for the first time
    RETRY = "retry"  # the one before failed
    CLEAR = "clear"  # the one before had ended, and a task of the group is open again


class Act(StrEnum):
    """What is to be written."""

    NOTHING = "nothing"
    BEGIN = "begin"  # the next attempt is running
    WAIT = "wait"  # the attempt is up for retry
    RETRY = "retry"  # every task of the group begins anew, under the next attempt
    SUCCEED = "succeed"
    GIVE_UP = "give_up"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupAttemptFacts:
    """The newest attempt of the group in its run."""

    number: int
    budget_start: int  # attempts up to this one belong to an earlier budget
    state: str
    retry_at: datetime | None = None

    def told(self, retry: GroupRetry) -> str:
        """Which attempt of the present budget it is: ``attempt 2 of 3``."""
        return f"attempt {self.number - self.budget_start} of {retry.max_attempts}"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDecision:
    """What is to be written, and why."""

    act: Act
    reason: str = ""
    cause: Cause = Cause.BEGUN  # where an attempt begins
    retry_at: datetime | None = None  # where it waits
    in_s: float | None = None  # until there is something to decide again


_NOTHING: Final = GroupDecision(act=Act.NOTHING)


def decide(
    *,
    unit: UnitState,
    has_begun: bool,
    attempt: GroupAttemptFacts | None,
    retry: GroupRetry,
    failure: str,
    barred: str,
    now: datetime,
) -> GroupDecision:
    """What follows for the group from the states of its tasks and its newest attempt.

    ``has_begun``: a task of it has left ``none``, or does now. ``failure`` says which task failed.
    ``barred`` says why another attempt would be of no use, or is not wanted; empty if it may be.
    """
    unit = _judged(unit, attempt, retry, barred)
    is_over = unit is not UnitState.PENDING
    if attempt is None:
        return GroupDecision(act=Act.BEGIN) if has_begun or is_over else _NOTHING
    waits_for_retry = attempt.state == GroupState.UP_FOR_RETRY
    if unit is UnitState.PENDING:
        if attempt.state == GroupState.RUNNING or not has_begun:
            return _NOTHING
        return GroupDecision(act=Act.BEGIN, cause=Cause.CLEAR)
    if unit is UnitState.SUCCESS:
        if attempt.state == GroupState.SUCCESS:
            return _NOTHING
        return GroupDecision(act=Act.SUCCEED, reason="Every task of the group ended well.")
    if attempt.state == GroupState.FAILED:
        return _NOTHING
    if barred or attempt.state == GroupState.SUCCESS:
        why = barred or "A task of it was marked failed after the group had succeeded."
        return GroupDecision(act=Act.GIVE_UP, reason=f"{failure} {why}".strip())
    if waits_for_retry and attempt.retry_at is not None:
        if now >= attempt.retry_at:
            return GroupDecision(act=Act.RETRY, cause=Cause.RETRY, reason=failure)
        left_s = (attempt.retry_at - now).total_seconds()
        return GroupDecision(act=Act.NOTHING, in_s=left_s)
    done = attempt.number - attempt.budget_start
    if not may_be_retried(attempt, retry):
        return GroupDecision(
            act=Act.GIVE_UP, reason=f"{failure} It was {attempt.told(retry)}.".strip()
        )
    wait_s = delay_s(retry, done)
    if wait_s == 0:
        return GroupDecision(act=Act.RETRY, cause=Cause.RETRY, reason=failure)
    return GroupDecision(
        act=Act.WAIT, reason=failure, retry_at=now + timedelta(seconds=wait_s), in_s=wait_s
    )


def may_be_retried(attempt: GroupAttemptFacts | None, retry: GroupRetry) -> bool:
    """Whether the budget has another attempt after this one."""
    done = 1 if attempt is None else attempt.number - attempt.budget_start
    return done < retry.max_attempts


def _judged(
    unit: UnitState, attempt: GroupAttemptFacts | None, retry: GroupRetry, barred: str
) -> UnitState:
    """The state to go by: a group that fails while tasks of it run is over only where it stops them."""
    if unit is not UnitState.FAILING:
        return unit
    stops = retry.running == Running.STOP and not barred and may_be_retried(attempt, retry)
    return UnitState.FAILED if stops else UnitState.PENDING


def delay_s(retry: GroupRetry, done: int) -> float:
    """Seconds between the end of the ``done``-th attempt of the budget and the next one."""
    longest = DELAY_MAX_S if retry.max_delay_s is None else retry.max_delay_s
    try:
        wait = retry.delay_s * (retry.backoff ** (done - 1) if retry.backoff else 1.0)
    except OverflowError:
        wait = longest
    return min(wait, longest)
