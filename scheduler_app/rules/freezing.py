"""What a freeze may hold and how: scopes, modes, and the words that pages say about them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from scheduler_app.rules.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime


class ScopeKind(StrEnum):
    """How far a freeze reaches."""

    TASK_INSTANCE = "task_instance"
    TASK = "task"  # of one run: all of its instances that are there
    RUN = "run"
    FLOW = "flow"  # every run of it, also those that come
    SHARD = "shard"  # every flow of it
    ALL = "all"


class Mode(StrEnum):
    """What becomes of executions that run when the freeze begins."""

    DRAIN = "drain"  # they end by themselves
    HARD = "hard"  # they are stopped, and begin again after the thaw, without using a retry


NUMBERED: Final = (ScopeKind.TASK_INSTANCE, ScopeKind.RUN, ScopeKind.SHARD)
OF_RUN: Final = re.compile(r"([0-9]{1,18}):(.+)", re.DOTALL)  # the id of a task: run and task
WIDE: Final = (ScopeKind.FLOW, ScopeKind.SHARD, ScopeKind.ALL)  # reach runs that do not exist yet


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """What is frozen: a kind, and the id of the one thing of that kind; everything has none."""

    kind: ScopeKind
    id: str = ""

    @property
    def number(self) -> int | None:
        """The id where it is a number; of a task, that of its run."""
        if self.kind is ScopeKind.TASK:
            return int(self.id.partition(":")[0])
        return int(self.id) if self.kind in NUMBERED else None

    @property
    def task_id(self) -> str | None:
        """The task, where the scope is one."""
        return self.id.partition(":")[2] if self.kind is ScopeKind.TASK else None

    @property
    def name(self) -> str:
        """As sentences name it."""
        match self.kind:
            case ScopeKind.ALL:
                return "everything"
            case ScopeKind.TASK_INSTANCE:
                return f"task instance {self.id}"
            case ScopeKind.TASK:
                return f"task {self.task_id} of run {self.number}"
        return f"{self.kind.value} {self.id}"


def scope_of(kind: str, scope_id: str | int = "") -> Scope:
    """The scope that these words name. Raises ``InvalidInput`` with the field that is wrong."""
    if kind not in [known.value for known in ScopeKind]:
        known = ", ".join(one.value for one in ScopeKind)
        message = f"there is no scope {kind!r}; a freeze holds one of: {known}"
        raise InvalidInput(message, field="scope_kind")
    found = ScopeKind(kind)
    text = str(scope_id).strip()
    if found is ScopeKind.ALL and text:
        raise InvalidInput("the scope 'all' has no id; leave it out", field="scope_id")
    if found is not ScopeKind.ALL and not text:
        raise InvalidInput(f"say which {found.value} with scope_id", field="scope_id")
    if found in NUMBERED and not (text.isascii() and text.isdigit() and len(text) < 19):
        message = f"{text!r} is not the number of a {found.value}"
        raise InvalidInput(message, field="scope_id")
    if found is ScopeKind.TASK and not OF_RUN.fullmatch(text):
        message = f"{text!r} is not the number of a run and a task of it, such as 7:load"
        raise InvalidInput(message, field="scope_id")
    return Scope(kind=found, id=text)


def task_scope(run: int, task_id: str) -> Scope:
    """The task of the run: all of its instances."""
    return Scope(kind=ScopeKind.TASK, id=f"{run}:{task_id}")


def mode_of(mode: str) -> Mode:
    """The mode of this name. Raises ``InvalidInput``."""
    try:
        return Mode(mode)
    except ValueError:
        message = f"there is no mode {mode!r}: drain lets running tasks end, hard stops them"
        raise InvalidInput(message, field="mode") from None


Place = tuple[
    str | int, ...
]  # what has room: its kind (pool, run, flow, task, run_task) and its name


@dataclass(frozen=True, slots=True, kw_only=True)
class Queued:
    """A task instance that was frozen while it was queued."""

    ti_id: int
    priority: int  # higher first
    since: datetime | None  # when it was queued
    needs: Mapping[Place, int]  # of each place, how much of its room


def who_goes_on(queued: Iterable[Queued], free: Mapping[Place, int]) -> list[int]:
    """Who has room after a thaw, in the order in which they would have been claimed.

    Who has none takes nothing, and what is short for one is left to it: nobody behind it overtakes
    it there. A place that is not named has room for all.
    """
    left = dict(free)
    short: set[Place] = set()
    going = []
    for one in sorted(queued, key=_turn):
        missing = {p for p, need in one.needs.items() if p in left and need > left[p]}
        if missing or not short.isdisjoint(one.needs):
            short |= missing
            continue
        for place, need in one.needs.items():
            if place in left:
                left[place] -= need
        going.append(one.ti_id)
    return going


def _turn(one: Queued) -> tuple[int, bool, float, int]:
    since = one.since
    return (-one.priority, since is None, since.timestamp() if since else 0.0, one.ti_id)
