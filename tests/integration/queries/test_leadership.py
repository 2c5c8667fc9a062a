"""Who leads, and which executions lie near a change of their shard's leader."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from scheduler_app.models import Lease, LeaseEvent
from scheduler_app.queries import leadership
from scheduler_app.queries.scope import EVERYTHING, NOTHING
from tests import factories

pytestmark = pytest.mark.django_db


def test_an_execution_within_a_minute_of_a_change_of_its_leases_says_how_near() -> None:
    ti = factories.make_task_instance(state="running")
    attempt = factories.make_attempt(ti=ti, issued_at=factories.at(0), ended_at=factories.at(10))
    near = factories.make_take_over(attempt=attempt, at_s=70)
    factories.make_take_over(attempt=attempt, at_s=70.5, new_token=9)
    changes = leadership.near_attempt(EVERYTHING, attempt.id)
    assert [(one.kind, one.when) for one in changes] == [
        ("expired", "60.0 s after it ended"),
        ("acquired", "60.0 s after it ended"),
    ]
    assert {one.take_over for one in changes} == {near.id}
    assert "had run out" in changes[1].why
    assert leadership.near_task_instance(EVERYTHING, ti.id) == changes
    assert leadership.near_run(EVERYTHING, ti.run_id) == changes
    assert leadership.near_attempt(NOTHING, attempt.id) == ()


def test_a_change_while_it_was_live_is_near_however_long_it_took() -> None:
    attempt = factories.make_attempt(issued_at=factories.at(0), ended_at=factories.at(4000))
    factories.make_take_over(attempt=attempt, at_s=2000)
    (_, acquired) = leadership.near_attempt(EVERYTHING, attempt.id)
    assert acquired.when == "while it was live, 2000 s after it was issued"


def test_another_shards_change_and_the_first_leader_are_not_near() -> None:
    attempt = factories.make_attempt(issued_at=factories.at(0), ended_at=factories.at(10))
    assert attempt.shard is not None
    other = factories.make_attempt(ti=factories.make_task_instance(shard=attempt.shard + 1))
    factories.make_take_over(attempt=other, at_s=5)
    LeaseEvent.objects.create(
        shard=attempt.shard,
        kind="acquired",
        token=1,
        at=factories.at(5),
        detail={"cause": "first"},
    )
    assert leadership.near_attempt(EVERYTHING, attempt.id) == ()


def test_vacant_flapping_and_retiring_shards_are_named_and_work_without_a_lease_too() -> None:
    now = timezone.now()
    for minutes in (1, 2, 3):
        LeaseEvent.objects.create(
            shard=5, kind="acquired", token=minutes + 1, at=now - timedelta(minutes=minutes)
        )
    Lease.objects.filter(shard=6).update(holder=factories.uuid7(1), token=1, expires_at=now)
    Lease.objects.create(shard=40, token=0)
    run = factories.make_run(flow=factories.make_flow(shard=99))
    seen = leadership.leadership(EVERYTHING, timezone.now())
    assert seen.flapping == (5,)
    assert len(seen.vacant) == 17
    assert [one.lease.shard for one in seen.shards if one.is_retiring] == [40]
    assert seen.missing == {run.shard: 1}
    assert seen.last_fail_over is None
    assert seen.leaders == {}
