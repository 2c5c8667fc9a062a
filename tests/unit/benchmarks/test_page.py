"""The table of the benchmarks and its place in the document."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.benchmarks.baselines import Baselines
from tests.benchmarks.page import BEGIN, END, Row, rendered, replaced, write

if TYPE_CHECKING:
    from pathlib import Path

BESIDE = Baselines(raw_tasks_s=1000.0, raw_cpu_ms=1.5, commits_s=2500.0)


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_a_row_stands_beside_its_baselines() -> None:
    row = Row(
        name="W2",
        what="1 → 200 → 1",
        measured="400 tasks/s",
        goal="half of raw",
        is_met=False,
        tasks_s=400.0,
        cpu_ms=4.2,
        beside=BESIDE,
    )
    assert _cells(rendered([row], machine="2 cores").splitlines()[-1]) == [
        "W2",
        "1 → 200 → 1",
        "400 tasks/s",
        "half of raw: not met",
        "1,000 tasks/s",
        "0.40",
        "4.2 ms (1.5)",
        "2,500",
    ]


def test_rows_stand_in_the_order_of_their_numbers_and_each_has_every_cell() -> None:
    rows = [Row(name=name, what="a|b", measured="1") for name in ("start", "W10", "W2", "W9", "W2")]
    lines = rendered(rows, machine="2 cores").splitlines()
    assert lines[0] == "2 cores"
    assert [_cells(line)[0] for line in lines[4:]] == ["W2", "W2", "W9", "W10", "start"]
    assert {len(_cells(line)) for line in lines[2:]} == {8}


def test_only_what_stands_between_the_marks_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "benchmarks.md"
    path.write_text(f"Before.\n\n{BEGIN}\nold\n{END}\n\nAfter.\n", encoding="utf-8")
    write(path, "new")
    write(path, "newer")
    assert path.read_text(encoding="utf-8") == f"Before.\n\n{BEGIN}\n\nnewer\n\n{END}\n\nAfter.\n"


@pytest.mark.parametrize("document", ["", BEGIN, f"{BEGIN}\n", f"{END} {BEGIN}"])
def test_a_document_without_the_marks_is_left_alone(document: str) -> None:
    with pytest.raises(ValueError, match="no place for the table"):
        replaced(document, "new")
