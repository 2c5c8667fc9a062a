"""Which task instances a clear takes, with the reason for each, and how much it may execute at most."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from scheduler_app.rules import graph, ties
from scheduler_app.rules.errors import InvalidInput
from scheduler_app.rules.mapping import is_reached, mapped_groups, reached
from scheduler_app.rules.states import TASK_TERMINAL, TaskState

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from scheduler_app.rules.definition import FlowDefinition

PLAN_VALID_S: Final = 900.0  # how long a plan may be carried out after it was made
FAILED_STATES: Final = frozenset({TaskState.FAILED, TaskState.UPSTREAM_FAILED})
RUNNING_STATES: Final = frozenset({TaskState.RUNNING, TaskState.RESTARTING})


class Rule(StrEnum):
    """Why a task instance is in a clear, or is not. Stable words; sentences say the rest."""

    ASKED = "asked"  # it was named, or its whole run was
    UPSTREAM = "upstream"  # one that was named waits for it
    DOWNSTREAM = "downstream"  # it waits for one that was named
    SETUP = "setup"  # one that is taken needs it: the setup or teardown around that
    GROUP = "group"  # the transactional group of one that is taken is one unit
    NEW = "new"  # its task is in the newer version alone: it is added
    REMOVED = "removed"  # its task is in the older version alone: it ends as removed
    NOT_FAILED = "not_failed"  # only failed ones are wanted
    NOT_RUNNING = "not_running"  # only running ones are wanted
    NOT_NEW = "not_new"  # only tasks that the run does not have yet are wanted
    NOT_STARTED = "not_started"  # it runs without a clear
    STOPPING = "stopping"  # cleared before; its old attempt has not stopped yet
    TERMINATING = "terminating"  # a person asked it to end
    FROZEN = "frozen"
    NOT_IN_VERSION = "not_in_version"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What is asked for. At most one of the ``only_`` switches may be on."""

    only_failed: bool = False
    only_running: bool = False
    only_new: bool = False
    include_upstream: bool = False
    include_downstream: bool = False
    # None: as the flow says, or else the installation. A plan has it decided.
    run_on_latest_version: bool | None = False
    keep_checkpoints: bool = True

    @property
    def moves_version(self) -> bool:
        """Whether the run executes the newest version of its flow from then on."""
        return bool(self.run_on_latest_version) or self.only_new


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One task instance of the run, as it was read."""

    id: int
    task_id: str
    map_index: int
    state: str
    try_number: int
    attempt_id: str | None
    held_by: int | None = None
    is_asked_to_stop: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One task instance with the rule that took it in or left it out, in a sentence too."""

    id: int | None  # null: it does not exist yet
    task_id: str
    map_index: int
    state: str
    rule: str
    effect: str
    try_number: int = 0
    attempt_id: str | None = None
    executions: int = 0  # at most, without infrastructure losses

    @property
    def name(self) -> str:
        """The task, with its map index where it has one."""
        return self.task_id if self.map_index < 0 else f"{self.task_id} [{self.map_index}]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What a clear takes and leaves, in the order of the candidates."""

    included: tuple[Choice, ...]
    excluded: tuple[Choice, ...]

    @property
    def worst_case_executions(self) -> int:
        """How often user code may run because of the clear, if every try but the last fails."""
        return sum(one.executions for one in self.included)


NO_FILTER: Final = Options()


def runs_on_latest_version(
    asked: bool | None, *, of_flow: bool | None, of_installation: bool
) -> bool:
    """Whether a clear moves its run to the newest version: who is nearest to the act and says, decides.

    Source: the precedence of apache-airflow-core 3.3.2.
    """
    return next(said for said in (asked, of_flow, of_installation) if said is not None)


def check_options(options: Options) -> None:
    """Raises ``InvalidInput`` where two filters that exclude each other are on."""
    filters = {
        "only_failed": options.only_failed,
        "only_running": options.only_running,
        "only_new": options.only_new,
    }
    on = [name for name, is_on in filters.items() if is_on]
    if len(on) > 1:
        raise InvalidInput(
            f"{on[0]} and {on[1]} exclude each other: ask for one of them.", field=on[1]
        )


def select(
    candidates: Sequence[Candidate],
    *,
    upstream: Mapping[str, Collection[str]],
    retries: Mapping[str, int],
    asked: Collection[int] | None,
    options: Options,
    definition: FlowDefinition | None = None,
) -> Selection:
    """Each candidate that the clear is about, taken in or left out for a reason.

    ``upstream`` and ``retries`` are those of the version that will execute. ``asked`` holds the ids of
    the task instances that were named; ``None`` means the whole run. Upstream and downstream both
    start from those that were named, so that cousins stay out. The filters hold for relatives too.
    A candidate that is neither named nor a relative is in neither list.

    With the ``definition`` that will execute, whoever is taken brings the rest of its transactional
    group, and the setups and teardowns around it: the filters do not hold for these.
    """
    check_options(options)
    if definition is not None:
        upstream = ties.whole_upstream(definition)
    groups = {} if definition is None else mapped_groups(definition)
    why = _reach(candidates, upstream, asked, options, groups)
    if options.moves_version:
        why |= {one.id: Rule.REMOVED for one in candidates if _must_go(one, retries)}
    if definition is not None:
        taken: dict[str, set[int]] = {}
        for one in candidates:
            if one.id in why and _left_out(one, retries, options) is None:
                taken.setdefault(one.task_id, set()).add(one.map_index)
        brought = _brought(definition, taken, groups)
        for one in candidates:
            rule, indexes = brought.get(one.task_id, (None, None))
            if (
                rule is not None
                and (indexes is None or one.map_index in indexes)
                and (one.id not in why or _left_out(one, retries, options) is not None)
            ):
                why[one.id] = rule
    again = _waiting_again(candidates, upstream, why, retries, options, groups)
    included, excluded = [], []
    for one in candidates:
        rule = why.get(one.id, Rule.DOWNSTREAM if one.id in again else None)
        if rule is None:
            continue
        is_brought = rule in (Rule.SETUP, Rule.GROUP) or one.id in again
        out = _left_out(one, retries, NO_FILTER if is_brought else options)
        if out is None:
            included.append(_taken(one, rule, retries.get(one.task_id)))
        else:
            excluded.append(_choice(one, *out))
    if options.moves_version:
        included += _new(candidates, retries)
    return Selection(included=tuple(included), excluded=tuple(excluded))


def _waiting_again(
    candidates: Sequence[Candidate],
    upstream: Mapping[str, Collection[str]],
    why: Mapping[int, Rule],
    retries: Mapping[str, int],
    options: Options,
    groups: Mapping[str, str],
) -> frozenset[int]:
    """Those that were let go, have not begun, and come after what is taken: they are not let go any more.

    Whether they were asked for or not: what they would begin with is about to be made anew.
    """
    let_go = [one for one in candidates if _is_let_go(one)]
    if not let_go:
        return frozenset()
    taken: dict[str, set[int]] = {}
    for one in candidates:
        if one.id in why and _left_out(one, retries, options) is None:
            taken.setdefault(one.task_id, set()).add(one.map_index)
    below = reached(graph.downstream_of(upstream), taken, groups)
    return frozenset(
        one.id
        for one in let_go
        if is_reached(below, one.task_id, one.map_index)
        and any(above in below for above in upstream.get(one.task_id, ()))  # no mere sibling
    )


def _is_let_go(one: Candidate) -> bool:
    """Whether it is ready by its rule, and waits for room to begin."""
    return one.attempt_id is None and one.state == TaskState.SCHEDULED


def _brought(
    definition: FlowDefinition, taken: Mapping[str, Collection[int]], groups: Mapping[str, str]
) -> dict[str, tuple[Rule, Collection[int] | None]]:
    """The tasks that come along with those that are taken, each with the reason and its map indexes.

    Within a mapped group those of the same index come along; of any other task all do (null).
    """
    units = ties.units_with(definition, taken)
    parts: dict[tuple[str, frozenset[int]], list[str]] = {("", frozenset()): [*units]}
    for task_id, indexes in taken.items():
        group = groups.get(task_id, "")
        part = (group, frozenset(indexes) if group else frozenset[int]())
        parts.setdefault(part, []).append(task_id)
    around: dict[str, set[int] | None] = {}
    for (group, own), task_ids in parts.items():
        for task_id in ties.companions(definition.tasks, task_ids):
            before = around.setdefault(task_id, set())
            if not group or groups.get(task_id) != group:
                around[task_id] = None
            elif before is not None:
                before.update(own)
    found: dict[str, tuple[Rule, Collection[int] | None]] = {
        task_id: (Rule.SETUP, indexes) for task_id, indexes in around.items()
    }
    return found | dict.fromkeys(units, (Rule.GROUP, None))


def fingerprint(about: Mapping[str, Any], selection: Selection) -> str:
    """What a plan stands for: equal exactly while carrying it out would do the same to the same."""
    content = {"about": dict(about), **{k: list(v) for k, v in facts(selection).items()}}
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def facts(selection: Selection) -> dict[str, list[dict[str, Any]]]:
    """The selection as plain JSON values, as a plan keeps it."""
    return {
        "included": [asdict(one) for one in selection.included],
        "excluded": [asdict(one) for one in selection.excluded],
    }


def difference(
    before: Mapping[str, Sequence[Mapping[str, Any]]], after: Selection
) -> list[dict[str, Any]]:
    """For each task instance that a plan and the present see differently: what each of them says."""
    was = {_key(one): {**_said(one), "is": part} for part in before for one in before[part]}
    now_facts = facts(after)
    now = {_key(one): {**_said(one), "is": part} for part in now_facts for one in now_facts[part]}
    return [
        {
            "id": (was.get(key) or now[key])["id"],
            "task_id": key[0],
            "map_index": key[1],
            "planned": was.get(key),
            "now": now.get(key),
        }
        for key in dict.fromkeys([*was, *now])
        if was.get(key) != now.get(key)
    ]


def _key(one: Mapping[str, Any]) -> tuple[str, int]:
    return (str(one["task_id"]), int(one["map_index"]))


def _said(one: Mapping[str, Any]) -> dict[str, Any]:
    return {key: one[key] for key in ("id", "state", "rule", "effect", "try_number", "attempt_id")}


def _reach(
    candidates: Sequence[Candidate],
    upstream: Mapping[str, Collection[str]],
    asked: Collection[int] | None,
    options: Options,
    groups: Mapping[str, str],
) -> dict[int, Rule]:
    """By task instance, why the clear is about it."""
    if asked is None:
        return {one.id: Rule.ASKED for one in candidates}
    wanted = frozenset(asked)
    named: dict[str, set[int]] = {}
    for one in candidates:
        if one.id in wanted:
            named.setdefault(one.task_id, set()).add(one.map_index)
    above = reached(upstream, named, groups) if options.include_upstream else {}
    below = (
        reached(graph.downstream_of(upstream), named, groups) if options.include_downstream else {}
    )
    why: dict[int, Rule] = {}
    for one in candidates:
        if one.id in wanted:
            why[one.id] = Rule.ASKED
        elif one.task_id in named:
            continue
        elif is_reached(above, one.task_id, one.map_index):
            why[one.id] = Rule.UPSTREAM
        elif is_reached(below, one.task_id, one.map_index):
            why[one.id] = Rule.DOWNSTREAM
    return why


def _left_out(
    one: Candidate, retries: Mapping[str, int], options: Options
) -> tuple[Rule, str] | None:
    state = TaskState(one.state)
    if one.held_by is not None:
        return Rule.FROZEN, f"Freeze {one.held_by} holds it: thaw it first."
    if options.moves_version and _must_go(one, retries):
        return None
    if options.only_new:
        return Rule.NOT_NEW, "Only tasks that the run does not have yet are asked for."
    if one.task_id not in retries and not options.moves_version:
        return Rule.NOT_IN_VERSION, "Its task is not in the version that the run executes."
    if options.only_failed and state not in FAILED_STATES:
        return Rule.NOT_FAILED, f"Only failed ones are asked for, and it is {state}."
    if options.only_running and state not in RUNNING_STATES:
        return Rule.NOT_RUNNING, f"Only running ones are asked for, and it is {state}."
    if state is TaskState.RESTARTING:
        return Rule.STOPPING, "It was cleared before, and begins anew when its process has ended."
    if one.is_asked_to_stop and state not in TASK_TERMINAL:
        return Rule.TERMINATING, "It was asked to end: clear it when it has ended."
    if one.attempt_id is None and state is TaskState.NONE:
        return Rule.NOT_STARTED, "It has nothing to repeat: it runs when its turn comes."
    if state is TaskState.NONE:
        return Rule.NOT_STARTED, "It was cleared before, and runs when its turn comes."
    return None


def _must_go(one: Candidate, retries: Mapping[str, int]) -> bool:
    """Whether it is under way though the version that will execute does not have its task."""
    state = TaskState(one.state)
    waits = state in (TaskState.NONE, TaskState.RESTARTING)
    return one.task_id not in retries and not waits and state not in TASK_TERMINAL


def _taken(one: Candidate, rule: Rule, retries: int | None) -> Choice:
    if retries is None:
        return _choice(one, rule, "Its task is not in the newest version: it ends as removed.")
    return _choice(one, rule, _effect(TaskState(one.state), retries), executions=retries + 1)


def _effect(state: TaskState, retries: int) -> str:
    tries = "one try" if not retries else f"up to {retries + 1} tries"
    match state:
        case TaskState.RUNNING:
            return f"It is stopped first, then runs anew: {tries}."
        case TaskState.DEFERRED:
            return f"Its trigger is cancelled; it runs anew: {tries}."
        case TaskState.QUEUED:
            return f"Its message starts nothing any more; it runs anew: {tries}."
        case TaskState.SUCCESS:
            return f"It succeeded, and runs again: {tries}."
        case TaskState.SCHEDULED:
            return f"It has not begun: it waits for its upstream again, then runs: {tries}."
    return f"It runs anew when its upstream allows it: {tries}."


def _new(candidates: Iterable[Candidate], retries: Mapping[str, int]) -> list[Choice]:
    known = {one.task_id for one in candidates}
    return [
        Choice(
            id=None,
            task_id=task_id,
            map_index=-1,
            state=TaskState.NONE,
            rule=Rule.NEW,
            effect="The run does not have it yet: it is added, and runs when its turn comes.",
            executions=number + 1,
        )
        for task_id, number in retries.items()
        if task_id not in known
    ]


def _choice(one: Candidate, rule: Rule, effect: str, *, executions: int = 0) -> Choice:
    return Choice(
        id=one.id,
        task_id=one.task_id,
        map_index=one.map_index,
        state=one.state,
        rule=rule,
        effect=effect,
        try_number=one.try_number,
        attempt_id=one.attempt_id,
        executions=executions,
    )
