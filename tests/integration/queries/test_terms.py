"""Terms and clocks: who led when, as lease events tell it, and whose clock is off."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from django.utils import timezone

from dashboard.term_charts import LABEL_WIDTH, WIDTH, chart_of, summary
from scheduler_app.models import Job, Lease, LeaseEvent
from scheduler_app.queries import shown
from scheduler_app.queries.clocks import clocks
from scheduler_app.queries.scope import EVERYTHING, NOTHING
from scheduler_app.queries.terms import Terms, terms
from tests import factories

if TYPE_CHECKING:
    from uuid import UUID

pytestmark = pytest.mark.django_db

HOUR = timedelta(hours=1)


def said(shard: int, kind: str, token: int, holder: UUID, at: datetime, **detail: Any) -> None:
    LeaseEvent.objects.create(
        shard=shard, kind=kind, token=token, holder=holder, at=at, detail=detail
    )


def read(now: datetime, *, back: timedelta = HOUR, shards: tuple[int, ...] = (3,)) -> Terms:
    return terms(EVERYTHING, since=now - back, until=now, shards=shards)


@pytest.fixture
def now() -> datetime:
    return timezone.now()


@pytest.fixture
def told(now: datetime) -> tuple[Job, Job]:
    """Shard 3: led by one, run out, taken over by the other, released by hand, and taken back."""
    old, new = factories.make_job(pid=1), factories.make_job(pid=2)

    def ago(seconds: float) -> datetime:
        return now - timedelta(seconds=seconds)

    said(3, "acquired", 1, old.pk, ago(9000), cause="first")
    said(3, "expired", 1, old.pk, ago(600), expires_at=ago(603).isoformat())
    said(3, "acquired", 2, new.pk, ago(600), cause="expired", gap_s=3)
    said(3, "fenced_write", 1, old.pk, ago(599))
    said(3, "released", 2, new.pk, ago(300), why="stuck", forced_by="ada")
    said(3, "acquired", 3, new.pk, ago(299.5), cause="forced", gap_s=0.5)
    Lease.objects.filter(shard=3).update(
        holder=new.pk, token=3, expires_at=now + timedelta(minutes=5)
    )
    return old, new


def test_each_term_has_its_end_its_cause_and_the_time_without_a_leader(
    told: tuple[Job, Job], now: datetime
) -> None:
    old, new = told
    first, second, third = read(now).terms
    assert [one.token for one in (first, second, third)] == [1, 2, 3]
    assert (first.holder, first.end, first.ended_at) == (
        old.pk,
        "expired",
        now - timedelta(seconds=603),
    )
    assert (second.cause, second.end, second.gap_s) == ("expired", "forced", 3.0)
    assert (third.holder, third.end, third.ended_at) == (new.pk, "held", None)
    assert third.gap_s == pytest.approx(0.5)
    assert [one.is_fail_over for one in (first, second, third)] == [False, True, True]
    assert not read(now).faults
    assert (third.place, read(now).fail_overs) == (f"{new.hostname}:2", 2)


def test_a_term_that_began_before_the_window_and_goes_on_is_in_it(
    told: tuple[Job, Job], now: datetime
) -> None:
    del told
    (held,) = read(now, back=timedelta(minutes=1)).terms
    assert held.token == 3
    assert [one.token for one in read(now, back=timedelta(minutes=6)).terms] == [2, 3]
    assert read(now, shards=(4,)).terms == ()
    assert terms(NOTHING, since=now - HOUR, until=now).terms == ()


def test_a_lease_that_ran_out_and_that_nobody_took_has_ended(
    told: tuple[Job, Job], now: datetime
) -> None:
    del told
    ran_out = now - timedelta(seconds=20)
    Lease.objects.filter(shard=3).update(expires_at=ran_out)
    last = read(now).terms[-1]
    assert (last.end, last.ended_at) == ("expired", ran_out)
    chart = chart_of(read(now).terms, since=now - HOUR, until=now)
    assert chart is not None
    assert chart.lanes[0].tail > 0, "nobody leads, up to the edge of the picture"


def test_a_token_that_did_not_grow_and_two_at_once_are_faults(
    told: tuple[Job, Job], now: datetime
) -> None:
    old, _ = told
    said(3, "acquired", 3, old.pk, now - timedelta(seconds=200), cause="expired")
    (fault,) = read(now).faults
    assert "Token 3 came after token 3" in fault.fault
    assert "1 term should not be as recorded" in summary(
        read(now).terms, window=HOUR, fail_overs=1, longest_gap=None
    )
    said(5, "acquired", 1, old.pk, now - timedelta(seconds=100), cause="first")
    said(5, "acquired", 2, old.pk, now - timedelta(seconds=50), cause="expired")
    said(5, "expired", 1, old.pk, now, expires_at=(now - timedelta(seconds=40)).isoformat())
    assert "two led at once" in read(now, shards=(5,)).faults[0].fault


def test_the_chart_lies_within_its_picture_and_one_shard_alone_goes_up_in_steps(
    told: tuple[Job, Job], now: datetime
) -> None:
    del told
    found = read(now)
    chart = chart_of(found.terms, since=now - HOUR, until=now)
    assert chart is not None
    (lane,) = chart.lanes
    heights = [band.y for band in lane.bands]
    assert heights == sorted(heights, reverse=True)
    assert len({*heights}) == 3, "each token stands higher than the one before"
    for band in lane.bands:
        assert LABEL_WIDTH <= band.x <= band.x + band.width <= WIDTH + 2
    assert [band.gap > 0 for band in lane.bands] == [False, True, True]
    assert [one.letter for one in chart.holders] == ["A", "B"]
    assert chart.holders[1].shards == 1
    text = summary(
        found.terms, window=HOUR, fail_overs=found.fail_overs, longest_gap=found.longest_gap
    )
    assert "3 terms of 1 shard, 2 fail-overs." in text
    assert "shard 3, 3.0 s before token 2" in text
    assert chart_of((), since=now - HOUR, until=now) is None


def test_clocks_are_told_by_host_and_only_a_certain_difference_is_off() -> None:
    def measured(hostname: str, ahead_s: float | None, within_s: float) -> None:
        job = factories.make_job(hostname=hostname)
        Job.objects.filter(pk=job.pk).update(
            clock_ahead_s=ahead_s,
            clock_within_s=None if ahead_s is None else within_s,
            heartbeat_at=shown.CLOCK,
        )

    measured("right", 0.004, 0.002)
    measured("right", 0.9, 1.0)
    measured("fast", 300.0, 0.01)
    measured("slow", -7.0, 3.0)
    measured("new", None, 0.0)
    found = clocks(EVERYTHING)
    assert [one.hostname for one in found] == ["fast", "slow", "right"]
    assert [one.is_off for one in found] == [True, False, False]
    assert (found[2].processes, found[2].ahead_s) == (2, 0.004), "the closest measurement counts"
