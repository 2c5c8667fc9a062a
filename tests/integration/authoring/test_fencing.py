"""Guarded writes into a real PostgreSQL, with attempts that race."""

from __future__ import annotations

import logging
import random
import threading
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from scheduler_app import examples
from scheduler_app.authoring import Context, StaleFence, fenced, fenced_upsert
from scheduler_app.processes import bundles

if TYPE_CHECKING:
    from collections.abc import Iterator

DATE = datetime(2026, 1, 31, 2, tzinfo=UTC)


def context(fence: int) -> Context:
    values = {
        "flow_id": "sales",
        "run_id": "manual__1",
        "logical_date": DATE,
        "attempt_id": f"attempt-{fence}",
        "fence": fence,
        "log": logging.getLogger("daylight.task"),
    }
    return cast("Context", SimpleNamespace(**values))


@pytest.fixture
def address(raw: psycopg.Connection[Any]) -> Iterator[str]:
    """A database of an author's own: another schema of the server of the tests."""
    raw.execute("CREATE SCHEMA IF NOT EXISTS shop")
    raw.execute(
        "CREATE TABLE shop.amount (flow_id text, logical_date timestamptz, shop text, euros integer,"
        " fence bigint NOT NULL, PRIMARY KEY (flow_id, logical_date, shop))"
    )
    info = raw.info
    yield make_conninfo(
        host=info.host,
        port=info.port,
        dbname=info.dbname,
        user=info.user,
        password=info.password,
        options="-c search_path=shop",
    )
    raw.execute("DROP SCHEMA shop CASCADE")


def test_attempts_that_race_leave_the_row_of_the_greatest_fence(address: str) -> None:
    refused: list[int] = []
    begin = threading.Barrier(8)

    def write(fence: int) -> None:
        with psycopg.connect(address) as connection:
            begin.wait()
            try:
                fenced_upsert(
                    connection,
                    "shop.amount",
                    ctx=context(fence),
                    key={"shop": "north"},
                    values={"euros": fence * 10},
                )
            except StaleFence:
                refused.append(fence)
                connection.rollback()

    fences = list(range(1, 9))
    random.shuffle(fences)
    threads = [threading.Thread(target=write, args=(fence,)) for fence in fences]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    with psycopg.connect(address) as connection:
        assert connection.execute("SELECT logical_date, euros, fence FROM amount").fetchall() == [
            (DATE, 80, 8)
        ]
    assert 8 not in refused


def test_a_zombie_that_wakes_inside_its_block_waits_and_is_refused(address: str) -> None:
    """The newer attempt is in its block when the older one comes: it waits, then sees the fence."""
    came: list[str] = []

    def zombie() -> None:
        with psycopg.connect(address) as connection:
            try:
                with fenced(connection, "amounts", ctx=context(7)):
                    came.append("wrote")
            except StaleFence as error:
                came.append(str(error.found))

    with psycopg.connect(address) as connection:
        with fenced(connection, "amounts", ctx=context(8)) as cursor:
            thread = threading.Thread(target=zombie)
            thread.start()
            thread.join(timeout=0.5)
            assert came == [], "it waits for the row"
            cursor.execute("INSERT INTO amount VALUES ('a', now(), 'north', 1, 8)")
        thread.join(timeout=30)
    assert came == ["8"]


def test_a_connection_that_commits_each_statement_is_refused(address: str) -> None:
    with (
        psycopg.connect(address, autocommit=True) as connection,
        pytest.raises(ValueError, match="without autocommit"),
        fenced(connection, "amounts", ctx=context(1)),
    ):
        pass


def test_the_example_writes_into_postgresql_where_it_is_given_one(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAYLIGHT_EXAMPLES_DATABASE", address)
    folder = Path(examples.__file__).parent
    source = {"island_weights.py": (folder / "island_weights.py").read_bytes()}
    digest, archive = bundles.pack_sources(
        "island_weights.py", bundles.imports_of(folder, source).sources
    )
    flow = bundles.flow_of_bundle(
        digest, lambda: archive, "example_island_weights", tmp_path / "bundles"
    )
    assert flow.calls["weigh_dream"].execute(context(8), {}) > 0
    with pytest.raises(StaleFence, match="fence 7 < 8"):
        flow.calls["weigh_dream"].execute(context(7), {})
    with psycopg.connect(address) as connection:
        found = connection.execute(
            "SELECT flow_id, logical_date, island, penguins, fence FROM island_weight"
        ).fetchall()
    assert found == [("sales", DATE, "Dream", 124, 8)]
