"""Mapping: one task, or one group of tasks, for each element of a list that is known at run time.

``load.map(rows())``, ``load.partial(table="t").expand(path=paths(), day=[1, 2])`` (every combination),
``load.expand_kwargs(dicts())``. What is mapped over may be a list or a dict written here, the result of
another task (of a mapped one: its results in order), and what ``zip_``, ``concat`` and ``.map(function)``
make of such.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol

from scheduler_app.authoring.faults import refuse
from scheduler_app.authoring.sources import NO_FILL, Concatenated, Part, Transformed, Zipped
from scheduler_app.authoring.template import Template
from scheduler_app.authoring.wiring import Step, steps_in
from scheduler_app.rules import mapping, values
from scheduler_app.rules.errors import InvalidInput
from scheduler_app.rules.mapping import Argument, Kind, MapOver, Source

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from scheduler_app.authoring.faults import Place
    from scheduler_app.rules.errors import DefinitionError

LITERAL_BYTES_MAX: Final = 1024 * 1024  # of one list that is written in the flow, as JSON
DICTS: Final = "__kwargs__"  # in place of a name: each element holds arguments


class Items(Protocol):
    """Gives what is mapped over when an instance is executed."""

    def length(self, task_id: str) -> int | None:
        """How many elements the task's result has; of a mapped task: how many results there are."""

    def item(self, task_id: str, place: int) -> Any:
        """The element of the task's result at this place. Raises ``IndexError``."""

    def whole(self, task_id: str) -> Any:
        """The whole result of the task."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LiveMapping:
    """What one call, or one group, maps over, with the functions that only live code has."""

    over: MapOver
    functions: tuple[Callable[[Any], Any], ...]
    steps: tuple[Step, ...]
    place: Place

    def argument(self, name: str, default: Any = NO_FILL) -> MappedArgument:
        """What stands for this argument in a call."""
        return MappedArgument(mapping=self, name=name, default=default)

    def input_ids(self) -> frozenset[str]:
        """The tasks whose results it needs."""
        return mapping.inputs_of(self.over)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MappedArgument(Part):
    """Stands in a call for the element that its instance gets."""

    mapping: LiveMapping
    name: str  # DICTS: the whole dict of arguments
    default: Any = NO_FILL

    def value(self, map_index: int, items: Items) -> Any:
        """The element. Raises ``InvalidInput`` where there is none (any more)."""
        reader = _Reader(items, self.mapping.functions)
        over = self.mapping.over
        if not over.is_dicts:
            return mapping.argument_at(over, self.name, map_index, reader)
        found = mapping.arguments_at(over, map_index, reader)
        if self.name == DICTS:
            return found
        if self.name in found:
            return found[self.name]
        if self.default is NO_FILL:
            raise InvalidInput(
                f"Element {map_index} that the group maps over has no {self.name!r}."
            )
        return self.default

    def __bool__(self) -> NoReturn:  # noqa: PLE0304 - refuses
        self._refuse_use("tested")

    def __iter__(self) -> NoReturn:
        self._refuse_use("looped over")

    def __len__(self) -> NoReturn:  # noqa: PLE0303 - refuses
        self._refuse_use("measured")

    def __getitem__(self, key: object) -> NoReturn:
        self._refuse_use("looked into")

    def __format__(self, spec: str) -> NoReturn:
        self._refuse_use("made into text")

    def __str__(self) -> NoReturn:  # noqa: PLE0307 - refuses
        self._refuse_use("made into text")

    def _refuse_use(self, verb: str) -> NoReturn:
        raise refuse(
            f"Argument {self.name!r}, which the group maps over, is {verb} while the flow is being"
            " built, before its elements are known.",
            "Pass it whole to a task of the group, and do this inside that task.",
        )

    def __repr__(self) -> str:
        return f"<element for {self.name}>"


@dataclass(frozen=True, slots=True)
class _Reader:
    """The reader of ``rules/mapping.py`` for one call."""

    items: Items
    functions: tuple[Callable[[Any], Any], ...]

    def length(self, task_id: str) -> int | None:
        return self.items.length(task_id)

    def item(self, task_id: str, place: int) -> Any:
        return self.items.item(task_id, place)

    def whole(self, task_id: str) -> Any:
        return self.items.whole(task_id)

    def transformed(self, slot: int, value: Any) -> Any:
        return self.functions[slot](value)


class NoItems:
    """For calls that map over nothing."""

    def length(self, task_id: str) -> int | None:
        """Not known."""
        del task_id
        return None

    def item(self, task_id: str, place: int) -> Any:
        """There is none: raises ``IndexError``."""
        raise IndexError(task_id, place)

    def whole(self, task_id: str) -> Any:
        """There is none: raises ``IndexError``."""
        raise IndexError(task_id)


# -- from what is written to what is stored ------------------------------------------------------


def live_mapping(
    over: Mapping[str, object], *, subject: str, place: Place, is_dicts: bool = False
) -> LiveMapping:
    """What the arguments map over, checked. Raises ``DefinitionError``."""
    made = _Description(subject=subject, place=place)
    if not over:
        raise refuse(
            f"{subject} maps over nothing.",
            "Give .map(...) or .expand(...) at least one argument to map over.",
            place,
        )
    arguments = tuple(
        Argument(name="" if is_dicts else name, source=made.source(name, value))
        for name, value in over.items()
    )
    mapped = MapOver(arguments=arguments, is_dicts=is_dicts)
    for element in over[DICTS] if is_dicts and isinstance(over[DICTS], (list, tuple)) else ():
        if isinstance(element, Step):
            continue
        if not isinstance(element, dict) or not all(isinstance(key, str) for key in element):
            raise refuse(
                f"{subject} maps over {element!r:.80}, which is no dict of arguments.",
                'Give expand_kwargs dicts such as {"path": "a.csv"}; or write .map(...) to map one'
                " argument.",
                place,
            )
    try:
        mapping.count(mapped, _Unknown())
    except mapping.TooManyInstances as error:
        raise refuse(f"{subject}: {error}", "Map over less.", place) from None
    return LiveMapping(
        over=mapped, functions=tuple(made.functions), steps=tuple(made.steps), place=place
    )


def written_dicts(over: Mapping[str, object]) -> list[dict[str, object]]:
    """The dicts of arguments that are mapped over and written in the flow itself."""
    given = over[DICTS]
    if not isinstance(given, (list, tuple)):
        return []
    return [one for one in given if isinstance(one, dict)]


def refuse_unnamed(subject: str) -> DefinitionError:
    """The error for lists that ``expand`` is given by place."""
    return refuse(
        f"{subject} is expanded over what has no name.",
        "Name the arguments: .expand(path=[...]); .map([...]) takes them by place.",
    )


class _Unknown:
    def length(self, task_id: str) -> None:
        del task_id


class _Description:
    """Sources as the definition stores them; functions and steps on the side."""

    def __init__(self, *, subject: str, place: Place) -> None:
        self.subject = subject
        self.place = place
        self.functions: list[Callable[[Any], Any]] = []
        self.steps: list[Step] = []

    def source(self, name: str, value: object) -> Source:
        match value:
            case Zipped(parts=parts, fill=fill):
                has_fill = fill is not NO_FILL
                return Source(
                    kind=Kind.ZIP,
                    parts=tuple(self.source(name, one) for one in parts),
                    has_fill=has_fill,
                    fill=self._encoded(name, [fill])[0] if has_fill else None,
                )
            case Concatenated(parts=parts):
                return Source(
                    kind=Kind.CONCAT, parts=tuple(self.source(name, one) for one in parts)
                )
            case Transformed(part=part, function=function):
                inner = self.source(name, part)
                self.functions.append(function)
                return Source(kind=Kind.TRANSFORM, parts=(inner,), slot=len(self.functions) - 1)
            case Step():
                call = value.as_call()  # of a group that returned nothing: refused there
                self.steps.append(value)
                return Source(kind=Kind.RESULT, task_id=call.task_id)
            case dict():
                pairs: list[object] = list(value.items())
                if next(steps_in([pairs], self.place), None) is not None:
                    raise self._refused(
                        name, "a dict with results of tasks in it", "Map over a list of them."
                    )
                return Source(kind=Kind.LITERAL, items=self._encoded(name, pairs))
            case range() if len(value) > mapping.INSTANCES_MAX:
                raise self._refused(
                    name,
                    f"{value!r}, {len(value):,} elements; the limit is {mapping.INSTANCES_MAX:,}",
                    "Map over less.",
                )
            case list() | tuple() | range():
                return self._listed(name, list(value))
        raise self._refused(name, *_why_not(value))

    def _listed(self, name: str, elements: list[object]) -> Source:
        """A list; whole results of tasks may be elements of it."""
        parts: list[Source] = []
        plain: list[object] = []

        def flush() -> None:
            if plain:
                parts.append(Source(kind=Kind.LITERAL, items=self._encoded(name, plain)))
                plain.clear()

        for one in elements:
            if isinstance(one, Step):
                flush()
                self.steps.append(one)
                parts.append(Source(kind=Kind.WHOLE, task_id=one.as_call().task_id))
            elif isinstance(one, MappedArgument):
                raise self._refused(name, *_why_not(one))
            elif next(steps_in([one], self.place), None) is not None:
                raise self._refused(
                    name,
                    "a list whose elements have results of tasks deeper inside",
                    "Put the results into the list themselves, or give the rest by .partial(...).",
                )
            else:
                plain.append(one)
        if not parts:
            return Source(kind=Kind.LITERAL, items=self._encoded(name, plain))
        flush()
        return parts[0] if len(parts) == 1 else Source(kind=Kind.CONCAT, parts=tuple(parts))

    def _encoded(self, name: str, elements: list[object]) -> tuple[Any, ...]:
        try:
            encoded = values.encode(elements)
        except InvalidInput as error:
            raise refuse(
                f"{self.subject} maps {_named(name)} over what cannot be stored: {error}",
                "Map over values that JSON knows, or make them inside the task.",
                self.place,
            ) from None
        size = len(json.dumps(encoded, ensure_ascii=False, separators=(",", ":")).encode())
        if size > LITERAL_BYTES_MAX:
            raise self._refused(
                name,
                f"a list of {size:,} bytes as JSON; the limit is {LITERAL_BYTES_MAX:,}",
                "Return it from a task and map over that.",
            )
        return tuple(encoded)

    def _refused(self, name: str, what: str, remedy: str) -> Exception:
        return refuse(f"{self.subject} maps {_named(name)} over {what}.", remedy, self.place)


def _named(name: str) -> str:
    return "its arguments" if name == DICTS else repr(name)


def _why_not(value: object) -> tuple[str, str]:
    """What it is, and what to do."""
    shown = repr(value)
    shown = shown if len(shown) <= 60 else f"{shown[:57]}..."
    match value:
        case MappedArgument():
            return (
                "an element of the group around it",
                "Nothing can be expanded within an expanded group: map over it outside, or loop"
                " over the element inside the task.",
            )
        case Template():
            return f"{shown}, a text", "Give it by .partial(...); map over a list."
        case str() | bytes():
            return (
                f"{shown}, a text",
                "Map over a list; give what is the same for all by .partial(...).",
            )
        case set() | frozenset():
            return f"{shown}, which has no order", "Write sorted(...) of it."
        case None:
            return "None", "Map over a list; an empty one makes no instances."
    if hasattr(value, "__next__"):
        return f"{shown}, which can be read once only", "Write list(...) of it."
    called = getattr(value, "__name__", None)
    if callable(value) and called:
        return f"{shown}, which is not called", f"Write {called}()."
    return f"{shown}", "Map over a list, a tuple, a dict or the result of a task."


def label_fault(template: str, over: MapOver) -> tuple[str, str] | None:
    """What is wrong with the template of labels for a task that maps so, and what to do."""
    if over.is_dicts:
        return None
    known = {one.name: one.source for one in over.arguments}
    for name in sorted(mapping.label_names(template)):
        if name == "map_index":
            continue
        if name not in known:
            told = ", ".join([*known, "map_index"])
            return f"names {name!r}, which is not mapped over", f"Name one of {told}."
        if any(one.kind == Kind.TRANSFORM for one in mapping.sources_in(known[name])):
            return (
                f"names {name!r}, whose elements .map(...) computes in the worker only",
                "Name another argument, or let the task before return what is to be shown.",
            )
    return None
