"""Counts penguins page by page, and writes the census where only the newest attempt may write."""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import penguins  # type: ignore[import-not-found]  # found beside this file

from scheduler_app.authoring import Context, fenced, flow, task

Group = dict[str, str | int]


@task(retries=2, retry_delay=timedelta(seconds=5), timeout=timedelta(minutes=1))
def count(ctx: Context) -> list[Group]:
    """How many penguins of each species live on each island, and what they weigh together."""
    seen: Counter[tuple[str, str]] = Counter()
    mass_g: Counter[tuple[str, str]] = Counter()
    for number, page in enumerate(penguins.pages(), start=1):
        for penguin in page:
            group = (penguin["species"], penguin["island"])
            seen[group] += 1
            mass_g[group] += sum(penguins.masses_g([penguin]))
        ctx.log.info("page %d: %d penguins, %d so far", number, len(page), seen.total())
    return [
        {"species": species, "island": island, "penguins": n, "mass_g": mass_g[species, island]}
        for (species, island), n in sorted(seen.items())
    ]


@task(retries=2, retry_delay=timedelta(seconds=5))
def write(ctx: Context, groups: list[Group]) -> str:
    """The census is in a database file, unless a newer attempt has written it already."""
    file = penguins.output_folder() / "census.sqlite3"
    with closing(sqlite3.connect(file, timeout=30)) as database:
        database.execute(
            "CREATE TABLE IF NOT EXISTS census (species TEXT, island TEXT, penguins INTEGER,"
            " mass_g INTEGER, PRIMARY KEY (species, island))"
        )
        # The guard. Every attempt gets a greater fence than the ones before it, and the database
        # keeps the greatest that wrote. An attempt that was replaced while it stalled, and wakes up
        # late, has a smaller one: it is refused, and the census is left alone. Guard and write are
        # one transaction, so nothing comes between them. "Am I still current?", asked just before
        # the write (ctx.still_mine), would not do: the stall may come after the answer.
        with fenced(database, "census", ctx=ctx) as rows:
            rows.execute("DELETE FROM census")
            rows.executemany(
                "INSERT INTO census VALUES (:species, :island, :penguins, :mass_g)", groups
            )
    ctx.log.info("fence %d wrote %d groups to %s", ctx.fence, len(groups), file)
    return str(file)


@task
def report(file: str) -> dict[str, int]:
    """The census as the database file has it: penguins by species."""
    with closing(sqlite3.connect(f"{Path(file).as_uri()}?mode=ro", uri=True)) as database:
        rows = database.execute(
            "SELECT species, sum(penguins) FROM census GROUP BY species ORDER BY species"
        ).fetchall()
    for species, number in rows:
        print(f"{species:<10} {number:>4}")
    return dict(rows)


@flow(
    schedule="0 6 * * *",
    timezone="Antarctica/Palmer",
    max_active_runs=1,
    tags=["example", "penguins"],
    owner="examples",
)
def example_pages_and_aggregates() -> None:
    """Pages through the penguins and aggregates them into a database file, guarded by the fence."""
    report(write(count()))
