"""Long tables: what a row may cost, and that nothing from outside gets in as markup."""

from __future__ import annotations

import sys
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import pytest
from django.template import Context
from django.test import RequestFactory

from dashboard.templatetags import tables
from dashboard.views.runs import OfTaskInstance
from scheduler_app.queries.attempts import AttemptBrief, AttemptRow
from scheduler_app.queries.executor_events import EventRow
from scheduler_app.queries.records import RecordRow
from scheduler_app.queries.runs import RunRow
from scheduler_app.queries.task_instances import TaskInstanceRow
from scheduler_app.rules import visibility

if TYPE_CHECKING:
    from collections.abc import Callable

NOW: Final = datetime(2026, 11, 29, 2, 11, 5, 214000, tzinfo=UTC)
FOLDER: Final = Path(__file__).parents[3] / "templates/tables"
ROWS: Final[dict[str, type[Any]]] = {
    "task_instance_rows": TaskInstanceRow,
    "run_rows": RunRow,
    "attempt_rows": AttemptRow,
    "event_rows": EventRow,
    "record_rows": RecordRow,
}
CALLS_OF_ROW_MAX: Final = 600  # that one more row costs, Python's own functions included
EVIL: Final = "<script>alert('&')</script>"
TEXTS: Final = frozenset(
    {"run_id", "task_id", "map_label", "outcome_reason", "stop_reason", "hostname"}
    | {"filter_reason", "source", "verdict_reason", "run_type", "kind", "state", "verdict"}
)


def row(kind: type[Any], number: int, /, **values: Any) -> Any:
    """A row of the kind that has ended well and is current."""
    known: dict[str, Any] = {
        "id": UUID(int=number) if kind is AttemptRow else number,
        "run": number,
        "ti": number,
        "map_index": -1,
        "try_number": 1,
        "state": "success",
        "state_beneath": "success",
        "outcome": "success",
        "kind": "process_exit" if kind is EventRow else "task",
        "verdict": "applied",
        "noun": "attempt",
        "record_id": str(UUID(int=number)),
        "key": f"attempt-{number}",
        "attempt_id": UUID(int=number),
        "run_attempt": 1,
        **dict.fromkeys(("fence", "lease_token", "dispatch_no", "resume_index", "version"), 1),
        **{one: f"a_{one}" for one in ("flow_id", "run_id", "task_id", "hostname", "source")},
        **dict.fromkeys(("pid", "shard", "max_tries", "budget_start", "infra_losses"), 0),
        **{one: NOW - timedelta(seconds=number) for one in ("queued_at", "started_at", "ended_at")},
        **dict.fromkeys(("issued_at", "received_at", "logical_date", "at"), NOW),
        "run_type": "manual",
        **values,
    }
    return kind(**{one.name: known.get(one.name) for one in fields(kind)})


def rendered(name: str, rows: list[Any]) -> str:
    """The table of these rows as a list of everything shows it."""
    attempt = AttemptBrief(UUID(int=1), 1, False, "host", 7, EVIL)
    context = {
        "request": RequestFactory().get("/"),
        "now": NOW,
        "list": SimpleNamespace(rows=rows),
        "of": {
            one.id: OfTaskInstance(current=attempt, attempts=1)
            for one in rows
            if hasattr(one, "id")
        },
        "folds": {},
        "tallies": {getattr(one, "id", 0): {"success": 3, "failed": 1} for one in rows},
        "with_run": True,
        "with_flow": True,
        "with_picks": True,
    }
    return tables.table(Context(context), name)


@pytest.mark.parametrize("name", ROWS)
def test_a_row_costs_a_bounded_number_of_calls(name: str) -> None:
    few, many = ([row(ROWS[name], n) for n in range(1, number + 1)] for number in (10, 60))
    rendered(name, many)  # what is looked up once has been
    assert (calls_of(name, many) - calls_of(name, few)) / 50 < CALLS_OF_ROW_MAX


def calls_of(name: str, rows: list[Any]) -> int:
    found = 0

    def noted(frame: object, event: str, argument: object) -> None:
        nonlocal found
        del frame, argument
        found += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(noted)
    try:
        rendered(name, rows)
    finally:
        sys.setprofile(before)
    return found


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("is_filtered", [False, True], ids=["current", "filtered"])
def test_text_from_outside_is_escaped_in_every_column(name: str, is_filtered: bool) -> None:
    kind = ROWS[name]
    given: dict[str, Any] = {one.name: EVIL for one in fields(kind) if one.name in TEXTS}
    one = row(kind, 5, **given)
    if is_filtered:
        _, got, want = next(one for one in visibility.COMPARED if "token" not in one[1])
        detail = {"rule": EVIL, got: EVIL, want: f"{EVIL}!"}
        one = replace(one, filter_code="superseded_by_retry", filtered_at=NOW, filter_detail=detail)
    html = rendered(name, [one])
    assert "<script" not in html
    assert "&lt;script&gt;" in html


def test_every_table_escapes_by_itself_and_knows_what_it_names() -> None:
    environment = tables.environment()
    assert environment.autoescape is True
    names = {path.stem for path in FOLDER.glob("*.jinja")}
    assert set(ROWS) <= names
    for name in names:
        source = (FOLDER / f"{name}.jinja").read_text("utf-8")
        assert "|safe" not in source.replace(" ", "")
        assert "autoescape" not in source
        environment.get_template(f"tables/{name}.jinja")


def test_a_table_that_names_what_nobody_told_it_fails() -> None:
    compiled: Callable[..., str] = (
        tables.environment().from_string("{{ list.nothing.such }}").render
    )
    with pytest.raises(Exception, match="nothing"):
        compiled({"list": SimpleNamespace()})
