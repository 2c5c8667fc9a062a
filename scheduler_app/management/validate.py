"""Checks flow files as the catalog would, without storing anything; needs no stack."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.db import Error

from scheduler_app.catalog import discover
from scheduler_app.catalog.load import Loaded, load_each
from scheduler_app.queries import flows, pools
from scheduler_app.queries.filters import PoolFilter
from scheduler_app.queries.scope import EVERYTHING
from scheduler_app.rules.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from collections.abc import Callable

    from scheduler_app.rules.definition import FlowDefinition

POOLS_MAX = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What a check found. ``pools`` says whether their names were compared with a database."""

    files: tuple[Path, ...]
    flows: tuple[FlowDefinition, ...]
    faults: tuple[dict[str, Any], ...]  # file, line, message, remedy
    pools: str


def check(*what: str, on_file: Callable[[int, int], None] | None = None) -> Checked:
    """The files, every file of the folders, or the files of the flows with these ids were loaded.

    ``on_file`` is told how many of how many files are done. Raises ``NotFound`` or ``InvalidInput``
    where there is no such thing.
    """
    known = _pools()
    named = [(one, _files(one)) for one in what]
    wanted = dict.fromkeys(file for _, files in named for file in files or ())
    # All at once: what loading needs is loaded for all of them together.
    loaded = {(item.folder, item.path): item for item in _load([*wanted], on_file)}
    found: list[Loaded] = []
    for one, files in named:
        if files is None:
            more = _flow(one, is_database_there=known is not None)
        else:
            more = [loaded[file] for file in files]
        seen = {(item.folder, item.path) for item in found}
        found += [item for item in more if (item.folder, item.path) not in seen]
    definitions = tuple(flow for item in found for flow in item.flows)
    faults = [
        {**fault, "file": str(item.folder / fault["file"])}
        for item in found
        for fault in item.faults
    ]
    faults += _defined_twice(found)
    if known is not None:
        faults += [fault for item in found for fault in _unknown_pools(item, known)]
    return Checked(
        files=tuple(item.folder / item.path for item in found),
        flows=definitions,
        faults=tuple(faults),
        pools="not checked" if known is None else "checked",
    )


def place_of(what: str) -> tuple[Path, str]:
    """The flow folder, and the path in it, of the file or of the file that defines the flow.

    Raises ``NotFound`` or ``InvalidInput`` where there is no such thing.
    """
    path = Path(what)
    if path.is_file():
        _refuse_other_kinds(path)
        return _split(path)
    if path.suffix == ".py" or len(path.parts) > 1:
        raise InvalidInput(f"There is no file {what}.")
    (found, *_) = _flow(what, is_database_there=_pools() is not None)
    return found.folder, found.path


def _files(what: str) -> list[tuple[Path, str]] | None:
    """The file, or those of the folder; null: it is the id of a flow."""
    path = Path(what)
    if path.is_file():
        _refuse_other_kinds(path)
        return [_split(path)]
    if path.is_dir():
        return [(path.resolve(), name) for name in sorted(discover.python_files(path))]
    if path.suffix == ".py" or len(path.parts) > 1:
        raise InvalidInput(f"There is no file {what}.")
    return None


def _load(
    files: list[tuple[Path, str]], on_file: Callable[[int, int], None] | None = None
) -> list[Loaded]:
    loaded = []
    for one in load_each(files, limit_s=settings.FLOW_FILE_TIMEOUT_S):
        loaded.append(one)
        if on_file is not None:
            on_file(len(loaded), len(files))
    return sorted(loaded, key=lambda one: one.path)


def _refuse_other_kinds(path: Path) -> None:
    if path.suffix != ".py":
        raise InvalidInput(f"{path} is no Python file: the name of a flow file ends in .py.")


def _split(file: Path) -> tuple[Path, str]:
    """The flow folder of the file and its path in it; a file in none has its own folder's modules."""
    whole = file.resolve()
    for folder in settings.FLOW_FOLDERS:
        if whole.is_relative_to(folder.resolve()):
            return folder.resolve(), whole.relative_to(folder.resolve()).as_posix()
    return whole.parent, whole.name


def _flow(flow_id: str, *, is_database_there: bool) -> list[Loaded]:
    """The file that defines the flow: where the database says, else by loading the flow folders."""
    if is_database_there:
        row = flows.one(EVERYTHING, flow_id)
        file = Path(row.folder) / row.path
        if not file.is_file():
            raise NotFound(f"Flow {flow_id} was defined by {file}, which is not on this host.")
        return _load([(Path(row.folder), row.path)])
    found = _load(
        [
            (folder.resolve(), name)
            for folder in settings.FLOW_FOLDERS
            for name in discover.python_files(folder)
        ]
    )
    defining = [
        item
        for item in found
        if flow_id in item.faulty_flow_ids or any(flow.flow_id == flow_id for flow in item.flows)
    ]
    if not defining:
        searched = ", ".join(map(str, settings.FLOW_FOLDERS)) or "no folder"
        raise NotFound(
            f"No file defines flow {flow_id} (searched: {searched}; no stack runs that could tell "
            "more). Name its file, or its folder in DAYLIGHT_FLOWS."
        )
    return defining


def _pools() -> frozenset[str] | None:
    """The pools that exist; null where no database answers."""
    if not settings.DATABASE_URL:
        return None
    try:
        page = pools.page(PoolFilter(limit=POOLS_MAX), EVERYTHING)
    except Error:
        return None
    return None if page.next_cursor else frozenset(row.name for row in page.rows)


def _defined_twice(found: list[Loaded]) -> list[dict[str, Any]]:
    """A fault for each flow that a file before has defined: the catalog stores one of them."""
    owners: dict[str, Path] = {}
    faults = []
    for item in found:
        for flow in item.flows:
            file = item.folder / item.path
            owner = owners.setdefault(flow.flow_id, file)
            if owner != file:
                line = min((task.line or 1 for task in flow.tasks), default=1)
                message = f"Flow {flow.flow_id!r} is defined by {owner} too."
                remedy = "Rename one of the two flows, or take one of the files out of the folder."
                faults.append(
                    {"file": str(file), "line": line, "message": message, "remedy": remedy}
                )
    return faults


def _unknown_pools(item: Loaded, known: frozenset[str]) -> list[dict[str, Any]]:
    return [
        {
            "file": str(item.folder / item.path),
            "line": task.line or 1,
            "message": f"Task {task.task_id!r} of flow {flow.flow_id!r} names pool {task.pool!r}, "
            "which does not exist.",
            "remedy": f"Create the pool, or use one of: {', '.join(sorted(known))}.",
        }
        for flow in item.flows
        for task in flow.tasks
        if task.pool not in known
    ]
