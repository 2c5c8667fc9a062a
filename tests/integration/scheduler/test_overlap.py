"""What a due schedule does while runs of its flow are active, and after too many failures in a row."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from django.utils import timezone

from scheduler_app.models import (
    Attempt,
    Audit,
    Flow,
    FlowVersion,
    Incident,
    Run,
    RunAttempt,
    TaskInstance,
)
from scheduler_app.operations.pause_flow import set_paused
from scheduler_app.queries import flows
from scheduler_app.queries.audit_visibility import compare
from scheduler_app.queries.scope import EVERYTHING
from scheduler_app.rules.visibility import explain
from scheduler_app.scheduler.create_runs import (
    FLOWS_MAX,
    SKIPS_MAX,
    create_due_runs,
    seconds_to_next_due,
)
from scheduler_app.scheduler.failing_flows import pause_failing
from tests.world import World, chain

if TYPE_CHECKING:
    import psycopg


def _due(world: World, *, hours_ago: int = 3, **options: Any) -> Flow:
    now = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    start = (now - timedelta(days=2, hours=hours_ago)).isoformat()
    flow = world.flow(
        "f", chain("a", retries=2), schedule="@hourly", catchup=True, start_date=start, **options
    )
    flow.next_interval_start = now - timedelta(hours=hours_ago)
    flow.next_interval_end = flow.next_interval_start + timedelta(hours=1)
    flow.last_interval_start = flow.next_interval_start - timedelta(hours=1)
    flow.last_interval_end = flow.next_interval_start
    flow.save()
    return flow


def _create(world: World, raw: psycopg.Connection[Any]) -> list[int]:
    return create_due_runs(raw, leases=world.leases, terms=world.leases.terms()).run_ids


def test_a_skipped_date_has_a_run_that_says_why_it_never_started(
    world: World, raw: psycopg.Connection[Any]
) -> None:
    flow = _due(world, overlap="skip", max_active_runs=1, hours_ago=2)
    (active,) = _create(world, raw)
    assert _create(world, raw) == []
    skipped = Run.objects.exclude(pk=active).get()
    assert (skipped.state, skipped.filter_code) == ("failed", "skipped_overlap")
    assert skipped.logical_date == flow.next_interval_end
    assert explain("skipped_overlap", skipped.filter_detail) == (
        "It was due while 1 scheduled runs of its flow were active, of at most 1; the flow says"
        " overlap=skip, so that it never started (shard 3, token 1)."
    )
    assert RunAttempt.objects.get(run=skipped).filter_code == "skipped_overlap"
    assert not TaskInstance.objects.filter(run=skipped).exists()
    assert all(not row.differences for row in compare())
    # The cursor went on behind it.
    assert flow.next_interval_end is not None
    assert Flow.objects.get().next_interval_start == flow.next_interval_end + timedelta(hours=1)


def test_after_a_standstill_all_dates_that_are_left_out_are_in_few_turns(
    world: World, raw: psycopg.Connection[Any]
) -> None:
    missed = SKIPS_MAX + 100
    _due(world, overlap="skip", max_active_runs=1, hours_ago=missed)
    (active,) = _create(world, raw)
    rounds = [
        create_due_runs(raw, leases=world.leases, terms=world.leases.terms()) for _ in range(3)
    ]
    assert [one.may_be_more for one in rounds] == [True, True, False], "at once, and no longer"
    assert [one.run_ids for one in rounds] == [[], [], []]
    skipped = Run.objects.filter(filter_code="skipped_overlap")
    assert skipped.count() == missed - 1
    assert RunAttempt.objects.filter(filter_code="skipped_overlap").count() == missed - 1
    # Each date once, oldest first, behind the one that has its run.
    first = Run.objects.get(pk=active).logical_date
    assert first is not None
    assert list(skipped.order_by("id").values_list("logical_date", flat=True)) == [
        first + timedelta(hours=number) for number in range(1, missed)
    ]
    flow = Flow.objects.get()
    now = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    assert (flow.last_interval_end, flow.next_interval_end) == (now, now + timedelta(hours=1))
    assert all(not row.differences for row in compare())


def test_flows_that_leave_dates_out_share_a_turn(
    world: World, raw: psycopg.Connection[Any]
) -> None:
    now = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    for number in range(4):
        flow = world.flow(
            f"f{number}",
            chain("a"),
            schedule="@hourly",
            catchup=True,
            start_date=(now - timedelta(hours=400)).isoformat(),
            max_active_runs=1,
            overlap="skip",
        )
        flow.next_interval_start = now - timedelta(hours=400)
        flow.next_interval_end = flow.next_interval_start + timedelta(hours=1)
        flow.save()
    assert len(_create(world, raw)) == 4
    _create(world, raw)
    left_out = Run.objects.filter(filter_code="skipped_overlap")
    counts = [left_out.filter(flow_id=f"f{number}").count() for number in range(4)]
    assert counts == [SKIPS_MAX // 4] * 4


def test_dates_that_have_their_runs_already_are_passed_without_a_pause(
    world: World, raw: psycopg.Connection[Any]
) -> None:
    flow = _due(world, hours_ago=2)
    _create(world, raw)
    Flow.objects.update(
        next_interval_start=flow.next_interval_start,
        next_interval_end=flow.next_interval_end,
        last_interval_start=flow.last_interval_start,
        last_interval_end=flow.last_interval_end,
    )
    done = create_due_runs(raw, leases=world.leases, terms=world.leases.terms())
    assert (done.run_ids, done.passed, done.may_be_more) == ([], {"f"}, True)


def test_by_default_a_due_date_waits_and_nothing_is_left_out(
    world: World, raw: psycopg.Connection[Any]
) -> None:
    flow = _due(world, max_active_runs=1)
    assert len(_create(world, raw)) == 1
    assert _create(world, raw) == []
    assert Run.objects.count() == 1
    assert Flow.objects.get().next_interval_start == flow.next_interval_end


def test_the_older_run_is_cancelled_for_the_newer_one(
    world: World, raw: psycopg.Connection[Any]
) -> None:
    _due(world, overlap="cancel_older", max_active_runs=1)
    (older,) = _create(world, raw)
    world.tick(older)
    (message,) = world.messages
    world.claim(message)
    assert _create(world, raw) == []
    reason = "A newer run of its flow is due, and the flow says overlap=cancel_older."
    assert Attempt.objects.get(pk=message.attempt_id).stop_reason == reason
    assert _create(world, raw) == [], "it is asked once"
    assert Audit.objects.filter(action="terminate", actor="scheduler").count() == 1
    # Its worker stops it: it fails without a retry, and the newer one is made.
    world.finish(message, ok=False)
    world.tick(older)
    assert Run.objects.get(pk=older).state == "failed"
    (newer,) = _create(world, raw)
    assert Run.objects.get(pk=newer).state == "queued"


def test_an_older_run_that_has_not_started_is_over_at_once(
    world: World, raw: psycopg.Connection[Any]
) -> None:
    _due(world, overlap="cancel_older", max_active_runs=1)
    (older,) = _create(world, raw)
    assert _create(world, raw) == []
    assert Run.objects.get(pk=older).state == "failed"
    assert len(_create(world, raw)) == 1


def _ended(flow: Flow, *states: str) -> None:
    now = timezone.now()
    assert flow.current_version is not None
    for number, state in enumerate(states):
        Run.objects.create(
            flow=flow,
            run_key=f"{state}-{Run.objects.count()}",
            shard=flow.shard,
            run_type="manual",
            state=state,
            is_active=False,
            version=flow.current_version,
            created_at=now,
            ended_at=now + timedelta(milliseconds=number),
        )


def test_a_flow_that_fails_in_a_row_is_paused_and_somebody_hears_of_it(
    world: World, raw: psycopg.Connection[Any]
) -> None:
    flow = _due(world, max_consecutive_failed_runs=3)
    _ended(flow, "failed", "failed", "success", "failed", "failed")
    terms = world.leases.terms()
    assert pause_failing(raw, leases=world.leases, terms=terms, limits={"f": 3}) == []
    _ended(flow, "failed")
    assert pause_failing(raw, leases=world.leases, terms=terms, limits={"f": 3}) == ["f"]
    assert pause_failing(raw, leases=world.leases, terms=terms, limits={"f": 3}) == [], "once"
    assert Flow.objects.get().is_paused
    incident = Incident.objects.get(resolved_at__isnull=True)
    assert (incident.kind, incident.subject) == ("flow_paused_by_failures", "f")
    assert "Its last 3 runs failed" in incident.message
    assert Audit.objects.get(action="pause").actor == "scheduler"
    # A person unpauses it: what failed before is forgiven.
    set_paused(flow_id="f", is_paused=False, actor="alice")
    assert not Incident.objects.filter(resolved_at__isnull=True).exists()
    assert pause_failing(raw, leases=world.leases, terms=terms, limits={"f": 3}) == []
    assert not Flow.objects.get().is_paused


def test_a_leader_that_died_before_it_paused_leaves_that_to_the_next_due_date(
    world: World, raw: psycopg.Connection[Any]
) -> None:
    flow = _due(world, max_consecutive_failed_runs=2)
    _ended(flow, "failed", "failed")
    assert _create(world, raw) == []
    assert Flow.objects.get().is_paused


def test_the_tick_that_ends_a_failed_run_names_its_flow(
    world: World, raw: psycopg.Connection[Any]
) -> None:
    flow = world.flow("g", chain("a"), max_consecutive_failed_runs=2)
    run = world.run(flow)
    world.tick(run)
    world.claim(world.messages[0])
    world.finish(world.messages[0], ok=False)
    assert world.tick(run).failing == {"g": 2}


def test_without_catch_up_what_nobody_scheduled_in_time_is_left_out(
    world: World, raw: psycopg.Connection[Any]
) -> None:
    now = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    flow = world.flow("f", chain("a"), schedule="@hourly")
    for name, hours in (
        ("last_interval_start", 9),
        ("last_interval_end", 8),
        ("next_interval_start", 8),
        ("next_interval_end", 7),
    ):
        setattr(flow, name, now - timedelta(hours=hours))
    flow.save()
    (run,) = _create(world, raw)
    made = Run.objects.get(pk=run).data_interval_end
    assert made is not None
    assert made >= now, "of eight missed dates the newest alone"
    assert _create(world, raw) == []


def _logical_dates() -> list[datetime]:
    found = Run.objects.order_by("logical_date").values_list("logical_date", flat=True)
    return [date for date in found if date is not None]


def _end_active() -> None:
    Run.objects.filter(is_active=True).update(
        state="success", is_active=False, ended_at=timezone.now()
    )


def test_dates_that_came_due_at_the_limit_wait_and_none_is_left_out_without_catch_up(
    world: World, raw: psycopg.Connection[Any]
) -> None:
    flow = _due(world, max_active_runs=1, hours_ago=1)
    Flow.objects.update(current_version=_version(flow, catchup=False))
    assert len(_create(world, raw)) == 1
    first = _logical_dates()[0]
    # Three more come due while that run goes on; the limit is met when the first of them does.
    _pass_hours(1)
    assert _create(world, raw) == []
    flow = Flow.objects.get()
    assert flow.in_line_from == flow.next_interval_end
    assert flows.one(EVERYTHING, "f").in_line_from == flow.in_line_from, "and it is told"
    _pass_hours(2)
    for number in range(1, 4):
        assert _create(world, raw) == []
        _end_active()
        assert len(_create(world, raw)) == 1, number
    dates = _logical_dates()
    assert [later - first for later in dates] == [timedelta(hours=n - 3) for n in range(4)]
    assert Flow.objects.get().in_line_from is None, "nothing is due any more"


def test_what_nobody_scheduled_before_the_limit_was_met_is_left_out_as_ever(
    world: World, raw: psycopg.Connection[Any]
) -> None:
    flow = _due(world, max_active_runs=1, hours_ago=5)
    Flow.objects.update(current_version=_version(flow, catchup=False))
    Run.objects.create(
        flow=flow,
        run_key="before",
        shard=flow.shard,
        run_type="scheduled",
        state="running",
        is_active=True,
        version=_version(flow, catchup=False),
        created_at=timezone.now(),
    )
    assert _create(world, raw) == []
    _end_active()
    assert len(_create(world, raw)) == 1
    assert _create(world, raw) == []
    now = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    assert _logical_dates() == [now - timedelta(hours=1)], "the newest alone"


def test_a_pause_ends_the_line(world: World, raw: psycopg.Connection[Any]) -> None:
    flow = _due(world, max_active_runs=1, hours_ago=1)
    Flow.objects.update(current_version=_version(flow, catchup=False))
    _create(world, raw)
    _pass_hours(1)
    _create(world, raw)
    set_paused(flow_id="f", is_paused=True, actor="alice")
    _pass_hours(3)
    set_paused(flow_id="f", is_paused=False, actor="alice")
    _end_active()
    assert len(_create(world, raw)) == 1
    assert _create(world, raw) == []


def test_flows_at_their_limit_hold_up_no_other(world: World, raw: psycopg.Connection[Any]) -> None:
    now = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    overlaps = ("queue", "cancel_older")
    for number in range(2 * FLOWS_MAX):
        flow = world.flow(
            f"slow{number}",
            chain("a"),
            schedule="@hourly",
            catchup=True,
            start_date=(now - timedelta(days=1)).isoformat(),
            max_active_runs=1,
            overlap=overlaps[number % 2],
        )
        flow.next_interval_start = now - timedelta(hours=8)
        flow.next_interval_end = now - timedelta(hours=7)
        flow.save()
        run = Run.objects.get(pk=world.run(flow))
        run.run_type, run.frozen_at = "scheduled", timezone.now()
        run.save()
    quick = world.flow("quick", chain("a"), schedule="@hourly")
    quick.next_interval_start, quick.next_interval_end = now - timedelta(hours=1), now
    quick.save()
    (run_id,) = _create(world, raw)
    assert Run.objects.get(pk=run_id).flow_id == "quick"
    # What is due and waits does not hide when the next one comes due.
    due_in_s = seconds_to_next_due(raw, shards=list(world.leases.terms()))
    assert due_in_s is not None
    assert 0 < due_in_s <= 3600
    # None of those that have to be looked at comes never.
    for _ in range(30):
        _create(world, raw)
        if not Flow.objects.filter(flow_id__startswith="slow", in_line_from=None).exclude(
            current_version__definition__overlap="cancel_older"
        ):
            break
    else:
        raise AssertionError("some flow was never looked at")


def _version(flow: Flow, **options: Any) -> FlowVersion:
    assert flow.current_version is not None
    version = flow.current_version
    version.definition = {**version.definition, **options}
    version.save()
    return version


def _pass_hours(number: int) -> None:
    """So much time passes: all that lies on the clock moves back."""
    for row in Flow.objects.all():
        for name in (
            "next_interval_start",
            "next_interval_end",
            "last_interval_start",
            "last_interval_end",
            "in_line_from",
        ):
            if (at := getattr(row, name)) is not None:
                setattr(row, name, at - timedelta(hours=number))
        row.save()
    for run in Run.objects.filter(logical_date__isnull=False):
        assert run.logical_date is not None
        run.logical_date -= timedelta(hours=number)
        run.run_key = f"of {run.pk}"
        run.save()
