"""May a failed try be followed by another, when, and why: told in the same words everywhere.

Comes in: what the task says about its retries, what it failed with, where it is in its budget.
Goes out: a ``RetryDecision`` whose ``why`` is stored beside the time, and its sentence.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from scheduler_app.rules.definition import RetryRule, TaskDefinition

GLOBAL_CAP_S: Final = 86_400.0  # no automatic retry waits longer than a day
EXPONENT_MAX: Final = 1_000_000  # any delay that grows at all has met its cap long before
_OF_BUILTINS: Final = "builtins."
_FRACTIONS: Final = 2**32  # of a jitter that is no whole number of seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """What a task says about the delays of its retries. In seconds, not negative."""

    retry_delay_s: float
    backoff: float  # multiplier from try to try; 0 or 1 = fixed delay; True, as of old, = 2
    max_retry_delay_s: float | None  # 0 means: retry at once
    jitter: float | None = None  # share of the delay, 0 to 1; None: 1 where the delay grows, else 0
    global_cap_s: float = GLOBAL_CAP_S

    @property
    def cap_s(self) -> float:
        """No delay that follows from the policy is longer."""
        if self.max_retry_delay_s is None:
            return self.global_cap_s
        return min(self.global_cap_s, self.max_retry_delay_s)

    @property
    def multiplier(self) -> float:
        """From each delay to the next; 1 where they stay the same."""
        multiplier = 2.0 if self.backoff is True else float(self.backoff)
        return 1.0 if multiplier <= 0 else multiplier


@dataclass(frozen=True, slots=True, kw_only=True)
class Delay:
    """How long to wait, and what of it comes from where. Seconds."""

    seconds: float
    jitter_s: float = 0.0
    is_capped: bool = False
    is_faulty: bool = False  # it could not be computed, and is the longest that may be


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """What a try failed with."""

    # Of the exception's class and its bases, nearest first, as ``module.name``; empty where no
    # exception was seen: its process was killed.
    names: tuple[str, ...] = ()
    is_final: bool = False  # the task itself wants no other try
    retry_after_s: float | None = None  # the task itself says when
    reason: str = ""  # of the two above, in the task's words


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryDecision:
    """Whether another try follows. ``why`` is stored beside the time; ``told`` makes it a sentence."""

    retries: bool
    delay_s: float | None = None
    max_tries: int | None = None  # to raise the bound to, where a rule gives more than the task
    why: dict[str, Any] | None = None


def decide(
    task: TaskDefinition,
    failure: Failure,
    *,
    try_number: int,
    max_tries: int,
    budget_start: int,
    jitter_key: str,
    is_asked: bool = False,
) -> RetryDecision:
    """What follows a failed try.

    The nearest class of the exception that any rule names decides: by the rule, by ``retry_on`` or by
    ``fail_on``. A task that says for itself when, or that no try shall follow, is obeyed, within its
    budget. ``is_asked``: a person wants another try in any case, as after a clear.
    """
    position = max(1, try_number - budget_start)
    rule, is_let = _rule_of(task, failure.names)
    policy = _policy_of(task, rule)
    retries = _retries_of(task, rule, max_tries - budget_start)
    why: dict[str, Any] = {"position": position, "of": max(retries + 1, position)}
    if failure.names:
        why["error"] = shown_name(failure.names[0])
    if rule is not None:
        why["rule"] = shown_name(rule.on[0])
    if failure.reason:
        why["said"] = failure.reason
    if refusal := _refusal(task, failure, rule=rule, is_let=is_let, is_asked=is_asked):
        return RetryDecision(retries=False, why={**why, "none": refusal})
    if position > retries and not is_asked:
        return RetryDecision(retries=False, why={**why, "none": "budget"})
    delay = _delay(policy, position, jitter_key, failure.retry_after_s)
    why["delay_s"] = delay.seconds
    if failure.retry_after_s is not None:
        why["asked_s"] = failure.retry_after_s
    elif policy.multiplier != 1:
        why["backoff"] = policy.multiplier
    if delay.jitter_s:
        why["jitter_s"] = delay.jitter_s
    if delay.is_capped:
        why["capped"] = True
    if delay.is_faulty:
        why["faulty"] = True
    return RetryDecision(
        retries=True,
        delay_s=delay.seconds,
        max_tries=budget_start + retries if retries > max_tries - budget_start else None,
        why=why,
    )


def next_delay(policy: RetryPolicy, position: int, jitter_key: str) -> Delay:
    """The time from the end of the failed try to the earliest start of the next.

    ``position`` counts from 1 inside the current budget of retries. A fixed delay is taken as it
    is. A growing one is rounded up to whole seconds, at least one, and stretched by less than
    twice, by a hash of the key and position: tasks that failed together do not come back together,
    and every process computes the same instant. Both caps are obeyed in every case, last.

    Source: retry delay of apache-airflow-core 3.3.2 (``next_retry_datetime``), with its gaps
    closed: caps hold without backoff too, zero is a cap, and the key tells mapped siblings apart.
    """
    cap_s, multiplier = policy.cap_s, policy.multiplier
    if multiplier == 1:
        base_s = policy.retry_delay_s
    else:
        grown_s = _grown_s(policy.retry_delay_s, multiplier, position)
        base_s = float(max(1, math.ceil(min(grown_s, cap_s))))
    added_s = _jitter_s(policy, base_s, jitter_key, position)
    whole_s = min(base_s + added_s, cap_s)
    return Delay(
        seconds=whole_s,
        jitter_s=max(0.0, whole_s - base_s),
        is_capped=whole_s < base_s + added_s or (multiplier != 1 and base_s >= cap_s),
    )


def next_delay_s(policy: RetryPolicy, position: int, jitter_key: str) -> float:
    """The seconds of ``next_delay``."""
    return next_delay(policy, position, jitter_key).seconds


def is_due(next_retry_at: datetime | None, now: datetime) -> bool:
    """Whether the waiting time of a task instance is over; without one, it is."""
    return next_retry_at is None or next_retry_at <= now


def matches(wanted: str, name: str) -> bool:
    """Whether the class called ``name`` (``module.name``) is meant by what a definition wrote.

    A name with dots means just that class; one without means any class of that name, so that it can
    be named where it cannot be imported.
    """
    return wanted == name or ("." not in wanted and name.rpartition(".")[2] == wanted)


def named_twice(task: TaskDefinition) -> str | None:
    """An exception that two rules of the task name, if there is one."""
    seen: set[str] = set()
    for name in (*task.retry_on, *task.fail_on, *(one for r in task.retry_rules for one in r.on)):
        if name in seen:
            return name
        seen.add(name)
    return None


def shown_name(name: str) -> str:
    """The name as people write it: without the module of built-in exceptions."""
    return name.removeprefix(_OF_BUILTINS)


def told(why: Mapping[str, Any]) -> str:
    """Why another try follows when it does, or why none does: "try 2 of 4 failed with OSError: ..."."""
    failed = f"try {why['position']} of {why['of']} failed" if "position" in why else "it waits"
    if why.get("error"):
        failed += f" with {why['error']}"
    follows = told_follows(why)
    return f"{failed}: {follows}" if follows else failed


def told_follows(why: Mapping[str, Any]) -> str:
    """What follows the failure, and why: "retry in 30 s, backoff 2.0, jitter +3 s"."""
    said = f" ({why['said']})" if why.get("said") else ""
    if none := why.get("none"):
        return f"{_NONE[none].format(error=why.get('error', ''))}{said}"
    parts = []
    if "asked_s" in why:
        parts.append(f"the task asked for a retry in {_span(why['asked_s'])}{said}")
    elif "delay_s" in why:
        parts.append(f"retry in {_span(why['delay_s'] - why.get('jitter_s', 0))}")
    if "backoff" in why:
        backoff = why["backoff"]
        parts.append(f"backoff {backoff:.1f}" if backoff % 1 == 0 else f"backoff {backoff:g}")
    if "jitter_s" in why:
        parts.append(f"jitter +{_span(why['jitter_s'])}")
    if "rule" in why:
        parts.append(f"by the rule for {why['rule']}")
    if why.get("capped"):
        parts.append(f"cut to {_span(why['delay_s'])}")
    if why.get("faulty"):
        parts.append("the longest there is, since its delay could not be computed")
    if edited := why.get("edited"):
        moved = f"{edited['actor']} moved it at {edited['at']}: {edited['reason']}"
        return "; ".join([", ".join(parts), moved] if parts else [moved])
    return ", ".join(parts)


def told_rules(task: TaskDefinition) -> list[str]:
    """What the definition says of exceptions, a line each: "OSError: 5 retries, after 2 s"."""
    lines = [f"only {_named(task.retry_on)}"] if task.retry_on else []
    if task.fail_on:
        lines.append(f"{_named(task.fail_on)}: fails at once")
    return lines + [f"{_named(rule.on)}: {_told_rule(rule)}" for rule in task.retry_rules]


def _named(names: Iterable[str]) -> str:
    return ", ".join(map(shown_name, names))


def _told_rule(rule: RetryRule) -> str:
    if rule.retries == 0:
        return "fails at once"
    parts = [] if rule.retries is None else [f"{rule.retries} retries"]
    if rule.retry_delay_s is not None:
        parts.append(f"after {_span(rule.retry_delay_s)}")
    if rule.backoff is not None:
        parts.append(f"backoff {rule.backoff:g}")
    if rule.max_retry_delay_s is not None:
        parts.append(f"at most {_span(rule.max_retry_delay_s)}")
    return ", ".join(parts) or "as any other"


def told_tries(try_number: int, max_tries: int, budget_start: int) -> str:
    """Which try of how many it is, as "2 of 3"; after a clear "5 (2 of 3 since its clear)"."""
    position = try_number - budget_start
    whole = max(max_tries - budget_start + 1, position)
    if not budget_start:
        return f"{position} of {whole}"
    return f"{try_number} ({position} of {whole} since its clear)"


_NONE: Final = {
    "budget": "no retry is left",
    "said": "the task asked for no retry",
    "fail_on": "its definition has {error} fail at once",
    "rule": "its definition has {error} fail at once",
    "retry_on": "its retry_on leaves {error} out, so no retry follows",
}


def _rule_of(task: TaskDefinition, names: Iterable[str]) -> tuple[RetryRule | None, str]:
    """The rule for the exception, if one is; and by which option: ``retry_on``, ``fail_on`` or none."""
    for name in names:
        for rule in task.retry_rules:
            if any(matches(wanted, name) for wanted in rule.on):
                return rule, "rule"
        if any(matches(wanted, name) for wanted in task.fail_on):
            return None, "fail_on"
        if any(matches(wanted, name) for wanted in task.retry_on):
            return None, "retry_on"
    return None, ""


def _refusal(
    task: TaskDefinition,
    failure: Failure,
    *,
    rule: RetryRule | None,
    is_let: str,
    is_asked: bool,
) -> str | None:
    if is_asked:
        return None
    if failure.is_final:
        return "said"
    if failure.retry_after_s is not None:
        return None
    if is_let == "fail_on":
        return "fail_on"
    if rule is not None and rule.retries == 0:
        return "rule"
    if task.retry_on and failure.names and not is_let:
        return "retry_on"
    return None


def _retries_of(task: TaskDefinition, rule: RetryRule | None, granted: int) -> int:
    """How many retries there are for this failure in a whole budget; ``granted`` has the instance."""
    if rule is not None and rule.retries is not None:
        return rule.retries
    if task.retries == 0:
        return 0  # a definition without retries ends them, whatever budget is left
    # A rule for another exception may have raised the bound.
    raises = any(other.retries is not None for other in task.retry_rules)
    return min(task.retries, granted) if raises else granted


def _policy_of(task: TaskDefinition, rule: RetryRule | None) -> RetryPolicy:
    def either(own: Any, of_rule: Any) -> Any:
        return own if rule is None or of_rule is None else of_rule

    return RetryPolicy(
        retry_delay_s=either(task.retry_delay_s, rule and rule.retry_delay_s),
        backoff=either(task.backoff, rule and rule.backoff),
        max_retry_delay_s=either(task.max_retry_delay_s, rule and rule.max_retry_delay_s),
        jitter=either(task.jitter, rule and rule.jitter),
    )


def _delay(policy: RetryPolicy, position: int, key: str, asked_s: float | None) -> Delay:
    if asked_s is not None:  # it knows better than the stack's cap, but not than its own
        own_cap_s = policy.max_retry_delay_s
        if own_cap_s is not None and asked_s > own_cap_s:
            return Delay(seconds=own_cap_s, is_capped=True)
        return Delay(seconds=asked_s)
    try:
        return next_delay(policy, position, key)
    except (ArithmeticError, ValueError):  # numbers that no definition lets through: never the end
        return Delay(seconds=policy.cap_s, is_faulty=True)


def _grown_s(delay_s: float, multiplier: float, position: int) -> float:
    exponent = min(max(position, 1) - 1, EXPONENT_MAX)
    try:
        return delay_s * multiplier**exponent if delay_s else 0.0
    except OverflowError:
        return math.inf


def _jitter_s(policy: RetryPolicy, base_s: float, key: str, position: int) -> float:
    drawn = _drawn(key, position)
    if policy.jitter is None:
        return 0.0 if policy.multiplier == 1 else float(drawn % int(base_s))
    return policy.jitter * base_s * (drawn % _FRACTIONS) / _FRACTIONS


def _drawn(key: str, position: int) -> int:
    digest = hashlib.sha256(f"{key}\n{position}".encode()).digest()
    return int.from_bytes(digest[:8], "big")


def _span(seconds: float) -> str:
    """A duration in the unit that people count it in, to the tenth of a second."""
    rounded = round(seconds, 1)
    for unit_s, unit in ((3600, "h"), (60, "min")):
        if rounded >= 2 * unit_s and rounded % unit_s == 0:
            return f"{rounded / unit_s:,.0f} {unit}"
    return f"{rounded:,.1f}".removesuffix(".0") + " s"
