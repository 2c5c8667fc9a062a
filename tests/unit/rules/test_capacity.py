from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from scheduler_app.rules import capacity
from scheduler_app.rules.capacity import Choice, Kind, Line, Ready, Room, Wait

NOW = datetime(2025, 6, 1, tzinfo=UTC)
PLENTY = 1000


def candidate(ti_id: int, *, since_s: float | None = None, **overrides: Any) -> tuple[Kind, Ready]:
    """A task instance that is ready since ``ti_id`` seconds before ``NOW``, minus 20."""
    values: dict[str, Any] = {
        "run_id": 1,
        "flow_id": "f",
        "task_id": "t",
        "pool": "default",
        "slots": 1,
        "priority": 0,
        "queue": "default",
    }
    since = NOW + timedelta(seconds=(ti_id - 20) if since_s is None else since_s)
    return Kind(**values | overrides), Ready(since, ti_id)


def room(**overrides: Any) -> Room:
    values: dict[str, Any] = {
        "pools": {"default": PLENTY, "etl": PLENTY},
        "runs": {1: PLENTY, 2: PLENTY},
        "queues": {"default": PLENTY, "gpu": PLENTY},
    }
    return Room(**values | overrides)


def choose(
    candidates: list[tuple[Kind, Ready]],
    given: Room,
    limit: int = PLENTY,
    served: dict[Line, datetime] | None = None,
) -> Choice:
    ready: dict[Kind, list[Ready]] = {}
    for kind, one in candidates:
        ready.setdefault(kind, []).append(one)
    return capacity.choose(ready, given, limit=limit, now=NOW, served=served)


def chosen(candidates: list[tuple[Kind, Ready]], given: Room, limit: int = PLENTY) -> list[int]:
    return list(choose(candidates, given, limit).chosen)


def waiting(
    candidates: list[tuple[Kind, Ready]], given: Room, limit: int = PLENTY
) -> dict[int, str]:
    return {ti: wait.code for ti, wait in choose(candidates, given, limit).waiting.items()}


def test_higher_priority_first_then_longer_ready_then_lower_id() -> None:
    candidates = [
        candidate(4),
        candidate(1),
        candidate(3, since_s=-19),
        candidate(9, priority=5),
    ]
    assert chosen(candidates, room()) == [9, 1, 3, 4]


def test_a_full_pool_takes_no_more_and_says_how_many_are_free() -> None:
    given = room(pools={"default": 2})
    candidates = [candidate(1), candidate(2, slots=2)]
    assert chosen(candidates, given) == [1]
    wait = choose(candidates, given).waiting[2]
    assert (wait.code, wait.detail) == (
        "pool_full",
        "It needs 2 slots of pool 'default', which has 1 free.",
    )


def test_a_shrunk_pool_has_no_free_slots() -> None:
    wait = choose([candidate(1)], room(pools={"default": -3})).waiting[1]
    assert (wait.code, wait.detail) == (
        "pool_full",
        "It needs 1 slot of pool 'default', which has 0 free.",
    )


def test_a_candidate_that_is_larger_than_its_pool_is_told_so() -> None:
    given = room(pools={"default": 4}, pool_sizes={"default": 4})
    wait = choose([candidate(1, slots=5)], given).waiting[1]
    assert wait.code == "pool_full"
    assert "it can never start" in wait.detail


def test_a_candidate_as_large_as_its_pool_waits_or_starts() -> None:
    sizes = {"default": 4}
    assert chosen([candidate(1, slots=4)], room(pools={"default": 4}, pool_sizes=sizes)) == [1]
    assert waiting([candidate(1, slots=4)], room(pools={"default": 3}, pool_sizes=sizes)) == {
        1: "pool_full"
    }


def test_a_pool_that_does_not_exist_is_named() -> None:
    wait = choose([candidate(1, pool="gone")], room()).waiting[1]
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
    given = room(pools={"default": 1}, keys={"k": 0}, flows={"f": 1})
    one = candidate(1, keys=(("k", 1),))
    assert chosen([one], given) == chosen([one], given) == [1]


@pytest.mark.parametrize(
    ("given", "keys", "code"),
    [
        ({"flows": {"f": 1}}, (), "flow_limit"),
        ({"tasks": {("f", "t"): 1}}, (), "task_limit"),
        ({"run_tasks": {(1, "t"): 1}}, (), "task_run_limit"),
        ({"keys": {"customer:acme": 1}}, (("customer:acme", 2),), "key_limit"),
    ],
)
def test_each_limit_lets_so_many_start_and_is_named(
    given: dict[str, Any], keys: tuple[tuple[str, int], ...], code: str
) -> None:
    candidates = [candidate(1, keys=keys), candidate(2, keys=keys)]
    assert chosen(candidates, room(**given)) == [1]
    assert waiting(candidates, room(**given)) == {2: code}


def test_a_full_key_holds_up_no_other_and_is_what_the_wait_is_about() -> None:
    acme, ajax = (("customer:acme", 1),), (("customer:ajax", 1),)
    candidates = [candidate(1, keys=acme), candidate(2, keys=acme), candidate(3, keys=ajax)]
    found = choose(candidates, room())
    assert found.chosen == (1, 3)
    assert (found.waiting[2].about, found.waiting[2].detail) == (
        "customer:acme",
        "It needs a slot of key 'customer:acme', which has 1 slot, all taken.",
    )


def test_a_wait_is_told_anew_where_its_numbers_change_for_good_and_not_for_what_is_free() -> None:
    def sign(found: Wait) -> tuple[str, str, str]:
        return found.code, found.about, found.sign

    def of_key(slots: int) -> Wait:
        return choose([candidate(1, keys=(("k", slots),))], room(keys={"k": 9})).waiting[1]

    def of_pool(size: int, free: int) -> Wait:
        given = room(pools={"default": free}, pool_sizes={"default": size})
        return choose([candidate(1, slots=3)], given).waiting[1]

    assert sign(of_key(1)) != sign(of_key(2)) != sign(of_key(0))
    assert sign(of_pool(2, 2)) != sign(of_pool(3, 2)), "it can start later"
    assert sign(of_pool(1, 1)) != sign(of_pool(2, 1)), "the sentence names the size"
    assert sign(of_pool(9, 1)) == sign(of_pool(9, 2))


def test_keys_are_kept_for_one_that_waits_long_for_several_and_can_start_some_day() -> None:
    both = (("a", 1), ("b", 1))
    old, other = candidate(1, since_s=-31, keys=both), candidate(2, keys=both[:1])
    given = room(keys={"b": 1})
    found = choose([old, other], given)
    assert found.chosen == ()
    assert (found.waiting[2].code, found.waiting[2].about) == ("key_kept", "a")
    assert "kept for task 't' of flow 'f'" in found.waiting[2].detail
    young = candidate(1, since_s=-29, keys=both)
    assert choose([young, other], given).chosen == (2,)
    stopped = candidate(1, since_s=-31, keys=(("a", 1), ("b", 0)))
    assert choose([stopped, other], given).chosen == (2,), "what is stopped keeps nothing back"
    # One that waits for a pool keeps its keys as well, or both are never free at once.
    full = room(pools={"default": 1, "etl": 0}, pool_sizes={"default": 9, "etl": 1})
    in_pool = candidate(1, since_s=-31, pool="etl", keys=both[:1])
    assert choose([in_pool, other], full).chosen == ()


def test_a_key_without_slots_stops_everything_of_it() -> None:
    assert waiting([candidate(1, keys=(("customer:acme", 0),))], room()) == {1: "key_limit"}


def test_flows_of_equal_priority_take_turns() -> None:
    candidates = [
        *(candidate(one, flow_id="big", since_s=-100) for one in range(1, 5)),
        candidate(8, flow_id="small", since_s=-5),
        candidate(9, flow_id="small", since_s=-5),
    ]
    assert chosen(candidates, room(pools={"default": 4})) == [1, 8, 2, 9]


def test_a_line_that_was_served_comes_after_one_that_waits_since_before() -> None:
    candidates = [
        candidate(1, flow_id="big", since_s=-100),
        candidate(9, flow_id="small", since_s=-5),
    ]
    given = room(pools={"default": 1})
    served = {Line(0, "big", "default"): NOW - timedelta(seconds=1)}
    assert choose(candidates, given).chosen == (1,)
    found = choose(candidates, given, served=served)
    assert found.chosen == (9,)
    assert found.served == {Line(0, "small", "default")}


def test_what_becomes_free_is_kept_for_one_that_has_waited_long_for_it() -> None:
    candidates = [
        candidate(1, slots=4, since_s=-60, task_id="big"),
        candidate(2, since_s=-5),
        candidate(3, since_s=-5, pool="etl"),
        candidate(4, since_s=-5, priority=1),
    ]
    found = choose(candidates, room(pools={"default": 3, "etl": 1}))
    assert found.chosen == (4, 3), "who has a higher priority is still before it"
    assert (found.waiting[1].code, found.waiting[2].code) == ("pool_full", "pool_kept")
    assert found.waiting[2].about == "1"
    assert "kept for task 'big' of flow 'f', which needs 4 slots" in found.waiting[2].detail


def test_nothing_is_kept_for_one_that_waits_for_something_else_or_can_never_start() -> None:
    small = candidate(2, since_s=-5, task_id="u")
    at_limit = candidate(1, slots=4, since_s=-60)
    assert chosen([at_limit, small], room(pools={"default": 3}, tasks={("f", "t"): 0})) == [2]
    sizes = {"default": 3}
    assert chosen([at_limit, small], room(pools={"default": 3}, pool_sizes=sizes)) == [2]
