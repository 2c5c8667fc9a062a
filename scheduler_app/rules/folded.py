"""Many instances of a mapped task told as one line: which indexes, and how many."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

FOLDED_ABOVE: Final = 10  # instances of one task in one state; fewer are told one by one


class Subject(Protocol):
    """One task instance that an act is about."""

    @property
    def task_id(self) -> str:
        """Its task."""

    @property
    def map_index(self) -> int:
        """Its index; -1 where its task is not mapped."""

    @property
    def name(self) -> str:
        """As sentences name it alone."""

    @property
    def state(self) -> str:
        """What it is."""

    @property
    def effect(self) -> str:
        """What becomes of it, or why it is left alone: a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One or several task instances of which the same is said."""

    name: str
    state: str
    effect: str
    number: int = 1


def lines_of(subjects: Sequence[Subject], run_of: Sequence[str] = ()) -> list[Line]:
    """Each of them, or as one line those of a mapped task that are in one state with one effect.

    ``run_of``: beside each, the run that it is told with; none where there is one alone.
    """
    several: dict[tuple[str, str, str, str], list[int]] = {}
    order: list[tuple[Subject, str, tuple[str, str, str, str]]] = []
    for place, one in enumerate(subjects):
        run = run_of[place] if run_of else ""
        key = (run, one.task_id, one.state, one.effect)
        order.append((one, run, key))
        if one.map_index >= 0:
            several.setdefault(key, []).append(one.map_index)
    found: list[Line] = []
    told: set[tuple[str, str, str, str]] = set()
    for one, run, key in order:
        of_run = f" of {run}" if run else ""
        indexes = several.get(key, ())
        if one.map_index < 0 or len(indexes) <= FOLDED_ABOVE:
            found.append(Line(name=f"{one.name}{of_run}", state=one.state, effect=one.effect))
        elif key not in told:
            told.add(key)
            found.append(
                Line(
                    name=f"{one.task_id} [{told_indexes(indexes)}]{of_run}",
                    state=one.state,
                    effect=one.effect,
                    number=len(indexes),
                )
            )
    return found


def told_indexes(indexes: Iterable[int]) -> str:
    """As "0–811, 815": runs of indexes that follow each other, in order."""
    parts: list[list[int]] = []
    for index in sorted(set(indexes)):
        if parts and index == parts[-1][1] + 1:
            parts[-1][1] = index
        else:
            parts.append([index, index])
    return ", ".join(str(first) if first == last else f"{first}–{last}" for first, last in parts)
