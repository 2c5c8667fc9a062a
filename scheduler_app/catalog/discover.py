"""Which files of a flow folder may define flows, and whether they changed since they were seen."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Signature = tuple[int, int]  # modification time in ns, size in bytes

FILES_MAX: Final = 10_000  # Python files of one folder; more is a mistake in the folder's path
# A flow file imports from here; a file without the word is a module for others.
MARK: Final = b"authoring"


def python_files(folder: Path) -> dict[str, Signature]:
    """Signature by path inside the folder; hidden folders and caches are left out.

    Reads directories and file times only. A folder that is not there has no files.
    """
    found: dict[str, Signature] = {}
    for path, signature in _walk(folder, ""):
        found[path] = signature
        if len(found) >= FILES_MAX:
            break
    return found


def _walk(folder: Path, prefix: str) -> Iterator[tuple[str, Signature]]:
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        if entry.name.startswith(".") or entry.name == "__pycache__":
            continue
        try:
            if entry.is_dir():
                yield from _walk(Path(entry.path), f"{prefix}{entry.name}/")
            elif entry.name.endswith(".py"):
                stat = entry.stat()
                yield f"{prefix}{entry.name}", (stat.st_mtime_ns, stat.st_size)
        except OSError:
            continue  # it went away between the listing and the look


def may_define_flows(file: Path) -> bool:
    """Whether loading the file is worth a process."""
    try:
        return MARK in file.read_bytes()
    except OSError:
        return False


def has_changed(seen: Mapping[str, Signature | None], now: Mapping[str, Signature]) -> bool:
    """Whether any file that a load depended on is different, new or gone."""
    return any(now.get(path) != signature for path, signature in seen.items())
