"""What holds for every set of candidates and every room."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from scheduler_app.rules import capacity
from scheduler_app.rules.capacity import Candidate, Room

NOW = datetime(2025, 6, 1, tzinfo=UTC)
POOLS, RUNS, QUEUES = ("p", "q", "gone"), (1, 2, 3), ("fast", "slow")

candidates = st.lists(
    st.builds(
        Candidate,
        ti_id=st.integers(0, 10_000),
        run_id=st.sampled_from(RUNS),
        flow_id=st.just("f"),
        pool=st.sampled_from(POOLS),
        slots=st.integers(1, 4),
        priority=st.integers(-2, 2),
        queue=st.sampled_from(QUEUES),
        ready_since=st.integers(0, 3).map(lambda s: NOW + timedelta(seconds=s)),
    ),
    max_size=25,
    unique_by=lambda c: c.ti_id,
)
rooms = st.builds(
    Room,
    pools=st.fixed_dictionaries({"p": st.integers(-2, 12), "q": st.integers(-2, 12)}),
    runs=st.fixed_dictionaries({run_id: st.integers(-1, 8) for run_id in RUNS}),
    queues=st.fixed_dictionaries({queue: st.integers(-1, 12) for queue in QUEUES}),
)


def used(chosen: tuple[Candidate, ...], name: str, weight: str | None = None) -> Counter[object]:
    counter: Counter[object] = Counter()
    for one in chosen:
        counter[getattr(one, name)] += getattr(one, weight) if weight else 1
    return counter


@given(candidates, rooms, st.integers(0, 30))
def test_the_choice_never_exceeds_the_room_or_the_limit(
    found: list[Candidate], room: Room, limit: int
) -> None:
    chosen = capacity.choose(found, room, limit).chosen
    assert len(chosen) <= limit
    for pool, slots in used(chosen, "pool", "slots").items():
        assert slots <= room.pools[str(pool)]
    for run_id, number in used(chosen, "run_id").items():
        assert number <= room.runs[run_id]  # type: ignore[index]  # an int
    for queue, number in used(chosen, "queue").items():
        assert number <= room.queues[str(queue)]


@given(candidates, rooms, st.integers(0, 30))
def test_every_candidate_is_chosen_or_told_why_it_waits(
    found: list[Candidate], room: Room, limit: int
) -> None:
    choice = capacity.choose(found, room, limit)
    assert {c.ti_id for c in choice.chosen} | choice.waiting.keys() == {c.ti_id for c in found}
    assert len(choice.chosen) + len(choice.waiting) == len(found)
    assert all(wait.detail for wait in choice.waiting.values())


@given(candidates, rooms, st.integers(0, 30))
def test_nobody_waits_for_something_that_has_room(
    found: list[Candidate], room: Room, limit: int
) -> None:
    choice = capacity.choose(found, room, limit)
    slots, runs = used(choice.chosen, "pool", "slots"), used(choice.chosen, "run_id")
    queues = used(choice.chosen, "queue")
    for one in found:
        wait = choice.waiting.get(one.ti_id)
        if wait is None or len(choice.chosen) == limit:
            continue
        fits = (
            one.pool in room.pools
            and one.slots <= room.pools[one.pool] - slots[one.pool]
            and runs[one.run_id] < room.runs[one.run_id]
            and queues[one.queue] < room.queues[one.queue]
        )
        # What it met may have been fuller than what is left: never emptier.
        assert not fits, f"{wait.code}, though everything has room"


@given(candidates, rooms)
def test_no_pool_starves_another(found: list[Candidate], room: Room) -> None:
    """With runs and queues without end, a pool starts what it would start alone."""
    wide = Room(
        pools=room.pools,
        runs=dict.fromkeys(RUNS, 1000),
        queues=dict.fromkeys(QUEUES, 1000),
    )
    together = {c.ti_id for c in capacity.choose(found, wide, 1000).chosen}
    for pool in POOLS:
        own = [c for c in found if c.pool == pool]
        alone = {c.ti_id for c in capacity.choose(own, wide, 1000).chosen}
        assert alone == together & {c.ti_id for c in own}


@given(candidates, rooms, st.integers(0, 30))
def test_a_later_one_of_the_same_kind_never_overtakes(
    found: list[Candidate], room: Room, limit: int
) -> None:
    choice = capacity.choose(found, room, limit)

    def rank(one: Candidate) -> tuple[object, ...]:
        return (-one.priority, one.ready_since, one.ti_id)

    for one in found:
        if one.ti_id not in choice.waiting:
            continue
        for other in choice.chosen:
            same = (one.pool, one.run_id, one.queue) == (other.pool, other.run_id, other.queue)
            assert not (same and one.slots <= other.slots and rank(one) < rank(other))
