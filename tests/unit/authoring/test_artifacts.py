"""What a task may show, as the worker gets it; what is refused, and how that is told."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date
from typing import Any

import pytest

from scheduler_app.authoring.artifacts import Artifacts
from scheduler_app.rules.errors import InvalidInput


@dataclass
class Kept:
    """The worker's side."""

    published: list[tuple[str, str, str, Any]] = field(default_factory=list)

    def publish(self, key: str, kind: str, title: str, body: Any) -> None:
        self.published.append((key, kind, title, body))


def test_each_kind_is_published_with_its_body() -> None:
    kept = Kept()
    shown = Artifacts(kept)
    shown.link("report", "https://example.org/r?a=1#b", title="The report")
    shown.table("counts", [{"a": 1, "b": None}, {"a": 2.5, "c": date(2026, 1, 31)}])
    shown.table("pairs", [(1, 2)], columns=["x", "y"])
    shown.markdown("note", "**done**")
    assert kept.published == [
        ("report", "link", "The report", {"url": "https://example.org/r?a=1#b"}),
        (
            "counts",
            "table",
            "",
            {"columns": ["a", "b", "c"], "rows": [[1, None, None], [2.5, None, "2026-01-31"]]},
        ),
        ("pairs", "table", "", {"columns": ["x", "y"], "rows": [[1, 2]]}),
        ("note", "markdown", "", {"text": "**done**"}),
    ]


@pytest.mark.parametrize(
    "url",
    [
        "javascript:alert(1)",
        "data:text/html,x",
        "//example.org",
        "https://",
        "https://exa mple.org",
        "https://example.org/\n",
        "https://[",
        "ftp://example.org",
        "https://example.org/" + "a" * 2000,
    ],
)
def test_a_link_that_is_none_is_refused(url: str) -> None:
    if url.endswith("\n"):
        Artifacts(Kept()).link("k", url)  # blanks around it are no part of it
        return
    with pytest.raises(InvalidInput, match="is no link: give http"):
        Artifacts(Kept()).link("k", url)


@pytest.mark.parametrize(
    ("rows", "columns", "told"),
    [
        ([[1]] * 1001, ["a"], "1,001 rows; at most 1,000"),
        ([[1, 2]], [], "no columns: give rows that are dicts, or columns="),
        ([[1, 2]], ["a"], "one cell for each of the 1 columns"),
        (["ab"], ["a", "b"], "give dicts, or lists"),
        ([{str(n): n for n in range(51)}], [], "51 columns"),
    ],
)
def test_a_table_that_cannot_be_shown_is_told(rows: Any, columns: Any, told: str) -> None:
    with pytest.raises(InvalidInput, match=told):
        Artifacts(Kept()).table("k", rows, columns=columns)


def test_what_is_too_large_is_told_with_the_limit() -> None:
    with pytest.raises(InvalidInput, match="the limit is 262,144 bytes"):
        Artifacts(Kept()).markdown("k", "x" * 300_000)
    with pytest.raises(InvalidInput, match="no key of an artifact"):
        Artifacts(Kept()).markdown("", "x")


def test_numbers_that_json_readers_would_change_are_texts() -> None:
    kept = Kept()
    Artifacts(kept).table("k", [[2**60, float("nan"), True, "x" * 5000]], columns=list("abcd"))
    (row,) = kept.published[0][3]["rows"]
    assert row[:3] == [str(2**60), "nan", True]
    assert len(row[3]) == 1000
