"""Backfills: every date of the range gets its run, in order, under the limit, and says what became of it."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from django.utils import timezone

from scheduler_app.models import (
    Audit,
    Backfill,
    BackfillDate,
    Flow,
    FlowVersion,
    Run,
    RunAttempt,
)
from scheduler_app.operations import backfill as operations
from scheduler_app.operations.clear import clear_run
from scheduler_app.operations.freeze import freeze
from scheduler_app.operations.thaw import thaw
from scheduler_app.queries.audit_visibility import compare
from scheduler_app.rules.errors import Conflict, InvalidInput, NotFound
from scheduler_app.rules.run_retry import RunRetryPolicy
from scheduler_app.scheduler.backfills import advance_backfills
from scheduler_app.scheduler.run_retries import begin_due
from scheduler_app.scheduler.versions import Versions
from tests.world import World, chain

if TYPE_CHECKING:
    import psycopg

FIRST, LAST = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 5, tzinfo=UTC)


@pytest.fixture
def flow(world: World) -> Flow:
    return world.flow("f", chain("a"), schedule="@daily", max_active_runs=1, params={"size": 1})


def ask(**options: Any) -> operations.BackfillPlan:
    values: dict[str, Any] = {
        "flow_id": "f",
        "from_date": FIRST,
        "to_date": LAST,
        "actor": "ana",
        "reason": "the source was late",
        "max_active_runs": 2,
        **options,
    }
    return operations.create_backfill(**values)


def advance(world: World, raw: psycopg.Connection[Any]) -> list[int]:
    return sorted(
        advance_backfills(raw, leases=world.leases, terms=world.leases.terms(), versions=Versions())
    )


def end(world: World, *run_ids: int, ok: bool = True) -> None:
    """Each of these runs has ended."""
    world.tick(*run_ids)
    while world.messages:
        message = world.messages.pop()
        world.claim(message)
        world.finish(message, ok=ok)
    world.tick(*run_ids)


def dates() -> list[tuple[int, str]]:
    rows = BackfillDate.objects.order_by("position").values_list("logical_date", "state")
    return [(date.day, state) for date, state in rows]


def test_dates_get_their_runs_in_order_and_under_the_backfills_own_limit(
    world: World, raw: psycopg.Connection[Any], flow: Flow
) -> None:
    plan = ask(conf={"size": 7})
    assert (len(plan.dates), plan.counts) == (5, {"created": 5})
    begun = advance(world, raw)
    assert len(begun) == 2
    assert advance(world, raw) == [], "looking again makes no more"
    # The flow's limit of one run is not theirs.
    world.tick(*begun)
    assert list(Run.objects.values_list("state", flat=True)) == ["running", "running"]
    first = Run.objects.earliest("id")
    assert (first.run_type, first.run_key) == ("backfill", "backfill__2026-01-01T00:00:00+00:00")
    assert (first.conf, first.actor) == ({"size": 7}, "ana")
    assert first.data_interval_end == FIRST + timedelta(days=1)
    assert dates()[:3] == [(1, "created"), (2, "created"), (3, "waiting")]
    for _ in range(4):
        end(world, *Run.objects.filter(is_active=True).values_list("id", flat=True))
        advance(world, raw)
    row = Backfill.objects.get()
    assert [state for _, state in dates()] == ["created"] * 5
    assert not row.is_active
    assert Run.objects.filter(state="success").count() == 5
    assert all(not one.differences for one in compare())


def test_backwards_begins_with_the_newest(
    world: World, raw: psycopg.Connection[Any], flow: Flow
) -> None:
    ask(run_backwards=True, max_active_runs=1)
    (run,) = advance(world, raw)
    assert Run.objects.get(pk=run).logical_date == LAST


@pytest.mark.parametrize("option", ["depends_on_past", "wait_for_downstream"])
def test_backwards_is_refused_where_a_task_waits_for_the_run_before(
    world: World, raw: psycopg.Connection[Any], flow: Flow, option: str
) -> None:
    version = flow.current_version
    assert version is not None
    version.definition["tasks"][0][option] = True
    version.save()
    for dry_run in (True, False):
        with pytest.raises(InvalidInput, match="waits for the run before") as refused:
            ask(run_backwards=True, dry_run=dry_run)
        assert refused.value.extra["field"] == "run_backwards"
    ask()
    assert Backfill.objects.count() == 1


@pytest.mark.parametrize(
    ("reprocess", "first", "second", "third"),
    [
        ("none", "skipped", "skipped", "skipped"),
        ("failed", "skipped", "rerun", "skipped"),
        ("all", "rerun", "rerun", "skipped"),
    ],
)
def test_a_date_that_has_a_run_follows_the_policy(
    world: World,
    raw: psycopg.Connection[Any],
    flow: Flow,
    reprocess: str,
    first: str,
    second: str,
    third: str,
) -> None:
    ask(to_date=FIRST + timedelta(days=2), max_active_runs=9)
    good, bad, active = advance(world, raw)
    end(world, good)
    end(world, bad, ok=False)
    Backfill.objects.update(is_active=False)
    Run.objects.update(backfill_id=None)
    preview = ask(reprocess=reprocess, max_active_runs=9, dry_run=True)
    assert [one.state for one in preview.dates] == [first, second, third, "created", "created"]
    assert preview.id is None
    ask(reprocess=reprocess, max_active_runs=9)
    advance(world, raw)
    rows = list(BackfillDate.objects.order_by("-backfill_id", "position")[:5])
    assert [row.state for row in rows] == [first, second, third, "created", "created"]
    assert rows[2].reason == f"Run {Run.objects.get(pk=active).run_key} is queued."
    assert rows[2].run_id == active
    again = {row.run_id for row in rows if row.run_id and row.state == "rerun"}
    for run in again:
        attempts = RunAttempt.objects.filter(run_id=run).order_by("number")
        assert [one.filter_code for one in attempts] == ["superseded_by_run_attempt", None]
        assert attempts[1].cause == "backfill"
        end(world, run)
        assert Run.objects.get(pk=run).state == "success"
    assert all(not one.differences for one in compare())


def test_a_paused_a_cancelled_and_a_frozen_one_make_no_runs(
    world: World, raw: psycopg.Connection[Any], flow: Flow
) -> None:
    number = ask().id
    assert number is not None
    act: dict[str, Any] = {"backfill_id": number, "actor": "ana", "reason": "too much load"}
    operations.pause_backfill(is_paused=True, **act)
    operations.pause_backfill(is_paused=True, **act)
    assert advance(world, raw) == []
    operations.pause_backfill(is_paused=False, **act)
    freeze(scope_kind="flow", scope_id="f", actor="ana", reason="wait")
    assert advance(world, raw) == []
    thaw(scope_kind="flow", scope_id="f", actor="ana", reason="go on")
    operations.set_limit(max_active_runs=1, **act)
    (run,) = advance(world, raw)
    operations.cancel_backfill(**act)
    assert [state for _, state in dates()] == ["created"] + ["cancelled"] * 4
    assert BackfillDate.objects.get(position=4).reason == "ana cancelled it: too much load"
    assert Backfill.objects.get().is_active, "its run goes on"
    end(world, run)
    assert advance(world, raw) == []
    assert not Backfill.objects.get().is_active
    with pytest.raises(Conflict, match="is over"):
        operations.cancel_backfill(**act)
    assert list(
        Audit.objects.filter(object_kind="backfill").order_by("id").values_list("action", flat=True)
    ) == ["backfill", "pause_backfill", "unpause_backfill", "limit_backfill", "cancel_backfill"]


@pytest.mark.parametrize(
    ("options", "kind", "says"),
    [
        ({"flow_id": "none"}, NotFound, "no flow is called"),
        ({"from_date": LAST, "to_date": FIRST}, InvalidInput, "is after to"),
        ({"to_date": FIRST, "from_date": FIRST - timedelta(hours=1)}, None, ""),
        (
            {"from_date": FIRST + timedelta(hours=1), "to_date": FIRST + timedelta(hours=2)},
            InvalidInput,
            "has no date from",
        ),
        ({"from_date": datetime(1990, 1, 1, tzinfo=UTC)}, InvalidInput, "more than 10000 dates"),
        ({"from_date": FIRST.replace(tzinfo=None)}, InvalidInput, "needs an offset"),
        ({"reprocess": "some"}, InvalidInput, "one of none, failed, all"),
        ({"max_active_runs": 0}, InvalidInput, "from 1 to 1000"),
        ({"reason": " "}, InvalidInput, "Say why"),
    ],
)
def test_what_cannot_be_is_refused(
    flow: Flow, options: dict[str, Any], kind: type[Exception] | None, says: str
) -> None:
    if kind is None:
        assert ask(**options).counts == {"created": 1}
        return
    with pytest.raises(kind, match=says):
        ask(**options)
    assert not Backfill.objects.exists()


def test_a_flow_has_one_backfill_at_a_time_and_one_without_a_schedule_has_none(
    world: World, flow: Flow
) -> None:
    ask()
    with pytest.raises(Conflict, match="not over"):
        ask()
    world.flow("by_hand", chain("a"))
    with pytest.raises(InvalidInput, match="no schedule"):
        ask(flow_id="by_hand")


def test_one_that_cannot_go_on_holds_up_no_other_and_no_scheduler(
    world: World, raw: psycopg.Connection[Any], flow: Flow
) -> None:
    ask(max_active_runs=1)
    (run,) = advance(world, raw)
    end(world, run, ok=False)
    Backfill.objects.update(is_active=False)
    ask(max_active_runs=1, reprocess="failed")
    # The version of the run that begins again is one that nobody can read.
    assert flow.current_version is not None
    good = flow.current_version.definition
    unreadable = FlowVersion.objects.create(
        flow=flow,
        number=2,
        digest="1" * 64,
        definition={**good, "tasks": 7},
        bundle=flow.current_version.bundle,
        created_at=timezone.now(),
    )
    Run.objects.filter(pk=run).update(version=unreadable)
    world.flow("other", chain("a"), schedule="@daily")
    ask(flow_id="other", max_active_runs=1)
    begun = advance(world, raw)
    assert set(Run.objects.filter(pk__in=begun).values_list("flow_id", flat=True)) == {"f", "other"}
    # The date says why it got none, and the others get theirs.
    date = BackfillDate.objects.filter(backfill__flow=flow).latest("backfill_id", "-position")
    assert (date.state, date.run_id) == ("skipped", run)
    assert date.reason.startswith("It could not be begun: DefinitionError")


def test_runs_that_are_cleared_start_under_the_limit_of_their_backfill_and_later_under_the_flows(
    world: World, raw: psycopg.Connection[Any], flow: Flow
) -> None:
    ask(max_active_runs=5)
    runs = advance(world, raw)
    end(world, *runs[:4])
    operations.set_limit(
        backfill_id=Backfill.objects.get().pk, max_active_runs=2, actor="ana", reason="slow source"
    )
    for run in runs[:4]:
        clear_run(run_id=run, dry_run=False, actor="ana", reason="again")
    world.tick(*runs)
    states = Counter(Run.objects.values_list("state", flat=True))
    assert states == {"running": 2, "queued": 3}, "the fifth ran already, and one more began"
    end(world, *runs)
    for _ in range(4):
        world.tick(*runs)
        end(world, *runs)
    advance(world, raw)
    assert not Backfill.objects.get().is_active
    for run in runs[:4]:
        clear_run(run_id=run, dry_run=False, actor="ana", reason="again")
    world.tick(*runs)
    states = Counter(Run.objects.values_list("state", flat=True))
    assert states == {"success": 1, "running": 1, "queued": 3}, "max_active_runs is 1"


def test_it_is_not_over_while_a_run_of_it_is_to_begin_again(
    world: World, raw: psycopg.Connection[Any]
) -> None:
    world.flow(
        "f",
        chain("a"),
        schedule="@daily",
        run_retry=RunRetryPolicy(max_attempts=2, cooldown_s=60.0),
    )
    ask(to_date=FIRST)
    (run,) = advance(world, raw)
    end(world, run, ok=False)
    assert Run.objects.get(pk=run).retry_at is not None
    advance(world, raw)
    assert Backfill.objects.get().is_active
    Run.objects.update(retry_at=None)
    advance(world, raw)
    assert not Backfill.objects.get().is_active


def test_a_run_that_waits_for_its_own_retry_begins_now_and_once(
    world: World, raw: psycopg.Connection[Any]
) -> None:
    world.flow(
        "f",
        chain("a"),
        schedule="@daily",
        run_retry=RunRetryPolicy(max_attempts=2, cooldown_s=60.0),
    )
    ask(to_date=FIRST)
    (run,) = advance(world, raw)
    end(world, run, ok=False)
    Backfill.objects.update(is_active=False)
    ask(to_date=FIRST, reprocess="failed")
    assert advance(world, raw) == [run]
    row = Run.objects.get(pk=run)
    assert (row.state, row.run_attempt, row.retry_at) == ("queued", 2, None)
    begun, _ = begin_due(raw, leases=world.leases, terms=world.leases.terms(), versions=Versions())
    assert not begun
    end(world, run)
    assert Run.objects.get(pk=run).state == "success"


def test_one_of_a_paused_flow_goes_on_and_one_of_a_removed_flow_in_its_version(
    world: World, raw: psycopg.Connection[Any], flow: Flow
) -> None:
    ask(max_active_runs=1)
    Flow.objects.update(is_paused=True)
    (first,) = advance(world, raw)
    end(world, first)
    Flow.objects.update(removed_at=timezone.now())
    (second,) = advance(world, raw)
    end(world, second)
    assert Run.objects.filter(state="success").count() == 2
