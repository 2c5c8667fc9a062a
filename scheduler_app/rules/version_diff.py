"""What differs between two versions of a flow: tasks, edges, schedule, parameters, options, code."""

from __future__ import annotations

import difflib
import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final

from scheduler_app.rules.schedule_words import differences

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from scheduler_app.rules.definition import FlowDefinition

CONTEXT_LINES: Final = 3  # around each change of a file
LINES_COMPARED_MAX: Final = 6_000  # of both sides of a file, without what they begin and end alike
LINES_SHOWN_MAX: Final = 5_000  # of the diff of one file
SCHEDULE: Final = (
    "schedule",
    "timetable",
    "timezone",
    "start_date",
    "end_date",
    "catchup",
    "catchup_window_s",
    "overlap",
)
PARAMS: Final = ("params", "param_schemas")
# Told in lists of their own, or the name of the thing itself.
_OF_TASK_ELSEWHERE: Final = frozenset({"task_id", "upstream", "line"})
_OF_GROUP_ELSEWHERE: Final = frozenset({"group_id", "line"})
_OF_FLOW_ELSEWHERE: Final = frozenset(
    {"flow_id", "tasks", "groups", "param_order", *SCHEDULE, *PARAMS}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One option with its value in both versions, as JSON has it; null where one has none."""

    name: str
    old: Any
    new: Any

    @property
    def told(self) -> str:
        """The change in a line."""
        return f"{self.name}: {_told(self.old)} → {_told(self.new)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """A task or a group of both versions whose options differ."""

    name: str
    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The tasks, or the groups, that came, went and changed; each by id, sorted."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[Changed, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileDiff:
    """One file of the source that differs."""

    path: str
    state: str  # added, removed, changed
    lines: tuple[str, ...]  # of a unified diff, without its two headings
    note: str = ""  # why lines are missing
    added_count: int = 0
    removed_count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionDiff:
    """Everything that differs; empty parts are the same in both."""

    tasks: Parts = field(default_factory=Parts)
    groups: Parts = field(default_factory=Parts)
    edges_added: tuple[tuple[str, str], ...] = ()  # from, to
    edges_removed: tuple[tuple[str, str], ...] = ()
    schedule: tuple[Change, ...] = ()
    schedule_told: tuple[tuple[str, str], ...] = ()  # the same in words, each with its sign
    params: tuple[Change, ...] = ()
    options: tuple[Change, ...] = ()  # of the flow, beside its schedule and parameters
    files: tuple[FileDiff, ...] = ()

    def __bool__(self) -> bool:
        return any(getattr(self, name) for name in self.__slots__)

    @property
    def told(self) -> str:
        """What differs in a line, by kind."""
        tasks = self.tasks
        said = [
            *_counted("task", added=tasks.added, removed=tasks.removed, changed=tasks.changed),
            *_counted("edge", added=self.edges_added, removed=self.edges_removed),
            *_counted(
                "group",
                added=self.groups.added,
                removed=self.groups.removed,
                changed=self.groups.changed,
            ),
            *(["schedule"] if self.schedule else []),
            *(["parameters"] if self.params else []),
            *(["options"] if self.options else []),
            *_counted("file", differs=self.files),
        ]
        return ", ".join(said) or "nothing differs"


def diff(
    old: FlowDefinition,
    new: FlowDefinition,
    *,
    old_sources: Mapping[str, bytes] | None = None,
    new_sources: Mapping[str, bytes] | None = None,
) -> VersionDiff:
    """What changed from the old version to the new one; the lines that tasks stand in are no change."""
    old_edges, new_edges = _edges(old), _edges(new)
    old_options, new_options = _options(old, ()), _options(new, ())
    return VersionDiff(
        tasks=_parts(
            {task.task_id: _options(task, _OF_TASK_ELSEWHERE) for task in old.tasks},
            {task.task_id: _options(task, _OF_TASK_ELSEWHERE) for task in new.tasks},
        ),
        groups=_parts(
            {group.group_id: _options(group, _OF_GROUP_ELSEWHERE) for group in old.groups},
            {group.group_id: _options(group, _OF_GROUP_ELSEWHERE) for group in new.groups},
        ),
        edges_added=tuple(sorted(new_edges - old_edges)),
        edges_removed=tuple(sorted(old_edges - new_edges)),
        schedule=_changes(_only(old_options, SCHEDULE), _only(new_options, SCHEDULE)),
        schedule_told=differences(old, new),
        params=_flat(_only(old_options, PARAMS), _only(new_options, PARAMS)),
        options=_changes(
            _only(old_options, set(old_options) - _OF_FLOW_ELSEWHERE),
            _only(new_options, set(new_options) - _OF_FLOW_ELSEWHERE),
        ),
        files=_files(old_sources or {}, new_sources or {}),
    )


def _options(thing: Any, without: Iterable[str]) -> dict[str, Any]:
    """The fields of a definition as plain JSON values."""
    left_out = frozenset(without)
    raw: dict[str, Any] = json.loads(json.dumps(asdict(thing), default=str))
    return {name: value for name, value in raw.items() if name not in left_out}


def _only(options: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    return {name: options[name] for name in names if name in options}


def _edges(definition: FlowDefinition) -> set[tuple[str, str]]:
    return {(above, task.task_id) for task in definition.tasks for above in task.upstream}


def _parts(old: Mapping[str, Mapping[str, Any]], new: Mapping[str, Mapping[str, Any]]) -> Parts:
    both = sorted(old.keys() & new.keys())
    pairs = ((name, _changes(old[name], new[name])) for name in both)
    return Parts(
        added=tuple(sorted(new.keys() - old.keys())),
        removed=tuple(sorted(old.keys() - new.keys())),
        changed=tuple(Changed(name=name, changes=changes) for name, changes in pairs if changes),
    )


def _changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[Change, ...]:
    names = [*old, *(name for name in new if name not in old)]
    return tuple(
        Change(name=name, old=old.get(name), new=new.get(name))
        for name in names
        if old.get(name) != new.get(name)
    )


def _flat(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[Change, ...]:
    """The changes of each parameter, named with it: its default, or what is accepted of it."""
    words = {"params": "default", "param_schemas": "schema"}
    return tuple(
        Change(name=f"{change.name}, {words[kind]}", old=change.old, new=change.new)
        for kind in PARAMS
        for change in _changes(old.get(kind) or {}, new.get(kind) or {})
    )


# --- code -----------------------------------------------------------------------------------------


def _files(old: Mapping[str, bytes], new: Mapping[str, bytes]) -> tuple[FileDiff, ...]:
    paths = sorted(old.keys() | new.keys())
    return tuple(_file(p, old.get(p), new.get(p)) for p in paths if old.get(p) != new.get(p))


def _file(path: str, old: bytes | None, new: bytes | None) -> FileDiff:
    state = "added" if old is None else "removed" if new is None else "changed"
    before, after = _lines(old), _lines(new)
    if before is None or after is None:
        sizes = f"{len(old or b''):,} and {len(new or b''):,} bytes"
        return FileDiff(path=path, state=state, lines=(), note=f"Not text; {sizes}.")
    if before == after:
        note = "Only the ends of lines, or the end of the file, differ."
        return FileDiff(path=path, state=state, lines=(), note=note)
    alike = _alike(before, after)
    if len(before) + len(after) - 2 * alike > LINES_COMPARED_MAX:
        note = f"Too long to compare line by line: {len(before):,} and {len(after):,} lines."
        return FileDiff(path=path, state=state, lines=(), note=note)
    lines = [
        line.rstrip("\n")
        for line in difflib.unified_diff(before, after, lineterm="", n=CONTEXT_LINES)
    ][2:]
    shown = tuple(lines[:LINES_SHOWN_MAX])
    return FileDiff(
        path=path,
        state=state,
        lines=shown,
        note=f"{len(lines) - len(shown):,} more lines." if len(shown) < len(lines) else "",
        added_count=sum(line.startswith("+") for line in lines),
        removed_count=sum(line.startswith("-") for line in lines),
    )


def _lines(content: bytes | None) -> list[str] | None:
    """The lines of a text; null for bytes that are none."""
    if content is None:
        return []
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return None
    return None if "\x00" in text else text.splitlines()


def _alike(before: Sequence[str], after: Sequence[str]) -> int:
    """How many lines the two begin alike with, and end."""
    shorter = min(len(before), len(after))
    first = 0
    while first < shorter and before[first] == after[first]:
        first += 1
    last = 0
    while last < shorter - first and before[-1 - last] == after[-1 - last]:
        last += 1
    return first + last


# --- words ----------------------------------------------------------------------------------------


def _counted(noun: str, **many: Sequence[object]) -> list[str]:
    """``2 tasks added`` for each list that is not empty."""
    return [
        f"{len(found)} {noun}{'' if len(found) == 1 else 's'} {did if did != 'differs' else 'changed'}"
        for did, found in many.items()
        if found
    ]


def _told(value: Any) -> str:
    if value in (None, "", [], {}):
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
