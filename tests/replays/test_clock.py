"""Clocks: hosts whose wall clock is off, and a database whose clock goes back."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from scheduler_app.drills.faults.clock_skew import SKEW
from scheduler_app.models import Flow, Run
from scheduler_app.scheduler.create_runs import create_due_runs
from scheduler_app.scheduler.leases import Leases
from scheduler_app.transitions.ids import uuid7
from tests.integration.simulation.clock import Clock
from tests.replays.flows import noted, open_gate, running_attempt
from tests.stack import wait_for
from tests.world import World, chain

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    import psycopg

    from tests.stack import Stack

OFF_S = 300


def test_b287_schedulers_whose_clocks_are_off_by_five_minutes_expire_nothing(
    stack: Stack, gate: str
) -> None:
    """One is fast and one is slow, and both lead beside a true one: terms are the database's.

    Workers with such clocks: the drill ``clock-skew``, held by ``tests/acceptance/test_drills.py``.
    """
    run = stack.trigger("holds", conf={"gate": gate})
    held = running_attempt(stack, run, "held")
    (last,) = stack.rows("SELECT coalesce(max(id), 0) AS id FROM lease_event")
    with (
        stack.beside("scheduler", PYTHONPATH=str(SKEW), DRILL_CLOCK_OFF_S=str(OFF_S)) as fast,
        stack.beside("scheduler", PYTHONPATH=str(SKEW), DRILL_CLOCK_OFF_S=str(-OFF_S)) as slow,
    ):
        holders = wait_for(
            "all three lead",
            lambda: (
                (
                    rows := stack.rows(
                        "SELECT DISTINCT j.id, j.pid FROM lease l JOIN job j ON j.id = l.holder"
                    )
                )
                and {fast.pid, slow.pid} < {row["pid"] for row in rows}
                and rows
            ),
            within_s=90,
        )
        # Several terms long: each holder has to renew, and none may find another's run out.
        wait_for(
            "three terms pass",
            lambda: stack.rows(
                "SELECT 1 FROM job WHERE pid = %s AND heartbeat_at > started_at + interval '9 s'",
                max(fast.pid, slow.pid),
            ),
            within_s=90,
        )
        more = [stack.trigger("quickly") for _ in range(4)]
        for each in more:
            assert stack.wait_for_run(each, within_s=90)["state"] == "success"
        wrong = stack.rows(
            "SELECT kind, detail FROM lease_event WHERE id > %s AND holder = ANY(%s)"
            " AND kind IN ('expired', 'fenced_write')",
            last["id"],
            [row["id"] for row in holders],
        )
        assert wrong == []
        assert not stack.rows("SELECT 1 FROM job WHERE state = 'dead' AND pid = %s", fast.pid)
    open_gate(stack, gate)
    assert stack.wait_for_run(run, within_s=90)["state"] == "success"
    (only,) = stack.attempts(run)
    assert only["id"] == held["id"], "what ran was not given up"
    assert noted(stack, run) == ["held start", "held end"]
    stack.assert_nothing_hidden()


@pytest.fixture
def clock(transactional_db: None) -> Iterator[Clock]:
    """The database's clock, in the test's hand."""
    del transactional_db
    made = Clock()
    yield made
    made.close()


def test_b289_a_run_that_was_made_slightly_early_is_followed_by_the_next_slot(
    clock: Clock, leases: Leases, raw: psycopg.Connection[Any]
) -> None:
    """Made by a clock that was 200 ms fast, then the process is started anew by a right one.

    What is stored is the slot and never the moment, so nothing looks like a changed schedule.
    """
    flow = World(raw, leases).flow("f", chain("a"), schedule="* * * * *")
    begin = _now(clock)  # a whole minute
    _cursor(flow, start=begin, minutes=1)
    clock.advance(60.2)  # the fast clock is past the slot; the right one is 200 ms before it
    made = _create(clock)
    assert [run.data_interval_end for run in made] == [flow.next_interval_end]
    after = Flow.objects.get()
    clock.advance(-0.4)
    assert _create(clock) == [], "not a second time, now that it is not due yet"
    clock.advance(0.4)
    assert _create(clock) == [], "nor when it is"
    assert Flow.objects.get().next_interval_end == after.next_interval_end
    assert after.next_interval_start == flow.next_interval_end
    clock.advance(60)
    (following,) = _create(clock)
    assert following.data_interval_start == made[0].data_interval_end
    assert Run.objects.count() == 2


def _now(clock: Clock) -> datetime:
    row = clock.connection.execute("SELECT clock_timestamp()").fetchone()
    assert row is not None
    now: datetime = row[0]
    return now


def _cursor(flow: Flow, *, start: datetime, minutes: int) -> None:
    flow.next_interval_start = start
    flow.next_interval_end = start + timedelta(minutes=minutes)
    flow.save()


def _create(clock: Clock) -> list[Run]:
    """What a scheduler that was just started makes, by this clock."""
    connection = clock.connect()
    leases = Leases(holder=uuid7(), ttl_s=60, renew_interval_s=12, deadline_s=40)
    connection.execute("UPDATE lease SET expires_at = clock_timestamp() - interval '1 s'")
    leases.balance(connection, dead_after_s=60)
    ids = create_due_runs(connection, leases=leases, terms=leases.terms()).run_ids
    return [*Run.objects.filter(pk__in=ids)]
