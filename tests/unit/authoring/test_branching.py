"""Branches, short circuits and latest-only: what they return, and what the definition says of them."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from scheduler_app.authoring import (
    Context,
    GroupRetry,
    Schedule,
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


NOW = datetime(2026, 4, 3, 12, tzinfo=UTC)
EVERY_SIX_HOURS = {
    "schedule": timedelta(hours=6),
    "start_date": datetime(2026, 1, 1, 1, 30, tzinfo=UTC),
}


@pytest.mark.parametrize(
    ("run_type", "options", "ended", "answer"),
    [
        ("scheduled", {"schedule": "@daily"}, NOW - timedelta(hours=12), True),
        ("scheduled", {"schedule": "@daily"}, NOW - timedelta(hours=36), False),
        ("backfill", {"schedule": "@daily"}, NOW - timedelta(hours=12), True),
        ("backfill", {"schedule": "@daily"}, NOW - timedelta(days=60), False),
        ("manual", {"schedule": "@daily"}, NOW - timedelta(days=60), True),
        ("scheduled", {}, NOW - timedelta(days=60), True),
        # Counted from the start date: the one after 07:30 is due at 13:30, not at noon.
        ("scheduled", EVERY_SIX_HOURS, NOW.replace(hour=7, minute=30), True),
        ("scheduled", EVERY_SIX_HOURS, NOW.replace(hour=1, minute=30), False),
        ("scheduled", {"schedule": ["0 1 * * *", "0 9 * * *"]}, NOW.replace(hour=9), True),
        ("scheduled", {"schedule": ["0 1 * * *", "0 9 * * *"]}, NOW.replace(hour=1), False),
        ("scheduled", {"schedule": [date(2026, 4, 1), date(2026, 5, 1)]}, NOW.replace(day=1), True),
        # The day after it is excluded, so that nothing has come due since.
        (
            "scheduled",
            {"schedule": Schedule("@daily", exclude=[date(2026, 4, 3)])},
            datetime(2026, 4, 2, tzinfo=UTC),
            True,
        ),
        # Nothing comes after the end date, however late it is asked.
        (
            "scheduled",
            {"schedule": "@daily", "end_date": date(2026, 2, 1)},
            datetime(2026, 2, 2, tzinfo=UTC),
            True,
        ),
        (
            "scheduled",
            {"schedule": "@daily", "end_date": date(2026, 2, 1)},
            datetime(2026, 2, 1, tzinfo=UTC),
            False,
        ),
    ],
)
def test_latest_only_goes_on_in_the_newest_run_of_any_schedule_alone(
    run_type: str, options: dict[str, Any], ended: datetime, answer: bool
) -> None:
    @flow(**options)
    def f() -> None:
        latest_only() >> part()

    ctx = SimpleNamespace(
        run_type=run_type,
        data_interval_end=ended,
        services=SimpleNamespace(now=lambda: NOW),
    )
    assert f.definition().task("latest_only").picks == "gate"
    assert f.calls["latest_only"].execute(cast("Context", ctx), {}) is answer


# -- mapped ----------------------------------------------------------------------------------------


@branch
def way(n: int) -> Any:
    """Names a task with the prefix of its group, one without, a group, none, and what is not after it."""
    return [["one.odd"], "even", "more", None, "elsewhere"][n]


@short_circuit(ignore_downstream_trigger_rules=False)
def is_large(n: int) -> bool:
    return n > 1


@task
def numbers() -> list[int]:
    return [0, 1, 2, 3, 4]


@group
def one(n: int) -> None:
    which = way(n)
    with group("more") as more:
        part()
    which >> [part.override(task_id="odd")(), part.override(task_id="even")(), more]


def by_index(made: Any, task_id: str) -> str:
    states = made.mapped_states
    return " ".join(states[task_id, n] for n in range(5))


def test_in_a_mapped_group_each_index_picks_for_itself_by_ids_with_or_without_prefix() -> None:
    @flow
    def f() -> None:
        one.map(numbers())
        part.override(task_id="elsewhere")()

    made = f.test()
    assert by_index(made, "one.way") == "success success success success failed"
    assert by_index(made, "one.odd") == "success skipped skipped skipped upstream_failed"
    assert by_index(made, "one.even") == "skipped success skipped skipped upstream_failed"
    assert by_index(made, "one.more.part") == "skipped skipped success skipped upstream_failed"
    (failed,) = (tried for tried in made.attempts if tried.outcome == "failed")
    assert "Return one of one.even, one.more, one.more.part, one.odd." in str(failed.error)
    assert made.results["one.way"] == [["one.odd"], ["one.even"], ["one.more"], []]


def test_a_gate_that_is_mapped_by_itself_lets_on_what_one_element_wants() -> None:
    def flow_of(limit: int) -> Any:
        @flow
        def f() -> None:
            gates = is_large.map(list(range(limit)))
            (
                gates
                >> part.override(task_id="after")()
                >> part.override(task_id="later", trigger_rule="all_done")()
            )

        return f.test().states

    assert flow_of(3) == {"is_large": "success", "after": "success", "later": "success"}
    assert flow_of(2) == {"is_large": "success", "after": "skipped", "later": "success"}


def test_a_retry_of_one_index_picks_anew_for_that_index() -> None:
    @branch(retries=1)
    def flaky(ctx: Context, n: int) -> str:
        if n == 1 and ctx.try_number == 1:
            raise OSError("away")
        return "odd" if n % 2 else "even"

    @group
    def pair(n: int) -> None:
        flaky(n) >> [part.override(task_id="odd")(), part.override(task_id="even")()]

    @flow
    def f() -> None:
        pair.map(numbers())

    made = f.test()
    assert made.state == "success"
    assert by_index(made, "pair.odd") == "skipped success skipped success skipped"
    assert by_index(made, "pair.even") == "success skipped success skipped success"


def test_a_group_that_is_one_unit_picks_anew_for_each_index() -> None:
    @branch
    def by_try(ctx: Context, n: int) -> str:
        return "good" if ctx.try_number > 1 or n == 0 else "bad"

    @task
    def bad() -> None:
        raise OSError("no")

    @group
    def either(n: int) -> None:
        by_try(n) >> [bad(), part.override(task_id="good")()]

    @flow
    def f() -> None:
        made = numbers()
        with group("all", retry=GroupRetry(max_attempts=2)) as whole:
            either.map(made)
        whole >> part.override(task_id="after", trigger_rule="none_failed")()

    made = f.test()
    assert (made.state, made.group_attempts) == ("success", {"all": 2})
    assert by_index(made, "all.either.bad") == "skipped skipped skipped skipped skipped"
    assert by_index(made, "all.either.good") == "success success success success success"
    assert made.states["after"] == "success"
