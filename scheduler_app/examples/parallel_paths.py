"""Measures each island's penguins side by side, then joins the measures into one file."""

from __future__ import annotations

import json
from statistics import fmean
from typing import TYPE_CHECKING

import penguins  # type: ignore[import-not-found]  # found beside this file

from scheduler_app.authoring import Context, flow, task

if TYPE_CHECKING:
    from collections.abc import Sequence

ISLANDS = ("Biscoe", "Dream", "Torgersen")

Measure = dict[str, str | int | float]


@task
def islands() -> list[str]:
    """The islands that the data set knows, in order."""
    known = sorted({penguin["island"] for page in penguins.pages() for penguin in page})
    if tuple(known) != ISLANDS:
        raise ValueError(f"the data set has {known}, the flow was made for {list(ISLANDS)}")
    return known


@task(retries=1, retry_delay=2)
def measure(ctx: Context, island: str) -> Measure:
    """Number and mean mass of the penguins of one island."""
    found = penguins.of_island(island)
    masses = penguins.masses_g(found)
    ctx.log.info("%s: %d penguins, %d weighed", island, len(found), len(masses))
    return {"island": island, "penguins": len(found), "mean_mass_g": round(fmean(masses), 1)}


@task
def join(ctx: Context, measures: Sequence[Measure]) -> str:
    """All measures are in one file, heaviest island first."""
    ordered = sorted(measures, key=lambda one: -float(one["mean_mass_g"]))
    file = penguins.output_folder() / "islands.json"
    # A file of its own, put in place whole: a reader never finds half of one.
    fresh = file.with_suffix(f".{ctx.fence}")
    fresh.write_text(json.dumps(ordered, indent=2), encoding="utf-8")
    fresh.replace(file)
    return str(file)


@flow(tags=["example", "penguins"], owner="examples")
def example_parallel_paths() -> None:
    """Splits into one path an island, and joins them."""
    known = islands()
    measures = [measure.override(task_id=f"measure_{name.lower()}")(name) for name in ISLANDS]
    known >> measures
    join(measures)
