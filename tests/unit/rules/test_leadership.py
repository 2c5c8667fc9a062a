"""Fair shares, and lease events in words."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_app.rules import leadership
from scheduler_app.rules.leadership import Peer

NOW = datetime(2026, 1, 1, 2, 11, 5, 214000, tzinfo=UTC)


@pytest.mark.parametrize(
    ("shards", "schedulers", "share"), [(16, 1, 16), (16, 2, 8), (16, 3, 6), (16, 17, 1), (5, 2, 3)]
)
def test_the_share_is_rounded_up(shards: int, schedulers: int, share: int) -> None:
    assert leadership.fair_share(shards, schedulers) == share


def test_a_newcomer_is_given_what_it_lacks_and_no_more() -> None:
    plan = leadership.balance(shards=16, held=16, peers=[Peer(held=0)], free=0, long_free=0)
    assert (plan.share, plan.give_up, plan.want) == (8, 8, 0)


def test_nothing_is_given_up_that_a_peer_can_take_from_the_free_ones() -> None:
    plan = leadership.balance(shards=16, held=10, peers=[Peer(held=0)], free=6, long_free=0)
    assert plan.give_up == 2
    plan = leadership.balance(shards=16, held=8, peers=[Peer(held=0)], free=8, long_free=0)
    assert (plan.give_up, plan.want) == (0, 0), "the free ones are the peer's"


def test_nobody_gives_up_a_shard_that_no_peer_lacks() -> None:
    peers = [Peer(held=6), Peer(held=4)]
    plan = leadership.balance(shards=16, held=6, peers=peers, free=0, long_free=0)
    assert (plan.give_up, plan.want) == (0, 0)


def test_what_nobody_takes_for_long_is_anybodys() -> None:
    plan = leadership.balance(shards=16, held=8, peers=[Peer(held=0)], free=8, long_free=8)
    assert plan.want == 8


@given(st.integers(1, 64), st.lists(st.integers(0, 5), max_size=50), st.integers(1, 6))
def test_balancing_settles_with_every_shard_held_and_nobody_above_its_share(
    shards: int, order: list[int], schedulers: int
) -> None:
    held = [0] * schedulers
    held[0] = shards
    # In any order at first, then everybody in turn.
    turns = [turn % schedulers for turn in order] + [*range(schedulers)] * 3
    for me in turns:
        peers = [Peer(held=n) for i, n in enumerate(held) if i != me]
        plan = leadership.balance(
            shards=shards, held=held[me], peers=peers, free=shards - sum(held), long_free=0
        )
        assert not (plan.give_up and plan.want)
        held[me] += plan.want - plan.give_up
        assert sum(held) <= shards
    assert sum(held) == shards
    assert max(held) <= leadership.fair_share(shards, schedulers)


def test_three_changes_in_ten_minutes_are_flapping() -> None:
    minutes = [NOW - timedelta(minutes=m) for m in (1, 4, 9)]
    assert leadership.is_flapping(minutes, NOW)
    assert not leadership.is_flapping([*minutes[:2], NOW - timedelta(minutes=11)], NOW)


def test_a_take_over_says_what_had_run_out_and_how_long_nobody_led() -> None:
    detail = {
        "cause": "expired",
        "old_token": 483,
        "old_renewed_at": "2026-01-01T02:10:35.000+00:00",
        "gap_s": 1.25,
    }
    assert leadership.explain("acquired", 484, detail) == (
        "Taken over with token 484: the lease of token 483, last renewed at 02:10:35.000 UTC, had run"
        " out. Nobody led for 1.2 s."
    )


def test_a_refused_write_says_the_compared_tokens() -> None:
    detail = {"step": "tick", "token_presented": 471, "token_current": 483}
    assert (
        leadership.explain("fenced_write", 471, detail)
        == "A write of tick was refused: token 471 < 483."
    )
    gone = {"step": "create_runs", "token_presented": 3, "token_current": None}
    assert "row is gone" in leadership.explain("fenced_write", 3, gone)


@given(
    st.sampled_from([*leadership.LeaseEventKind, "new_kind"]),
    st.integers(),
    st.one_of(
        st.none(),
        st.dictionaries(
            st.sampled_from(
                ["cause", "gap_s", "old_renewed_at", "expires_at", "late_s", "why", "step"]
            ),
            st.one_of(st.none(), st.text(), st.floats(), st.booleans()),
        ),
    ),
)
def test_explaining_never_raises(kind: str, token: int, detail: dict[str, object] | None) -> None:
    assert leadership.explain(kind, token, detail)
