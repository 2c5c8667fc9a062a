"""What ties tasks together beside ``upstream``: setups and teardowns, picks, groups that are one unit."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from scheduler_app.rules import graph, mapping
from scheduler_app.rules.roles import Picks, Role

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from scheduler_app.rules.definition import (
        FlowDefinition,
        GroupDefinition,
        GroupRetry,
        TaskDefinition,
    )
    from scheduler_app.rules.mapping import MappedTask


class UnitState(StrEnum):
    """What a transactional group is to the tasks outside it."""

    PENDING = "pending"  # a task of it has not ended: nothing of it is visible outside
    FAILING = "failing"  # the same, and another one has failed
    SUCCESS = "success"  # all of it succeeded, or was skipped
    FAILED = "failed"  # a task of it failed, and it has not been decided whether it is tried again
    GIVEN_UP = "given_up"  # it failed for good: nothing of it counts outside


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """A group with ``retry``: outside, all of its tasks are seen as one."""

    group_id: str
    members: tuple[str, ...]
    lenient: frozenset[str]  # teardowns in it that do not fail anything
    retry: GroupRetry


@dataclass(frozen=True, slots=True, kw_only=True)
class Ties:
    """The ties of one flow, worked out once; empty for a flow that has none."""

    setups: Mapping[str, tuple[str, ...]] = field(
        default_factory=dict
    )  # above, not direct upstream
    own_setups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # of teardowns: direct
    scopes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # of teardowns
    teardowns: frozenset[str] = frozenset()
    beside: frozenset[str] = frozenset()  # neither decide a run nor stand after its last tasks
    pickers: Mapping[str, Picks] = field(default_factory=dict)
    picked_by: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # task -> pickers above
    # Of those, the ones in the same mapped group: of them its own map index alone speaks.
    picked_by_index: Mapping[str, frozenset[str]] = field(default_factory=dict)
    group_entries: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # -> first tasks
    units: Mapping[str, Unit] = field(default_factory=dict)
    unit_of: Mapping[str, str] = field(default_factory=dict)
    order: tuple[str, ...] = ()  # in which the tasks can be decided; empty: any topological one


NONE: Final = Ties()


def ties_of(definition: FlowDefinition) -> Ties:
    """The ties of the flow. Raises ``DefinitionError`` where a unit would wait for itself."""
    tasks = definition.tasks
    if not definition.groups and all(
        task.role == Role.WORK and task.picks == Picks.NOTHING for task in tasks
    ):
        return NONE
    upstream = {task.task_id: task.upstream for task in tasks}
    units = _units(definition)
    unit_of = _unit_of(units)
    pickers = {task.task_id: Picks(task.picks) for task in tasks if task.picks}
    teardowns = frozenset(task.task_id for task in tasks if task.role == Role.TEARDOWN)
    picked_by = _picked_by(definition, pickers, upstream, teardowns)
    return Ties(
        setups=_setups_above(tasks, upstream),
        own_setups={t: s for t in sorted(teardowns) if (s := _direct_setups(tasks, t))},
        scopes={t: s for t in sorted(teardowns) if (s := _scope(tasks, upstream, t))},
        teardowns=teardowns,
        beside=frozenset(
            task.task_id
            for task in tasks
            if task.role == Role.COMPENSATION or (task.role == Role.TEARDOWN and not task.fails_run)
        ),
        pickers=pickers,
        picked_by=picked_by,
        picked_by_index=_picked_by_index(definition, picked_by),
        group_entries={
            group.group_id: entries(upstream, members(definition, group.group_id))
            for group in (definition.groups if pickers else ())
        },
        units=units,
        unit_of=unit_of,
        order=graph.topological_order(seen_whole(upstream, units, unit_of)) if units else (),
    )


def members(definition: FlowDefinition, group_id: str) -> tuple[str, ...]:
    """The tasks of the group and of the groups in it, in the order of the definition."""
    inside = set(group_and_inner(definition.groups, group_id))
    return tuple(task.task_id for task in definition.tasks if task.group in inside)


def group_and_inner(groups: Sequence[GroupDefinition], group_id: str) -> tuple[str, ...]:
    """The id of the group, and those of the groups in it at any depth."""
    found = [group_id]
    for group in groups:  # outer ones come first
        if group.parent in found and group.group_id not in found:
            found.append(group.group_id)
    return tuple(found)


def entries(upstream: Mapping[str, Collection[str]], inside: Collection[str]) -> tuple[str, ...]:
    """Those of the tasks that wait for no other of them."""
    own = frozenset(inside)
    return tuple(task_id for task_id in inside if own.isdisjoint(upstream[task_id]))


def exits(
    upstream: Mapping[str, Collection[str]],
    inside: Collection[str],
    teardowns: Collection[str] = (),
) -> tuple[str, ...]:
    """Those of the tasks that no other of them waits for, teardowns aside; theirs if all are."""
    work = [task_id for task_id in inside if task_id not in teardowns] or list(inside)
    waited_for = frozenset[str]().union(*(upstream[task_id] for task_id in work))
    return tuple(task_id for task_id in work if task_id not in waited_for)


def seen_whole(
    upstream: Mapping[str, Collection[str]],
    units: Mapping[str, Unit],
    unit_of: Mapping[str, str],
) -> dict[str, tuple[str, ...]]:
    """The graph in which whoever waits for a task of a unit from outside waits for all of it.

    It has a cycle where a path leaves a unit and comes back into it.
    """
    whole: dict[str, tuple[str, ...]] = {}
    for task_id, above in upstream.items():
        own = unit_of.get(task_id)
        others = {u for one in above if (u := unit_of.get(one)) is not None and u != own}
        more = [member for unit in sorted(others) for member in units[unit].members]
        whole[task_id] = tuple(dict.fromkeys([*above, *more]))
    return whole


def whole_upstream(definition: FlowDefinition) -> dict[str, tuple[str, ...]]:
    """The upstream of every task, in which whoever waits for a unit waits for all of it."""
    units = _units(definition)
    upstream = {task.task_id: task.upstream for task in definition.tasks}
    return seen_whole(upstream, units, _unit_of(units)) if units else upstream


def cycle_through_unit(definition: FlowDefinition) -> tuple[str, ...] | None:
    """A cycle of tasks that wait for each other because a group is one unit; null if there is none."""
    return graph.find_cycle(whole_upstream(definition))


def unit_of(definition: FlowDefinition, task_id: str) -> str | None:
    """The id of the group with ``retry`` that the task is in."""
    return _unit_of(_units(definition)).get(task_id)


def hidden_from(definition: FlowDefinition, task_id: str) -> dict[str, str]:
    """The tasks of transactional groups that this one is outside of, each with its group.

    A compensation is not outside of the group that it undoes.
    """
    if not any(group.retry is not None for group in definition.groups):
        return {}
    unit_of = _unit_of(_units(definition))
    own = {unit_of.get(task_id), definition.task(task_id).compensates}
    return {one: unit for one, unit in unit_of.items() if unit not in own}


def units_with(definition: FlowDefinition, task_ids: Collection[str]) -> frozenset[str]:
    """The transactional groups of these tasks: all that is in them, and what compensates them."""
    unit_of = _unit_of(_units(definition))
    touched = {unit_of[task_id] for task_id in task_ids if task_id in unit_of}
    return frozenset(
        task.task_id
        for task in definition.tasks
        if unit_of.get(task.task_id) in touched or task.compensates in touched
    )


def companions(tasks: Sequence[TaskDefinition], task_ids: Iterable[str]) -> frozenset[str]:
    """The setups that these tasks need, and their teardowns, beyond the tasks themselves.

    A setup is needed if it is above one of them and has no teardown, or one below it.
    """
    wanted = frozenset(task_ids)
    upstream = {task.task_id: task.upstream for task in tasks}
    found: set[str] = set()
    for task in tasks:
        if task.task_id in wanted and task.role != Role.TEARDOWN:
            found.update(_relevant_setups(tasks, upstream, task.task_id))
    role = {task.task_id: task.role for task in tasks}
    named = {task_id for task_id in wanted if role.get(task_id) == Role.SETUP}
    below = graph.downstream_of(upstream)
    for setup in found | named:
        found.update(below_id for below_id in below[setup] if role[below_id] == Role.TEARDOWN)
    return frozenset(found - wanted)


def is_barred(
    ties: Ties,
    upstream: Mapping[str, Collection[str]],
    task_id: str,
    picker: str,
    choice: object,
) -> bool:
    """Whether the result of the task that picks says that this one is skipped."""
    if ties.pickers[picker] is not Picks.BRANCH:
        return not choice
    return task_id not in ways(upstream, followed(ties, choice))


def ways(upstream: Mapping[str, Collection[str]], wanted: frozenset[str]) -> frozenset[str]:
    """The tasks that a branch goes on with, and all that comes after them."""
    return wanted | graph.downstream_closure(upstream, wanted)


def followed(ties: Ties, choice: object) -> frozenset[str]:
    """The tasks that a branch goes on with; those that a chosen group begins with."""
    chosen: Any = choice if isinstance(choice, (list, tuple, set, frozenset)) else [choice]
    found: set[str] = set()
    for one in chosen:
        if one is not None:
            found.update(ties.group_entries.get(str(one), (str(one),)))
    return frozenset(found)


def _units(definition: FlowDefinition) -> dict[str, Unit]:
    lenient = frozenset(
        task.task_id
        for task in definition.tasks
        if task.role == Role.TEARDOWN and not task.fails_run
    )
    return {
        group.group_id: Unit(
            group_id=group.group_id,
            members=(inside := members(definition, group.group_id)),
            lenient=lenient.intersection(inside),
            retry=group.retry,
        )
        for group in definition.groups
        if group.retry is not None
    }


def _unit_of(units: Mapping[str, Unit]) -> dict[str, str]:
    return {task_id: unit.group_id for unit in units.values() for task_id in unit.members}


def _setups_above(
    tasks: Sequence[TaskDefinition], upstream: Mapping[str, Collection[str]]
) -> dict[str, tuple[str, ...]]:
    if not any(task.role == Role.SETUP for task in tasks):
        return {}
    found = {
        task.task_id: tuple(
            sorted(set(_relevant_setups(tasks, upstream, task.task_id)) - set(task.upstream))
        )
        for task in tasks
        if task.role != Role.TEARDOWN
    }
    return {task_id: setups for task_id, setups in found.items() if setups}


def _relevant_setups(
    tasks: Sequence[TaskDefinition], upstream: Mapping[str, Collection[str]], task_id: str
) -> list[str]:
    """The setups above the task whose teardown is below it, or that have none."""
    role = {task.task_id: task.role for task in tasks}
    above = graph.upstream_closure(upstream, [task_id])
    setups = [one for one in above if role[one] == Role.SETUP]
    if not setups:
        return []
    below = graph.downstream_closure(upstream, [task_id])
    direct = graph.downstream_of(upstream)
    relevant = []
    for setup in setups:
        teardowns = {one for one in direct[setup] if role[one] == Role.TEARDOWN}
        if not teardowns or teardowns & (below | {task_id}):
            relevant.append(setup)
    return relevant


def _direct_setups(tasks: Sequence[TaskDefinition], teardown: str) -> tuple[str, ...]:
    setups = {task.task_id for task in tasks if task.role == Role.SETUP}
    above = next(task.upstream for task in tasks if task.task_id == teardown)
    return tuple(one for one in above if one in setups)


def _scope(
    tasks: Sequence[TaskDefinition], upstream: Mapping[str, Collection[str]], teardown: str
) -> tuple[str, ...]:
    """The tasks between the setups of the teardown and itself that it does not follow directly."""
    setups = _direct_setups(tasks, teardown)
    between = graph.downstream_closure(upstream, setups) & graph.upstream_closure(
        upstream, [teardown]
    )
    return tuple(sorted(between - set(upstream[teardown]) - set(setups)))


def _picked_by(
    definition: FlowDefinition,
    pickers: Mapping[str, Picks],
    upstream: Mapping[str, Collection[str]],
    teardowns: frozenset[str],
) -> dict[str, tuple[str, ...]]:
    """A gate that is mapped speaks of all that is after it in its mapped group; outside, of what is next."""
    found: dict[str, list[str]] = {}
    below = graph.downstream_of(upstream)
    mapped = mapping.mapped_tasks(definition)
    for picker, picks in pickers.items():
        reached = set(below[picker])
        if picks is Picks.GATE_ALL:
            own = mapped.get(picker)
            reached.update(
                task_id
                for task_id in graph.downstream_closure(upstream, [picker])
                if own is None or _are_together(own, mapped.get(task_id))
            )
        for task_id in reached:
            if task_id not in teardowns:
                found.setdefault(task_id, []).append(picker)
    return {task_id: tuple(sorted(above)) for task_id, above in found.items()}


def _picked_by_index(
    definition: FlowDefinition, picked_by: Mapping[str, Collection[str]]
) -> dict[str, frozenset[str]]:
    mapped = mapping.mapped_tasks(definition)
    found = {
        task_id: frozenset(p for p in above if _are_together(mapped.get(p), mapped.get(task_id)))
        for task_id, above in picked_by.items()
    }
    return {task_id: pickers for task_id, pickers in found.items() if pickers}


def _are_together(one: MappedTask | None, other: MappedTask | None) -> bool:
    """Whether both are in one mapped group."""
    return one is not None and other is not None and one.group == other.group != ""
