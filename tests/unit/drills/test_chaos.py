"""The schedule of the chaos drill: its seed gives it again, and every kind of fault comes."""

from __future__ import annotations

from itertools import pairwise

from scheduler_app.drills.faults.chaos import GAP_S, KINDS, plan


def test_a_seed_gives_the_same_schedule_again() -> None:
    assert plan(7, 600) == plan(7, 600)
    assert plan(7, 600) != plan(8, 600)


def test_a_longer_schedule_begins_like_a_shorter_one() -> None:
    short = plan(7, 60)
    assert plan(7, 600)[: len(short)] == short


def test_every_kind_comes_and_faults_keep_their_distance() -> None:
    planned = plan(1, 3600)
    assert {one.kind for one in planned} == set(KINDS)
    assert all(GAP_S[0] <= b.at_s - a.at_s <= GAP_S[1] + 0.01 for a, b in pairwise(planned))
    assert planned[-1].at_s < 3600
