"""The door for executors outside this product: what they say is a row, and is judged once."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import pytest
from django.contrib.auth.models import Permission
from django.test import Client

from scheduler_app.models import Attempt, Counter, ExecutorEvent, TaskInstance
from scheduler_app.queries.audit_visibility import compare
from tests.world import World, chain

if TYPE_CHECKING:
    from django.contrib.auth.models import User

    from scheduler_app.transitions.attempt import Message


@pytest.fixture
def reporter(ana: User, api: Client) -> Client:
    """A caller with the permission."""
    ana.user_permissions.add(Permission.objects.get(codename="add_executorevent"))
    return api


@pytest.fixture
def queued(world: World, settings: Any) -> Message:
    """An issued attempt of a task with one retry."""
    settings.EXIT_GRACE_S = 0.0
    run_id = world.run(world.flow("f", chain("a", retries=1, retry_delay_s=0)))
    return world.tick(run_id).messages[0]


def _say(client: Client, **changed: Any) -> Any:
    body = {"flow_id": "f", "run_id": "r1", "task_id": "a", "try_number": 1, "state": "failed"}
    body = {k: v for k, v in {**body, **changed}.items() if v is not ...}
    return client.post("/api/v1/executor-events/", body, content_type="application/json")


def test_a_failure_that_an_executor_reports_by_try_is_judged_and_uses_a_retry(
    reporter: Client, world: World, queued: Message
) -> None:
    answer = _say(reporter, info="pod-7")
    assert answer.status_code == 201, answer.content
    said = answer.json()
    assert (said["verdict"], said["attempt_id"], said["ti"]) == ("pending", None, queued.ti_id)
    assert (said["source"], said["kind"], said["flow_id"]) == ("executor: ana", "exit_failed", "f")
    assert said["payload"] == {"state": "failed", "info": "pod-7"}
    assert world.judge() == {queued.run_id}
    judged = reporter.get(f"/api/v1/executor-events/{said['id']}/").json()
    assert (judged["verdict"], judged["verdict_code"]) == ("confirmed", "killed_externally")
    assert judged["verdict_detail"]["task_state"] == "queued"
    assert TaskInstance.objects.get(pk=queued.ti_id).state == "up_for_retry"
    assert Counter.objects.get(name="scheduler_tasks_killed_externally_total").value == 1


def test_a_success_never_makes_a_task_a_success(
    reporter: Client, world: World, queued: Message
) -> None:
    assert _say(reporter, state="success").status_code == 201
    world.judge()
    assert TaskInstance.objects.get(pk=queued.ti_id).state == "up_for_retry"


def test_with_the_attempt_id_nothing_has_to_be_guessed(
    reporter: Client, world: World, queued: Message
) -> None:
    answer = _say(reporter, attempt_id=str(queued.attempt_id))
    assert answer.status_code == 201, answer.content
    world.judge()
    event = ExecutorEvent.objects.get()
    assert (event.attempt_id, event.verdict_code) == (queued.attempt_id, "never_claimed")
    assert TaskInstance.objects.get(pk=queued.ti_id).state == "queued"


@pytest.mark.parametrize("state", ["queued", "running"])
def test_a_handle_is_kept_with_its_event(
    reporter: Client, world: World, queued: Message, state: str
) -> None:
    _say(reporter, state=state, info="pod-7")
    world.judge()
    event = ExecutorEvent.objects.get()
    assert (event.kind, event.verdict) == (f"executor_{state}", "confirmed")
    assert "pod-7" in (event.verdict_reason or "")
    assert TaskInstance.objects.get(pk=queued.ti_id).state == "queued"


def test_a_statement_that_is_repeated_with_its_key_is_one_row(
    reporter: Client, world: World, queued: Message
) -> None:
    first = _say(reporter, key="k-1")
    world.judge()
    again = _say(reporter, key="k-1")
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json()["id"] == first.json()["id"]
    assert again.json()["verdict"] == "confirmed", "what became of it is told"
    assert _say(reporter, key="k-2").json()["id"] != first.json()["id"]
    assert ExecutorEvent.objects.filter(ti_id=queued.ti_id).count() == 2


@pytest.mark.parametrize(
    "unknown", [{"flow_id": "g"}, {"run_id": "r2"}, {"task_id": "b"}, {"map_index": 3}]
)
def test_a_statement_about_no_known_task_is_a_ghosts_and_says_so_at_once(
    reporter: Client, queued: Message, unknown: dict[str, Any]
) -> None:
    answer = _say(reporter, **unknown)
    assert answer.status_code == 201
    said = answer.json()
    assert (said["verdict"], said["filter_code"], said["ti"]) == ("ghost", "ghost_no_task", None)
    assert said["payload"].items() >= unknown.items()
    assert all(str(value) in said["filter_reason"] for value in unknown.values())
    assert TaskInstance.objects.get(pk=queued.ti_id).state == "queued"
    assert [d for one in compare() for d in one.differences] == []


def test_a_statement_about_an_attempt_that_nobody_issued_is_a_ghosts(
    reporter: Client, world: World, queued: Message
) -> None:
    stranger = uuid.uuid4()
    assert _say(reporter, attempt_id=str(stranger), task_id="b").status_code == 201
    world.judge()
    assert ExecutorEvent.objects.get().verdict_code == "ghost_no_record"
    assert Attempt.objects.get(pk=stranger).filter_code == "ghost_no_record"
    assert TaskInstance.objects.get(pk=queued.ti_id).state == "queued"


def test_the_attempt_of_another_task_is_refused(
    reporter: Client, world: World, queued: Message
) -> None:
    other = world.tick(world.run(world.flow("g", chain("x")))).messages[0]
    answer = _say(reporter, attempt_id=str(other.attempt_id))
    assert answer.status_code == 400
    assert answer.json()["field"] == "attempt_id"
    assert not ExecutorEvent.objects.exists()
    assert queued.ti_id != other.ti_id


@pytest.mark.parametrize(
    ("changed", "names"),
    [
        ({"state": "skipped"}, "state"),
        ({"state": "deferred"}, "state"),
        ({"state": ...}, "state"),
        ({"try_number": 0}, "try_number"),
        ({"try_number": 2**31}, "try_number"),
        ({"map_index": -2}, "map_index"),
        ({"attempt_id": "pod-7"}, "attempt_id"),
        ({"info": "x" * 1001}, "info"),
        ({"task_id": "a\x00"}, "task_id"),
        ({"verdict": "confirmed"}, "verdict"),
    ],
)
def test_what_makes_no_sense_is_refused_with_its_name(
    reporter: Client, queued: Message, changed: dict[str, Any], names: str
) -> None:
    answer = _say(reporter, **changed)
    assert answer.status_code == 400
    assert answer["Content-Type"].startswith("application/problem+json")
    assert names in answer.json()["detail"]
    assert queued
    assert not ExecutorEvent.objects.exists()


def test_an_account_without_the_permission_may_read_and_not_report(
    api: Client, stranger: Client, queued: Message
) -> None:
    answer = _say(api)
    assert answer.status_code == 403
    assert "scheduler_app.add_executorevent" in answer.json()["detail"]
    assert api.get("/api/v1/executor-events/").status_code == 200
    assert _say(stranger).status_code == 401
    assert queued
    assert not ExecutorEvent.objects.exists()
