"""Mapped tasks: what they map over, how many instances that makes, and what each one gets.

A mapped task begins as one *summary* (map index -1). Once the length of everything that it maps over is
known it is expanded: the summary becomes index 0, and the others are added. Comes in: what the
definition says, and lengths and elements through a reader. Goes out: numbers, values, and which
instances are to be added, removed or brought back. What never happens here: reading rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, Protocol

from scheduler_app.rules import values
from scheduler_app.rules.errors import InvalidInput
from scheduler_app.rules.states import TaskState

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from scheduler_app.rules.definition import FlowDefinition

SUMMARY: Final = -1  # the map index of what has not been expanded
INSTANCES_MAX: Final = 100_000  # of one mapped task in one run
LABEL_CHARACTERS_MAX: Final = 250


class Kind(StrEnum):
    """What a source of elements is."""

    LITERAL = "literal"  # a list, or the [key, value] pairs of a dict, written in the flow
    RESULT = "result"  # of a task: its list; of a mapped task: one result per instance
    WHOLE = "whole"  # one element: the whole result of a task
    ZIP = "zip"  # tuples of the elements of its parts at the same place
    CONCAT = "concat"  # the elements of its parts, one part after the other
    TRANSFORM = "transform"  # what a function of the flow makes of each element of its part


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where the elements of one argument come from."""

    kind: str
    task_id: str = ""  # of a result
    items: tuple[Any, ...] = ()  # of a literal, encoded
    parts: tuple[Source, ...] = ()
    has_fill: bool = False  # of a zip: as long as its longest part
    fill: Any = None  # encoded
    slot: int = 0  # of a transform: which function of its call


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """One argument, and what it maps over."""

    name: str
    source: Source


@dataclass(frozen=True, slots=True, kw_only=True)
class MapOver:
    """What a task or group maps over: every combination, the last argument varying fastest.

    With ``is_dicts`` there is one argument without a name, whose elements are dicts of arguments.
    """

    arguments: tuple[Argument, ...]
    is_dicts: bool = False


class Lengths(Protocol):
    """Knows how long results are."""

    def length(self, task_id: str) -> int | None:
        """How many elements the task's result has, or how many results a mapped one; null: not known."""


class Reader(Protocol):
    """Reads what the elements are made of."""

    def length(self, task_id: str) -> int | None:
        """As ``Lengths``."""

    def item(self, task_id: str, place: int) -> Any:
        """The element of the task's result at this place. Raises ``IndexError``."""

    def whole(self, task_id: str) -> Any:
        """The whole result of the task."""

    def transformed(self, slot: int, value: Any) -> Any:
        """What the function of the call with this number makes of the element."""


class NotExpanded(InvalidInput):
    """The task has not been expanded: it has no arguments yet."""


class OutOfRange(InvalidInput):
    """There is no element at this map index: what is mapped over has become shorter."""


class TooManyInstances(InvalidInput):
    """The mapped task would have more instances than a run may have of one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """How many instances there are to be; null while a length is not known."""

    count: int | None
    missing: tuple[str, ...] = ()  # the arguments whose length is not known


# -- what the definition says --------------------------------------------------------------------


def map_over_from(raw: dict[str, Any]) -> MapOver:
    """What ``dataclasses.asdict`` made plain. Raises ``KeyError`` and ``TypeError``."""
    return MapOver(
        arguments=tuple(
            Argument(name=one["name"], source=_source_from(one["source"]))
            for one in raw["arguments"]
        ),
        is_dicts=raw.get("is_dicts", False),
    )


def _source_from(raw: dict[str, Any]) -> Source:
    return Source(
        kind=raw["kind"],
        task_id=raw.get("task_id", ""),
        items=tuple(raw.get("items", ())),
        parts=tuple(_source_from(one) for one in raw.get("parts", ())),
        has_fill=raw.get("has_fill", False),
        fill=raw.get("fill"),
        slot=raw.get("slot", 0),
    )


def sources_in(source: Source) -> Iterator[Source]:
    """The source and all that it is made of."""
    yield source
    for part in source.parts:
        yield from sources_in(part)


def mapped_over(over: MapOver) -> frozenset[str]:
    """The tasks whose results are mapped over, element by element."""
    return frozenset(
        one.task_id
        for argument in over.arguments
        for one in sources_in(argument.source)
        if one.kind == Kind.RESULT
    )


def inputs_of(over: MapOver) -> frozenset[str]:
    """The tasks that it needs a result of, whole or element by element."""
    return frozenset(
        one.task_id
        for argument in over.arguments
        for one in sources_in(argument.source)
        if one.kind in (Kind.RESULT, Kind.WHOLE)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MappedTask:
    """One task that is expanded: because it maps, or because a group around it does."""

    task_id: str
    over: MapOver
    inputs: frozenset[str]  # whose results decide its length
    group: str = ""  # id of the mapped group that it is in
    siblings: frozenset[str] = frozenset()  # its direct upstream in that group


NO_MAPPING: Final[dict[str, MappedTask]] = {}


def mapped_tasks(definition: FlowDefinition) -> dict[str, MappedTask]:
    """The mapped tasks of the flow, upstream first; empty for a flow without any."""
    groups = {one.group_id: one for one in definition.groups}
    if not any(one.mapped for one in definition.groups) and not any(
        task.mapped for task in definition.tasks
    ):
        return NO_MAPPING

    def mapped_group(group_id: str) -> str:
        while group_id and not groups[group_id].mapped:
            group_id = groups[group_id].parent
        return group_id

    around = {task.task_id: mapped_group(task.group) for task in definition.tasks}
    found = {}
    for task in definition.tasks:
        group = around[task.task_id]
        over = task.mapped or (groups[group].mapped if group else None)
        if over is not None:
            found[task.task_id] = MappedTask(
                task_id=task.task_id,
                over=over,
                inputs=mapped_over(over),
                group=group,
                siblings=frozenset(one for one in task.upstream if group and around[one] == group),
            )
    return found


def producers(definition: FlowDefinition) -> frozenset[str]:
    """The tasks that a mapped task or group maps over the result of."""
    of_tasks = [mapped_over(task.mapped) for task in definition.tasks if task.mapped]
    of_groups = [mapped_over(group.mapped) for group in definition.groups if group.mapped]
    return frozenset[str]().union(*of_tasks, *of_groups)


# -- how many ------------------------------------------------------------------------------------


def length_of(source: Source, lengths: Lengths) -> int | None:
    """How many elements the source has; null while that is not known."""
    match source.kind:
        case Kind.LITERAL:
            return len(source.items)
        case Kind.WHOLE:
            return 1
        case Kind.RESULT:
            return lengths.length(source.task_id)
    known = [length_of(part, lengths) for part in source.parts]
    found = [one for one in known if one is not None]
    if len(found) < len(known):
        return None
    match source.kind:
        case Kind.ZIP:
            return (max if source.has_fill else min)(found, default=0)
        case Kind.CONCAT:
            return sum(found)
        case Kind.TRANSFORM:
            return found[0]
    raise InvalidInput(f"There is no source of elements of the kind {source.kind!r}.")


def count(over: MapOver, lengths: Lengths, *, instances_max: int | None = INSTANCES_MAX) -> Counted:
    """How many instances the task has to have: the product of the lengths of its arguments.

    Raises ``TooManyInstances``, naming the lengths, the product and the limit.
    """
    found = {one.name: length_of(one.source, lengths) for one in over.arguments}
    missing = tuple(name for name, length in found.items() if length is None)
    if missing:
        return Counted(count=None, missing=missing)
    known = [length for length in found.values() if length is not None]
    total = math.prod(known) if known else 0
    if instances_max is not None and total > instances_max:
        told = " x ".join(f"{length:,}" for length in known)
        product = f"{told} = {total:,}" if len(known) > 1 else f"{total:,}"
        raise TooManyInstances(
            f"The task would have {product} mapped instances; the limit is {instances_max:,}."
            " Map over less, or let each instance take several elements.",
            count=total,
            limit=instances_max,
        )
    return Counted(count=total)


def count_within(overs: Sequence[MapOver], lengths: Lengths) -> int | None:
    """How many instances there are of what lies in groups that map, one in the other."""
    total = 1
    for over in overs:
        found = count(over, lengths).count
        if found is None:
            return None
        total *= found
    return total


# -- what each one gets --------------------------------------------------------------------------


def arguments_at(over: MapOver, map_index: int, reader: Reader) -> dict[str, Any]:
    """The arguments of the instance, by name. Raises ``NotExpanded``, ``OutOfRange``, ``InvalidInput``."""
    if over.is_dicts:
        if map_index < 0:
            raise NotExpanded("The task has not been expanded yet.")
        return _checked_dict(_element(over.arguments[0].source, map_index, reader), map_index)
    names = [one.name for one in over.arguments]
    return {name: argument_at(over, name, map_index, reader) for name in names}


def argument_at(over: MapOver, name: str, map_index: int, reader: Reader) -> Any:
    """One argument of the instance. Raises as ``arguments_at``."""
    if map_index < 0:
        raise NotExpanded("The task has not been expanded yet.")
    place = map_index
    for one in reversed(over.arguments):
        if one is over.arguments[0]:  # the slowest: what is left; its own end is looked for there
            return _element(one.source, place, reader) if one.name == name else _missing(name)
        length = length_of(one.source, reader)
        if not length:
            raise OutOfRange(f"Nothing is left of {one.name!r} for map index {map_index}.")
        place, own = divmod(place, length)
        if one.name == name:
            return _element(one.source, own, reader)
    return _missing(name)


def _missing(name: str) -> Any:
    raise InvalidInput(f"The task maps over no argument {name!r}.")


def _element(source: Source, place: int, reader: Reader) -> Any:
    try:
        return element_at(source, place, reader)
    except IndexError:
        raise OutOfRange(
            f"There is no element {place} any more: what the task maps over has become shorter, or begins anew."
        ) from None


def element_at(source: Source, place: int, reader: Reader) -> Any:
    """The element at this place. Raises ``IndexError``."""
    if place < 0:
        raise IndexError(place)
    match source.kind:
        case Kind.LITERAL:
            return values.decode(source.items[place])
        case Kind.WHOLE:
            if place:
                raise IndexError(place)
            return reader.whole(source.task_id)
        case Kind.RESULT:
            return reader.item(source.task_id, place)
        case Kind.ZIP:
            return tuple(_zipped(source, part, place, reader) for part in source.parts)
        case Kind.CONCAT:
            return _concatenated(source, place, reader)
        case Kind.TRANSFORM:
            return reader.transformed(source.slot, element_at(source.parts[0], place, reader))
    raise InvalidInput(f"There is no source of elements of the kind {source.kind!r}.")


def _zipped(source: Source, part: Source, place: int, reader: Reader) -> Any:
    if source.has_fill:
        if place >= (length_of(source, reader) or 0):
            raise IndexError(place)
        if place >= (length_of(part, reader) or 0):
            return values.decode(source.fill)
    return element_at(part, place, reader)


def _concatenated(source: Source, place: int, reader: Reader) -> Any:
    for part in source.parts[:-1]:
        length = length_of(part, reader) or 0
        if place < length:
            return element_at(part, place, reader)
        place -= length
    if not source.parts:
        raise IndexError(place)
    return element_at(source.parts[-1], place, reader)


def _checked_dict(element: Any, map_index: int) -> dict[str, Any]:
    if not isinstance(element, dict):
        raise InvalidInput(
            f"Element {map_index} that expand_kwargs maps over is of type"
            f" {type(element).__name__}; it has to be a dict of arguments.",
            code_of_fault="not_a_list_of_dicts",
        )
    wrong = [key for key in element if not isinstance(key, str)]
    if wrong:
        raise InvalidInput(
            f"Element {map_index} that expand_kwargs maps over has the key {wrong[0]!r};"
            " the names of arguments are texts.",
            code_of_fault="keys_must_be_text",
        )
    return element


def collected(results: Mapping[int, Any]) -> list[Any]:
    """The results of a mapped task, by map index, as its downstream gets them: in that order."""
    return [results[index] for index in sorted(results)]


def stored_elements(raw: Any) -> list[Any]:
    """The elements of a stored result that is mapped over, each still as it is stored."""
    if isinstance(raw, dict) and values.TAG not in raw:
        return [{values.TAG: "tuple", "value": [key, one]} for key, one in raw.items()]
    found = raw["value"] if isinstance(raw, dict) else raw
    if isinstance(raw, dict) and raw[values.TAG] == "dict":
        return [{values.TAG: "tuple", "value": pair} for pair in found]
    return list(found)


def ordered(encoded: Any) -> Any:
    """An encoded result that is mapped over, in a form that keeps the order of a dict when it is stored."""
    if isinstance(encoded, dict) and values.TAG not in encoded:
        pairs = [[values.encode(key), one] for key, one in encoded.items()]
        return {values.TAG: "dict", "value": pairs}
    return encoded


# -- what a producer may return ------------------------------------------------------------------


def check_returned(result: object, *, is_mapped: bool, limit: int, task_id: str) -> int | None:
    """The length that a result which is mapped over has; null for an instance of a mapped task.

    Raises ``InvalidInput`` for what cannot be mapped over, naming its type, size and the limit.
    """
    if is_mapped:
        return None
    if result is None:
        raise InvalidInput(
            f"Task {task_id!r} returned nothing, and a mapped task maps over its result. Return a list"
            " (an empty one makes no instances), a tuple or a dict.",
            reason="nothing_to_map",
        )
    if not isinstance(result, (list, tuple, dict)):
        raise InvalidInput(
            f"Task {task_id!r} returned {_told_of(result)}, and a mapped task maps over its"
            f" result: that has to be a list, a tuple or a dict, of at most {limit:,} elements.",
            reason="unmappable_type",
            limit=limit,
        )
    if len(result) > limit:
        raise InvalidInput(
            f"Task {task_id!r} returned a {type(result).__name__} of {len(result):,} elements, and a"
            f" mapped task maps over it: the limit is {limit:,} (DAYLIGHT_MAX_MAP_LENGTH, or"
            " max_map_length of the task). Return fewer, for example lists of several.",
            reason="too_long",
            size=len(result),
            limit=limit,
        )
    return len(result)


def _told_of(result: object) -> str:
    kind = type(result).__name__
    size = f" of length {len(result):,}" if hasattr(result, "__len__") else ""
    return f"a value of type {kind}{size}"


# -- which instances there are -------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Revision:
    """What has to happen to the instances of a mapped task for it to have ``count`` of them."""

    created: tuple[int, ...] = ()  # map indexes to add
    removed: tuple[int, ...] = ()  # that nothing runs for
    stopping: tuple[int, ...] = ()  # too many as well, and under way: stopped first, then removed
    restored: tuple[int, ...] = ()  # were removed, and are wanted again
    summary: TaskState | None = None  # one is added, in this state

    def __bool__(self) -> bool:
        return bool(self.created or self.removed or self.stopping or self.restored or self.summary)


_LIVE: Final = frozenset({TaskState.RUNNING, TaskState.RESTARTING})


def revise(existing: Mapping[int, TaskState], wanted: int | None) -> Revision:
    """What brings instances that were expanded to the number that is wanted; null: leave all alone.

    ``existing`` holds the state by map index, without the summary. Where nothing is left, a skipped
    summary stands for the empty list.
    """
    if wanted is None:
        return Revision()
    surplus = [i for i in sorted(existing) if i >= wanted]
    surplus = [i for i in surplus if existing[i] is not TaskState.REMOVED]
    return Revision(
        created=tuple(i for i in range(wanted) if i not in existing),
        removed=tuple(i for i in surplus if existing[i] not in _LIVE),
        stopping=tuple(i for i in surplus if existing[i] in _LIVE),
        restored=tuple(
            i for i in sorted(existing) if i < wanted and existing[i] is TaskState.REMOVED
        ),
        summary=TaskState.SKIPPED if wanted == 0 and surplus else None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Expansion:
    """What becomes of a summary whose length is known."""

    becomes: int | None = None  # the map index that the summary gets; null: it goes, or is skipped
    is_skipped: bool = False
    created: tuple[int, ...] = ()
    removed: tuple[int, ...] = ()


def expand(existing: Mapping[int, TaskState], wanted: int | None) -> Expansion | None:
    """What becomes of a summary; ``None`` while the length is not known.

    ``existing`` holds the other instances by map index: none, unless an expansion was cut off or
    the task had been expanded before.
    """
    if wanted is None:
        return None
    rest = revise(existing, wanted)
    return Expansion(
        becomes=0 if wanted and 0 not in existing else None,
        is_skipped=wanted == 0,
        created=tuple(i for i in rest.created if i),
        removed=rest.removed,
    )


# -- may it be expanded --------------------------------------------------------------------------


class Gate(StrEnum):
    """What the states of its inputs say of a mapped task, before its trigger rule is asked."""

    PASS = "pass"  # noqa: S105 - no password
    BLOCK = "block"  # no mark, and no expansion
    SKIP = "skipped"
    UPSTREAM_FAILED = "upstream_failed"


_BAD: Final = frozenset({TaskState.FAILED, TaskState.UPSTREAM_FAILED})


def gate(inputs: Collection[TaskState], own: TaskState = TaskState.NONE) -> Gate:
    """Without its input a mapped task cannot have a length, whatever its trigger rule would forgive.

    ``inputs`` are the states of the tasks that it maps over, as far as they are not expanded
    themselves: of those that are, the trigger rule judges.
    """
    found = frozenset(inputs)
    if found & _BAD:
        return Gate.BLOCK if own in _BAD else Gate.UPSTREAM_FAILED
    if TaskState.SKIPPED in found:
        is_marked = own in _BAD or own is TaskState.SKIPPED
        return Gate.BLOCK if is_marked else Gate.SKIP
    return Gate.BLOCK if TaskState.REMOVED in found else Gate.PASS


def related_indexes(
    *,
    own_index: int,
    own_count: int,
    group_count: int,
    is_in_common_group: bool = True,
    has_other_mapping: bool = False,
) -> list[int] | int | None:
    """The map indexes of a relative in the same mapped group that belong to this instance.

    A number where it is one for several of the own; null: all of them.
    """
    if not is_in_common_group or not own_count or not group_count:
        return None
    each = own_count // group_count
    if has_other_mapping:
        return list(range(own_index * each, (own_index + 1) * each))
    return own_index // each


def mapped_groups(definition: FlowDefinition) -> dict[str, str]:
    """By task, the mapped group that it is in; tasks outside of one are left out."""
    return {one.task_id: one.group for one in mapped_tasks(definition).values() if one.group}


def reached(
    edges: Mapping[str, Collection[str]],
    named: Mapping[str, Collection[int]],
    groups: Mapping[str, str],
) -> dict[str, frozenset[int] | None]:
    """Which tasks the edges lead to from those that are named, and by which of their map indexes.

    Within a mapped group an edge leads from an index to the same one; any other leads to all (null).
    Those that are named are among them. ``groups``: by task, the mapped group around it.
    """
    found: dict[str, frozenset[int] | None] = {
        task_id: frozenset(indexes) if task_id in groups else None
        for task_id, indexes in named.items()
    }
    waiting = list(found)
    while waiting:
        task_id = waiting.pop()
        own = found[task_id]
        for other in edges.get(task_id, ()):
            is_within = task_id in groups and groups.get(other) == groups[task_id]
            more = own if is_within else None
            if other in found:
                known = found[other]
                if known is None or (more is not None and more <= known):
                    continue
                found[other] = None if more is None else known | more
            else:
                found[other] = more
            waiting.append(other)
    return found


def is_reached(found: Mapping[str, Collection[int] | None], task_id: str, map_index: int) -> bool:
    """Whether the instance is among those that ``reached`` found."""
    if task_id not in found:
        return False
    indexes = found[task_id]
    return indexes is None or map_index in indexes


# -- labels --------------------------------------------------------------------------------------


def label(template: str, arguments: Mapping[str, Any], map_index: int) -> str:
    """The name of an instance that people see: ``{name}`` and ``{name[key]}`` of its arguments.

    What is not there stays as it is written.
    """
    text = _fill(template, lambda name: _looked_up(name, arguments, map_index))
    text = "".join(one if one.isprintable() else " " for one in text).strip()
    if len(text) > LABEL_CHARACTERS_MAX:
        text = f"{text[: LABEL_CHARACTERS_MAX - 1]}…"
    return text.encode("utf-8", "replace").decode()


def label_names(template: str) -> frozenset[str]:
    """The arguments that the template names."""
    found: list[str] = []

    def note(name: str) -> str:
        found.append(name.partition("[")[0])
        return ""

    _fill(template, note)
    return frozenset(found)


def _fill(template: str, value_of: Callable[[str], str]) -> str:
    out, rest = [], template
    while True:
        before, brace, rest = rest.partition("{")
        out.append(before)
        if not brace:
            return "".join(out)
        name, end, rest = rest.partition("}")
        out.append(value_of(name) if end else f"{{{name}")


def _looked_up(name: str, arguments: Mapping[str, Any], map_index: int) -> str:
    first, *keys = [part.removesuffix("]").strip("'\"") for part in name.split("[")]
    if first == "map_index":
        return str(map_index)
    if first not in arguments:
        return f"{{{name}}}"
    found = arguments[first]
    for key in keys:
        if isinstance(found, dict) and key in found:
            found = found[key]
        elif isinstance(found, (list, tuple)) and key.isdecimal() and int(key) < len(found):
            found = found[int(key)]
        else:
            return f"{{{name}}}"
    return str(found)
