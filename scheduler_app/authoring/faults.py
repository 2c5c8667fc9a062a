"""Faults of a definition: where it is, what is wrong and what to do about it."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from scheduler_app.rules.errors import DefinitionError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_ROOM: Final = str(Path(__file__).parent)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A line of a source file."""

    file: str
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that is wrong with a definition."""

    file: str
    line: int
    message: str
    remedy: str


def place_of_caller() -> Place:
    """The line outside this room that is being executed now."""
    frame = sys._getframe(1)  # noqa: SLF001 - the cheap way to look at the stack
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_ROOM):
        frame = frame.f_back
    return Place(file=frame.f_code.co_filename, line=frame.f_lineno)


def place_of_function(function: Callable[..., object]) -> Place:
    """The line where the function, or the first of its decorators, begins."""
    code = function.__code__
    return Place(file=code.co_filename, line=code.co_firstlineno)


def fault(place: Place, message: str, remedy: str) -> Fault:
    """The fault at this place."""
    return Fault(file=place.file, line=place.line, message=message, remedy=remedy)


def error_of(faults: Sequence[Fault]) -> DefinitionError:
    """One error that tells every fault; its ``extra`` names file, line and remedy of the first."""
    first = faults[0]
    lines = [f"{item.file}:{item.line}: {item.message} {item.remedy}" for item in faults]
    return DefinitionError(
        "\n".join(lines),
        file=first.file,
        line=first.line,
        remedy=first.remedy,
        faults=[asdict(item) for item in faults],
    )


def refuse(message: str, remedy: str, place: Place | None = None) -> DefinitionError:
    """The error for a fault that the running line (or the given place) has just made."""
    return error_of([fault(place or place_of_caller(), message, remedy)])


def faults_of(error: DefinitionError, place: Place) -> list[Fault]:
    """The faults that an error carries; one at the given place when it carries none."""
    carried: Any = error.extra.get("faults")
    if carried:
        return [Fault(**item) for item in carried]
    remedy = error.extra.get("remedy")
    return [fault(place, str(error), str(remedy or "Correct the definition."))]


def did_you_mean(name: str, known: Sequence[str]) -> str:
    """A remedy that names the nearest known name, or all of them."""
    near = get_close_matches(name, known, n=1)
    return f"Did you mean {near[0]!r}?" if near else f"Known: {', '.join(sorted(known))}."
