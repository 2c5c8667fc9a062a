"""Reports on fail-over, split brain and duplicate runs, replayed; each test carries the report's id."""

from __future__ import annotations

import itertools
import threading
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from scheduler_app.models import Attempt, Flow, FlowVersion, LeaseEvent, Run, TakeOver
from scheduler_app.processes import database
from scheduler_app.rules.definition import FlowDefinition, from_dict
from scheduler_app.rules.errors import Fenced
from scheduler_app.scheduler import create_runs
from scheduler_app.scheduler.create_runs import create_due_runs
from scheduler_app.scheduler.leases import Leases
from scheduler_app.scheduler.take_over import follow_up, take_over
from scheduler_app.transitions.attempt import lose
from scheduler_app.transitions.flow import Source, store_version
from scheduler_app.transitions.ids import uuid7
from tests.world import World, chain

HOUR = timedelta(hours=1)


def standby() -> Leases:
    return Leases(holder=uuid7(), ttl_s=60, renew_interval_s=12, deadline_s=40)


def fail_over(raw: psycopg.Connection[Any], to: Leases) -> dict[int, int]:
    """The store does not hear the leader's renewals any more, and the standby takes all shards."""
    raw.execute("UPDATE lease SET expires_at = clock_timestamp() - interval '1 s'")
    taken = to.balance(raw, dead_after_s=60)
    assert len(taken) == 16
    take_over(raw, leases=to, new_terms=taken)
    return taken


def due(world: World, **options: Any) -> Flow:
    """A flow whose last full hour is due."""
    flow = world.flow("f", chain("a"), schedule="@hourly", **options)
    hour = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    flow.next_interval_start, flow.next_interval_end = hour - HOUR, hour
    flow.save()
    return flow


def test_b049_a_leader_cut_off_from_the_lease_store_cannot_dispatch_the_next_node(
    world: World, raw: psycopg.Connection[Any]
) -> None:
    """Both go on from memory when the current node ends; the old one's dispatch is refused."""
    run_id = world.run(world.flow("f", chain("first", "next")))
    world.tick(run_id)
    (first,) = world.messages
    world.messages = []
    assert world.claim(first) is not None
    stale_terms = world.leases.terms()
    new = World(raw, standby())
    fail_over(raw, new.leases)
    world.finish(first)
    with pytest.raises(Fenced) as refused:
        world.tick(run_id)
    world.leases.refused(raw, refused.value, stale_terms, "tick")
    assert world.leases.terms() == {}, "the old leader stops itself"
    new.tick(run_id)
    assert [a.task_id for a in new.attempts(run_id)] == ["first", "next"]
    event = LeaseEvent.objects.get(kind="fenced_write", shard=3)
    assert event.detail["sentence"] == "token 1 < 2"
    new.serve()
    new.tick(run_id)
    assert Run.objects.get().state == "success"


def test_b051_a_run_is_taken_over_once_for_each_loss_of_its_leader(
    world: World, raw: psycopg.Connection[Any]
) -> None:
    """Three schedulers restart one after the other: the term decides, and no clock of a boot."""
    run_id = world.run(world.flow("f", chain("a")))
    world.tick(run_id)
    assert world.claim(world.messages[0]) is not None
    for _ in range(3):
        one = standby()
        taken = fail_over(raw, one)
        # Looking again, as after an error, makes no second take-over.
        follow_up(raw, leases=one, terms=one.terms())
        assert one.balance(raw, dead_after_s=60) == {}
        assert set(taken) == set(range(16))
    terms = list(TakeOver.objects.filter(shard=3).values_list("old_token", "new_token"))
    assert sorted(terms) == [(1, 2), (2, 3), (3, 4)]
    attempt = Attempt.objects.get()
    assert (attempt.state, attempt.dispatch_no, attempt.lease_token) == ("running", 1, 1)


def test_b053_a_run_whose_tasks_all_succeeded_in_the_end_is_a_success(
    world: World, raw: psycopg.Connection[Any]
) -> None:
    """Scheduler and worker die in the middle; the second attempt succeeds, the first is not counted."""
    run_id = world.run(world.flow("f", chain("a", "b")))
    world.tick(run_id)
    assert world.claim(world.messages[0]) is not None
    new = World(raw, standby())
    fail_over(raw, new.leases)
    lose(
        raw,
        attempt_ids=[world.messages[0].attempt_id],
        dead_after_s=0.0,
        budget=3,
        source="test",
    )
    run = new.play(run_id)
    assert run.state == "success"
    first, second, _ = new.attempts(run_id)
    assert (first.outcome, first.filter_code) == ("lost", "lost_worker")
    assert (second.outcome, second.filter_code) == ("success", None)


def test_b055_a_creation_over_another_connection_than_the_lease_makes_no_second_run(
    world: World, raw: psycopg.Connection[Any]
) -> None:
    """The next fire time is read from a stale replica ten times in a minute: one run stays one."""
    flow = due(world)
    seen = (flow.next_interval_start, flow.next_interval_end)
    for number in range(10):
        with database.connect("scheduler") as other:
            created = create_due_runs(
                other, leases=world.leases, terms=world.leases.terms()
            ).run_ids
        assert len(created) == (1 if number == 0 else 0)
        Flow.objects.update(next_interval_start=seen[0], next_interval_end=seen[1])
    assert Run.objects.count() == 1


def _stall_and_wake(
    world: World, raw: psycopg.Connection[Any], stalled: psycopg.Connection[Any], new: Leases
) -> None:
    with stalled.transaction():
        world.leases.prove(stalled, world.leases.terms())
        (flow,) = create_runs._due_flows(stalled, list(world.leases.terms()))
        raw.execute("UPDATE lease SET expires_at = clock_timestamp() - interval '1 s'")
        assert new.balance(raw, dead_after_s=60) == {}
        raw.execute("SELECT pg_terminate_backend(%s, 5000)", [stalled.info.backend_pid])
        terms = new.balance(raw, dead_after_s=60)
        assert len(terms) == 16
        assert len(create_due_runs(raw, leases=new, terms=terms).run_ids) == 1
        create_runs._create_next(stalled, flow, new.terms()[flow["shard"]], 1)


def test_b057_a_stalled_acquirer_of_a_due_slot_fires_nothing_when_it_wakes(
    world: World, raw: psycopg.Connection[Any]
) -> None:
    """A holds its proof and has read the slot: nobody takes the shard. Its session is ended, B fires."""
    due(world)
    new = standby()
    with database.connect("scheduler") as stalled, pytest.raises(psycopg.OperationalError):
        _stall_and_wake(world, raw, stalled, new)
    with pytest.raises(Fenced):
        create_due_runs(raw, leases=world.leases, terms=world.leases.terms())
    assert Run.objects.count() == 1


def test_b059_a_schedule_that_is_edited_while_its_old_version_is_read_gives_one_run_a_date(
    world: World, raw: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scheduler has read the old schedule; the new one is stored; it inserts; it looks again."""
    flow = due(world)
    assert flow.current_version is not None
    read = threading.Event()
    create_next = create_runs._create_next

    def slowly(
        connection: psycopg.Connection[Any], seen: dict[str, Any], token: int, skips_max: int
    ) -> create_runs.Created:
        read.set()
        editor.join(timeout=0.5)  # it waits for the flow's row
        assert editor.is_alive()
        return create_next(connection, seen, token, skips_max)

    def edit() -> None:
        read.wait(30)
        with database.connect("scheduler") as other:
            said = from_dict(flow.current_version.definition)  # type: ignore[union-attr] # set above
            changed = FlowDefinition(flow_id="f", tasks=said.tasks, schedule="*/30 * * * *")
            store_version(
                other,
                definition=changed,
                source=Source(folder="", path="", bundle_digest="0" * 64, archive=b""),
                shard=3,
                own_folders=[],
            )

    editor = threading.Thread(target=edit)
    editor.start()
    monkeypatch.setattr(create_runs, "_create_next", slowly)
    arguments: dict[str, Any] = {"leases": world.leases, "terms": world.leases.terms()}
    assert len(create_due_runs(raw, **arguments).run_ids) == 1
    editor.join(timeout=30)
    monkeypatch.setattr(create_runs, "_create_next", create_next)
    assert FlowVersion.objects.count() == 2
    for _ in range(3):
        create_due_runs(raw, **arguments)
    dates = list(Run.objects.values_list("logical_date", flat=True))
    assert len(dates) == len(set(dates))
    starts = sorted((run.data_interval_start, run.data_interval_end) for run in Run.objects.all())
    for (_, end), (start, _) in itertools.pairwise(starts):
        assert end is not None
        assert start is not None
        assert end <= start, "no stretch of time is handled twice"


def test_b061_a_claim_whose_answer_is_slow_is_given_to_nobody_else(
    world: World, raw: psycopg.Connection[Any]
) -> None:
    """The delivery is handed out again before the first claim was answered: one of the two claims."""
    run_id = world.run(world.flow("f", chain("a")))
    world.tick(run_id)
    (message,) = world.messages
    nonce = uuid4()
    begin = threading.Barrier(4)
    claimed: list[bool] = []

    def poll() -> None:
        with database.connect("worker") as connection:
            begin.wait()
            claimed.append(World(connection, world.leases).claim(message, uuid4()) is not None)

    threads = [threading.Thread(target=poll) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert sorted(claimed) == [False, False, False, True]
    assert world.claim(message, nonce) is None
    assert Attempt.objects.count() == 1


def test_b063_five_triggers_at_once_and_the_schedule_leave_one_run_active_and_the_rest_in_order(
    world: World, raw: psycopg.Connection[Any]
) -> None:
    flow = due(world, max_active_runs=1)
    runs = [world.run(flow, f"manual__{number}") for number in range(5)]
    runs += create_due_runs(raw, leases=world.leases, terms=world.leases.terms()).run_ids
    assert len(runs) == 6
    other = World(raw, world.leases)  # another mind over the same rows
    for _ in range(40):
        active = Run.objects.filter(state="running").count()
        assert active <= 1
        for decider in (world, other):
            decider.tick(*Run.objects.filter(is_active=True).values_list("pk", flat=True))
            decider.serve()
    ended = list(Run.objects.order_by("started_at").values_list("pk", "state"))
    assert ended == [(run, "success") for run in runs]
