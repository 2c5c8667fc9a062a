from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from scheduler_app.rules import capacity
from scheduler_app.rules.capacity import Candidate, Room

NOW = datetime(2025, 6, 1, tzinfo=UTC)
PLENTY = 1000


def candidate(ti_id: int, **overrides: Any) -> Candidate:
    """A candidate that is ready since ``ti_id`` seconds after ``NOW``."""
    values: dict[str, Any] = {
        "ti_id": ti_id,
        "run_id": 1,
        "flow_id": "f",
        "pool": "default",
        "slots": 1,
        "priority": 0,
        "queue": "default",
        "ready_since": NOW + timedelta(seconds=ti_id),
    }
    return Candidate(**values | overrides)


def room(**overrides: Any) -> Room:
    values: dict[str, Any] = {
        "pools": {"default": PLENTY, "etl": PLENTY},
        "runs": {1: PLENTY, 2: PLENTY},
        "queues": {"default": PLENTY, "gpu": PLENTY},
    }
    return Room(**values | overrides)


def chosen(candidates: list[Candidate], given: Room, limit: int = PLENTY) -> list[int]:
    return [one.ti_id for one in capacity.choose(candidates, given, limit).chosen]


def waiting(candidates: list[Candidate], given: Room, limit: int = PLENTY) -> dict[int, str]:
    choice = capacity.choose(candidates, given, limit)
    return {ti_id: wait.code for ti_id, wait in choice.waiting.items()}


def test_higher_priority_first_then_longer_ready_then_lower_id() -> None:
    candidates = [
        candidate(4),
        candidate(1),
        candidate(3, ready_since=NOW + timedelta(seconds=1)),
        candidate(9, priority=5),
    ]
    assert chosen(candidates, room()) == [9, 1, 3, 4]


def test_a_full_pool_takes_no_more_and_says_how_many_are_free() -> None:
    given = room(pools={"default": 2})
    candidates = [candidate(1), candidate(2, slots=2)]
    assert chosen(candidates, given) == [1]
    wait = capacity.choose(candidates, given, PLENTY).waiting[2]
    assert (wait.code, wait.detail) == (
        "pool_full",
        "It needs 2 slots of pool 'default', which has 1 free.",
    )


def test_a_shrunk_pool_has_no_free_slots() -> None:
    wait = capacity.choose([candidate(1)], room(pools={"default": -3}), PLENTY).waiting[1]
    assert (wait.code, wait.detail) == (
        "pool_full",
        "It needs 1 slot of pool 'default', which has 0 free.",
    )


def test_a_candidate_that_is_larger_than_its_pool_is_told_so() -> None:
    given = room(pools={"default": 4}, pool_sizes={"default": 4})
    wait = capacity.choose([candidate(1, slots=5)], given, PLENTY).waiting[1]
    assert wait.code == "pool_full"
    assert "it can never start" in wait.detail


def test_a_candidate_as_large_as_its_pool_waits_or_starts() -> None:
    sizes = {"default": 4}
    assert chosen([candidate(1, slots=4)], room(pools={"default": 4}, pool_sizes=sizes)) == [1]
    assert waiting([candidate(1, slots=4)], room(pools={"default": 3}, pool_sizes=sizes)) == {
        1: "pool_full"
    }


def test_a_pool_that_does_not_exist_is_named() -> None:
    wait = capacity.choose([candidate(1, pool="gone")], room(), PLENTY).waiting[1]
    assert wait.code == "unknown_pool"
    assert "'gone'" in wait.detail


def test_a_run_at_its_limit_holds_up_no_other_run() -> None:
    candidates = [candidate(1), candidate(2), candidate(3, run_id=2)]
    given = room(runs={1: 1, 2: 1})
    assert chosen(candidates, given) == [1, 3]
    assert waiting(candidates, given) == {2: "run_limit"}


def test_a_full_queue_holds_up_no_other_queue() -> None:
    candidates = [candidate(1), candidate(2), candidate(3, queue="gpu")]
    given = room(queues={"default": 1, "gpu": 1})
    assert chosen(candidates, given) == [1, 3]
    assert waiting(candidates, given) == {2: "queue_full"}


def test_what_does_not_fit_is_passed_over_and_takes_nothing() -> None:
    candidates = [candidate(1, slots=3, priority=9), candidate(2), candidate(3)]
    assert chosen(candidates, room(pools={"default": 2})) == [2, 3]


def test_a_run_or_queue_that_is_not_named_has_no_room() -> None:
    assert waiting([candidate(1, run_id=7)], room()) == {1: "run_limit"}
    assert waiting([candidate(1, queue="gone")], room()) == {1: "queue_full"}


def test_the_round_is_limited_and_a_full_pool_is_named_before_that() -> None:
    candidates = [candidate(1), candidate(2), candidate(3, pool="etl")]
    given = room(pools={"default": PLENTY, "etl": 0})
    assert chosen(candidates, given, limit=1) == [1]
    assert waiting(candidates, given, limit=1) == {2: "tick_limit", 3: "pool_full"}


def test_the_room_that_was_given_is_left_as_it_was() -> None:
    given = room(pools={"default": 1})
    assert chosen([candidate(1)], given) == chosen([candidate(1)], given) == [1]
