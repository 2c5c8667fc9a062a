"""Evidence: files whose bytes a manifest vouches for, and whether they are still what it says."""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

FORMAT: Final = 1  # of the manifest
MANIFEST: Final = "manifest.json"
FORMULA_STARTS: Final = ("=", "+", "-", "@", "\t", "\r")  # CWE-1236

Row = Mapping[str, object]


def lines(rows: Sequence[Row]) -> bytes:
    """The rows as JSON, one a line, each always the same bytes."""
    return "".join(
        json.dumps(row, ensure_ascii=False, sort_keys=True, separators=(",", ":")) + "\n"
        for row in rows
    ).encode()


def table(rows: Sequence[Row]) -> bytes:
    """The rows as CSV, every cell quoted, no cell a formula; the columns of the first row."""
    text = io.StringIO()
    writer = csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\r\n")
    if rows:
        writer.writerow(rows[0])
        writer.writerows([_cell(value) for value in row.values()] for row in rows)
    return text.getvalue().encode()


def digest(data: bytes) -> str:
    """SHA-256 in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def entry(data: bytes) -> dict[str, object]:
    """What the manifest says of a file."""
    return {"sha256": digest(data), "bytes": len(data)}


def whole_digest(entries: Mapping[str, Mapping[str, object]]) -> str:
    """One digest over all files, by name."""
    told = "".join(f"{entries[name]['sha256']}  {name}\n" for name in sorted(entries))
    return digest(told.encode())


def faults(manifest: Mapping[str, Any], files: Mapping[str, bytes]) -> list[str]:
    """Why these files are not what the manifest vouches for; empty if they are."""
    if manifest.get("format") != FORMAT:
        return [f"the manifest has the format {manifest.get('format')!r}; this reads {FORMAT}"]
    entries = manifest.get("files")
    if not isinstance(entries, Mapping) or not all(
        isinstance(one, Mapping) and "sha256" in one for one in entries.values()
    ):
        return ["the manifest names no files"]
    found = [f"{name}: missing" for name in sorted(entries.keys() - files.keys())]
    found += [f"{name}: not in the manifest" for name in sorted(files.keys() - entries.keys())]
    for name in sorted(entries.keys() & files.keys()):
        if digest(files[name]) != entries[name]["sha256"]:
            found.append(f"{name}: its content was changed")
    if manifest.get("content_sha256") != whole_digest(entries):
        found.append("the manifest's own digest of all files does not hold")
    return found


def _cell(value: object) -> object:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, str) and value.startswith(FORMULA_STARTS):
        return f"'{value}"
    return value
