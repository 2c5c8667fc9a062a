"""Weighs the penguins of each island into a table that a replaced attempt cannot overwrite.

The table is in SQLite below the data folder, or in the PostgreSQL database whose address
DAYLIGHT_EXAMPLES_DATABASE has. The helper is the same for both.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from datetime import timedelta
from typing import Any

import penguins  # type: ignore[import-not-found]  # found beside this file

from scheduler_app.authoring import Context, fenced_upsert, flow, task

TABLE = """CREATE TABLE IF NOT EXISTS island_weight (
  flow_id text NOT NULL, logical_date {moment} NOT NULL, island text NOT NULL,
  penguins integer NOT NULL, mass_g bigint NOT NULL, fence bigint NOT NULL,
  PRIMARY KEY (flow_id, logical_date, island))"""


def database() -> Any:
    """A connection to where the table is; any module of the DB-API will do."""
    address = os.environ.get("DAYLIGHT_EXAMPLES_DATABASE", "")
    if address:
        import psycopg  # noqa: PLC0415 - only where there is such a database

        connection: Any = psycopg.connect(address)
        connection.execute(TABLE.format(moment="timestamptz"))
    else:
        connection = sqlite3.connect(penguins.output_folder() / "weights.sqlite3", timeout=30)
        connection.execute(TABLE.format(moment="text"))
    connection.commit()
    return connection


@task(retries=2, retry_delay=timedelta(seconds=5))
def weigh(ctx: Context, island: str) -> int:
    """The island has its one row for this logical date, however many attempts there were."""
    masses = penguins.masses_g(penguins.of_island(island))
    with closing(database()) as connection:
        fenced_upsert(
            connection,
            "island_weight",
            ctx=ctx,
            key={"island": island},
            values={"penguins": len(masses), "mass_g": sum(masses)},
        )
        connection.commit()
    ctx.log.info("fence %d wrote %d penguins of %s", ctx.fence, len(masses), island)
    return sum(masses)


@flow(tags=["example", "penguins"], owner="examples")
def example_island_weights() -> None:
    """Weighs three islands side by side into one table, each row guarded by flow, date and fence."""
    for island in ("Biscoe", "Dream", "Torgersen"):
        weigh.override(task_id=f"weigh_{island.lower()}")(island)
