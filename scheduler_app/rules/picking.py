"""What the tasks that pick say of a task after them: that it goes on, waits, or is skipped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from scheduler_app.rules import mapping
from scheduler_app.rules import ties as ties_module
from scheduler_app.rules.readiness import Decision
from scheduler_app.rules.roles import Picks
from scheduler_app.rules.states import TASK_TERMINAL, TaskState

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from scheduler_app.rules.ties import Ties

WAYS_MAX: Final = 1000  # that are remembered


class Seen(Protocol):
    """What is to be seen of a run. A tally: total, success, failed, skipped, upstream_failed, removed."""

    @property
    def choices(self) -> Mapping[tuple[str, int], object]:
        """What instances picked, by task and map index; of one that a person marked there is nothing."""

    def tally(self, task_id: str, picker: str) -> Sequence[int]:
        """All instances of the task that picks, as the other one sees them."""

    def states_of(self, picker: str) -> Mapping[int, TaskState]:
        """The same by map index; what is held has not ended."""


class Picking:
    """The tasks of one flow that pick."""

    def __init__(self, ties: Ties, upstream: Mapping[str, Collection[str]]) -> None:
        self._ties = ties
        self._upstream = upstream
        self._ways: dict[frozenset[str], frozenset[str]] = {}  # by what a branch goes on with

    def by_index(self, seen: Seen, task_id: str, index: int) -> Decision:
        """What those in its mapped group say, each by its own index; of the summary they say nothing."""
        decision = Decision.READY
        if index == mapping.SUMMARY:
            return decision
        for picker in self._ties.picked_by_index.get(task_id, ()):
            state = seen.states_of(picker).get(index)
            if state is None:  # there is none, or not yet
                has_ended = _have_ended(seen.tally(task_id, picker))
            else:
                has_ended = state in TASK_TERMINAL
            if not has_ended:
                decision = Decision.WAIT
            elif state is TaskState.SUCCESS and self._is_barred(seen, task_id, (picker, index)):
                return Decision.SKIP
        return decision

    def by_any(self, seen: Seen, task_id: str) -> Decision:
        """What all others say: each lets it go on if one of its instances does."""
        decision = Decision.READY
        together = self._ties.picked_by_index.get(task_id, ())
        for picker in self._ties.picked_by.get(task_id, ()):
            if picker in together:
                continue
            tally = seen.tally(task_id, picker)
            if not _have_ended(tally):
                decision = Decision.WAIT
            elif self._none_lets(seen, task_id, picker, tally):
                return Decision.SKIP
        return decision

    def _none_lets(self, seen: Seen, task_id: str, picker: str, tally: Sequence[int]) -> bool:
        """Whether instances that have ended all bar it; one that failed might have let it go on."""
        _, success, failed, _, upstream_failed, _ = tally
        if failed or upstream_failed or not success:
            return False
        return all(
            self._is_barred(seen, task_id, (picker, index))
            for index, state in seen.states_of(picker).items()
            if state is TaskState.SUCCESS
        )

    def _is_barred(self, seen: Seen, task_id: str, key: tuple[str, int]) -> bool:
        """Whether what the instance picked leaves the task out."""
        if key not in seen.choices:
            return False
        choice = seen.choices[key]
        if self._ties.pickers[key[0]] is not Picks.BRANCH:
            return not choice
        wanted = ties_module.followed(self._ties, choice)
        ways = self._ways.get(wanted)
        if ways is None:
            if len(self._ways) >= WAYS_MAX:
                self._ways.clear()
            ways = self._ways[wanted] = ties_module.ways(self._upstream, wanted)
        return task_id not in ways


def worse(one: Decision, other: Decision) -> Decision:
    """The one of two that is further from going on: a skip outranks a wait."""
    if Decision.SKIP in (one, other):
        return Decision.SKIP
    return other if one is Decision.READY else one


def _have_ended(tally: Sequence[int]) -> bool:
    total, *ended = tally
    return sum(ended) == total
