"""The flow that is being built: while a flow function runs, task calls add themselves to it."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from scheduler_app.authoring.faults import Fault, Place, fault, refuse
from scheduler_app.rules.definition import FLOW_OR_TASK_ID, ID_CHARACTERS_MAX, ID_RULE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import datetime

    from scheduler_app.authoring.call import TaskCall
    from scheduler_app.authoring.groups import Group
    from scheduler_app.authoring.task import Task
    from scheduler_app.authoring.wiring import Step
    from scheduler_app.rules.schedule import Schedule


POLLING: Final = (
    "polling."  # stands before the fields of how sensors wait, among the defaults of tasks
)


@dataclass(slots=True, kw_only=True)
class Building:
    """What one run of a flow function has made so far."""

    flow_id: str
    place: Place
    # Fields of TaskDefinition, and with POLLING before them those of Polling.
    defaults: Mapping[str, Any] = field(default_factory=dict)
    schedule: str | Schedule | None = None  # in its long form where it has one
    timezone: str = "UTC"
    start_date: datetime | None = None
    end_date: datetime | None = None
    calls: dict[str, TaskCall] = field(default_factory=dict)
    instances: list[Task] = field(default_factory=list)  # of class tasks
    groups: dict[str, Group] = field(default_factory=dict)
    inside: list[Group] = field(
        default_factory=list
    )  # groups whose bodies are running, outer first
    links: list[tuple[Step, Step]] = field(default_factory=list)  # before, after: one is a group
    scopes: list[list[TaskCall]] = field(default_factory=list)  # calls of the ``with`` of setups
    faults: list[Fault] = field(default_factory=list)
    # Name -> the number of its last namesake: a loop over thousands does not count from 1 each time.
    _namesakes: dict[str, int] = field(default_factory=dict)

    @property
    def prefix(self) -> str:
        """What stands before the ids of the tasks and groups that are made now."""
        return self.inside[-1].inner_prefix if self.inside else ""

    @property
    def task_defaults(self) -> Mapping[str, Any]:
        """Options of the tasks that are made now: of the flow, and of the groups around them."""
        return self.inside[-1].defaults if self.inside else self.defaults

    def mapped_group_around(self, group_id: str) -> Group | None:
        """The mapped group that the group with this id is, or lies in."""
        found = self.groups.get(group_id)
        while found is not None and found.mapping is None:
            found = found.parent
        return found

    def id_for(self, wanted: str, place: Place, *, exact: bool, noun: str = "Task") -> str:
        """An id that no other task or group of this flow has, with the prefix of its group.

        A fault if just the wanted one must be had.
        """
        wanted = self.prefix + wanted
        first = self._named(wanted)
        if first is None:
            return self._fit(wanted, place, noun)
        if exact:
            other = first.place
            self.faults.append(
                fault(
                    place,
                    f"{noun} id {wanted!r} is used twice in flow {self.flow_id!r}; the other is at "
                    f"line {other.line}.",
                    f"Give one of them another {noun.lower()}_id.",
                )
            )
        number = self._namesakes.get(wanted, 0) + 1
        while self._named(f"{wanted}__{number}") is not None:
            number += 1
        self._namesakes[wanted] = number
        return self._fit(f"{wanted}__{number}", place, noun)

    def _named(self, name: str) -> Group | TaskCall | None:
        """The task or group that has this id already."""
        return self.calls[name] if name in self.calls else self.groups.get(name)

    def _fit(self, name: str, place: Place, noun: str) -> str:
        if FLOW_OR_TASK_ID.fullmatch(name):
            return name
        if len(name) > ID_CHARACTERS_MAX:
            message = (
                f"{noun} id {name[:80]!r}... has {len(name)} characters with the ids of the"
                " groups that it is in."
            )
            remedy = f"Ids are {ID_RULE}: shorten one of them, or write prefix=False on a group."
        else:  # it came from the name of a function
            message = f"{noun} id {name!r} is no id."
            remedy = f"Ids are {ID_RULE}: write a def with a name, or give {noun.lower()}_id=..."
        self.faults.append(fault(place, message, remedy))
        return name


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
