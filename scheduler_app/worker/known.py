"""What every execution of a flow asks its definition for, worked out once for each loaded flow."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from scheduler_app.rules import mapping, ties

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler_app.authoring.call import TaskCall
    from scheduler_app.authoring.flow import Flow
    from scheduler_app.rules.definition import FlowDefinition, TaskDefinition
    from scheduler_app.rules.mapping import MappedTask


@dataclass(slots=True, kw_only=True)
class KnownFlow:
    """A definition with its tasks by id: what a task costs does not grow with its flow."""

    definition: FlowDefinition
    tasks: Mapping[str, TaskDefinition]
    mapped: Mapping[str, MappedTask]
    mapped_over: frozenset[str]  # the tasks whose results others map over
    has_units: bool  # whether there are transactional groups
    _hidden: dict[str, Mapping[str, str]] = field(default_factory=dict)
    _needed: dict[str, frozenset[str]] = field(default_factory=dict)

    def needed_by(self, call: TaskCall) -> frozenset[str]:
        """See ``TaskCall.result_task_ids``."""
        if call.task_id not in self._needed:
            self._needed[call.task_id] = call.result_task_ids()
        return self._needed[call.task_id]

    def hidden_from(self, task_id: str) -> Mapping[str, str]:
        """See ``ties.hidden_from``."""
        if not self.has_units:
            return {}
        if task_id not in self._hidden:
            self._hidden[task_id] = ties.hidden_from(self.definition, task_id)
        return self._hidden[task_id]


# As long as the flow is loaded.
_KNOWN: Final[WeakKeyDictionary[Flow, KnownFlow]] = WeakKeyDictionary()


def known_flow(flow: Flow) -> KnownFlow:
    """The flow as it was when it was loaded. Raises ``DefinitionError`` for a faulty one."""
    known = _KNOWN.get(flow)
    if known is None:
        definition = flow.definition()
        known = KnownFlow(
            definition=definition,
            tasks={task.task_id: task for task in definition.tasks},
            mapped=mapping.mapped_tasks(definition),
            mapped_over=mapping.producers(definition),
            has_units=any(group.retry is not None for group in definition.groups),
        )
        _KNOWN[flow] = known
    return known
