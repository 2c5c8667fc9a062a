"""The vectors of run states that need rows: time limits, pausing after failures, moves by hand."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from django.utils import timezone

from scheduler_app.models import Flow, Run, TaskInstance
from scheduler_app.operations.clear import clear_run
from scheduler_app.operations.mark import mark_run
from scheduler_app.rules.errors import InvalidInput
from scheduler_app.scheduler.failing_flows import pause_if_failing
from tests.factories import make_flow, make_run
from tests.vectors.cases import case as vector
from tests.world import chain

if TYPE_CHECKING:
    import psycopg

    from tests.world import World

HOUR = timedelta(hours=1)


def running(world: World, **options: float) -> int:
    """A run whose one task runs."""
    run_id = world.run(world.flow("f", chain("a"), **options))
    world.tick(run_id)
    (message,) = world.messages
    world.claim(message)
    return run_id


def test_a_run_within_its_time_limit_goes_on(world: World) -> None:
    """The vector compares strictly; the moment at which both are equal passes between two ticks."""
    case = vector("run_state", "timeout-not-yet")
    limit_s = case.given["flow"]["run_timeout_seconds"]
    run_id = running(world, run_timeout_s=limit_s)
    run = Run.objects.get(pk=run_id)
    assert run.started_at is not None
    assert run.deadline_at is not None
    assert abs((run.deadline_at - run.started_at).total_seconds() - limit_s) < 1
    Run.objects.filter(pk=run_id).update(deadline_at=timezone.now() + timedelta(seconds=30))
    world.tick(run_id)
    assert Run.objects.get(pk=run_id).state == case.expect["run_state"]
    assert world.states(run_id) == {"a": "running"}


def test_a_run_that_has_not_started_has_no_time_limit_yet(world: World) -> None:
    """The vector has a running run without a start; here a run that waits for its start is queued."""
    case = vector("run_state", "timeout-not-started")
    assert case.given["run"]["started_seconds_ago"] is None
    flow = world.flow("f", chain("a"), run_timeout_s=0.001, max_active_runs=1)
    first, second = world.run(flow, "r1"), world.run(flow, "r2")
    world.tick(first)
    world.tick(second)
    waiting = Run.objects.get(pk=second)
    assert (waiting.state, waiting.deadline_at) == ("queued", None)
    assert world.states(second) == {"a": "none"}, "no instance changes"


def runs_of(number: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """The flow of a vector has its runs; what it gives and expects."""
    case = vector("run_state", f"pause-after-failures-{number}")
    flow = make_flow(flow_id="f")
    for place, state in enumerate(case.given["runs_newest_first"]):
        at = timezone.now() - place * HOUR
        ended_at = None if state == "running" else at
        make_run(flow=flow, state=state, logical_date=at, ended_at=ended_at)
    return case.given, case.expect


@pytest.mark.parametrize("number", [1, 2, 4])
def test_a_flow_is_paused_after_so_many_failures_in_a_row(
    raw: psycopg.Connection[object], number: int
) -> None:
    given, expected = runs_of(number)
    with raw.transaction():
        pause_if_failing(raw, flow_id="f", limit=given["flow"]["max_consecutive_failed_runs"])
    assert Flow.objects.get().is_paused is expected["pause_flow"]


def test_a_run_that_runs_on_does_not_hide_the_failures_around_it(
    raw: psycopg.Connection[object],
) -> None:
    """Differs from the vector, for which it counts as one that did not fail.

    The last runs to end are what is known; one slow run in between would hide any number of failures.
    """
    given, expected = runs_of(5)
    with raw.transaction():
        pause_if_failing(raw, flow_id="f", limit=given["flow"]["max_consecutive_failed_runs"])
    assert not expected["pause_flow"]
    assert Flow.objects.get().is_paused


def test_a_run_that_begins_again_has_not_failed_for_good(raw: psycopg.Connection[object]) -> None:
    flow = make_flow(flow_id="f")
    for _ in range(2):
        make_run(flow=flow, state="failed")
    run = Run.objects.latest("id")
    Run.objects.filter(pk=run.pk).update(retry_at=timezone.now() + HOUR)
    with raw.transaction():
        assert not pause_if_failing(raw, flow_id="f", limit=2)
    Run.objects.filter(pk=run.pk).update(retry_at=None)
    with raw.transaction():
        assert pause_if_failing(raw, flow_id="f", limit=2)


def test_a_running_run_marked_failed_ends_now_and_keeps_its_start(world: World) -> None:
    case = vector("run_state", "transition-running-failed")
    run_id = running(world)
    before = Run.objects.get(pk=run_id)
    mark_run(run_id=run_id, state=case.when["set_run_state"], actor="ana", reason="wrong date")
    world.finish(world.messages[0], ok=False)
    world.tick(run_id)
    after = Run.objects.get(pk=run_id)
    assert (after.state, case.expect["fields"]) == ("failed", {"end": "now", "start": "kept"})
    assert after.started_at == before.started_at
    assert after.ended_at is not None


def test_an_ended_run_marked_otherwise_keeps_its_times(world: World) -> None:
    case = vector("run_state", "transition-success-failed")
    run_id = world.run(world.flow("f", chain("a")))
    before = world.play(run_id)
    mark_run(run_id=run_id, state=case.when["set_run_state"], actor="ana", reason="wrong rows")
    after = Run.objects.get(pk=run_id)
    assert (after.state, case.expect["fields"]) == ("failed", {"start": "kept", "end": "kept"})
    assert (after.started_at, after.ended_at) == (before.started_at, before.ended_at)


@pytest.mark.parametrize("name", ["queued-running", "failed-running", "running-running"])
def test_nobody_says_that_a_run_is_running(world: World, name: str) -> None:
    """A run is running while its tasks are looked at: nothing but a clear or its start makes it so.

    Set by hand, it would be a state without anything behind it; the vectors' baseline has it for its
    own backfills.
    """
    case = vector("run_state", f"transition-{name}")
    run_id = world.run(world.flow("f", chain("a")))
    if case.given["run"]["state"] != "queued":
        world.play(run_id, failing=["a"])
    before = Run.objects.get(pk=run_id)
    with pytest.raises(InvalidInput):
        mark_run(run_id=run_id, state=case.when["set_run_state"], actor="ana", reason="x")
    assert Run.objects.get(pk=run_id).state == before.state


def test_a_run_that_is_queued_again_has_the_times_of_a_new_one(world: World) -> None:
    """By a clear of the whole run. One that runs goes on as it is: to queue it would stop its clock."""
    case = vector("run_state", "transition-running-queued")
    run_id = world.run(world.flow("f", chain("a")))
    before = world.play(run_id, failing=["a"])
    clear_run(run_id=run_id, dry_run=False, actor="ana", reason="again")
    after = Run.objects.get(pk=run_id)
    assert after.state == case.expect["run_state"]
    assert case.expect["fields"] == {"queued_at": "now", "start": None, "end": None}
    assert (after.started_at, after.ended_at) == (None, None)
    assert before.queued_at is not None
    assert after.queued_at is not None
    assert after.queued_at > before.queued_at


def test_a_clear_of_a_running_run_lets_it_run_on(world: World) -> None:
    run_id = running(world)
    before = Run.objects.get(pk=run_id)
    clear_run(run_id=run_id, dry_run=False, actor="ana", reason="again")
    after = Run.objects.get(pk=run_id)
    assert (after.state, after.started_at) == ("running", before.started_at)
    assert TaskInstance.objects.get(run_id=run_id).state == "restarting"
