"""Reads the penguins page by page; a module beside the flow files, as authors have them.

It travels with every flow version that imports it: a run goes on with the copy it began with.
"""

from __future__ import annotations

import csv
import os
import tempfile
from importlib import resources
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE_ROWS: Final = 50
UNKNOWN: Final = "NA"

Penguin = dict[str, str]


def pages(rows_each: int = PAGE_ROWS) -> Iterator[list[Penguin]]:
    """All penguins in the order of the file, so many at a time."""
    file = Path(str(resources.files("scheduler_app.examples"))) / "data" / "penguins.csv"
    with file.open(encoding="utf-8", newline="") as lines:
        reader = csv.DictReader(lines)
        while page := list(islice(reader, rows_each)):
            yield page


def of_island(island: str) -> list[Penguin]:
    """The penguins of one island."""
    return [penguin for page in pages() for penguin in page if penguin["island"] == island]


def masses_g(penguins: list[Penguin]) -> list[int]:
    """The body masses that are known, in grams."""
    return [int(row["body_mass_g"]) for row in penguins if row["body_mass_g"] != UNKNOWN]


def output_folder() -> Path:
    """Where examples leave their files; it exists."""
    data_folder = os.environ.get("DAYLIGHT_DATA_DIR") or tempfile.gettempdir()
    folder = Path(data_folder) / "examples-output"
    folder.mkdir(parents=True, exist_ok=True)
    return folder
