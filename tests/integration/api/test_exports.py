"""Exports: every row of a list, streamed, equal to the list."""

from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING, Any

import pytest
from asgiref.sync import sync_to_async
from django.db import connection, connections
from django.test import AsyncClient

from scheduler_app.models import Audit, Run
from scheduler_app.queries import exports, filters, runs
from scheduler_app.queries.list_filter import Lens
from scheduler_app.queries.scope import EVERYTHING
from scheduler_app.rules import errors
from tests import factories
from tests.integration.api.test_lists import LISTINGS, PATHS, fill

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from django.test import Client

# An export declares its cursor in a transaction of its own.
pytestmark = pytest.mark.django_db(transaction=True)


def whole(noun: Any, asked: Any, name: str) -> bytes:
    write = exports.FORMATS[name][1]
    return b"".join(exports.lines(exports.Export(noun, asked, EVERYTHING), write))


@pytest.fixture(autouse=True)
async def _threads_without_connections() -> AsyncIterator[None]:
    yield
    await _sync(connections.close_all)


@pytest.mark.parametrize("path", PATHS)
def test_an_export_is_the_list(api: Client, path: str) -> None:
    fill()
    listed = api.get(f"/api/v1/{path}/?filtered=1").json()["results"]
    listing = LISTINGS[path]
    asked = listing.asked(filtered=Lens.ALL)
    lines = whole(listing.noun, asked, "ndjson").decode().splitlines()
    assert [json.loads(line) for line in lines] == listed
    table = [*csv.DictReader(io.StringIO(whole(listing.noun, asked, "csv").decode(), newline=""))]
    assert len(table) == len(listed)
    for row, expected in zip(table, listed, strict=True):
        assert [*row] == [*expected], "the same fields in the same order"


async def streamed(headers: dict[str, str], address: str) -> tuple[Any, bytes]:
    answer: Any = await AsyncClient().get(address, headers=headers)
    chunks = [chunk async for chunk in answer]
    return answer, b"".join(chunks)


@pytest.mark.parametrize(
    ("name", "content_type"),
    [("csv", "text/csv; charset=utf-8"), ("ndjson", "application/x-ndjson")],
)
async def test_an_export_is_streamed_with_its_counts(
    bearer: dict[str, str], name: str, content_type: str
) -> None:
    await _sync(fill)
    answer, body = await streamed(bearer, f"/api/v1/attempts/export/?format={name}&filtered=only")
    assert answer.streaming
    assert answer.is_async, "a plain iterator would be read into a list first"
    assert answer["Content-Type"] == content_type
    assert answer["Content-Disposition"].startswith('attachment; filename="attempts-')
    assert (answer["X-Daylight-Shown"], answer["X-Daylight-Filtered"]) == ("1", "2")
    assert len(body.decode().splitlines()) == (3 if name == "csv" else 2)
    assert await _sync(_open_cursors) == 0


async def test_an_export_is_audited(bearer: dict[str, str]) -> None:
    await _sync(fill)
    await streamed(bearer, "/api/v1/runs/export/?format=csv&state=running")
    entry = await Audit.objects.aget(action="export")
    assert (entry.actor, entry.object_id) == ("ana", "runs")
    assert entry.after == {"query": {"format": ["csv"], "state": ["running"]}, "rows": 2}


@pytest.mark.parametrize("query", ["", "format=parquet", "format=xml", "format=csv&colour=red"])
def test_a_format_or_parameter_that_is_none_is_told(api: Client, query: str) -> None:
    answer = api.get(f"/api/v1/runs/export/?{query}")
    assert answer.status_code == 400
    assert answer.json()["parameter"] in {"format", "colour"}


def test_no_head_prepares_a_result_that_nobody_fetches(api: Client) -> None:
    assert api.head("/api/v1/runs/export/?format=csv").status_code == 405


def test_cells_of_a_table_are_no_formulas() -> None:
    run = factories.make_run()
    for text in ("=1+1", "+1", "-1", "@a", "\tx", "\rx", "plain", 'quo"te', "a,b\nc"):
        Run.objects.update(note=text)
        (row,) = csv.DictReader(
            io.StringIO(whole(runs.NOUN, filters.RunFilter(), "csv").decode(), newline="")
        )
        dangerous = text[0] in "=+-@\t\r"
        assert row["note"] == (f"'{text}" if dangerous else text)
        assert row["id"] == str(run.id)
        assert row["ended_at"] == ""
    first = whole(runs.NOUN, filters.RunFilter(), "csv").decode().splitlines()[0]
    assert first.startswith('"id","flow_id","run_id"')
    assert first.endswith('"superseded_by"')


def test_a_long_export_is_fetched_in_parts_of_one_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exports, "FETCH_ROWS", 2)
    made = [factories.make_run().id for _ in range(5)]
    with exports.Export(runs.NOUN, filters.RunFilter(order="id"), EVERYTHING) as export:
        first = export.fetch()
        factories.make_run()
        rest = [row for _ in range(2) for row in export.fetch()]
        assert export.fetch() == []
    assert [row["id"] for row in [*first, *rest]] == made
    assert export.counts.shown == export.row_count == 5
    assert _open_cursors() == 0


def test_an_export_that_is_too_large_is_refused_before_it_begins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(exports, "ROWS_MAX", 2)
    for _ in range(3):
        factories.make_run()
    with pytest.raises(errors.InvalidInput, match="3 rows, at most 2"):
        exports.Export(runs.NOUN, filters.RunFilter(), EVERYTHING)
    narrow = filters.RunFilter(filtered=Lens.ONLY)
    exports.Export(runs.NOUN, narrow, EVERYTHING).close()


def _open_cursors() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_cursors WHERE name LIKE 'export_%'")
        number: int = cursor.fetchall()[0][0]
    return number


async def _sync(work: Any) -> Any:

    return await sync_to_async(work)()
