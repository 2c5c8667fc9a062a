"""Ghosts and gaps: executions that nobody sees, records that nobody made, counters that stick."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from django.test import Client

from scheduler_app.models import Attempt, ExecutorEvent, Flow, FlowVersion, Run, TaskInstance
from scheduler_app.operations.terminate import terminate_run
from scheduler_app.queries import audit_visibility
from scheduler_app.rules.states import AttemptOutcome
from scheduler_app.scheduler import sweep
from scheduler_app.scheduler.create_runs import create_due_runs
from scheduler_app.worker import report
from tests.world import World, chain

if TYPE_CHECKING:
    import psycopg
    from django.contrib.auth.models import User


@pytest.fixture
def pages(ana: User) -> Client:
    """A reader of pages."""
    client = Client()
    client.force_login(ana)
    return client


def tries(api: Client, **asked: Any) -> list[int]:
    """The tries that the API lists, filtered ones too."""
    answer = api.get("/api/v1/attempts/", {"filtered": "1", "order": "fence", **asked}).json()
    assert answer["counts"]["total"] == len(answer["results"])
    return [row["try_number"] for row in answer["results"]]


def fail_three_times(world: World, run_id: int) -> None:
    """Three tries of everything that is ready, and a fourth that runs."""
    for _ in range(3):
        world.tick(run_id)
        for message in world.messages:
            assert world.claim(message)
            world.finish(message, ok=False, retry_after_s=0)
        world.messages = []
    world.tick(run_id)


def assert_nothing_hidden() -> None:
    assert [row for row in audit_visibility.compare() if row.differences] == []


def test_b065_switching_between_tasks_shows_the_tries_of_each_and_no_others(
    world: World, api: Client, pages: Client
) -> None:
    """Two tasks of four attempts; A, B, A again: 1 to 4 each, no try 0, none of the other's."""
    run_id = world.run(world.flow("f", (*chain("a", retries=9), *chain("b", retries=9))))
    fail_three_times(world, run_id)
    ids = dict(TaskInstance.objects.values_list("task_id", "id"))
    for task in ("a", "b", "a"):
        assert tries(api, ti=ids[task]) == [1, 2, 3, 4]
        text = pages.get(f"/task-instances/{ids[task]}/?tab=log&filtered=1").content.decode()
        own = Attempt.objects.filter(ti_id=ids[task]).values_list("id", flat=True)
        others = Attempt.objects.exclude(ti_id=ids[task]).values_list("id", flat=True)
        assert all(str(each) in text for each in own)
        assert not [each for each in others if str(each) in text]
    assert_nothing_hidden()


def test_b067_a_new_try_in_one_flow_leaves_runs_of_the_same_name_in_others_alone(
    world: World, api: Client
) -> None:
    """Three copies of a flow, the same task and run id in each; one of them goes on to new tries."""
    runs = {
        name: world.run(world.flow(name, chain("load", retries=9)), "nightly") for name in "xyz"
    }
    world.tick(*runs.values())
    world.messages = []
    before = {name: Run.objects.filter(pk=runs[name]).values().get() for name in "yz"}
    attempt = Attempt.objects.get(run_id=runs["x"])
    assert attempt.ti_id is not None
    message = next(m for m in _messages(world, runs["x"]) if m.attempt_id == attempt.id)
    assert world.claim(message)
    world.finish(message, ok=False, retry_after_s=0)
    fail_three_times(world, runs["x"])
    assert tries(api, flow_id="x", task_id="load") == [1, 2, 3, 4, 5]
    for name in "yz":
        assert tries(api, flow_id=name, task_id="load", run_id="nightly") == [1]
        assert Run.objects.filter(pk=runs[name]).values().get() == before[name]
    assert_nothing_hidden()


def _messages(world: World, run_id: int) -> list[Any]:
    """What is to be published for the run, as a sweep would find it."""
    found = sweep.unpublished(world.connection, terms=world.leases.terms(), older_than_s=-1)
    return [message for message in found if message.run_id == run_id]


def test_b069_what_a_dead_worker_held_of_a_terminated_run_is_not_executed_again(
    world: World, raw: psycopg.Connection[Any], settings: Any
) -> None:
    """The worker dies with a task of a run that is then terminated; the sweeps come by.

    Nothing is dispatched again although tries are left, and what the zombie says later is filtered.
    """
    run_id = world.run(world.flow("f", chain("load", "report", retries=5)))
    world.tick(run_id)
    message = world.messages.pop()
    assert world.claim(message)
    terminate_run(run_id=run_id, actor="ana", reason="it writes to production")
    raw.execute(
        "UPDATE attempt SET started_at = started_at - interval '1 hour', heartbeat_at = NULL"
    )
    settings.HEARTBEAT_DEAD_AFTER_S = 0.01
    for _ in range(3):
        sweep.lose_silent(raw, leases=world.leases, terms=world.leases.terms())
        world.tick(run_id)
    assert world.messages == []
    assert Attempt.objects.count() == 1
    assert Run.objects.get().state == "failed"
    report.send(
        raw,
        report.Report(
            ti_id=message.ti_id,
            attempt_id=str(message.attempt_id),
            nonce=str(uuid.UUID(int=message.attempt_id.int)),
            state="success",
            is_open=False,
            outcome=AttemptOutcome.SUCCESS,
        ),
        source="worker: host-1",
        job_id=world.worker,
    )
    event = ExecutorEvent.objects.get(kind="late_report")
    assert event.filter_code == "late_after_terminal"
    assert Run.objects.get().state == "failed"
    assert_nothing_hidden()


def test_b071_a_run_that_fails_before_it_starts_is_in_the_history(
    world: World, raw: psycopg.Connection[Any], api: Client, pages: Client
) -> None:
    """Creating a run raises: the history shows a failed run for that date, with the reason."""
    flow = world.flow("f", chain("a"), schedule="@hourly")
    hour = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    Flow.objects.filter(pk=flow.pk).update(
        next_interval_start=hour - timedelta(hours=1), next_interval_end=hour
    )
    FlowVersion.objects.update(definition={"format": 1, "flow_id": "f", "tasks": [{"nonsense": 1}]})
    create_due_runs(raw, leases=world.leases, terms=world.leases.terms())
    answer = api.get("/api/v1/runs/?flow_id=f&state=failed").json()
    assert answer["counts"]["shown"] == 1
    assert answer["results"][0]["logical_date"] == f"{hour - timedelta(hours=1):%Y-%m-%dT%H:%M:%SZ}"
    text = pages.get("/runs/?state=failed").content.decode()
    assert "scheduled" in text
    assert "0</strong> filtered" in text


def test_b073_the_number_of_running_runs_is_that_of_the_list_after_a_killed_scheduler(
    world: World, raw: psycopg.Connection[Any], api: Client, pages: Client
) -> None:
    """The scheduler dies behind the last task; its successor ends the run, and no counter sticks."""
    run_id = world.run(world.flow("f", chain("a")))
    world.tick(run_id)
    world.serve()
    assert api.get("/api/v1/runs/?state=running").json()["counts"]["shown"] == 1
    World(raw, world.leases).tick(*sweep.active_runs(raw, shards=list(world.leases.terms())))
    assert api.get("/api/v1/runs/?state=running").json()["counts"]["total"] == 0
    text = " ".join(pages.get("/").content.decode().split())
    start = text.index("state=running")
    assert "</svg>0</b>" in text[start : start + 400]
    assert_nothing_hidden()
