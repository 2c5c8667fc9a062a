"""Guarded writes into SQLite, with a plain connection."""

from __future__ import annotations

import pickle
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta, timezone
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_app.authoring import Context, StaleFence, fenced, fenced_upsert
from scheduler_app.authoring.fencing import upsert_statement

if TYPE_CHECKING:
    from collections.abc import Iterator

DATE = datetime(2026, 1, 31, 2, tzinfo=UTC)
TABLE = (
    "CREATE TABLE IF NOT EXISTS amount (flow_id text, logical_date text, shop text, euros integer,"
    " fence bigint NOT NULL, PRIMARY KEY (flow_id, logical_date, shop))"
)


def context(fence: int, **more: Any) -> Context:
    values = {
        "flow_id": "sales",
        "run_id": "manual__1",
        "logical_date": DATE,
        "attempt_id": f"attempt-{fence}",
        "fence": fence,
        **more,
    }
    return cast("Context", SimpleNamespace(**values))


@pytest.fixture
def database() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute(TABLE)
        connection.commit()
        yield connection


def write(database: sqlite3.Connection, fence: int, euros: int, **more: Any) -> None:
    fenced_upsert(
        database,
        "amount",
        ctx=context(fence, **more),
        key={"shop": "north"},
        values={"euros": euros},
    )
    database.commit()


def rows(database: sqlite3.Connection) -> list[Any]:
    return database.execute("SELECT logical_date, euros, fence FROM amount ORDER BY 1").fetchall()


def test_the_same_attempt_and_a_newer_one_write_an_older_one_is_refused_with_both_fences(
    database: sqlite3.Connection,
) -> None:
    write(database, 7, 100)
    write(database, 7, 100)
    write(database, 9, 120)
    with pytest.raises(StaleFence, match="fence 8 < 9") as refused:
        write(database, 8, 90)
    assert (refused.value.fence, refused.value.found) == (8, 9)
    assert rows(database) == [("2026-01-31T02:00:00+00:00", 120, 9)]


def test_one_instant_is_one_row_whatever_its_zone_and_another_date_is_another(
    database: sqlite3.Connection,
) -> None:
    write(database, 7, 100)
    write(database, 8, 110, logical_date=DATE.astimezone(timezone(timedelta(hours=5))))
    write(database, 9, 1, logical_date=DATE + timedelta(days=1))
    write(database, 10, 2, logical_date=None)
    assert [euros for _, euros, _ in rows(database)] == [110, 1, 2]
    assert rows(database)[-1][0] == "manual__1"


@given(st.permutations(range(1, 7)))
def test_in_whatever_order_they_write_the_greatest_fence_stays(order: list[int]) -> None:
    with closing(sqlite3.connect(":memory:")) as database:
        database.execute(TABLE)
        greatest = 0
        for fence in order:
            if fence < greatest:
                with pytest.raises(StaleFence):
                    write(database, fence, fence * 10)
            else:
                write(database, fence, fence * 10)
            greatest = max(greatest, fence)
        assert [row[1:] for row in rows(database)] == [(60, 6)]


def _clear(database: sqlite3.Connection, fence: int, *, fault: bool = False) -> None:
    with fenced(database, "report", ctx=context(fence)) as cursor:
        cursor.execute("DELETE FROM amount")
        if fault:
            raise ZeroDivisionError


def test_a_fenced_block_is_all_or_nothing_and_refuses_an_older_attempt_before_it_runs(
    database: sqlite3.Connection,
) -> None:
    with fenced(database, "report", ctx=context(5)) as cursor:
        cursor.execute("INSERT INTO amount VALUES ('a', 'b', 'c', 1, 5)")
    with pytest.raises(ZeroDivisionError):
        _clear(database, 6, fault=True)
    with pytest.raises(StaleFence, match="fence 4 < 5"):
        _clear(database, 4)
    assert len(rows(database)) == 1
    with fenced(database, "other", ctx=context(4)):
        pass  # another target has its own guard


def test_a_block_that_would_commit_what_is_not_its_own_is_refused(
    database: sqlite3.Connection,
) -> None:
    database.execute("INSERT INTO amount VALUES ('a', 'b', 'c', 1, 5)")
    with (
        pytest.raises(ValueError, match="transaction open"),
        fenced(database, "report", ctx=context(5)),
    ):
        pass


@pytest.mark.parametrize(
    ("table", "key", "values"),
    [
        ("amount; DROP TABLE x", ["shop"], ["euros"]),
        ("amount", ['shop" --'], ["euros"]),
        ("amount", [], ["euros"]),
        ("amount", ["shop"], ["shop"]),
        ("amount", ["shop"], ["fence"]),
    ],
)
def test_names_that_are_no_plain_names_are_refused(
    table: str, key: list[str], values: list[str]
) -> None:
    with pytest.raises(ValueError, match=r"name|different"):
        upsert_statement(table, key=key, values=values)


def test_a_module_that_writes_parameters_otherwise_is_refused_with_its_name() -> None:
    with pytest.raises(ValueError, match="sqlite3, psycopg"):
        fenced_upsert(object(), "amount", ctx=context(1), values={"euros": 1})


def test_the_refusal_crosses_processes() -> None:
    error = pickle.loads(pickle.dumps(StaleFence("t", fence=1, found=2)))
    assert str(error) == str(StaleFence("t", fence=1, found=2))
