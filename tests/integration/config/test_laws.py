"""The check constraints of the database, written in few words, say what they should."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest
from django.db import connection

from scheduler_app.rules.states import AttemptState, RunState, TaskState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

OVER = {"success", "failed", "skipped", "upstream_failed", "removed"}
CHARACTERS_MAX = 2600  # of a law, as the database keeps it: it reads all of them for each statement

pytestmark = pytest.mark.django_db


def _standing(code: Any, at: Any, detail: Any) -> bool:
    return len({value is None for value in (code, at, detail)}) == 1


def _attempt(state: str, is_live: bool, outcome: Any, ended_at: Any) -> bool:
    if state == "ended":
        return not is_live and outcome is not None and ended_at is not None
    return state in ("issued", "running") and is_live and outcome is None


def _run(state: str, is_active: bool, ended_at: Any) -> bool:
    if state in ("success", "failed"):
        return not is_active and ended_at is not None
    return state in ("queued", "running") and is_active and ended_at is None


def _task_instance(state: str, is_open: bool) -> bool:
    return state in {each.value for each in TaskState} and is_open is (state not in OVER)


def _event(verdict: str, judged_at: Any) -> bool:
    return (verdict == "pending") is (judged_at is None)


AT = "2026-01-01T00:00:00Z"
STANDING = {
    "filter_code": ("varchar", [None, "superseded"]),
    "filtered_at": ("timestamptz", [None, AT]),
    "filter_detail": ("jsonb", [None, "{}"]),
}
LAWS: dict[str, tuple[dict[str, tuple[str, list[Any]]], Callable[..., bool]]] = {
    **{
        f"{table}_standing_complete": (STANDING, _standing)
        for table in ("attempt", "executor_event", "run", "run_attempt", "task_instance")
    },
    "attempt_ended_has_outcome": (
        {
            "state": ("varchar", [*(each.value for each in AttemptState), "gone", ""]),
            "is_live": ("boolean", [True, False]),
            "outcome": ("varchar", [None, "success"]),
            "ended_at": ("timestamptz", [None, AT]),
        },
        _attempt,
    ),
    "run_ended_when_terminal": (
        {
            "state": ("varchar", [*(each.value for each in RunState), "gone", ""]),
            "is_active": ("boolean", [True, False]),
            "ended_at": ("timestamptz", [None, AT]),
        },
        _run,
    ),
    "task_instance_open_unless_terminal": (
        {
            "state": ("varchar", [*(each.value for each in TaskState), "gone", ""]),
            "is_open": ("boolean", [True, False]),
        },
        _task_instance,
    ),
    "executor_event_judged_when_verdict": (
        {
            "verdict": ("varchar", ["pending", "confirmed", "ignored"]),
            "judged_at": ("timestamptz", [None, AT]),
        },
        _event,
    ),
}


def _laws() -> Iterator[tuple[str, str, int]]:
    """Name, condition and length in characters of each law of the tables that every task writes to."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT conname, pg_get_expr(conbin, conrelid), length(conbin::text) FROM pg_constraint"
            " WHERE contype = 'c' AND conname = ANY(%s)",
            [[*LAWS]],
        )
        yield from cursor.fetchall()


def test_each_is_there() -> None:
    assert {name for name, _, _ in _laws()} == LAWS.keys()


@pytest.mark.parametrize("law", LAWS)
def test_it_lets_through_what_is_right_and_nothing_else(law: str) -> None:
    columns, is_right = LAWS[law]
    condition = next(condition for name, condition, _ in _laws() if name == law)
    rows = [*itertools.product(*(values for _, values in columns.values()))]
    typed = ", ".join(f"{name}::{kind} AS {name}" for name, (kind, _) in columns.items())
    holes = ", ".join(f"({', '.join(['%s'] * len(columns))})" for _ in rows)
    with connection.cursor() as cursor:
        cursor.execute(
            # A check passes where it is not false.
            f"SELECT {', '.join(columns)}, ({condition.replace('%', '%%')}) IS NOT FALSE FROM"
            f" (SELECT {typed} FROM (VALUES {holes}) AS given({', '.join(columns)})) AS typed",
            [value for row in rows for value in row],
        )
        found = cursor.fetchall()
    assert len(found) == len(rows)
    assert {row[-1] for row in found} == {True, False}
    wrong = [row for row in found if row[-1] is not is_right(*row[:-1])]
    assert wrong == []


def test_none_is_long() -> None:
    """See ``scheduler_app.models.laws``: as Django says them they have up to 4,300 characters."""
    assert {name: size for name, _, size in _laws() if size > CHARACTERS_MAX} == {}
