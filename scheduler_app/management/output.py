"""How commands answer: tables for people, JSON for scripts, one line on standard error for faults."""

from __future__ import annotations

import dataclasses
import json
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NoReturn

from scheduler_app.queries.list_filter import Lens

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from scheduler_app.queries.lens import Counts, Page
    from scheduler_app.queries.slots import Places


def fail(line: str, code: int = 1) -> NoReturn:
    """The line is on standard error, and the process ends with the code."""
    sys.stderr.write(f"{line}\n")
    sys.exit(code)


def table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Columns as wide as their longest cell; nothing as ``-``, times in UTC to the second."""
    cells = [[cell(value) for value in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(headings, *cells, strict=True)]
    lines = [headings, *cells]
    return "\n".join(
        "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def cell(value: object) -> str:
    """The value in one line."""
    if value is None or value == "":
        return "-"
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    return " ".join(str(value).split())


def as_json(value: object) -> str:
    """The value as JSON; rows by their field names, times as ISO 8601."""
    return json.dumps(value, default=_plain, ensure_ascii=False, indent=2)


def page_as_json(page: Page[Any]) -> str:
    """The page of a list as JSON: its rows, where the next one begins (null: nowhere), and the counts of all."""
    counts = page.counts
    return as_json(
        {
            "results": page.rows,
            "next_cursor": page.next_cursor or None,
            "counts": {
                "shown": counts.shown,
                "filtered": counts.filtered,
                "total": counts.total,
                "by_reason": counts.by_reason,
                "exact": counts.exact,
            },
        }
    )


def told_page(page: Page[Any], noun: str, *, lens: Lens) -> str:
    """How many rows there are in all, and how to get the next page where there is one."""
    line = told(page.counts, noun, lens=lens)
    if page.next_cursor:
        line += f"\n{len(page.rows)} are on this page; the next: --cursor={page.next_cursor}"
    return line


def told_places(found: Places[Any], sentence: str) -> str:
    """The sentence, and how to get the next page where there is one."""
    if found.next_offset is None:
        return sentence
    return f"{sentence}\n{len(found.rows)} are on this page; the next: --offset {found.next_offset}"


def told(counts: Counts, noun: str, *, lens: Lens) -> str:
    """How many rows are current and how many filtered, by reason; and how the latter are shown."""
    total = f"{counts.shown} {noun}" if counts.exact else f"{counts.shown}+ {noun}"
    if not counts.filtered:
        return f"{total}, none filtered"
    reasons = ", ".join(f"{code} {number}" for code, number in counts.by_reason.items())
    hint = "; --filtered shows them" if lens is Lens.CURRENT else ""
    return f"{total}, {counts.filtered} filtered ({reasons}){hint}"


def _plain(value: object) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {one.name: getattr(value, one.name) for one in dataclasses.fields(value)}
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    return list(value) if isinstance(value, (set, frozenset)) else str(value)
