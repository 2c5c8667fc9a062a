"""What holds for every set of task instances and every room."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler_app.rules import capacity
from scheduler_app.rules.capacity import Choice, Kind, Line, Ready, Room

if TYPE_CHECKING:
    from collections.abc import Iterable

NOW = datetime(2025, 6, 1, tzinfo=UTC)
POOLS, RUNS, QUEUES = ("p", "q", "gone"), (1, 2, 3), ("fast", "slow")
FLOW_OF_RUN = {1: "f", 2: "f", 3: "g"}
KEYS = (("a", 2), ("b", 3))

Candidates = list[tuple[Kind, Ready]]


def _candidate(
    ti_id: int, run_id: int, task_id: str, pool: str, slots: int, queue: str, keys: int, ages: int
) -> tuple[Kind, Ready]:
    kind = Kind(
        run_id=run_id,
        flow_id=FLOW_OF_RUN[run_id],
        task_id=task_id,
        pool=pool,
        slots=slots,
        priority=ages % 3,
        queue=queue,
        keys=tuple(one for place, one in enumerate(KEYS) if keys >> place & 1),
    )
    return kind, Ready(NOW - timedelta(seconds=ages * 5), ti_id)


candidates = st.lists(
    st.builds(
        _candidate,
        st.integers(0, 10_000),
        st.sampled_from(RUNS),
        st.sampled_from(("t", "u")),
        st.sampled_from(POOLS),
        st.integers(1, 4),
        st.sampled_from(QUEUES),
        st.integers(0, 3),
        st.integers(0, 9),
    ),
    max_size=25,
    unique_by=lambda c: c[1].ti_id,
)
sizes = st.integers(-2, 12)
rooms = st.builds(
    Room,
    pools=st.fixed_dictionaries({"p": sizes, "q": sizes}),
    runs=st.fixed_dictionaries(dict.fromkeys(RUNS, sizes)),
    queues=st.fixed_dictionaries(dict.fromkeys(QUEUES, sizes)),
    flows=st.dictionaries(st.sampled_from(("f", "g")), sizes),
    tasks=st.dictionaries(st.tuples(st.sampled_from(("f", "g")), st.sampled_from("tu")), sizes),
    run_tasks=st.dictionaries(st.tuples(st.sampled_from(RUNS), st.sampled_from("tu")), sizes),
    keys=st.dictionaries(st.sampled_from("ab"), st.integers(0, 4)),
)


def choose(
    found: Candidates,
    room: Room,
    limit: int = 1000,
    now: datetime = NOW,
    served: dict[Line, datetime] | None = None,
) -> Choice:
    ready: dict[Kind, list[Ready]] = {}
    for kind, one in found:
        ready.setdefault(kind, []).append(one)
    return capacity.choose(ready, room, limit=limit, now=now, served=served)


def kinds(found: Candidates, ids: Iterable[int]) -> list[Kind]:
    by_id = {one.ti_id: kind for kind, one in found}
    return [by_id[ti_id] for ti_id in ids]


def is_within(room: Room, chosen: Iterable[Kind]) -> bool:
    """A slow and obvious count of all that these take together."""
    taken: Counter[object] = Counter()
    sizes: dict[object, int] = {}
    for one in chosen:
        own: list[tuple[object, int, int]] = [
            (("pool", one.pool), one.slots, room.pools.get(one.pool, 0)),
            (("run", one.run_id), 1, room.runs[one.run_id]),
            (("queue", one.queue), 1, room.queues[one.queue]),
        ]
        if one.flow_id in room.flows:
            own.append((("flow", one.flow_id), 1, room.flows[one.flow_id]))
        if (one.flow_id, one.task_id) in room.tasks:
            size = room.tasks[one.flow_id, one.task_id]
            own.append((("task", one.flow_id, one.task_id), 1, size))
        if (one.run_id, one.task_id) in room.run_tasks:
            size = room.run_tasks[one.run_id, one.task_id]
            own.append((("run task", one.run_id, one.task_id), 1, size))
        own += [(("key", key), 1, slots - room.keys.get(key, 0)) for key, slots in one.keys]
        for name, number, size in own:
            taken[name] += number
            sizes[name] = size
    return all(number <= sizes[name] for name, number in taken.items())


@given(candidates, rooms, st.integers(0, 30))
def test_the_choice_never_exceeds_a_limit(found: Candidates, room: Room, limit: int) -> None:
    chosen = choose(found, room, limit).chosen
    assert len(chosen) <= limit
    assert is_within(room, kinds(found, chosen))


@given(candidates, rooms, st.integers(0, 30))
def test_each_is_chosen_or_told_why_it_waits(found: Candidates, room: Room, limit: int) -> None:
    choice = choose(found, room, limit)
    assert set(choice.chosen) | choice.waiting.keys() == {one.ti_id for _, one in found}
    assert len(choice.chosen) + len(choice.waiting) == len(found)
    assert all(wait.detail for wait in choice.waiting.values())


@given(candidates, rooms, st.integers(0, 30))
def test_nobody_waits_for_something_that_has_room(
    found: Candidates, room: Room, limit: int
) -> None:
    """Work is done where there is room for it, but for what is kept for one that waited long."""
    choice = choose(found, room, limit)
    chosen = kinds(found, choice.chosen)
    if len(chosen) == limit:
        return
    for kind, one in found:
        wait = choice.waiting.get(one.ti_id)
        if wait is None or kind.pool not in room.pools:
            continue
        if wait.code == capacity.POOL_KEPT:
            (big,) = [(k, o) for k, o in found if o.ti_id == int(wait.about)]
            assert big[0].pool == kind.pool
            assert big[1].since <= NOW - timedelta(seconds=capacity.KEPT_AFTER_S)
            assert big[0].priority >= kind.priority
            continue
        if wait.code == capacity.KEY_KEPT:
            (first,) = [(k, o) for k, o in found if o.ti_id == int(wait.sign)]
            assert {wait.about} <= {key for key, _ in kind.keys} & {key for key, _ in first[0].keys}
            assert first[1].since <= NOW - timedelta(seconds=capacity.KEPT_AFTER_S)
            assert first[0].priority >= kind.priority
            assert first[1].ti_id in choice.waiting
            continue
        assert not is_within(room, [*chosen, kind]), f"{wait.code}, though all has room"


def wide(room: Room) -> Room:
    return replace(
        room,
        runs=dict.fromkeys(RUNS, 1000),
        queues=dict.fromkeys(QUEUES, 1000),
        flows={},
        tasks={},
        run_tasks={},
    )


@given(candidates, rooms)
def test_no_pool_starves_another(found: Candidates, room: Room) -> None:
    """Where pools alone are short, a pool starts what it would start alone."""
    found = [(kind._replace(keys=()), one) for kind, one in found]
    together = set(choose(found, wide(room)).chosen)
    for pool in POOLS:
        own = [(kind, one) for kind, one in found if kind.pool == pool]
        alone = set(choose(own, wide(room)).chosen)
        assert alone == together & {one.ti_id for _, one in own}


@given(candidates, rooms, st.integers(0, 30))
def test_a_lower_priority_never_takes_what_a_higher_one_asked_for(
    found: Candidates, room: Room, limit: int
) -> None:
    """Strict over all pools: what starts of the higher ones is what would start without the lower."""
    together = set(choose(found, room, limit).chosen)
    for least in (1, 2):
        high = [(kind, one) for kind, one in found if kind.priority >= least]
        alone = set(choose(high, room, limit).chosen)
        assert alone == together & {one.ti_id for _, one in high}


@given(candidates, rooms, st.integers(0, 30))
def test_a_later_one_of_the_same_kind_never_overtakes(
    found: Candidates, room: Room, limit: int
) -> None:
    choice = choose(found, room, limit)
    for kind, one in found:
        for other_kind, other in found:
            if kind == other_kind and one < other and other.ti_id in choice.chosen:
                assert one.ti_id in choice.chosen


@settings(max_examples=60)
@given(
    st.lists(st.integers(1, 4), min_size=2, max_size=6),
    st.integers(4, 6),
    st.integers(1, 3),
)
def test_every_flow_and_size_is_served_in_bounded_rounds(
    slots_of_flow: list[int], size: int, ends_each_round: int
) -> None:
    """Each flow has always one more ready; what runs ends a few at a time, oldest first.

    Rounds are a second apart. However many slots the others need, a task instance waits at most
    until what is kept for it can have become free, in its turn.
    """
    flows = {f"f{place}": slots for place, slots in enumerate(slots_of_flow)}
    ready = {flow: Ready(NOW, place) for place, flow in enumerate(flows)}
    served: dict[Line, datetime] = {}
    running: list[str] = []
    now, ids = NOW, len(flows)
    longest = timedelta()
    for _ in range(400):
        now += timedelta(seconds=1)
        del running[:ends_each_round]
        found = [(Kind(1, flow, "t", "p", flows[flow], 0, "q"), one) for flow, one in ready.items()]
        taken = sum(flows[flow] for flow in running)
        room = Room(
            pools={"p": size - taken}, pool_sizes={"p": size}, runs={1: 99}, queues={"q": 99}
        )
        choice = choose(found, room, now=now, served=served)
        served.update(dict.fromkeys(choice.served, now))
        for kind, one in found:
            longest = max(longest, now - one.since)
            if one.ti_id in choice.chosen:
                running.append(kind.flow_id)
                ids += 1
                ready[kind.flow_id] = Ready(now, ids)
    assert longest <= timedelta(seconds=capacity.KEPT_AFTER_S + (size + 2) * len(flows))


@settings(max_examples=60)
@given(
    st.lists(
        st.tuples(
            st.sets(st.sampled_from("abc"), min_size=1),
            st.sampled_from("pq"),
            st.integers(1, 3),
            st.integers(1, 4),
        ),
        min_size=2,
        max_size=6,
    ),
    st.integers(1, 2),
)
def test_whoever_needs_several_keys_is_served_in_bounded_rounds(
    flows: list[tuple[set[str], str, int, int]], slots: int
) -> None:
    """Each flow has always one more ready, in its pool, of so many slots and lasting so many rounds."""
    ready = {place: Ready(NOW, place) for place in range(len(flows))}
    served: dict[Line, datetime] = {}
    running: list[tuple[datetime, int]] = []
    now, ids = NOW, len(flows)
    longest = timedelta()
    for _ in range(400):
        now += timedelta(seconds=1)
        running = [(until, place) for until, place in running if until > now]
        found = []
        for place, one in ready.items():
            keys, pool, size, _ = flows[place]
            limits = tuple((key, slots) for key in sorted(keys))
            found.append((Kind(1, f"f{place}", "t", pool, size, 0, "q", limits), one))
        taken = Counter[str]()
        held = Counter[str]()
        for _, place in running:
            taken[flows[place][1]] += flows[place][2]
            held.update(flows[place][0])
        room = Room(
            pools={pool: 3 - taken[pool] for pool in "pq"},
            pool_sizes={"p": 3, "q": 3},
            runs={1: 99},
            queues={"q": 99},
            keys=held,
        )
        choice = choose(found, room, now=now, served=served)
        served.update(dict.fromkeys(choice.served, now))
        for place, (_, one) in enumerate(found):
            longest = max(longest, now - one.since)
            if one.ti_id in choice.chosen:
                running.append((now + timedelta(seconds=flows[place][3]), place))
                ids += 1
                ready[place] = Ready(now, ids)
    assert longest <= timedelta(seconds=capacity.KEPT_AFTER_S + 12 * len(flows))
