"""What a task may map over beside a result, a list and a dict: what is made of such."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NoReturn

from scheduler_app.authoring.faults import refuse

if TYPE_CHECKING:
    from collections.abc import Callable

NO_FILL: Final = object()


class Part:
    """Stands in an argument for what mapping gives: an element, or what is mapped over."""

    __slots__ = ()


class MapSource(Part):
    """What a task may map over beside a result, a list and a dict."""

    def map(self, function: Callable[[Any], Any]) -> MapSource:
        """The same with what the function makes of each element, when that is read."""
        return transformed(self, function)

    def zip(self, *others: object, fill: Any = NO_FILL) -> MapSource:
        """Tuples of its elements and theirs at the same place; see ``zip_``."""
        return zip_(self, *others, fill=fill)

    def concat(self, *others: object) -> MapSource:
        """Its elements, then theirs."""
        return concat(self, *others)

    def __iter__(self) -> NoReturn:
        raise refuse(
            f"{self!r} is looped over while the flow is being built, before any task has run.",
            "Give it to .map(...) or .expand(...) of a task.",
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Zipped(MapSource):
    """Tuples of the elements of several sources."""

    parts: tuple[object, ...]
    fill: Any

    def __repr__(self) -> str:
        return "zip_(...)"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Concatenated(MapSource):
    """The elements of several sources, one after the other."""

    parts: tuple[object, ...]

    def __repr__(self) -> str:
        return "concat(...)"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Transformed(MapSource):
    """What a function makes of each element of a source."""

    part: object
    function: Callable[[Any], Any]

    def __repr__(self) -> str:
        return f"(...).map({getattr(self.function, '__name__', self.function)})"


def zip_(*sources: object, fill: Any = NO_FILL) -> MapSource:
    """Tuples of the elements at the same place, as many as the shortest has; with ``fill`` the longest."""
    if not sources:
        raise refuse("zip_() zips nothing.", "Give it what to map over: zip_(names(), sizes()).")
    return Zipped(parts=sources, fill=fill)


def concat(*sources: object) -> MapSource:
    """The elements of the first, then of the second, and so on."""
    if not sources:
        raise refuse("concat() has nothing to put together.", "Write concat(old(), new()).")
    return Concatenated(parts=sources)


def transformed(source: object, function: Callable[[Any], Any]) -> MapSource:
    """Elements as the function returns them; it runs in the worker, once for each instance."""
    if not callable(function) or hasattr(function, "override"):
        raise refuse(
            f".map() of a result is given {function!r}, which is no plain function.",
            "Give it a function of one element. To run a task for each, write load.map(rows()).",
        )
    try:
        inspect.signature(function).bind(None)
    except TypeError:
        raise refuse(
            f".map() of a result is given {function!r}, which does not take one argument.",
            "Give it a function of one element.",
        ) from None
    except ValueError:  # a builtin without a signature
        pass
    return Transformed(part=source, function=function)
