"""What marking by hand makes of task instances and of a run, with the reason for each."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from scheduler_app.rules import graph
from scheduler_app.rules.errors import InvalidInput
from scheduler_app.rules.mapping import is_reached, reached
from scheduler_app.rules.states import TASK_TERMINAL, RunState, TaskState

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

TASK_TARGETS: Final = (TaskState.SUCCESS, TaskState.FAILED, TaskState.SKIPPED)
RUN_TARGETS: Final = (RunState.SUCCESS, RunState.FAILED)
STOPPED_FIRST: Final = frozenset({TaskState.RUNNING, TaskState.RESTARTING})
# Of a run that is marked as failed: what had begun fails, what had not is skipped.
BEGUN: Final = frozenset(
    {
        TaskState.RUNNING,
        TaskState.RESTARTING,
        TaskState.DEFERRED,
        TaskState.UP_FOR_RETRY,
        TaskState.UP_FOR_RESCHEDULE,
    }
)


class Rule(StrEnum):
    """Why a task instance is in a mark, or is not. Stable words; sentences say the rest."""

    ASKED = "asked"  # it was named, or its whole run was
    UPSTREAM = "upstream"  # one that was named waits for it
    DOWNSTREAM = "downstream"  # it waits for one that was named
    GIVEN_UP = "given_up"  # it could not run for want of one that is marked: it is looked at again
    IS_SO = "is_so"  # it is in that state, or will be as soon as it has stopped
    ENDED = "ended"  # of a whole run, and it keeps what it came to
    FROZEN = "frozen"
    TEARDOWN = (
        "teardown"  # of a run that is marked: it takes away what a setup made, and runs first
    )
    REMOVED = "removed"  # its task is not in the version that the run executes


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One task instance of the run, as it was read."""

    id: int
    task_id: str
    map_index: int
    state: str
    held_by: int | None = None
    mark: str | None = None  # what it was marked as, and will be when it has stopped


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One task instance with the rule that took it in or left it out, in a sentence too."""

    id: int
    task_id: str
    map_index: int
    state: str
    rule: str
    effect: str
    becomes: str | None  # null: it is left alone

    @property
    def name(self) -> str:
        """The task, with its map index where it has one."""
        return self.task_id if self.map_index < 0 else f"{self.task_id} [{self.map_index}]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What a mark takes and leaves, in the order of the candidates."""

    included: tuple[Choice, ...]
    excluded: tuple[Choice, ...]


def task_target(state: str) -> TaskState:
    """The state that a task instance may be marked as. Raises ``InvalidInput``."""
    if state not in TASK_TARGETS:
        message = f"A task is marked as one of success, failed and skipped, not as {state!r}."
        raise InvalidInput(message, field="state")
    return TaskState(state)


def run_target(state: str) -> RunState:
    """The state that a run may be marked as. Raises ``InvalidInput``."""
    if state not in RUN_TARGETS:
        message = f"A run is marked as success or failed, not as {state!r}."
        raise InvalidInput(message, field="state")
    return RunState(state)


def select(
    candidates: Sequence[Candidate],
    *,
    upstream: Mapping[str, Collection[str]],
    asked: Collection[int],
    target: TaskState,
    include_upstream: bool = False,
    include_downstream: bool = False,
    groups: Mapping[str, str] | None = None,
) -> Selection:
    """Each candidate that the mark is about, taken in or left out for a reason.

    ``asked`` holds the ids of those that were named; upstream and downstream both start from them,
    within a mapped group by the same map index. ``groups``: by task, the mapped group around it.
    What had been given up downstream of a success or a skip is let go again; its own ends are kept.
    """
    wanted = frozenset(asked)
    named: dict[str, set[int]] = {}
    for one in candidates:
        if one.id in wanted:
            named.setdefault(one.task_id, set()).add(one.map_index)
    around = groups or {}
    above = reached(upstream, named, around) if include_upstream else {}
    below = reached(graph.downstream_of(upstream), named, around) if include_downstream else {}
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
    found = [_choice(one, why[one.id], target) for one in candidates if one.id in why]
    if target is not TaskState.FAILED:
        moved = {one.task_id for one in found if one.becomes is not None}
        behind = graph.downstream_closure(upstream, moved) - moved if moved else frozenset()
        found += [
            _given_up(one) for one in candidates if one.id not in why and _was_given_up(one, behind)
        ]
    return _sorted(found)


def select_of_run(
    candidates: Sequence[Candidate], *, target: RunState, teardowns: Collection[str] = ()
) -> Selection:
    """What marking the whole run makes of each of its task instances.

    As success: what has not ended, failed or was given up counts as success. As failed: what had begun
    fails, what had not is skipped. What ended otherwise keeps what it came to, and a teardown that has not
    ended goes by its rule, so that nothing stays behind.
    """
    return _sorted([_choice_of_run(one, target, teardowns) for one in candidates])


def _sorted(found: Sequence[Choice]) -> Selection:
    return Selection(
        included=tuple(one for one in found if one.becomes is not None),
        excluded=tuple(one for one in found if one.becomes is None),
    )


def _choice_of_run(one: Candidate, target: RunState, teardowns: Collection[str]) -> Choice:
    state = TaskState(one.state)
    failed = (TaskState.FAILED, TaskState.UPSTREAM_FAILED)
    if state in TASK_TERMINAL and not (target is RunState.SUCCESS and state in failed):
        return _said(one, Rule.ENDED, f"It has ended as {state}, and keeps that.", None)
    if one.task_id in teardowns and state not in TASK_TERMINAL:
        effect = "It takes away what a setup made: it runs by its rule before the run ends."
        return _said(one, Rule.TEARDOWN, effect, None)
    if target is RunState.SUCCESS:
        return _choice(one, Rule.ASKED, TaskState.SUCCESS)
    return _choice(one, Rule.ASKED, TaskState.FAILED if state in BEGUN else TaskState.SKIPPED)


def _choice(one: Candidate, rule: Rule, target: TaskState) -> Choice:
    state = TaskState(one.state)
    if one.held_by is not None:
        return _said(one, Rule.FROZEN, f"Freeze {one.held_by} holds it: thaw it first.", None)
    if state is TaskState.REMOVED:
        effect = "Its task is not in the version that the run executes."
        return _said(one, Rule.REMOVED, effect, None)
    if state is target:
        return _said(one, Rule.IS_SO, f"It is {target} already.", None)
    if state in STOPPED_FIRST and one.mark == target:
        effect = f"It was marked before, and is {target} when it has stopped."
        return _said(one, Rule.IS_SO, effect, None)
    return _said(one, rule, _effect(state, target), target)


def _effect(state: TaskState, target: TaskState) -> str:
    match state:
        case TaskState.RUNNING | TaskState.RESTARTING:
            return f"It is stopped first, and is {target} then, whatever it reports."
        case TaskState.QUEUED:
            return f"It is {target} now; its message starts nothing any more."
        case TaskState.DEFERRED:
            return f"It is {target} now; its trigger is cancelled."
        case TaskState.UP_FOR_RETRY | TaskState.UP_FOR_RESCHEDULE:
            return f"It is {target} now, without the execution that was to come."
    if state in TASK_TERMINAL:
        return f"It is {target} from now on; that it ended as {state} stays in the record."
    return f"It is {target} now, and never starts."


def _was_given_up(one: Candidate, behind: Collection[str]) -> bool:
    is_behind = one.task_id in behind and one.state == TaskState.UPSTREAM_FAILED
    return is_behind and one.held_by is None


def _given_up(one: Candidate) -> Choice:
    effect = "It had been given up: it is looked at again, and runs if its rule lets it."
    return _said(one, Rule.GIVEN_UP, effect, TaskState.NONE)


def _said(one: Candidate, rule: Rule, effect: str, becomes: str | None) -> Choice:
    return Choice(
        id=one.id,
        task_id=one.task_id,
        map_index=one.map_index,
        state=one.state,
        rule=rule,
        effect=effect,
        becomes=becomes,
    )
