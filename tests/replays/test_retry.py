"""Reports on retries and their delays."""

from __future__ import annotations

import os
import time
import uuid
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from django.utils import timezone

from scheduler_app.models import Run, TaskInstance
from scheduler_app.operations.set_next_retry import set_next_retry
from scheduler_app.rules import retry
from scheduler_app.rules.definition import TaskDefinition
from scheduler_app.worker import report
from tests.replays import saying
from tests.world import chain

if TYPE_CHECKING:
    from collections.abc import Iterator

    import psycopg

    from scheduler_app.transitions.attempt import Message
    from tests.world import World


def fail_at(world: World, run_id: int, task: TaskDefinition, *, try_number: int) -> TaskInstance:
    """The task fails in this try, as a worker reports it; its row then."""
    TaskInstance.objects.filter(run_id=run_id).update(try_number=try_number - 1)
    world.tick(run_id)
    message = world.messages.pop()
    fail(world, message, task)
    return TaskInstance.objects.get(pk=message.ti_id)


def fail(world: World, message: Message, task: TaskDefinition) -> None:
    """The delivery is claimed and reported as failed."""
    claim = world.claim(message)
    assert claim is not None
    failed = report.failure(
        claim,
        attempt_id=str(message.attempt_id),
        nonce=str(uuid.UUID(int=message.attempt_id.int)),
        error=OSError("no"),
        task=task,
    )
    sent = report.send(world.connection, failed, source="worker: host-1", job_id=world.worker)
    assert sent == message.run_id


def waits_s(ti: TaskInstance) -> float:
    assert ti.next_retry_at is not None
    assert ti.ended_at is not None
    return (ti.next_retry_at - ti.ended_at).total_seconds()


@pytest.mark.parametrize("try_number", [1, 64, 1100, 2000])
def test_b117_two_thousand_retries_with_backoff_stop_at_a_day(
    world: World, try_number: int
) -> None:
    """The scheduler goes on, with this flow and with others."""
    task = TaskDefinition(task_id="a", retries=2000, retry_delay_s=300.0, backoff=2.0)
    run_id = world.run(world.flow("f", [task]))
    ti = fail_at(world, run_id, task, try_number=try_number)
    assert ti.state == "up_for_retry"
    assert waits_s(ti) <= retry.GLOBAL_CAP_S + 0.001
    if try_number > 64:
        assert waits_s(ti) == pytest.approx(retry.GLOBAL_CAP_S, abs=0.001)
    world.tick(run_id)
    assert world.play(world.run(world.flow("g", chain("b")))).state == "success"
    set_next_retry(ti_id=ti.pk, actor="ana", reason="enough waited")
    assert world.play(run_id).state == "success"
    saying.assert_nothing_hidden()


@pytest.mark.parametrize("try_number", [16, 40])
def test_b119_a_wait_that_grows_fivefold_leaves_the_task_where_everybody_sees_it(
    world: World, try_number: int
) -> None:
    task = TaskDefinition(task_id="a", retries=100, retry_delay_s=5.0, backoff=5.0)
    ti = fail_at(world, world.run(world.flow("f", [task])), task, try_number=try_number)
    assert (ti.state, ti.is_open, ti.filter_code) == ("up_for_retry", True, None)
    assert waits_s(ti) == pytest.approx(retry.GLOBAL_CAP_S, abs=0.001)
    assert "cut to 24 h" in retry.told(ti.next_retry_why or {})


def test_b121_a_delay_that_cannot_be_computed_is_the_longest_and_says_so(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What cannot be computed never ends the chain of tries."""

    def broken(*_: Any) -> float:
        raise OverflowError("too large")

    monkeypatch.setattr(retry, "_grown_s", broken)
    task = TaskDefinition(
        task_id="a", retries=3, retry_delay_s=5.0, backoff=5.0, max_retry_delay_s=600.0
    )
    ti = fail_at(world, world.run(world.flow("f", [task])), task, try_number=2)
    assert ti.state == "up_for_retry"
    assert waits_s(ti) == pytest.approx(600.0, abs=0.001)
    assert "could not be computed" in retry.told(ti.next_retry_why or {})


@pytest.fixture(params=["Europe/Zurich", "America/Los_Angeles", "Asia/Kolkata"])
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """This process lives in the zone."""
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield request.param
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize("delay_s", [5.0, 60.0])
def test_b123_b125_a_delay_is_as_long_in_every_zone(
    world: World, raw: psycopg.Connection[Any], zone: str, delay_s: float
) -> None:
    """That of the process and that of the database's sessions; it counts on one clock alone."""
    del raw
    assert os.environ["TZ"] == zone
    world.connection.execute("SELECT set_config('TimeZone', %s, false)", [zone])
    task = TaskDefinition(task_id="a", retries=1, retry_delay_s=delay_s)
    run_id = world.run(world.flow("f", [task]))
    try:
        ti = fail_at(world, run_id, task, try_number=1)
        assert waits_s(ti) == pytest.approx(delay_s, abs=0.001)
        assert not world.tick(run_id).messages, "not before its time"
        told = world.tick(run_id).retry_in_s[run_id]
        assert delay_s - 5 < told <= delay_s
        world.connection.execute(
            "UPDATE task_instance SET next_retry_at = next_retry_at - make_interval(secs => %s)",
            [delay_s],
        )
        assert len(world.tick(run_id).messages) == 1
    finally:
        world.connection.execute("RESET TimeZone")


def test_b127_runs_that_wait_for_a_retry_do_not_keep_themselves_from_it(world: World) -> None:
    """Two of ten runs are let go; both fail and wait, and their retries start on time."""
    task = TaskDefinition(task_id="a", retries=1, retry_delay_s=60.0)
    flow = world.flow("f", [task], max_active_runs=2)
    run_ids = [world.run(flow, f"r{number}") for number in range(10)]
    world.tick(*run_ids)
    first, world.messages = world.messages, []
    assert len(first) == 2
    for message in first:
        fail(world, message, task)
    world.tick(*run_ids)
    assert not world.messages, "the others wait for a place"
    waiting = TaskInstance.objects.filter(state="up_for_retry")
    waiting.update(next_retry_at=timezone.now() - timedelta(seconds=1))
    world.tick(*run_ids)
    assert {message.ti_id for message in world.messages} == {message.ti_id for message in first}
    for _ in range(20):
        world.tick(*run_ids)
        world.serve()
    assert set(Run.objects.values_list("state", flat=True)) == {"success"}
    saying.assert_nothing_hidden()
