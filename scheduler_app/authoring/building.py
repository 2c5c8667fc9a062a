"""The flow that is being built: while a flow function runs, task calls add themselves to it."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from scheduler_app.authoring.faults import Fault, Place, fault, refuse

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from scheduler_app.authoring.call import TaskCall
    from scheduler_app.authoring.task import Task


@dataclass(slots=True, kw_only=True)
class Building:
    """What one run of a flow function has made so far."""

    flow_id: str
    place: Place
    defaults: Mapping[str, Any] = field(default_factory=dict)  # fields of TaskDefinition
    calls: dict[str, TaskCall] = field(default_factory=dict)
    instances: list[Task] = field(default_factory=list)  # of class tasks
    faults: list[Fault] = field(default_factory=list)

    def id_for(self, wanted: str, place: Place, *, exact: bool) -> str:
        """An id that no other call of this flow has; a fault if just the wanted one must be had."""
        if wanted not in self.calls:
            return wanted
        if exact:
            other = self.calls[wanted].place
            self.faults.append(
                fault(
                    place,
                    f"Task id {wanted!r} is used twice in flow {self.flow_id!r}; the other is at "
                    f"line {other.line}.",
                    "Give one of them another task_id.",
                )
            )
        number = 1
        while f"{wanted}__{number}" in self.calls:
            number += 1
        return f"{wanted}__{number}"


_current: Final[ContextVar[Building | None]] = ContextVar("daylight_building", default=None)


@contextmanager
def building(what: Building) -> Iterator[Building]:
    """Task calls inside the block belong to this flow."""
    if (outer := _current.get()) is not None:
        raise refuse(
            f"Flow {what.flow_id!r} is defined inside flow {outer.flow_id!r}.",
            "Define each flow at the top of the file, outside any other flow function.",
            what.place,
        )
    token = _current.set(what)
    try:
        yield what
    finally:
        _current.reset(token)


def current(act: str, otherwise: str) -> Building:
    """The flow that is being built. Raises ``DefinitionError`` where there is none."""
    found = _current.get()
    if found is None:
        raise refuse(
            f"{act} outside a flow.", f"Do it in the body of a @flow function; {otherwise}"
        )
    return found
