"""Whether a failed run is begun once more by its policy, when, and for what reason."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from scheduler_app.rules import clear

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

COOLDOWN_CAP_S: Final = 30 * 86_400.0  # no policy waits longer
EXPONENT_MAX: Final = 1_000_000
NAMED_MAX: Final = 3  # tasks in a sentence
TEXT_MAX: Final = 80  # characters of a name in a sentence


class RetryScope(StrEnum):
    """What a run attempt that the policy begins executes again."""

    FAILED = "failed"  # what failed, with what could not run because of it
    ALL = "all"  # every task, from its beginning: what they saved is put away
    FROM_CHECKPOINT = "from_checkpoint"  # every task, from what it saved


class Siblings(StrEnum):
    """What becomes of the tasks that run on after one has failed for good."""

    WAIT = "wait"  # the run fails when they have ended
    STOP = "stop"  # they are stopped, so that it fails at once


class How(StrEnum):
    """In which way a task failed; the words that ``on`` may have beside exceptions."""

    FAILED = "failed"  # its code raised
    TIMED_OUT = "timed_out"  # it, or its run, took longer than allowed
    LOST = "lost"  # its worker fell silent too often
    KILLED = "killed"  # its process was ended from outside
    DEADLOCKED = "deadlocked"  # nothing in the run could start or end any more


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRetryPolicy:
    """What a flow says about its failed runs. Durations in seconds."""

    max_attempts: int  # run attempts, the first one counted
    cooldown_s: float = 0.0  # from the end of a run attempt to the next
    backoff: float = 0.0  # multiplier from one cool-down to the next; 0 or 1 = fixed
    max_cooldown_s: float | None = None
    scope: str = RetryScope.FAILED
    siblings: str = Siblings.WAIT
    on: tuple[str, ...] = ()  # names of exceptions, words of ``How``; empty = whatever failed


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """One task that failed by itself, and everything that it may be called in ``on``."""

    task_id: str
    names: frozenset[str]  # of its exception and the ones that it is derived from, and its ``How``


class Verdict(StrEnum):
    """What becomes of a run that failed."""

    RETRY = "retry"
    NOT = "not"  # its policy keeps out
    EXHAUSTED = "exhausted"  # it was the last run attempt that its policy allows


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryDecision:
    """The verdict, after how long, and why in a sentence."""

    verdict: Verdict
    reason: str
    in_s: float = 0.0


def decide(
    policy: RunRetryPolicy, *, retry_count: int, barred: str, causes: Sequence[Cause]
) -> RetryDecision:
    """What follows once a run has failed that began ``retry_count`` run attempts by this policy.

    ``barred`` says which person ended it or part of it; empty: nobody. Where ``on`` is given, every
    task that failed by itself must match it: to repeat the rest would not help the one that does not.
    """
    if barred:
        return RetryDecision(verdict=Verdict.NOT, reason=f"Not retried: {barred}")
    others = [one for one in causes if policy.on and one.names.isdisjoint(policy.on)]
    if others or (policy.on and not causes):
        named = _named([one.task_id for one in others]) or "the run"
        return RetryDecision(
            verdict=Verdict.NOT,
            reason=f"Not retried: {named} failed otherwise than its policy retries on.",
        )
    attempt = retry_count + 1
    if attempt >= policy.max_attempts:
        return RetryDecision(
            verdict=Verdict.EXHAUSTED,
            reason=f"{told(retry_count, policy)} failed: its policy allows no other.",
        )
    named = _named([one.task_id for one in causes])
    because = f" because {named} failed" if named else ""
    return RetryDecision(
        verdict=Verdict.RETRY,
        reason=f"{told(retry_count + 1, policy)} follows{because}.",
        in_s=cooldown_s(policy, attempt),
    )


def policy_from(raw: Mapping[str, Any]) -> RunRetryPolicy:
    """The policy of a stored definition; unknown keys of a newer writer are ignored."""
    known = {one.name for one in fields(RunRetryPolicy)}
    values = {key: value for key, value in raw.items() if key in known}
    values["on"] = tuple(raw.get("on", ()))
    return RunRetryPolicy(**values)


def cooldown_s(policy: RunRetryPolicy, position: int) -> float:
    """Seconds from the end of the ``position``-th go to the next; both caps are always obeyed."""
    cap_s = COOLDOWN_CAP_S
    if policy.max_cooldown_s is not None:
        cap_s = min(cap_s, policy.max_cooldown_s)
    if policy.backoff <= 0 or policy.backoff == 1 or policy.cooldown_s == 0:
        return min(policy.cooldown_s, cap_s)
    try:
        grown_s = policy.cooldown_s * policy.backoff ** min(position - 1, EXPONENT_MAX)
    except OverflowError:
        grown_s = math.inf
    return min(grown_s, cap_s)


def told(retry_count: int, policy: RunRetryPolicy) -> str:
    """Which go of how many a run is in, such as "Go 2 of 3"."""
    return f"Go {retry_count + 1} of {policy.max_attempts}"


def options(policy: RunRetryPolicy) -> clear.Options:
    """What the next run attempt takes up again."""
    return clear.Options(
        only_failed=policy.scope == RetryScope.FAILED,
        keep_checkpoints=policy.scope != RetryScope.ALL,
    )


def names_of(*, error: str, bases: Collection[str], how: How) -> frozenset[str]:
    """What a failure may be called: full and short names of the exception and its bases, and how."""
    known = [name for name in (error, *bases) if name]
    return frozenset({*known, *(name.rpartition(".")[2] for name in known), how.value})


def _named(task_ids: Sequence[str]) -> str:
    shown = [name if len(name) <= TEXT_MAX else f"{name[: TEXT_MAX - 1]}…" for name in task_ids]
    more = len(shown) - NAMED_MAX
    return ", ".join(shown[:NAMED_MAX]) + (f" and {more} more" if more > 0 else "")
