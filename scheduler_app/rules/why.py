"""Why a task instance is as it is: in one sentence, what happened to it or what it waits for, by which rule.

Times in a sentence are moments in UTC and never ages, so that the same facts give the same sentence.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from scheduler_app.rules import capacity
from scheduler_app.rules.definition import TriggerRule
from scheduler_app.rules.retry import told_follows, told_tries
from scheduler_app.rules.states import AttemptOutcome, AttemptState, RunState, TaskState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

NAMED_MAX: Final = 3  # of tasks in a sentence
TEXT_CHARACTERS_MAX: Final = 300  # of what somebody else said


@dataclass(frozen=True, slots=True, kw_only=True)
class Why:
    """The answer. ``rule`` is stable and machine-readable."""

    rule: str
    sentence: str
    since: datetime | None = None  # how long it has waited for room
    holders: Sequence[Holder] = ()  # who holds what it waits for, longest first: some of them
    holders_total: int = 0
    before: int = 0  # how many wait for the same pool and come first in any case


@dataclass(frozen=True, slots=True, kw_only=True)
class Freeze:
    """The freeze that holds it. ``number`` null: of its run or flow, whose row is not known."""

    scope: str  # task instance, run, flow, ...
    number: int | None = None
    actor: str | None = None
    reason: str | None = None
    since: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Upstream:
    """How many instances of a task that it comes after show a state, or the one of its own index."""

    task_id: str
    state: str
    number: int = 1
    map_index: int | None = None  # of the one that counts, in the mapped group that both are in

    @property
    def name(self) -> str:
        """The task, with the map index where one instance counts."""
        return named(self.task_id, self.map_index)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """A group that is one unit, which it is outside of and which a task before it is in."""

    group_id: str
    members: Sequence[Upstream]
    is_given_up: bool = False
    retry_at: datetime | None = None  # when its next attempt begins


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A task instance that holds what this one waits for. ``name`` null: the reader may not see it."""

    name: str | None  # flow, run and task
    slots: int
    since: datetime | None
    ti: int | None = None
    run: int | None = None
    state: str = "running"  # running, queued or deferred


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptFacts:
    """Its current attempt."""

    id: str
    state: str
    outcome: str | None = None
    reason: str | None = None
    error: str | None = None  # type and message
    process: str | None = None  # host:pid
    issued_at: datetime | None = None
    published_at: datetime | None = None
    publish_count: int = 0
    started_at: datetime | None = None
    heartbeat_at: datetime | None = None
    ended_at: datetime | None = None
    is_accepted: bool = False  # it ended by its own report
    is_silent: bool = False  # its last sign of life is older than its worker may be silent
    signal: str | None = None  # that ended its process, by the exit event
    event_code: str | None = None  # of the event that was judged to have ended it


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerFacts:
    """What it is deferred to."""

    kind: str  # time, event or watched
    state: str
    event_key: str | None = None
    due_at: datetime | None = None
    timeout_at: datetime | None = None
    since: datetime | None = None
    watcher: str | None = None  # host:pid of the triggerer; null: nobody watches it
    is_watcher_alive: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Everything that the sentence may need, read at one moment."""

    state: str
    try_number: int = 0
    max_tries: int = 0
    budget_start: int = 0
    task_id: str = ""
    pool: str = "default"
    queue: str = "default"
    ready_at: datetime | None = None
    ended_at: datetime | None = None
    next_retry_at: datetime | None = None
    next_retry_why: Mapping[str, Any] | None = None  # as rules/retry.py wrote it
    now: datetime | None = None
    next_method: str | None = None
    wait_code: str | None = None
    wait_detail: str | None = None
    wait_since: datetime | None = None
    stop_at: datetime | None = None
    stop_reason: str | None = None
    mark: str | None = None  # the state that a person said that it is in
    infra_losses: int = 0
    infra_budget: int = 0
    freeze: Freeze | None = None
    filter_reason: str | None = None
    run_state: str = RunState.RUNNING
    run_limit: int | None = None  # max_active_runs of its flow
    run_retry_at: datetime | None = None  # when its run, which failed, begins again
    run_retry_reason: str = ""
    version: int | None = None
    shard: int = 0
    decider: str | None = None  # host:pid of the scheduler that holds the shard; null: nobody does
    rule: str = TriggerRule.ALL_SUCCESS
    upstream: Sequence[Upstream] = ()
    # Of a mapped task that is not expanded: whose results say how long it gets. Null: it is no such one.
    maps_over: Sequence[str] | None = None
    setups: Sequence[
        Upstream
    ] = ()  # above it, not right before it, that it needs whatever its rule
    teardown_of: Sequence[str] = ()  # of a teardown: its own setups
    scope: Sequence[
        Upstream
    ] = ()  # of a teardown: what may use what they made, beyond its upstream
    units: Sequence[Unit] = ()
    root_causes: Sequence[str] = ()  # tasks before its upstream that failed by themselves
    barred_by: Sequence[str] = ()  # branches and gates before it that did not let it through
    barred_by_all: Sequence[str] = ()  # mapped ones, of which no instance let it through
    undecided_by: Sequence[str] = ()  # branches and gates before it that have not ended
    attempt: AttemptFacts | None = None
    trigger: TriggerFacts | None = None
    holders: Sequence[Holder] = ()  # longest first: some of them
    holders_total: int = 0
    before: int = 0  # how many wait for its pool and come first
    pool_size: int | None = None
    queue_workers: int = 0  # alive, on its queue


def named(task_id: str, map_index: int | None) -> str:
    """How one instance of a task is called."""
    return task_id if map_index is None or map_index < 0 else f"{task_id} [{map_index}]"


def explain(facts: Facts) -> Why:
    """The sentence for these facts. Never empty, whatever is missing among them."""
    told = _of_state(facts)
    if facts.freeze is not None and facts.state not in _OVER:
        return _frozen(facts.freeze, told)
    if facts.run_retry_at is not None and facts.state in _AGAIN:
        told = Why(
            rule=told.rule,
            sentence=f"{told.sentence} Its run begins again at {_at(facts.run_retry_at)}:"
            f" {_text(facts.run_retry_reason)}",
        )
    return told


def _of_state(facts: Facts) -> Why:
    known = facts.state in _BY_STATE
    if facts.stop_at is not None and facts.state in (TaskState.RUNNING, TaskState.RESTARTING):
        where = facts.attempt.process if facts.attempt and facts.attempt.process else "its worker"
        return Why(
            rule="terminating",
            sentence=f"{_said(facts.stop_reason)} ({_at(facts.stop_at)}); {where} stops it, by an"
            " exception, then SIGTERM, then a kill.",
        )
    if facts.mark is not None and facts.state == facts.mark and facts.stop_reason is not None:
        return _marked(facts)
    if not known:
        return Why(
            rule="unknown_state",
            sentence=f"Its state {facts.state!r} is none that this version knows.",
        )
    return _BY_STATE[TaskState(facts.state)](facts)


def _marked(facts: Facts) -> Why:
    outcome = facts.attempt.outcome if facts.attempt else None
    came_to = f"its code ended as {outcome}" if outcome else "its code did not run"
    at = _at(facts.ended_at or facts.stop_at)
    return Why(rule="marked", sentence=f"{_said(facts.stop_reason)} ({at}); {came_to}.")


def _frozen(freeze: Freeze, beneath: Why) -> Why:
    by = f" by {freeze.actor}" if freeze.actor else ""
    since = f" since {_at(freeze.since)}" if freeze.since else ""
    number = f" (freeze {freeze.number})" if freeze.number is not None else ""
    reason = f": {_text(freeze.reason)}" if freeze.reason else ""
    until = f", until {_at(freeze.until)}" if freeze.until else ", until it is thawed"
    what = "It" if freeze.scope == "task instance" else f"Its {freeze.scope}"
    return Why(
        rule="frozen",
        sentence=f"{what} is frozen{by}{since}{number}{until}{reason}; beneath: {_lower(beneath.sentence)}",
    )


# -- before anything was started -------------------------------------------------------------------


def _none(facts: Facts) -> Why:
    waits = _waits_for_its_run(facts) or _waits_for_a_decider(facts)
    if waits is not None:
        return waits
    unfinished = [one for one in facts.upstream if one.state not in _OVER]
    if unfinished:
        by_rule = (
            f"It waits for {_upstream(unfinished)}; {_RULE_WORDS[facts.rule]}."
            if facts.rule in _RULE_WORDS
            else f"It waits for {_upstream(unfinished)}, by its rule {facts.rule}."
        )
        return Why(rule=f"upstream:{facts.rule}", sentence=_then_expanded(facts, by_rule))
    beside = _waits_for_a_unit(facts) or _waits_for_a_setup(facts)
    if beside is not None:
        return replace(beside, sentence=_then_expanded(facts, beside.sentence))
    if facts.maps_over is not None:
        return Why(
            rule="expansion", sentence=f"It stands for all its instances: {_expands(facts)}."
        )
    if facts.undecided_by:
        return Why(
            rule="picked",
            sentence=f"It waits for {_names(facts.undecided_by)}, which may skip it.",
        )
    using = [one for one in facts.scope if one.state not in _OVER]
    if using:
        return Why(
            rule="scope",
            sentence=f"It is a teardown, and waits for what stands between {_names(facts.teardown_of)}"
            f" and itself: {_upstream(using)}.",
        )
    what = "It has no upstream" if not facts.upstream else "Its upstream has ended as its rule asks"
    return Why(rule="ready", sentence=f"{what}; {_looks(facts)}.")


def _waits_for_a_unit(facts: Facts) -> Why | None:
    for unit in facts.units:
        unfinished = [one for one in unit.members if one.state not in _OVER]
        if unfinished:
            told = _upstream(unfinished)
        elif not unit.is_given_up and any(one.state in _AGAIN for one in unit.members):
            begins = f" It begins anew at {_at(unit.retry_at)}" if unit.retry_at else ""
            told = f"{_names(_bad(unit.members))} failed.{begins}".removesuffix(".")
        else:
            continue
        return Why(
            rule="group",
            sentence=f"It waits for all of group {unit.group_id}, which is one unit: {told}.",
        )
    return None


def _waits_for_a_setup(facts: Facts) -> Why | None:
    unfinished = [one for one in facts.setups if one.state not in _OVER]
    if not unfinished:
        return None
    return Why(
        rule="setup",
        sentence=f"It waits for a setup that it needs whatever its rule: {_upstream(unfinished)}.",
    )


def _bad(of: Iterable[Upstream]) -> list[str]:
    """Those that failed by themselves, or else could not start."""
    for state in (TaskState.FAILED, TaskState.UPSTREAM_FAILED):
        if found := [one.name for one in of if one.state == state]:
            return found
    return []


def _then_expanded(facts: Facts, sentence: str) -> str:
    if facts.maps_over is None:
        return sentence
    if not facts.maps_over:
        return f"{sentence} Then it is expanded into its instances."
    named = _names(facts.maps_over)
    return f"{sentence} Then it is expanded into an instance for each element of {named}."


def _expands(facts: Facts) -> str:
    if not facts.maps_over:
        return "they are made within a moment, in batches of up to 1,000"
    return (
        f"they are made, in batches of up to 1,000, as soon as it is known how many elements"
        f" {_names(facts.maps_over)} left"
    )


def _scheduled(facts: Facts) -> Why:
    waits = _waits_for_its_run(facts) or _waits_for_a_decider(facts)
    if waits is not None:
        return waits
    before = _what_came_before(facts)
    if facts.wait_code is not None:
        room = _waits_for_room(facts)
        return replace(room, sentence=_then(before, room.sentence))
    if before:
        return Why(rule=_rule_before(facts), sentence=_then(before, f"{_looks(facts)}."))
    since = f" since {_at(facts.ready_at)}" if facts.ready_at else ""
    return Why(rule="ready", sentence=f"It is ready{since}; {_looks(facts)}.")


def _waits_for_its_run(facts: Facts) -> Why | None:
    if facts.run_state != RunState.QUEUED:
        return None
    limit = f" ({facts.run_limit})" if facts.run_limit is not None else ""
    return Why(
        rule="max_active_runs",
        sentence="Its run has not started: it waits until fewer runs of its flow are active than"
        f" max_active_runs{limit} allows.",
    )


def _waits_for_a_decider(facts: Facts) -> Why | None:
    if facts.decider is not None:
        return None
    return Why(
        rule="no_lease",
        sentence=f"No scheduler holds the lease of shard {facts.shard}, so nothing is decided for its"
        " flow: start one with `manage.py scheduler`, or look at the leases.",
    )


def _rule_before(facts: Facts) -> str:
    if facts.attempt is not None and facts.attempt.outcome == AttemptOutcome.LOST:
        return "worker_lost"
    return "resume"


def _what_came_before(facts: Facts) -> str:
    """Why it is scheduled a second time; empty the first time."""
    attempt = facts.attempt
    if attempt is not None and attempt.outcome == AttemptOutcome.LOST:
        budget = (
            f", loss {facts.infra_losses} of at most {facts.infra_budget} that are made good"
            if facts.infra_losses
            else ", which uses up no retry"
        )
        return f"{_process(attempt)} was lost at {_at(attempt.ended_at)} ({_said(attempt.reason)}){budget}"
    if facts.next_method is not None:
        return f"Its trigger has fired, and it resumes in `{facts.next_method}`"
    return ""


def _waits_for_room(facts: Facts) -> Why:
    detail = facts.wait_detail or f"It waits for {_words(facts.wait_code)}."
    since = f" (since {_at(facts.wait_since)})" if facts.wait_since else ""
    held = ""
    what = _HELD_WORDS.get(facts.wait_code or "")
    if what and facts.holders:
        more = max(0, facts.holders_total - len(facts.holders))
        held = f"; {what.format(pool=facts.pool)} are held by {_holders(facts.holders, more)}"
    elif facts.wait_code == capacity.QUEUE_FULL:
        held = f"; {_workers(facts)}"
    if facts.before:
        others = "1 other that waits" if facts.before == 1 else f"{facts.before} others that wait"
        held += f"; {others} for this pool with a higher priority, or in its flow for longer, come{'s' if facts.before == 1 else ''} first"
    return Why(
        rule=str(facts.wait_code),
        sentence=f"{detail.rstrip('.')}{since}{held}.",
        since=facts.wait_since,
        holders=facts.holders,
        holders_total=max(facts.holders_total, len(facts.holders)),
        before=facts.before,
    )


_HELD_WORDS: Final[dict[str, str]] = {
    capacity.POOL_FULL: "the slots of pool {pool}",
    capacity.POOL_KEPT: "the slots of pool {pool}",
    capacity.RUN_LIMIT: "its places",
    capacity.FLOW_LIMIT: "the places of its flow",
    capacity.TASK_LIMIT: "the places of its task",
    capacity.TASK_RUN_LIMIT: "the places of its task",
    capacity.KEY_LIMIT: "the slots of the key",
    capacity.KEY_KEPT: "the slots of the key",
}


def _queued(facts: Facts) -> Why:
    attempt = facts.attempt
    if attempt is None or attempt.issued_at is None:
        return Why(rule="queued", sentence=f"It waits for a worker of queue {facts.queue}.")
    if attempt.published_at is None:
        return Why(
            rule="unpublished",
            sentence=f"Its attempt was issued at {_at(attempt.issued_at)}, and its message to queue"
            f" {facts.queue} is about to be sent.",
        )
    times = f", sent {attempt.publish_count} times" if attempt.publish_count > 1 else ""
    rule = "nobody_listens" if not facts.queue_workers else "queued"
    return Why(
        rule=rule,
        sentence=f"Its message waits in queue {facts.queue} since {_at(attempt.published_at)}{times};"
        f" {_workers(facts)}.",
    )


def _workers(facts: Facts) -> str:
    if not facts.queue_workers:
        return (
            f"no worker that is alive listens there: start one with `manage.py worker --queues"
            f" {facts.queue}`"
        )
    number = facts.queue_workers
    return (
        f"{number} worker{'s' if number > 1 else ''} that listen{'' if number > 1 else 's'} there"
        + (" are busy or about to take it" if number > 1 else " is busy or about to take it")
    )


# -- while it is executed --------------------------------------------------------------------------


def _running(facts: Facts) -> Why:
    attempt = facts.attempt
    tries = _tries(facts)
    if attempt is None or attempt.started_at is None:
        return Why(rule="running", sentence=f"A worker executes it ({tries}).")
    resumed = f", resumed in `{facts.next_method}`" if facts.next_method else ""
    told = f"{_process(attempt)} executes it since {_at(attempt.started_at)} ({tries}){resumed}"
    if attempt.state == AttemptState.RUNNING and attempt.is_silent:
        heard = _at(attempt.heartbeat_at or attempt.started_at)
        return Why(
            rule="silent",
            sentence=f"{told}; its last heartbeat is of {heard}, and it is given up as lost if no"
            " other comes.",
        )
    return Why(rule="running", sentence=f"{told}.")


def _restarting(facts: Facts) -> Why:
    where = _process(facts.attempt) if facts.attempt else "its worker"
    return Why(
        rule="restarting",
        sentence=f"It was cleared while it ran; it begins anew as soon as {_lower(where)} has stopped it.",
    )


def _deferred(facts: Facts) -> Why:
    trigger = facts.trigger
    since = f" since {_at(trigger.since if trigger else facts.wait_since)}"
    if trigger is None:
        detail = facts.wait_detail or "It waits for its trigger."
        return Why(rule="deferred", sentence=f"{detail.rstrip('.')}{since}.")
    limit = f"; its time limit ends at {_at(trigger.timeout_at)}" if trigger.timeout_at else ""
    if trigger.state != "waiting":
        return Why(
            rule="fired",
            sentence=f"Its trigger {_words(trigger.state)} already; it resumes as soon as it may.",
        )
    match trigger.kind:
        case "time":
            late = bool(facts.now and trigger.due_at and trigger.due_at < facts.now)
            told = f"It waits{since} for {_at(trigger.due_at)}"
            told += ", which has passed: a triggerer has yet to look" if late else ""
            return Why(rule="deferred:time", sentence=f"{told}{limit}.")
        case "event":
            return Why(
                rule="deferred:event",
                sentence=f"It waits{since} for somebody to send it the event {trigger.event_key!r}"
                f"{limit}.",
            )
    detail = (facts.wait_detail or "It waits for its trigger.").rstrip(".")
    if trigger.watcher is None:
        watched = "no triggerer watches it yet"
    elif trigger.is_watcher_alive:
        watched = f"triggerer {trigger.watcher} watches"
    else:
        watched = f"triggerer {trigger.watcher}, which watched, is silent: another takes it over"
    return Why(rule="deferred:watched", sentence=f"{detail}{since}; {watched}{limit}.")


def _up_for_retry(facts: Facts) -> Why:
    due = facts.next_retry_at
    room = Why(rule="", sentence="")
    if due is None:
        following = "the next one follows"
    elif facts.now is not None and due <= facts.now:
        following = f"the next one is due since {_at(due)}"
        if facts.wait_code is not None:
            room = _waits_for_room(facts)
            following += f" and waits: {_lower(room.sentence).rstrip('.')}"
        elif facts.decider is None:
            following += f", but no scheduler holds the lease of shard {facts.shard}"
    else:
        following = f"the next one starts at {_at(due)}"
    sentence = f"{_how_it_failed(facts)}; {following}."
    if follows := told_follows(facts.next_retry_why or {}):
        sentence += f" {_upper(_said(follows))}."
    return replace(room, rule="retry", sentence=sentence)


def _up_for_reschedule(facts: Facts) -> Why:
    looked = (
        f" at {_at(facts.attempt.ended_at)}" if facts.attempt and facts.attempt.ended_at else ""
    )
    due = f"at {_at(facts.next_retry_at)}" if facts.next_retry_at else "later"
    return Why(
        rule="reschedule",
        sentence=f"It looked{looked}, found nothing yet and asked to be run again {due}, in the same"
        " try.",
    )


# -- once it has ended -----------------------------------------------------------------------------


def _success(facts: Facts) -> Why:
    attempt = facts.attempt
    if attempt is None or attempt.outcome != AttemptOutcome.SUCCESS:
        came_to = f"ended as {attempt.outcome}" if attempt and attempt.outcome else "did not run"
        return Why(
            rule="marked",
            sentence=f"It was marked as success by hand at {_at(facts.ended_at)}; its code {came_to}.",
        )
    return Why(
        rule="success",
        sentence=f"{_process(attempt)} executed it and reported success at {_at(attempt.ended_at)}"
        f" ({_tries(facts)}).",
    )


def _failed(facts: Facts) -> Why:
    attempt = facts.attempt
    if facts.stop_reason is not None:
        how = _how_it_ended(attempt, facts.stop_reason)
        at = _at(facts.ended_at or facts.stop_at)
        return Why(
            rule="terminated", sentence=f"{_said(facts.stop_reason)}; it ended at {at}{how}."
        )
    if attempt is None or attempt.outcome in (None, AttemptOutcome.SUCCESS):
        came_to = "nothing of it had run" if attempt is None else "its attempt says otherwise"
        return Why(
            rule="marked",
            sentence=f"It was marked as failed by hand at {_at(facts.ended_at)}; {came_to}.",
        )
    if attempt.outcome == AttemptOutcome.LOST:
        return Why(
            rule="infrastructure_budget",
            sentence=f"{_process(attempt)} was lost at {_at(attempt.ended_at)}"
            f" ({_said(attempt.reason)}), for the {_ordinal(facts.infra_losses)} time in this try; at"
            f" most {facts.infra_budget} losses are made good.",
        )
    left = facts.max_tries + 1 - facts.try_number
    none_left = "no other try is left" if left <= 0 else "no other try follows"
    if left > 0 and (facts.next_retry_why or {}).get("none"):
        none_left += f": {_said(told_follows(facts.next_retry_why or {}))}"
    return Why(rule=_failure_rule(attempt), sentence=f"{_how_it_failed(facts)}; {none_left}.")


def _how_it_ended(attempt: AttemptFacts | None, stop_reason: str) -> str:
    """What the attempt adds to the request: which stage ended it, or that it ended otherwise."""
    if attempt is None or not attempt.reason or attempt.outcome == AttemptOutcome.DEFERRED:
        return ""  # what it had come to before is not how it ended
    more = attempt.reason.removeprefix(stop_reason).strip(" .")
    return f": {_lower(_text(more))}" if more else ""


def _failure_rule(attempt: AttemptFacts) -> str:
    if attempt.event_code == "killed_externally":
        return "killed_externally"
    return "stopped" if attempt.outcome == AttemptOutcome.TERMINATED else "failed"


def _how_it_failed(facts: Facts) -> str:
    attempt = facts.attempt
    tries = _tries(facts)
    if attempt is None:
        return f"{tries[:1].upper()}{tries[1:]} failed"
    at = _at(attempt.ended_at)
    if attempt.event_code == "killed_externally":
        signal = f" by {attempt.signal}" if attempt.signal else ""
        return (
            f"Its process {attempt.process or 'of unknown place'} was ended from outside{signal} at"
            f" {at}, without a report ({tries})"
        )
    if attempt.outcome == AttemptOutcome.TERMINATED:
        return f"{_process(attempt)} was stopped at {at}: {_said(attempt.reason)} ({tries})"
    if attempt.outcome == AttemptOutcome.LOST:
        return f"{_process(attempt)} was lost at {at}: {_said(attempt.reason)} ({tries})"
    said = _text(attempt.error or attempt.reason or "it left no message")
    return f"Its code failed on {attempt.process or 'a worker'} at {at}: {said} ({tries})"


# Rules that skip a task though nothing before it was skipped.
_SKIPS_WITHOUT_A_SKIP: Final = frozenset(
    {TriggerRule.ALL_FAILED, TriggerRule.ALL_SKIPPED, TriggerRule.ONE_DONE}
)


def _skipped(facts: Facts) -> Why:
    skipped = [
        one.name
        for one in facts.upstream
        if one.state == TaskState.SKIPPED
        # To a teardown nothing else matters.
        and (not facts.teardown_of or one.task_id in facts.teardown_of)
    ]
    setups = [one.name for one in facts.setups if one.state == TaskState.SKIPPED]
    by_rule = f"rule:{facts.rule}"
    if facts.mark == TaskState.SKIPPED:
        pass
    elif facts.attempt is not None and facts.attempt.outcome == AttemptOutcome.SUCCESS:
        said = _said((facts.attempt.reason or "").removeprefix("Skipped: "))
        return Why(
            rule="skipped_itself",
            sentence=f"{_process(facts.attempt)} executed it, and its code skipped it at"
            f" {_at(facts.attempt.ended_at)}: {said}.",
        )
    elif facts.maps_over is not None and facts.stop_reason is not None:
        return Why(
            rule="mapped_over_nothing",
            sentence=f"It was mapped over nothing, and so skipped: {_lower(_said(facts.stop_reason))}.",
        )
    elif facts.barred_by:
        return Why(
            rule="picked",
            sentence=f"It was skipped since {_names(facts.barred_by)} did not let it go on.",
        )
    elif facts.barred_by_all:
        return Why(
            rule="picked",
            sentence=f"It was skipped since no instance of {_names(facts.barred_by_all)} let it go on.",
        )
    elif setups:
        return Why(
            rule="setup",
            sentence=f"It was skipped since {_were(setups)} skipped, which it needs whatever its rule"
            f" {facts.rule}.",
        )
    elif facts.rule == TriggerRule.ONE_FAILED and facts.upstream:
        return Why(
            rule=by_rule,
            sentence="It was skipped since nothing that it comes after failed, by its rule one_failed.",
        )
    elif skipped:
        return Why(
            rule=by_rule,
            sentence=f"It was skipped since {_were(skipped)} skipped, by its rule {facts.rule}.",
        )
    elif facts.upstream and facts.rule in _SKIPS_WITHOUT_A_SKIP:
        return Why(
            rule=by_rule,
            sentence=f"It was skipped: its rule {facts.rule} asks for something else than"
            f" {_upstream(facts.upstream)}.",
        )
    return Why(
        rule="marked", sentence=f"It was marked as skipped by hand at {_at(facts.ended_at)}."
    )


def _upstream_failed(facts: Facts) -> Why:
    if facts.maps_over is not None and facts.stop_reason is not None:
        return Why(rule="not_expanded", sentence=f"It never started: {_said(facts.stop_reason)}.")
    if setups := _bad(facts.setups):
        return Why(
            rule="setup",
            sentence=f"It never started: {_come_to(facts, setups, facts.setups)}, which it needs"
            f" whatever its rule {facts.rule}.",
        )
    bad = [one for one in facts.upstream if one.state in _AGAIN]
    given_up = [one for one in facts.units if one.is_given_up]
    if given_up and not bad:
        return Why(
            rule="group",
            sentence=f"It never started: group {given_up[0].group_id}, which is one unit, was given up"
            f" after {_names(_bad(given_up[0].members))} had failed.",
        )
    if not bad:
        return Why(
            rule="deadlock",
            sentence=f"It was given up at {_at(facts.ended_at)}: nothing in its run could start or end"
            " any more, and it would have waited for ever.",
        )
    told = _come_to(facts, _bad(bad), bad)
    return Why(
        rule=f"upstream:{facts.rule}",
        sentence=f"It never started: {told}, and by its rule {facts.rule} it does not run then.",
    )


def _come_to(facts: Facts, names: Sequence[str], of: Iterable[Upstream]) -> str:
    """How those of them that are named came to be no good."""
    if any(one.state == TaskState.FAILED for one in of):
        return f"{_names(names)} failed"
    if facts.root_causes:
        return f"{_names(names)} could not start after {_names(facts.root_causes)} had failed"
    return f"{_names(names)} could not start either"


def _removed(facts: Facts) -> Why:
    told = facts.filter_reason
    if told is None:
        version = f"version {facts.version}" if facts.version is not None else "the version"
        told = f"Task {facts.task_id} is not in {version} that its run executes."
    return Why(rule="removed_from_flow", sentence=f"It was taken out of its run: {_lower(told)}")


_BY_STATE: Final[Mapping[TaskState, Callable[[Facts], Why]]] = {
    TaskState.NONE: _none,
    TaskState.SCHEDULED: _scheduled,
    TaskState.QUEUED: _queued,
    TaskState.RUNNING: _running,
    TaskState.RESTARTING: _restarting,
    TaskState.DEFERRED: _deferred,
    TaskState.UP_FOR_RETRY: _up_for_retry,
    TaskState.UP_FOR_RESCHEDULE: _up_for_reschedule,
    TaskState.SUCCESS: _success,
    TaskState.FAILED: _failed,
    TaskState.SKIPPED: _skipped,
    TaskState.UPSTREAM_FAILED: _upstream_failed,
    TaskState.REMOVED: _removed,
}

_AGAIN: Final = frozenset({TaskState.FAILED, TaskState.UPSTREAM_FAILED})
_OVER: Final = frozenset(
    {
        TaskState.SUCCESS,
        TaskState.FAILED,
        TaskState.SKIPPED,
        TaskState.UPSTREAM_FAILED,
        TaskState.REMOVED,
    }
)

_RULE_WORDS: Final[dict[str, str]] = {
    TriggerRule.ALL_SUCCESS: "by its rule all_success it starts when all that it comes after succeeded",
    TriggerRule.NONE_FAILED: "by its rule none_failed it starts when all that it comes after ended and"
    " none failed",
    TriggerRule.ALL_DONE: "by its rule all_done it starts when all that it comes after ended",
    TriggerRule.ONE_FAILED: "by its rule one_failed it starts as soon as one of them fails",
}


# -- words -------------------------------------------------------------------------------------------


def _looks(facts: Facts) -> str:
    who = f"scheduler {facts.decider}" if facts.decider else "the scheduler"
    return f"{who} starts it at its next look"


def _at(moment: datetime | None) -> str:
    """The moment in UTC, to the second."""
    if moment is None:
        return "a time that was not kept"
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _tries(facts: Facts) -> str:
    return f"try {told_tries(facts.try_number, facts.max_tries, facts.budget_start)}"


def _process(attempt: AttemptFacts) -> str:
    return f"Process {attempt.process}" if attempt.process else "Its process"


def _said(text: str | None) -> str:
    return _text(text).rstrip(".") if text else "no reason was kept"


def _text(text: str | None) -> str:
    """One line of somebody else's text, clipped."""
    line = " ".join((text or "").split())
    return line if len(line) <= TEXT_CHARACTERS_MAX else f"{line[: TEXT_CHARACTERS_MAX - 1]}…"


def _then(before: str, sentence: str) -> str:
    return f"{before}; {_lower(sentence)}" if before else sentence


def _upper(sentence: str) -> str:
    return f"{sentence[:1].upper()}{sentence[1:]}"


def _lower(sentence: str) -> str:
    return f"{sentence[:1].lower()}{sentence[1:]}"


def _words(code: str | None) -> str:
    return (code or "something").replace("_", " ")


def _names(task_ids: Iterable[str]) -> str:
    ids = list(dict.fromkeys(task_ids))
    more = len(ids) - NAMED_MAX
    if more > 0:
        return f"{', '.join(ids[:NAMED_MAX])} and {more} more"
    return " and ".join((", ".join(ids[:-1]), ids[-1])) if len(ids) > 1 else ids[0]


def _were(task_ids: Sequence[str]) -> str:
    return f"{_names(task_ids)} {'was' if len(set(task_ids)) == 1 else 'were'}"


def _upstream(unfinished: Sequence[Upstream]) -> str:
    """Which tasks, and what each does now."""
    shown = [
        f"{one.name} ({f'{one.number} ' if one.number > 1 else ''}{_STATE_WORDS.get(one.state, _words(one.state))})"
        for one in unfinished[:NAMED_MAX]
    ]
    more = len(unfinished) - NAMED_MAX
    return f"{', '.join(shown)} and {more} more" if more > 0 else ", ".join(shown)


_STATE_WORDS: Final[dict[str, str]] = {TaskState.NONE: "not started"}


def _holders(holders: Sequence[Holder], unread: int) -> str:
    shown = [
        f"{one.name or 'a task of a flow that you may not see'}"
        f" ({_slots(one.slots)}, since {_at(one.since)})"
        for one in holders[:NAMED_MAX]
    ]
    more = len(holders) - NAMED_MAX + unread
    return f"{', '.join(shown)} and {more} more" if more > 0 else ", ".join(shown)


def _slots(number: int) -> str:
    return "1 slot" if number == 1 else f"{number} slots"


def _ordinal(number: int) -> str:
    if 10 <= number % 100 <= 20:
        return f"{number}th"
    return f"{number}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th') }"
