"""Which guard stops an automatic action, and from which place its limit comes."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_app.rules.guards import (
    ActionKind,
    GuardCode,
    GuardLimits,
    GuardRow,
    Past,
    Size,
    effective,
    refuse,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
DEFAULTS = GuardLimits(
    cooldown_s=0, actions_max=60, window_s=3600, runs_max=10, task_instances_max=1000
)
PAST = Past(now=NOW, last_at=None, in_window=0)
SIZE = Size(runs=1, task_instances=1)


def row(flow_id: str = "", kind: str = "", *, is_stopped: bool = False, **limits: int) -> GuardRow:
    return GuardRow(
        flow_id=flow_id,
        kind=kind,
        limits=GuardLimits(**limits),
        is_stopped=is_stopped,
        actor="ana",
        reason="look first",
    )


def holds(*rows: GuardRow, defined: GuardLimits | None = None) -> GuardLimits:
    return effective(
        rows,
        flow_id="f",
        kind=ActionKind.CLEAR,
        defined=defined or GuardLimits(),
        defaults=DEFAULTS,
    ).limits


def test_the_nearest_place_that_sets_a_limit_wins() -> None:
    everywhere, of_kind = row(actions_max=1), row(kind="clear", actions_max=2)
    of_flow, of_both = row("f", actions_max=4), row("f", "clear", actions_max=5)
    defined = GuardLimits(actions_max=3)
    assert holds().actions_max == 60
    assert holds(everywhere).actions_max == 1
    assert holds(everywhere, of_kind).actions_max == 2
    assert holds(everywhere, of_kind, defined=defined).actions_max == 3
    assert holds(everywhere, of_kind, of_flow, defined=defined).actions_max == 4
    assert holds(everywhere, of_kind, of_flow, of_both, defined=defined).actions_max == 5


def test_a_limit_of_zero_is_a_limit() -> None:
    assert holds(row("f", actions_max=0)).actions_max == 0


def test_rows_of_other_flows_and_kinds_mean_nothing() -> None:
    assert holds(row("g", actions_max=1), row("f", "run_retry", actions_max=1)) == DEFAULTS


@pytest.mark.parametrize(
    "stopping",
    [
        row(is_stopped=True),
        row(kind="clear", is_stopped=True),
        row("f", is_stopped=True),
        row("f", "clear", is_stopped=True),
    ],
)
def test_any_kill_switch_holds(stopping: GuardRow) -> None:
    guard = effective(
        [stopping], flow_id="f", kind=ActionKind.CLEAR, defined=GuardLimits(), defaults=DEFAULTS
    )
    refusal = refuse(guard, PAST, SIZE)
    assert refusal is not None
    assert refusal.code is GuardCode.STOPPED
    assert "ana stopped automatic actions" in refusal.sentence


@pytest.mark.parametrize(
    ("limits", "past", "size", "code"),
    [
        ({}, {}, {}, None),
        ({"actions_max": 3}, {"in_window": 2}, {}, None),
        ({"actions_max": 3}, {"in_window": 3}, {}, GuardCode.ACTIONS_MAX),
        ({"cooldown_s": 60}, {"last_at": NOW - timedelta(seconds=59)}, {}, GuardCode.COOLDOWN),
        ({"cooldown_s": 60}, {"last_at": NOW - timedelta(seconds=60)}, {}, None),
        ({"runs_max": 2}, {}, {"runs": 3}, GuardCode.RUNS_MAX),
        ({"task_instances_max": 5}, {}, {"task_instances": 6}, GuardCode.TASK_INSTANCES_MAX),
    ],
)
def test_each_guard_stops_just_what_is_past_it(
    limits: dict[str, int], past: dict[str, Any], size: dict[str, int], code: GuardCode | None
) -> None:
    guard = effective(
        [],
        flow_id="f",
        kind=ActionKind.CLEAR,
        defined=GuardLimits(**limits),
        defaults=DEFAULTS,
    )
    found = refuse(guard, replace(PAST, **past), replace(SIZE, **size))
    assert (found.code if found else None) == code


@given(st.integers(0, 20), st.lists(st.booleans(), max_size=60))
def test_no_sequence_of_requests_exceeds_the_limit(limit: int, asks: list[bool]) -> None:
    guard = effective(
        [],
        flow_id="f",
        kind=ActionKind.CLEAR,
        defined=GuardLimits(actions_max=limit),
        defaults=DEFAULTS,
    )
    done = 0
    for _ in asks:
        if refuse(guard, replace(PAST, in_window=done), SIZE) is None:
            done += 1
    assert done == min(limit, len(asks))
