"""Run retries, reviews and guards over the API: who may what, and what is answered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from django.contrib.auth.models import Group, User

from scheduler_app.models import AutomaticAction, Guard, Review, Run, TaskInstance
from tests.factories import make_flow, make_run, make_task_instance

if TYPE_CHECKING:
    from django.test import Client

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def run() -> Run:
    made = make_run(flow=make_flow(flow_id="sales"), run_key="r1", state="failed")
    make_task_instance(run=made, task_id="first", state="success", try_number=1)
    make_task_instance(run=made, task_id="second", state="failed", try_number=1)
    return made


@pytest.fixture
def ana(client: Client) -> Client:
    client.force_login(User.objects.create_superuser("ana", password="x"))
    return client


@pytest.fixture
def robot() -> User:
    made = User.objects.create_superuser("robot", password="x")
    made.groups.add(Group.objects.create(name="services"))
    return made


def post(client: Client, path: str, **body: Any) -> Any:
    return client.post(f"/api/v1/{path}/", body, content_type="application/json")


def test_a_failed_run_is_retried_by_its_plan(ana: Client, run: Run) -> None:
    plan = post(ana, f"runs/{run.pk}/retry", dry_run=True).json()
    assert [one["task_id"] for one in plan["included"]] == ["second"]
    assert post(ana, f"runs/{run.pk}/retry").status_code == 400, "it needs a reason"
    done = post(ana, f"runs/{run.pk}/retry", plan_id=plan["plan_id"], reason="the disk is back")
    assert (done.status_code, done.json()["new_run_attempt"]) == (200, 2)
    assert post(ana, f"runs/{run.pk}/retry", reason="again").status_code == 409
    listed = ana.get(f"/api/v1/run-attempts/?run={run.pk}&filtered=1").json()["results"]
    assert [(one["number"], one["cause"], one["reason"]) for one in listed] == [
        (2, "run_retry", "the disk is back"),
        (1, "created", ""),
    ]


def test_a_retry_is_cancelled(ana: Client, run: Run) -> None:
    assert post(ana, f"runs/{run.pk}/cancel-retry", reason="x").status_code == 409
    Run.objects.filter(pk=run.pk).update(retry_at="2030-01-01T00:00Z", retry_reason="Go 2 of 3.")
    assert ana.get(f"/api/v1/runs/{run.pk}/").json()["retry_reason"] == "Go 2 of 3."
    done = post(ana, f"runs/{run.pk}/cancel-retry", reason="look first").json()
    assert (done["retry_at"], done["retry_reason"]) == (
        None,
        "ana cancelled its retry: look first",
    )


def test_what_a_service_clears_is_automatic_and_past_the_limit_it_waits(
    client: Client, robot: User, run: Run
) -> None:
    Guard.objects.create(
        flow_id="sales", actions_max=0, actor="ana", updated_at="2026-01-01T00:00Z"
    )
    client.force_login(robot)
    held = post(client, f"runs/{run.pk}/clear", dry_run=False, reason="alert 7", automated=False)
    body = held.json()
    assert (held.status_code, body["code"], body["guard"]) == (
        409,
        "held_for_review",
        "actions_max",
    )
    review = Review.objects.get(pk=body["review"])
    assert review.asked_by == "robot"
    assert Run.objects.get(pk=run.pk).run_attempt == 1
    refused = post(client, f"reviews/{review.pk}/approve", reason="let me")
    assert (refused.status_code, Review.objects.get().state) == (403, "open")


def test_a_request_may_say_that_it_is_automatic(ana: Client, run: Run) -> None:
    done = post(ana, f"runs/{run.pk}/clear", dry_run=False, reason="alert 7", automated=True)
    assert done.status_code == 200
    assert AutomaticAction.objects.get().actor == "ana"
    ti = TaskInstance.objects.get(run=run, task_id="first")
    assert post(ana, f"task-instances/{ti.pk}/clear", automated=True).status_code == 200


def test_a_person_with_the_right_decides(ana: Client, run: Run) -> None:
    Guard.objects.create(is_stopped=True, actor="ana", updated_at="2026-01-01T00:00Z")
    number = post(
        ana, f"runs/{run.pk}/clear", dry_run=False, reason="alert 7", automated=True
    ).json()["review"]
    open_now = ana.get("/api/v1/reviews/?state=open").json()["results"]
    assert [one["id"] for one in open_now] == [number]
    plan = post(ana, f"reviews/{number}/approve", dry_run=True).json()
    assert len(plan["included"]) == 2
    bob = User.objects.create_user("bob", password="x")
    ana.force_login(bob)
    assert post(ana, f"reviews/{number}/approve", reason="x").status_code == 403
    assert post(ana, f"reviews/{number}/dismiss", reason="x").status_code == 403
    assert post(ana, "guards/set", is_stopped=False, reason="x").status_code == 403
    ana.force_login(User.objects.get(username="ana"))
    done = post(ana, f"reviews/{number}/approve", plan_id=plan["plan_id"], reason="looked at it")
    assert done.status_code == 200
    assert post(ana, f"reviews/{number}/dismiss", reason="no").status_code == 409
    one = ana.get(f"/api/v1/reviews/{number}/").json()
    assert (one["state"], one["decided_by"]) == ("approved", "ana")


def test_a_review_is_dismissed(ana: Client, run: Run) -> None:
    Guard.objects.create(is_stopped=True, actor="ana", updated_at="2026-01-01T00:00Z")
    number = post(
        ana, f"runs/{run.pk}/clear", dry_run=False, reason="alert 7", automated=True
    ).json()["review"]
    assert post(ana, f"reviews/{number}/dismiss").status_code == 400
    assert post(ana, f"reviews/{number}/dismiss", reason="no need").json()["state"] == "dismissed"


def test_guards_are_set_and_told_where_they_hold(ana: Client, run: Run) -> None:
    del run
    answer = post(ana, "guards/set", flow_id="sales", actions_max=3, reason="It is slow.")
    assert (answer.status_code, answer.json()["actions_max"]) == (200, 3)
    post(ana, "guards/set", is_stopped=True, reason="the target is down")
    holding = ana.get("/api/v1/flows/sales/guards/").json()
    assert {(one["actions_max"], one["stopped_by"]) for one in holding} == {(3, "ana")}
    assert {one["kind"] for one in holding} == {"run_retry", "clear"}
    unset = post(ana, "guards/set", flow_id="sales", actions_max=None, reason="enough")
    assert unset.json()["actions_max"] is None
    assert post(ana, "guards/set", flow_id="nobody", reason="x").status_code == 404
    assert post(ana, "guards/set", actions_max=-1, reason="x").status_code == 400
    assert post(ana, "guards/set", is_stopped=True).status_code == 400, "it needs a reason"


def test_a_service_that_speaks_as_an_airflow_client_is_held_too(
    client: Client, robot: User, run: Run
) -> None:
    Guard.objects.create(is_stopped=True, actor="ana", updated_at="2026-01-01T00:00Z")
    login = {"username": robot.username, "password": "x"}
    token = client.post("/auth/token", login, content_type="application/json").json()
    held = client.post(
        "/api/v2/dags/sales/dagRuns/r1/clear",
        {"dry_run": False, "only_failed": True},
        content_type="application/json",
        headers={"Authorization": f"Bearer {token['access_token']}"},
    )
    assert held.status_code == 409
    assert "It waits for a person in review" in held.json()["detail"]
    assert Review.objects.get().asked_by == "robot"
    assert Run.objects.get(pk=run.pk).run_attempt == 1
