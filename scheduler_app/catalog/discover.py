"""Which files of a flow folder may define flows, and whether they changed since they were seen."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# Times of modification and of change in ns, size in bytes. The second tells a file that was put in
# place with its old time.
Signature = tuple[int, int, int]

FILES_MAX: Final = 10_000  # Python files of one folder; more is a mistake in the folder's path
VIRTUAL_ENVIRONMENT: Final = "pyvenv.cfg"
# A file that names neither is a module for others. Flows may be made by a helper's function, so the
# file itself need not import from `authoring`.
MARKS: Final = (b"authoring", b"flow")


def python_files(folder: Path) -> dict[str, Signature]:
    """Signature by path inside the folder; hidden folders, caches and environments are left out.

    Reads directories and file times only. A folder that is not there has no files.
    """
    found: dict[str, Signature] = {}
    for path, signature in _walk(folder, "", set()):
        found[path] = signature
        if len(found) >= FILES_MAX:
            break
    return found


def _walk(
    folder: Path, prefix: str, walked: set[tuple[int, int]]
) -> Iterator[tuple[str, Signature]]:
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return
    if any(entry.name == VIRTUAL_ENVIRONMENT for entry in entries):
        return
    for entry in entries:
        if entry.name.startswith(".") or entry.name == "__pycache__" or not _is_text(entry.name):
            continue
        try:
            facts = entry.stat()
        except OSError:
            continue  # it went away between the listing and the look
        if stat.S_ISDIR(facts.st_mode):
            # Links may lead in circles.
            if (facts.st_dev, facts.st_ino) not in walked:
                walked.add((facts.st_dev, facts.st_ino))
                yield from _walk(Path(entry.path), f"{prefix}{entry.name}/", walked)
        elif entry.name.endswith(".py") and stat.S_ISREG(facts.st_mode):
            yield f"{prefix}{entry.name}", (facts.st_mtime_ns, facts.st_ctime_ns, facts.st_size)


def _is_text(name: str) -> bool:
    """Whether the name can be stored."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def may_define_flows(file: Path) -> bool:
    """Whether loading the file is worth a process."""
    try:
        source = file.read_bytes().lower()
    except FileNotFoundError:
        return False
    except OSError:
        return True  # loading it tells why it cannot be read
    return any(mark in source for mark in MARKS)


def has_changed(seen: Mapping[str, Signature | None], now: Mapping[str, Signature]) -> bool:
    """Whether any file that a load depended on is different, new or gone."""
    return any(now.get(path) != signature for path, signature in seen.items())
