"""Reports on pools, priorities and limits."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from django.utils import timezone

from scheduler_app.models import Attempt, Audit, KeptRoom, KeyLimit, Pool, TaskInstance
from scheduler_app.operations.freeze import freeze
from scheduler_app.operations.key_limits import remove_limit, set_limit
from scheduler_app.operations.pools import change_pool, delete_pool
from scheduler_app.operations.terminate import terminate_task_instance
from scheduler_app.operations.thaw import thaw
from scheduler_app.queries import slots
from scheduler_app.queries.audit_visibility import compare
from scheduler_app.queries.scope import EVERYTHING
from scheduler_app.queries.why import why_of
from scheduler_app.rules import capacity
from scheduler_app.rules.definition import LimitDefinition, TaskDefinition
from scheduler_app.rules.errors import InvalidInput, NotAllowed
from scheduler_app.scheduler import dispatch_attempts
from scheduler_app.scheduler import tick as ticks
from scheduler_app.scheduler.thaw import thaw_due
from scheduler_app.scheduler.turns import Turns
from scheduler_app.transitions import attempt
from tests import factories
from tests.together import together
from tests.world import World

if TYPE_CHECKING:
    from collections.abc import Sequence

    import psycopg

    from scheduler_app.scheduler.leases import Leases
    from scheduler_app.transitions.attempt import Message

WHY: dict[str, Any] = {"actor": "ana", "reason": "a test"}


@pytest.fixture(autouse=True)
def noted_at_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waits says so at once, and the scheduler is known by name."""
    monkeypatch.setattr(dispatch_attempts, "WAIT_NOTED_AFTER_S", 0.0)
    factories.make_job(id=world.leases.holder, kind="scheduler", hostname="host-9")


def many(number: int, name: str = "t", **options: Any) -> list[TaskDefinition]:
    return [TaskDefinition(task_id=f"{name}{place:03}", **options) for place in range(number)]


def started(world: World, *runs: int) -> list[Message]:
    """What one tick over these runs starts; workers take all of it."""
    world.messages.clear()
    world.tick(*runs)
    for message in world.messages:
        assert world.claim(message) is not None
    return list(world.messages)


def finish(world: World, messages: Sequence[Message]) -> None:
    for message in messages:
        world.finish(message)


def taken(pool: str) -> int:
    return sum(Attempt.objects.filter(is_live=True, pool=pool).values_list("pool_slots", flat=True))


def task_of(message: Message) -> str:
    return TaskInstance.objects.get(pk=message.ti_id).task_id


def test_b167_a_pool_that_is_overfull_starts_nothing_until_there_is_room(world: World) -> None:
    pool = Pool.objects.create(name="two", slots=3)
    run = world.run(world.flow("f", many(13, pool="two")))
    running = started(world, run)
    assert len(running) == 3
    change_pool(name=pool.name, slots=2, **WHY)
    assert started(world, run) == [], "3 of 2 are taken"
    finish(world, running[:1])
    assert started(world, run) == [], "2 of 2 are taken"
    finish(world, running[1:2])
    assert len(started(world, run)) == 1
    assert taken("two") == 2


def test_b169_a_pool_that_was_shrunk_takes_no_room_of_another(world: World) -> None:
    Pool.objects.create(name="a", slots=6)
    Pool.objects.create(name="b", slots=5)
    of_a = world.run(world.flow("fa", many(10, pool="a")))
    of_b = world.run(world.flow("fb", many(10, pool="b")))
    assert len(started(world, of_a)) == 6
    change_pool(name="a", slots=1, **WHY)
    assert Counter(m.run_id for m in started(world, of_a, of_b)) == {of_b: 5}


def test_b171_a_backlog_of_higher_priority_in_one_pool_does_not_starve_another(
    world: World,
) -> None:
    Pool.objects.create(name="a", slots=20)
    Pool.objects.create(name="b", slots=20)
    held = world.run(world.flow("held", many(19, pool="a"), max_active_tasks=99))
    for _ in range(2):
        started(world, held)
    assert taken("a") == 19
    many_of_a = world.run(world.flow("fa", many(300, pool="a", priority=2), max_active_tasks=999))
    of_b = world.run(world.flow("fb", many(100, pool="b", priority=1), max_active_tasks=999))
    cycles = 0
    while taken("b") < 20:
        cycles += 1
        of_a = [m for m in started(world, many_of_a, of_b) if m.run_id == many_of_a]
        finish(world, of_a)  # exactly one is always free
        assert cycles <= 3


def test_b173_priority_is_strict_over_pools_where_the_whole_is_short(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch_attempts, "DISPATCHES_MAX", 2)
    Pool.objects.create(name="a", slots=9)
    Pool.objects.create(name="b", slots=9)
    tasks = [
        *(TaskDefinition(task_id=f"low{n}", pool="a", priority=1) for n in range(3)),
        *(TaskDefinition(task_id=f"high{n}", pool="b", priority=2) for n in range(2)),
        TaskDefinition(task_id="highest", pool="a", priority=3),
    ]
    run = world.run(world.flow("f", tasks))
    rounds = [{task_of(m) for m in started(world, run)} for _ in range(3)]
    assert rounds[0] == {"highest"} | (rounds[0] & {"high0", "high1"})
    assert [len(each) for each in rounds] == [2, 2, 2]
    assert rounds[0] | rounds[1] >= {"highest", "high0", "high1"}
    assert rounds[2] <= {"low0", "low1", "low2"}


def test_b175_a_pool_that_went_is_named_by_each_task_that_waits_for_it(world: World) -> None:
    """A flow that names a pool which is not there is not registered: test_catalog tells of that.

    What is left is a pool that went by other ways than this product's, and it is told.
    """
    run = world.run(world.flow("f", many(1, pool="nope")))
    world.tick(run)
    ti = TaskInstance.objects.get(run_id=run)
    told = why_of(EVERYTHING, ti.pk)
    assert told.rule == "unknown_pool"
    assert "There is no pool 'nope'. Create it" in told.sentence
    Pool.objects.create(name="nope", slots=1)
    assert len(started(world, run)) == 1


def test_b175_a_pool_that_flows_name_cannot_be_deleted(world: World) -> None:
    Pool.objects.create(name="etl", slots=1)
    flow = world.flow("f", many(1, pool="etl"))
    with pytest.raises(NotAllowed, match=r"1 flows name pool 'etl' \(f\)"):
        delete_pool(name="etl", **WHY)
    flow.removed_at = timezone.now()
    flow.save()
    delete_pool(name="etl", **WHY)
    assert not Pool.objects.filter(name="etl").exists()


def test_b177_what_was_ended_by_hand_gives_its_slot_back(world: World) -> None:
    Pool.objects.create(name="one", slots=1)
    run = world.run(world.flow("f", many(2, pool="one")))
    (first,) = started(world, run)
    assert started(world, run) == []
    terminate_task_instance(ti_id=first.ti_id, **WHY)
    assert started(world, run) == [], "its process runs still"
    world.finish(first, ok=False)
    assert len(started(world, run)) == 1


def test_b179_a_heartbeat_after_the_end_changes_nothing(world: World) -> None:
    Pool.objects.create(name="one", slots=1)
    run = world.run(world.flow("f", many(2, pool="one")))
    (first,) = started(world, run)
    world.finish(first)
    before = Attempt.objects.get(pk=first.attempt_id)
    (beat,) = attempt.beat(
        world.connection, attempt_ids=[first.attempt_id], worker_job_id=world.worker
    )
    assert not beat.is_wanted
    after = Attempt.objects.get(pk=first.attempt_id)
    assert (after.outcome, after.heartbeat_at) == ("success", before.heartbeat_at)
    assert TaskInstance.objects.get(pk=first.ti_id).state == "success"
    assert len(started(world, run)) == 1, "its slot stays free"


def test_two_schedulers_at_one_pool_and_one_key_never_exceed_them(
    world: World, leases: Leases
) -> None:
    """Both tick at the same moments, each with runs of its own, while what they started goes on."""
    Pool.objects.create(name="shared", slots=3)
    limit = (LimitDefinition(key="c:{params[c]}", slots=2),)
    runs = [
        world.run(
            world.flow(f"f{n}", many(6, pool="shared", limits=limit), params={"c": "acme"}),
        )
        for n in range(2)
    ]
    tickers = [World(world.connection, leases).ticker for _ in runs]

    def tick(place: int, connection: psycopg.Connection[Any]) -> list[Message]:
        outcome = tickers[place].tick(
            connection, terms=leases.terms(), run_ids=[runs[place]], queue_slots={"default": 8}
        )
        return outcome.messages

    running: list[Message] = []
    ended = 0
    for _ in range(30):
        for found in together([lambda c: tick(0, c), lambda c: tick(1, c)]):
            running += found
        assert len(running) <= 2, "two slots of the key"
        assert taken("shared") == len(running)
        for message in running:
            world.claim(message)
        if running:
            assert Attempt.objects.get(pk=running[0].attempt_id).limit_keys == ["c:acme"]
            world.finish(running.pop(0))
            ended += 1
        if ended == 12:
            break
    assert ended == 12


def test_flows_share_a_pool_in_turns_and_each_task_tells_who_holds_it(world: World) -> None:
    Pool.objects.create(name="one", slots=1)
    runs = [world.run(world.flow(name, many(4, pool="one"))) for name in ("big", "small")]
    order = []
    for _ in range(6):
        (message,) = started(world, *runs)
        order.append(runs.index(message.run_id))
        waiting = TaskInstance.objects.filter(run_id__in=runs, state="scheduled").first()
        if waiting is not None:
            told = why_of(EVERYTHING, waiting.pk)
            assert (told.rule, told.holders_total) == ("pool_full", 1)
            assert told.holders[0].ti == message.ti_id
            assert told.since is not None
        finish(world, [message])
    assert Counter(order) == {0: 3, 1: 3}


def test_many_small_tasks_cannot_overtake_a_large_one_for_ever(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    Pool.objects.create(name="four", slots=4)
    small = world.run(world.flow("small", many(60, pool="four"), max_active_tasks=99))
    large = world.run(world.flow("large", many(1, "big", pool="four", pool_slots=4)))
    running = started(world, small)
    rounds = 0

    def round_is_over() -> list[Message]:
        nonlocal running
        finish(world, running[:1])
        new = started(world, small, large)
        running = running[1:] + new
        return new

    for _ in range(5):
        assert [m.run_id for m in round_is_over()] == [small], "a small one takes what is free"
    monkeypatch.setattr(capacity, "KEPT_AFTER_S", 0.0)
    while all(m.run_id == small for m in running):
        rounds += 1
        round_is_over()
        assert rounds <= 4, "what becomes free is kept"
    assert [m.run_id for m in running] == [large]
    waiting = TaskInstance.objects.filter(run_id=small, state="scheduled").first()
    assert waiting is not None
    assert waiting.wait is not None
    assert waiting.wait["code"] in ("pool_kept", "pool_full")


@pytest.mark.parametrize("slots", [4, 1])
def test_what_is_kept_for_one_holds_for_every_scheduler(
    world: World, leases: Leases, monkeypatch: pytest.MonkeyPatch, slots: int
) -> None:
    """Two schedulers, each with one of two flows; that of the small tasks always looks first."""
    monkeypatch.setattr(capacity, "KEPT_AFTER_S", 0.0)
    Pool.objects.create(name="four", slots=4)
    keys = tuple(LimitDefinition(key=key, slots=4) for key in ("one", "other"))
    of_large: dict[str, Any] = {"pool": "four", "pool_slots": 4}
    of_small: list[dict[str, Any]] = [{"pool": "four"}]
    if slots == 1:  # it needs two keys, and each of them is taken by a stream of its own
        of_large = {"limits": keys}
        of_small = [{"limits": keys[:1]}, {"limits": keys[1:]}]
    first, small = (
        [
            world.run(world.flow(f"{name}{n}", many(number, **one), max_active_tasks=99))
            for n, one in enumerate(of_small)
        ]
        for name, number in (("first", 4), ("small", 40))
    )
    large = world.run(world.flow("large", many(1, "big", **of_large)))
    another = World(world.connection, leases)
    running = started(world, *first)
    assert len(running) == 4 * len(small)
    assert started(another, large) == []
    for number in range(12):
        # The oldest of each stream ends by turns: both keys are never free at once by chance.
        ended = running.pop(number % 2 if slots == 1 else 0)
        finish(world, [ended])
        running += started(world, *small)
        running += started(another, large)
        if any(message.run_id == large for message in running):
            break
    else:
        raise AssertionError("small ones overtook it for ever")
    finish(world, running)
    assert not KeptRoom.objects.exists(), "nothing is kept once it has begun"
    assert len(started(world, *small)) == 4 * len(small)


def test_of_two_that_need_much_who_waits_longer_has_what_is_kept(
    world: World, leases: Leases, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two schedulers, with one each; neither waits for the other for ever."""
    monkeypatch.setattr(capacity, "KEPT_AFTER_S", 0.0)
    Pool.objects.create(name="four", slots=4)
    first = world.run(world.flow("first", many(4, pool="four")))
    small = world.run(world.flow("small", many(40, pool="four"), max_active_tasks=99))
    runs = [
        world.run(world.flow(f"large{n}", many(1, "big", pool="four", pool_slots=4)))
        for n in range(2)
    ]
    other = [World(world.connection, leases) for _ in runs]
    running = started(world, first)
    for place in (0, 1):
        assert started(other[place], runs[place]) == []
    begun: list[int] = []
    for _ in range(20):
        if running:
            finish(world, [running.pop(0)])
        running += started(world, small)
        # Who came later looks first.
        for place in (1, 0):
            running += started(other[place], runs[place])
        begun += [m.run_id for m in running if m.run_id in runs and m.run_id not in begun]
        if len(begun) == 2:
            break
    assert begun == runs


def test_what_is_kept_is_free_again_when_who_waits_for_it_is_ended(
    world: World, leases: Leases, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capacity, "KEPT_AFTER_S", 0.0)
    Pool.objects.create(name="four", slots=4)
    first = world.run(world.flow("first", many(4, pool="four")))
    small = world.run(world.flow("small", many(40, pool="four"), max_active_tasks=99))
    large = world.run(world.flow("large", many(1, "big", pool="four", pool_slots=4)))
    another = World(world.connection, leases)
    running = started(world, first)
    assert started(another, large) == []
    finish(world, running[:2])
    assert started(world, small) == [], "kept"
    waiting = TaskInstance.objects.filter(run_id=small, wait__code="pool_kept").first()
    assert waiting is not None
    assert why_of(EVERYTHING, waiting.pk).rule == "pool_kept"
    terminate_task_instance(ti_id=TaskInstance.objects.get(run_id=large).pk, **WHY)
    assert len(started(world, small)) == 2
    # Of a scheduler that is gone nothing is kept for long.
    gone = world.run(world.flow("gone", many(1, "big", pool="four", pool_slots=4)))
    assert started(another, gone) == []
    finish(world, running[2:])
    late = world.run(world.flow("late", many(4, pool="four")))
    assert started(world, late) == [], "kept"
    KeptRoom.objects.update(until_at=timezone.now())
    assert len(started(world, late)) == 2


def test_deferred_task_instances_keep_their_slots_where_the_pool_says_so(world: World) -> None:
    Pool.objects.create(name="one", slots=1)
    run = world.run(world.flow("f", many(2, pool="one")))
    (first,) = started(world, run)
    trigger = world.defer(first)
    change_pool(name="one", include_deferred=True, **WHY)
    assert started(world, run) == []
    held = slots.holders(EVERYTHING, slots.Slots(pool="one"))
    assert [(row.ti, row.state) for row in held.rows] == [(first.ti_id, "deferred")]
    change_pool(name="one", include_deferred=False, **WHY)
    (second,) = started(world, run)
    finish(world, [second])
    change_pool(name="one", include_deferred=True, **WHY)
    world.fire(trigger)
    assert [m.ti_id for m in started(world, run)] == [first.ti_id], "it takes its own slot"


def test_a_limit_holds_for_each_key_over_all_flows_and_operators_can_change_it(
    world: World,
) -> None:
    limit = (LimitDefinition(key="customer:{params[customer]}", slots=2),)
    tasks = many(4, limits=limit)
    runs = {
        name: world.run(world.flow(name, tasks, params={"customer": "acme"}), conf=conf)
        for name, conf in (
            ("f", {}),
            ("g", {"customer": "acme"}),
            ("h", {"customer": "ajax"}),
        )
    }
    first = started(world, *runs.values())
    assert Counter(m.run_id for m in first)[runs["h"]] == 2
    assert len(first) == 4
    assert started(world, *runs.values()) == []
    waiting = TaskInstance.objects.filter(run_id=runs["f"], state="scheduled").first()
    assert waiting is not None
    told = why_of(EVERYTHING, waiting.pk)
    assert told.rule == "key_limit"
    assert "It needs a slot of key 'customer:acme', which has 2 slots, all taken" in told.sentence
    assert {one.run for one in told.holders} <= {runs["f"], runs["g"]}
    assert told.holders_total == 2
    set_limit(key="customer:*", slots=1, **WHY)
    assert started(world, *runs.values()) == []
    told = why_of(EVERYTHING, waiting.pk)
    assert "which has 1 slot, all taken" in told.sentence, "as it is now"
    assert told.since == waiting.ready_at, "and no younger for it"
    set_limit(key="customer:*", slots=3, **WHY)
    assert Counter(m.run_id == runs["h"] for m in started(world, *runs.values())) == {
        True: 1,
        False: 1,
    }
    set_limit(key="customer:acme", slots=0, **WHY)
    finish(world, first)
    assert {m.run_id for m in started(world, *runs.values())} == {runs["h"]}
    remove_limit(key="customer:acme", **WHY)
    assert {m.run_id for m in started(world, *runs.values())} & {runs["f"], runs["g"]}
    assert list(KeyLimit.objects.values_list("key", "slots")) == [("customer:*", 3)]
    acts = Audit.objects.filter(object_kind="limit").order_by("id")
    assert list(acts.values_list("action", flat=True)) == [
        "limit.set",
        "limit.set",
        "limit.set",
        "limit.remove",
    ]


def test_who_waits_keeps_its_place_when_another_scheduler_takes_over(world: World) -> None:
    Pool.objects.create(name="two", slots=2)
    small = world.flow("small", many(9, pool="two"))
    big = world.run(world.flow("big", many(1, "big", pool="two", pool_slots=2)))
    runs = [world.run(small), big]
    first = started(world, runs[0])
    assert len(first) == 2
    assert started(world, *runs) == []
    waits = TaskInstance.objects.get(run_id=big)
    assert waits.wait is not None
    waits.wait["since"] = (timezone.now() - timedelta(seconds=31)).isoformat()
    waits.save()
    world.ticker = ticks.Ticker(world.leases)  # it knows nothing but the rows
    finish(world, first[:1])
    assert started(world, *runs) == [], "the slot is kept for it"
    finish(world, first[1:])
    assert [m.run_id for m in started(world, *runs)] == [big]


def test_what_is_frozen_in_a_queue_gives_its_slots_of_keys_back(world: World) -> None:
    limit = (LimitDefinition(key="customer:acme", slots=1),)
    runs = [world.run(world.flow(name, many(1, limits=limit))) for name in ("f", "g")]
    world.tick(runs[0])
    (queued,) = world.messages
    freeze(scope_kind="run", scope_id=runs[0], **WHY)
    (other,) = started(world, *runs)
    assert other.run_id == runs[1], "the frozen one holds nothing"
    assert world.claim(queued) is None, "and its delivery is refused"
    thaw(scope_kind="run", scope_id=runs[0], **WHY)
    assert started(world, *runs) == [], "it waits for its key as others do"
    finish(world, [other])
    (again,) = started(world, *runs)
    ti = TaskInstance.objects.get(pk=queued.ti_id)
    assert (again.ti_id, ti.try_number, ti.infra_losses) == (queued.ti_id, 1, 0)
    finish(world, [again])
    assert TaskInstance.objects.get(pk=queued.ti_id).state == "success"
    assert all(not row.differences for row in compare())


@pytest.mark.parametrize(
    ("of_flow", "of_task"),
    [
        ({"max_active_tasks": 1}, {}),
        ({"max_active_tasks_per_flow": 1}, {}),
        ({}, {"max_active_per_flow": 1}),
        ({}, {"max_active_per_run": 1}),
    ],
)
def test_what_is_frozen_in_a_queue_gives_its_place_back_and_the_thaw_waits_for_one(
    world: World, of_flow: dict[str, Any], of_task: dict[str, Any]
) -> None:
    run = world.run(world.flow("f", [TaskDefinition(task_id="t", **of_task)], **of_flow))
    ti = TaskInstance.objects.get(run_id=run)
    for place in range(3):  # as mapped instances are
        ti.pk, ti.map_index = None, place
        ti.save(force_insert=True)
    TaskInstance.objects.filter(run_id=run, map_index=-1).delete()
    world.tick(run)
    (queued,) = world.messages
    freeze(scope_kind="task_instance", scope_id=queued.ti_id, **WHY)
    (other,) = started(world, run)
    assert other.ti_id != queued.ti_id, "the frozen one holds no place"
    assert world.claim(queued) is None
    done = thaw(scope_kind="task_instance", scope_id=queued.ti_id, **WHY)
    assert (done.released_count, done.waiting_count) == (0, 1)
    assert world.claim(queued) is None, "its place is taken"
    terms = world.leases.terms()
    assert thaw_due(world.connection, leases=world.leases, terms=terms) == set()
    finish(world, [other])
    assert thaw_due(world.connection, leases=world.leases, terms=terms) == {run}
    assert world.claim(queued) is not None
    assert started(world, run) == [], "and one other is one too many"
    finish(world, [queued])
    assert all(not row.differences for row in compare())


def test_nobody_is_named_as_a_holder_who_is_frozen_in_a_queue(world: World) -> None:
    runs = [
        world.run(world.flow(name, many(2), max_active_tasks_per_flow=1), name)
        for name in ("f", "g")
    ]
    world.tick(*runs)
    (of_f,) = (m for m in world.messages if m.run_id == runs[0])
    freeze(scope_kind="task_instance", scope_id=of_f.ti_id, **WHY)
    assert slots.holders(EVERYTHING, slots.Slots(flow="f"), limit=9).total == 0
    assert slots.holders(EVERYTHING, slots.Slots(flow="g"), limit=9).total == 1


@pytest.mark.parametrize("key", ["", " a", "a*b", "x" * 251])
def test_a_limit_of_no_key_is_refused(key: str) -> None:
    with pytest.raises(InvalidInput, match="A key has"):
        set_limit(key=key, slots=1, **WHY)


@pytest.mark.parametrize(
    ("of_flow", "of_task", "each", "code"),
    [
        ({"max_active_tasks_per_flow": 3}, {}, None, "flow_limit"),
        ({}, {"max_active_per_flow": 3}, None, "task_limit"),
        ({}, {"max_active_per_run": 1}, 1, "task_run_limit"),
    ],
)
def test_limits_of_flows_and_tasks_hold_over_runs(
    world: World, of_flow: dict[str, Any], of_task: dict[str, Any], each: int | None, code: str
) -> None:
    task = TaskDefinition(task_id="t", **of_task)
    flow = world.flow("f", [task], **of_flow)
    runs = [world.run(flow, f"r{n}") for n in range(5)]
    for run in runs:  # as mapped instances are
        for place in range(2):
            ti = TaskInstance.objects.get(run_id=run, task_id="t", map_index=-1)
            ti.pk, ti.map_index = None, place
            ti.save(force_insert=True)
        TaskInstance.objects.filter(run_id=run, map_index=-1).delete()
    first = started(world, *runs)
    counts = Counter(m.run_id for m in first)
    assert len(first) == (3 if each is None else 5)
    if each is not None:
        assert set(counts.values()) == {each}
    assert started(world, *runs) == []
    waiting = TaskInstance.objects.filter(state="scheduled").first()
    assert waiting is not None
    told = why_of(EVERYTHING, waiting.pk)
    assert told.rule == code
    assert told.holders_total == (3 if each is None else 1)
    assert started(world, *runs) == []
    finish(world, first[:1])
    assert len(started(world, *runs)) == 1


def test_more_runs_than_a_tick_looks_at_are_all_looked_at(world: World) -> None:
    """Runs that wait for room never keep another, with a higher number, from being looked at."""
    turns, seen = Turns(), set()
    wanted = range(1, 3 * ticks.RUNS_MAX)
    for _ in range(3):
        now, later = turns.runs(wanted, ticks.RUNS_MAX)
        assert len(now) == ticks.RUNS_MAX
        assert set(now) | later == set(wanted)
        seen |= set(now)
    assert seen == set(wanted)


def test_what_waits_stands_in_order_and_page_by_page(world: World) -> None:
    Pool.objects.create(name="one", slots=1)
    tasks = [
        TaskDefinition(task_id=f"t{n}", pool="one", priority=priority)
        for n, priority in enumerate((1, 3, 2, 9))
    ]
    run = world.run(world.flow("f", tasks))
    started(world, run)
    world.tick(run)
    found = slots.waiters(EVERYTHING, pool="one")
    assert [(row.task_id, row.code) for row in found.rows] == [
        ("t1", "pool_full"),
        ("t2", "pool_full"),
        ("t0", "pool_full"),
    ]
    assert found.total == 3
    assert [slots.before(ti=row.ti) for row in found.rows] == [0, 1, 2]
    told = why_of(EVERYTHING, found.rows[2].ti)
    assert "2 others that wait for this pool with a higher priority" in told.sentence
    assert told.before == 2
    part = slots.waiters(EVERYTHING, pool="one", limit=2)
    assert (len(part.rows), part.total, part.next_offset) == (2, 3, 2)
    rest = slots.waiters(EVERYTHING, pool="one", limit=2, offset=2)
    assert ([row.task_id for row in rest.rows], rest.next_offset) == (["t0"], None)
    assert found.rows[0].since <= timezone.now() + timedelta(seconds=5)
    with pytest.raises(InvalidInput, match="limit: 0"):
        slots.holders(EVERYTHING, slots.Slots(pool="one"), limit=0)
    other = world.run(world.flow("g", [TaskDefinition(task_id="t9", pool="one", priority=1)]))
    world.tick(other)
    last = slots.waiters(EVERYTHING, pool="one").rows[-1]
    assert (last.task_id, slots.before(ti=last.ti)) == ("t9", 2), (
        "flows take turns: t0 may come later"
    )
