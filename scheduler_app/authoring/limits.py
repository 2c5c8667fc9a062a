"""Limits of keys: ``@task(limit=Limit("customer:{params[customer]}", 2))``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from scheduler_app.authoring.faults import Fault, Place, did_you_mean, fault, refuse
from scheduler_app.rules import limits as rules
from scheduler_app.rules.definition import FlowDefinition, LimitDefinition

if TYPE_CHECKING:
    from collections.abc import Callable

SLOTS_MAX: Final = 1_000_000


class Limit:
    """At most ``slots`` executions at once that have the same key, of whatever flow.

    ``key`` may name ``{params[...]}``, ``{conf[...]}``, ``{flow_id}``, ``{run_id}``, ``{task_id}``,
    ``{map_index}``, ``{map_label}`` (what a mapped instance is called, made of its arguments) and
    ``{ds}``. Operators can give a key another number. Raises ``DefinitionError``.
    """

    def __init__(self, key: str, slots: int) -> None:
        wrong = rules.fault(key)
        if wrong is not None:
            raise refuse(f"Limit({key!r:.200}) has no good key: {wrong[0]}.", wrong[1])
        if isinstance(slots, bool) or not isinstance(slots, int) or not 1 <= slots <= SLOTS_MAX:
            raise refuse(
                f"Limit({key!r:.200}) has slots={slots!r:.80}.",
                f"Give slots a whole number from 1 to {SLOTS_MAX}.",
            )
        self.key = key
        self.slots = slots

    def definition(self) -> LimitDefinition:
        """What is stored of it."""
        return LimitDefinition(key=self.key, slots=self.slots)

    def __repr__(self) -> str:
        return f"Limit({self.key!r}, {self.slots})"


def faults_of(definition: FlowDefinition, place_of: Callable[[str], Place]) -> list[Fault]:
    """A fault for each parameter that the key of a limit names and the flow does not declare."""
    return [
        fault(
            place_of(task.task_id),
            f"The limit {one.key!r} of task {task.task_id!r} names parameter {keys[0]!r}, which flow"
            f" {definition.flow_id!r} does not declare.",
            did_you_mean(keys[0], list(definition.params))
            if definition.params
            else f"Declare it: @flow(params={{{keys[0]!r}: ...}}), or name conf[{keys[0]}].",
        )
        for task in definition.tasks
        for one in task.limits
        for name, keys in rules.names(one.key)
        if name == "params" and keys[0] not in definition.params
    ]
