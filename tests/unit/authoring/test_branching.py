"""Branches, short circuits and latest-only: what they return, and what the definition says of them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from scheduler_app.authoring import (
    Context,
    branch,
    flow,
    group,
    latest_only,
    short_circuit,
    task,
)
from scheduler_app.rules.errors import InvalidInput

CTX = cast("Context", SimpleNamespace(name="the context"))


@task
def part() -> None: ...


def picked(returned: Any) -> Any:
    """What a branch in group ``g`` that returns this has picked."""

    @branch
    def choose() -> Any:
        return returned

    @flow
    def f() -> None:
        with group("g"):
            which = choose()
            inside = part()
            with group("more") as more:
                part()
        outside = part()
        which >> [inside, more]
        inside >> outside
        part.override(task_id="elsewhere")()

    assert f.definition().task("g.choose").picks == "branch"
    return f.calls["g.choose"].execute(CTX, {})


@pytest.mark.parametrize(
    ("returned", "ids"),
    [
        ("g.part", ["g.part"]),
        ("part", ["part"]),
        ("more", ["g.more"]),
        (["g.part", "g.more"], ["g.part", "g.more"]),
        (("g.more.part",), ["g.more.part"]),
        (None, []),
        ([], []),
    ],
)
def test_a_branch_picks_tasks_and_groups_after_it_by_their_ids(
    returned: Any, ids: list[str]
) -> None:
    assert picked(returned) == ids


@pytest.mark.parametrize("returned", ["elsewhere", "g.choose", "g", "nothing", 7])
def test_a_branch_that_picks_what_is_not_after_it_fails_with_what_it_may_pick(
    returned: Any,
) -> None:
    with pytest.raises(
        InvalidInput, match=r"Return one of g\.more, g\.more\.part, g\.part, part\."
    ):
        picked(returned)


def test_short_circuits_pick_all_or_only_what_is_right_after_them() -> None:
    @short_circuit
    def whole() -> bool:
        return False

    @short_circuit(ignore_downstream_trigger_rules=False, retries=2)
    def near() -> bool:
        return False

    @flow
    def f() -> None:
        whole() >> near()

    assert f.definition().task("whole").picks == "gate_all"
    assert (f.definition().task("near").picks, f.definition().task("near").retries) == ("gate", 2)


@pytest.mark.parametrize(
    ("run_type", "ended_ago", "answer"),
    [
        ("scheduled", timedelta(minutes=1), True),
        ("scheduled", timedelta(days=3), False),
        ("manual", timedelta(days=3), True),
        ("backfill", timedelta(days=3), True),
    ],
)
def test_latest_only_goes_on_in_the_newest_scheduled_run_alone(
    run_type: str, ended_ago: timedelta, answer: bool
) -> None:
    @flow(schedule="@daily")
    def f() -> None:
        latest_only() >> part()

    ctx = SimpleNamespace(run_type=run_type, data_interval_end=datetime.now(UTC) - ended_ago)
    assert f.definition().task("latest_only").picks == "gate"
    assert f.calls["latest_only"].execute(cast("Context", ctx), {}) is answer
