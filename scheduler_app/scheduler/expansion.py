"""Mapped tasks in a tick: expanded in batches, and brought to the length of what they map over.

A summary is replaced last, by index 0: whoever dies amid an expansion leaves a summary that says that
there is more to come, and instances that the next tick does not add again. Cost follows what moved:
instances that were expanded are compared with their inputs only when one of those has moved.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from scheduler_app.rules import mapping, values
from scheduler_app.rules.errors import InvalidInput
from scheduler_app.rules.mapping import SUMMARY, MappedTask
from scheduler_app.rules.states import TaskState
from scheduler_app.transitions import expansion as moves

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import psycopg

    from scheduler_app.rules.mapping import Revision
    from scheduler_app.rules.run_outcome import RunDecision
    from scheduler_app.scheduler.run_views import Instance, RunView

INSTANCES_ADDED_MAX: Final = 1000  # in one tick, over all runs; keeps its transaction short


@dataclass(slots=True, kw_only=True)
class Expanded:
    """What the step did and what it asks for."""

    marks: dict[int, TaskState] = field(default_factory=dict)  # of summaries: to be written now
    reasons: dict[int, str] = field(default_factory=dict)  # of these marks, in words
    again: set[int] = field(default_factory=set)  # look at these runs at the next tick
    moved_runs: set[int] = field(default_factory=set)


@dataclass(slots=True, kw_only=True)
class _Lengths:
    """The lengths of what one run maps over; a ``Lengths`` of ``rules/mapping.py``."""

    view: RunView
    facts: dict[str, moves.InputFacts]

    def length(self, task_id: str) -> int | None:
        found = self.facts.get(task_id)
        if found is None or not found.has_ended:
            return None
        return found.results if task_id in self.view.version.mapped else found.length

    def have_ended(self, task_ids: Iterable[str]) -> bool:
        return all(one in self.facts and self.facts[one].has_ended for one in task_ids)


def revise(connection: psycopg.Connection[Any], views: Sequence[RunView]) -> Expanded:
    """Instances that were expanded are as many as their inputs, some of which moved, ask for.

    Asked before anything is decided of these runs; those in ``again`` must wait for the next tick.
    Until an input that begins anew has succeeded, nothing changes.
    """
    done = Expanded()
    asked = [view for view in views if view.moved_inputs]
    if not asked:
        return done
    lengths = _lengths(connection, [(view, view.moved_inputs) for view in asked])
    for view in asked:
        moved, view.moved_inputs = view.moved_inputs, set()
        touched = [one for one in view.version.mapped.values() if moved & one.inputs]
        by_task = _instances(view, [one.task_id for one in touched])
        for one in touched:
            _revise_task(connection, view, one, by_task[one.task_id], lengths[view.run_id], done)
    return done


def _revise_task(
    connection: psycopg.Connection[Any],
    view: RunView,
    own: MappedTask,
    instances: dict[int, Instance],
    lengths: _Lengths,
    done: Expanded,
) -> None:
    summary = instances.pop(SUMMARY, None)
    if not instances or (
        summary is not None and summary.state not in (TaskState.SKIPPED, TaskState.REMOVED)
    ):
        return  # it is expanded when its rule lets it, or was given up as a whole
    if not lengths.have_ended(own.inputs):
        return  # it is looked at again when they have
    try:
        wanted = mapping.count(own.over, lengths).count
    except InvalidInput:
        wanted = None  # more than a run may have: what is there stays, the new ones are not made
    states = {index: one.state for index, one in instances.items()}
    revision = mapping.revise(states, wanted)
    if any(
        one.held or one.state is TaskState.RESTARTING
        for index, one in instances.items()
        if wanted is not None and index >= wanted
    ):
        view.moved_inputs |= own.inputs  # once they are free
    if revision or (wanted and summary is not None and summary.state is TaskState.SKIPPED):
        _carry_out(connection, view, own, instances, revision, wanted or 0, lengths, done)


def _carry_out(
    connection: psycopg.Connection[Any],
    view: RunView,
    own: MappedTask,
    instances: dict[int, Instance],
    revision: Revision,
    wanted: int,
    lengths: _Lengths,
    done: Expanded,
) -> None:
    task = view.version.definition.task(own.task_id)
    surplus = [
        i
        for i in (*revision.removed, *revision.stopping)
        if instances[i].state is not TaskState.RESTARTING
    ]
    inputs = ", ".join(sorted(own.inputs)) or "what it maps over"
    moved = len(
        moves.remove_instances(
            connection,
            seen={instances[i].ti_id: str(instances[i].state) for i in surplus},
            why=f"What it maps over ({inputs}) has become shorter: {wanted} instances are left.",
        )
    )
    moved += moves.restore_instances(
        connection,
        ti_ids=[instances[i].ti_id for i in revision.restored],
        retries=task.retries,
    )
    batch = revision.created[:INSTANCES_ADDED_MAX]
    added = moves.add_instances(
        connection,
        run_id=view.run_id,
        task=task,
        indexes=batch,
        labels=_labels(connection, view, own, batch, lengths),
    )
    moved += len(added)
    if revision.summary is not None or wanted:
        moves.settle_summary(
            connection, run_id=view.run_id, task=task, is_empty=revision.summary is not None
        )
    if moved:
        done.again.add(view.run_id)
        done.moved_runs.add(view.run_id)


def expand(
    connection: psycopg.Connection[Any], decided: Sequence[tuple[RunView, RunDecision]]
) -> Expanded:
    """Summaries that may be expanded, and whose length is known, are replaced by their instances.

    At most ``INSTANCES_ADDED_MAX`` are added; runs that wait for more are in ``again``, small ones
    first. An empty list skips the summary; one that cannot be counted gives it up; a frozen one waits.
    """
    done = Expanded()
    asked = [(view, decision.expandable) for view, decision in decided if decision.expandable]
    if not asked:
        return done
    lengths = _lengths(
        connection,
        [(view, _inputs(view, task_ids)) for view, task_ids in asked],
    )
    held = moves.held_summaries(
        connection,
        run_ids=[view.run_id for view, _ in asked],
        task_ids=[task_id for _, task_ids in asked for task_id in task_ids],
    )
    wanted = []
    for view, task_ids in asked:
        by_task = _instances(view, task_ids)
        for task_id in task_ids:
            if by_task[task_id][SUMMARY].ti_id in held:
                continue  # its instances would start beside the freeze
            own = view.version.mapped[task_id]
            found = _wanted(own, by_task[task_id], lengths[view.run_id], done)
            if found is None and by_task[task_id][SUMMARY].ti_id in done.marks:
                done.again.add(view.run_id)  # the run may end with the mark
            elif found is not None:
                wanted.append((len(found.created), view, own, by_task[task_id][SUMMARY], found))
    room = INSTANCES_ADDED_MAX
    for _, view, own, summary, found in sorted(wanted, key=lambda one: one[0]):
        room = _add(connection, view, own, summary, found, lengths[view.run_id], room)
        done.again.add(view.run_id)
        done.moved_runs.add(view.run_id)
    moves.note_reasons(connection, reasons=done.reasons)
    return done


def _wanted(
    own: MappedTask, instances: dict[int, Instance], lengths: _Lengths, done: Expanded
) -> mapping.Expansion | None:
    """What the summary is to become; ``None`` where it is marked, or has to wait."""
    summary = instances[SUMMARY]
    rest = {index: one.state for index, one in instances.items() if index != SUMMARY}
    try:
        counted = mapping.count(own.over, lengths)
    except InvalidInput as error:
        done.marks[summary.ti_id] = TaskState.UPSTREAM_FAILED
        done.reasons[summary.ti_id] = str(error)
        return None
    found = mapping.expand(rest, counted.count)
    if found is None:
        if lengths.have_ended(own.inputs):  # what has ended without a result never has a length
            done.marks[summary.ti_id] = TaskState.UPSTREAM_FAILED
            done.reasons[summary.ti_id] = (
                f"It cannot be expanded: {', '.join(sorted(own.inputs))} left no list to map over."
            )
        return None
    if found.is_skipped:
        done.marks[summary.ti_id] = TaskState.SKIPPED
        done.reasons[summary.ti_id] = "What it maps over is empty."
        return None
    return found


def _add(
    connection: psycopg.Connection[Any],
    view: RunView,
    own: MappedTask,
    summary: Instance,
    found: mapping.Expansion,
    lengths: _Lengths,
    room: int,
) -> int:
    """How much room is left once a batch has been added; with the last one the summary is replaced."""
    batch = found.created[:room]
    is_last = len(batch) == len(found.created)
    shown = (0, *batch) if is_last else batch
    labels = _labels(connection, view, own, shown, lengths)
    task = view.version.definition.task(own.task_id)
    added = moves.add_instances(
        connection, run_id=view.run_id, task=task, indexes=batch, labels=labels
    )
    view.added_ids.update(added)  # read at the next look
    if is_last:
        view.added_ids.add(summary.ti_id)
        moves.end_expansion(
            connection,
            ti_id=summary.ti_id,
            label=labels.get(0),
            is_needed=found.becomes is not None,
        )
    return room - len(batch)


def _inputs(view: RunView, task_ids: Iterable[str]) -> frozenset[str]:
    return frozenset[str]().union(*(view.version.mapped[one].inputs for one in task_ids))


def _instances(view: RunView, task_ids: Iterable[str]) -> dict[str, dict[int, Instance]]:
    """The instances of these tasks, by task and map index."""
    found: dict[str, dict[int, Instance]] = {task_id: {} for task_id in task_ids}
    if found:
        for one in view.instances.values():
            if one.task_id in found:
                found[one.task_id][one.map_index] = one
    return found


def _lengths(
    connection: psycopg.Connection[Any], asked: Sequence[tuple[RunView, Iterable[str]]]
) -> dict[int, _Lengths]:
    """What the runs' mapped tasks map over, in one statement."""
    task_ids = sorted(
        {task_id for view, inputs in asked for task_id in _with_partners(view, inputs)}
    )
    found: dict[int, dict[str, moves.InputFacts]] = {view.run_id: {} for view, _ in asked}
    if task_ids:
        for row in moves.read_inputs(connection, run_ids=list(found), task_ids=task_ids):
            found[row.run_id][row.task_id] = row
    return {view.run_id: _Lengths(view=view, facts=found[view.run_id]) for view, _ in asked}


def _with_partners(view: RunView, inputs: Iterable[str]) -> set[str]:
    """These inputs, and what is mapped over together with them."""
    asked = set(inputs)
    return asked.union(*(one.inputs for one in view.version.mapped.values() if one.inputs & asked))


# -- labels --------------------------------------------------------------------------------------


def _labels(
    connection: psycopg.Connection[Any],
    view: RunView,
    own: MappedTask,
    indexes: Sequence[int],
    lengths: _Lengths,
) -> dict[int, str]:
    """How these instances are called, where the task says so and the elements can be read here."""
    template = view.version.definition.task(own.task_id).map_label
    if not template or not indexes:
        return {}
    reader = _Elements(connection=connection, view=view, lengths=lengths)
    labels = {}
    for index in indexes:
        try:
            arguments = mapping.arguments_at(own.over, index, reader)
        except (InvalidInput, LookupError):
            continue  # the instance itself will say what is wrong with its element
        labels[index] = mapping.label(template, arguments, index)
    return labels


@dataclass(slots=True, kw_only=True)
class _Elements:
    """A ``Reader`` of ``rules/mapping.py`` over stored results, each read once."""

    connection: psycopg.Connection[Any]
    view: RunView
    lengths: _Lengths
    _read: dict[str, Any] = field(default_factory=dict)

    def length(self, task_id: str) -> int | None:
        return self.lengths.length(task_id)

    def item(self, task_id: str, place: int) -> Any:
        if task_id not in self._read:
            self._read[task_id] = self._elements(task_id)
        return values.decode(self._read[task_id][place])

    def whole(self, task_id: str) -> Any:
        raise LookupError(task_id)  # too much for a label

    def transformed(self, slot: int, value: Any) -> Any:
        raise LookupError(slot)  # user code runs in workers only

    def _elements(self, task_id: str) -> list[Any]:
        if task_id in self.view.version.mapped:
            return moves.read_results(self.connection, run_id=self.view.run_id, task_id=task_id)
        return mapping.stored_elements(
            moves.read_result(self.connection, run_id=self.view.run_id, task_id=task_id)
        )
