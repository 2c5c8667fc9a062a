"""Lists that are parameters arrive as they were given, and the statement says of which type."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from scheduler_app.processes import database
from scheduler_app.rules.states import TaskState

if TYPE_CHECKING:
    import psycopg

TEXTS = ["a", "", " b ", "NULL", "null", 'say "so"', "back\\slash", "{x,y}", "1,2", "ä\n\t…", "'q'"]
SIXES = [[1, 2, 3], [4, 5, 6]]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("bigint", [0, -1, 7, 2**40, -(2**63), 2**63 - 1]),
        ("smallint", [1, 2]),
        ("bigint", [None, 3, None]),
        ("bigint", []),
        ("float8", [0.1, 1e-300, -2.5, math.inf, -math.inf, None]),
        ("boolean", [True, False, None]),
        ("uuid", [UUID(int=5), UUID(int=2**128 - 1), None]),
        ("text", TEXTS),
        ("text", [*TEXTS, None]),
        ("text", [None, None]),
        ("text", [TaskState.QUEUED, TaskState.UP_FOR_RETRY]),
        # What is not written quickly:
        ("bigint", SIXES),
        ("timestamptz", [datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC), None]),
        ("numeric", [Decimal("1.50"), Decimal("-7")]),
        ("bytea", [b"\x00\xff'\"\\", None]),
    ],
)
def test_a_list_comes_back_as_it_was_given(
    raw: psycopg.Connection[Any], kind: str, values: list[Any]
) -> None:
    row = raw.execute(f"SELECT %s::{kind}[]", [values]).fetchone()
    assert row == (values,)


def test_a_statement_is_prepared_once_however_large_its_numbers_are(
    raw: psycopg.Connection[Any],
) -> None:
    for number in (1, 2**20, 2**40):
        for _ in range(2):
            raw.execute("SELECT id FROM run WHERE id = ANY(%s)", [[number]]).fetchall()
    row = raw.execute(
        "SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE 'SELECT id FROM run%'"
    ).fetchone()
    assert row == (1,)


async def test_asynchronous_connections_write_them_too(transactional_db: None) -> None:
    del transactional_db
    async with await database.connect_async("triggerer") as connection:
        for number in (1, 2**40):
            found = await connection.execute("SELECT %s::bigint[], %s::text[]", [[number], TEXTS])
            assert await found.fetchone() == ([number], TEXTS)
