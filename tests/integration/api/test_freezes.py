"""Freezing and thawing over the API and the command line, as scripts do it."""

from __future__ import annotations

import json
from io import StringIO
from typing import TYPE_CHECKING, Any

import pytest
from django.core.management import call_command

from scheduler_app.models import Audit, Flow, Freeze, Run, TaskInstance
from tests import factories

if TYPE_CHECKING:
    from django.test import Client

pytestmark = pytest.mark.django_db


def post(client: Client, address: str, body: Any) -> Any:
    return client.post(f"/api/v1/{address}/", body, content_type="application/json")


@pytest.fixture
def run() -> Run:
    """One task runs, one waits."""
    made = factories.make_run()
    running = factories.make_task_instance(run=made, task_id="load", state="running")
    attempt = factories.make_attempt(ti=running)
    TaskInstance.objects.filter(pk=running.pk).update(attempt_id=attempt.pk)
    factories.make_task_instance(run=made, task_id="tell", state="none")
    return made


def test_a_run_is_previewed_frozen_and_thawed(api: Client, run: Run) -> None:
    preview = post(api, f"runs/{run.pk}/freeze", {"dry_run": True, "mode": "hard"}).json()
    assert (preview["held_count"], preview["stopped_count"], preview["freeze"]) == (2, 1, None)
    assert "same try" in preview["included"][0]["effect"]
    assert not Freeze.objects.exists()
    done = post(api, f"runs/{run.pk}/freeze", {"reason": "look first"})
    assert done.status_code == 200
    assert (done.json()["scope_kind"], done.json()["mode"]) == ("run", "drain")
    shown = api.get(f"/api/v1/runs/{run.pk}/").json()
    assert (shown["state"], shown["state_beneath"]) == ("frozen", run.state)
    ti = TaskInstance.objects.get(task_id="tell")
    told = api.get(f"/api/v1/task-instances/{ti.pk}/").json()
    assert (told["state"], told["held_by"]) == ("frozen", done.json()["freeze"])
    assert "ana" in told["why"]["sentence"]
    assert "look first" in told["why"]["sentence"]
    answer = api.get("/api/v1/freezes/").json()
    (live,) = answer["results"]
    assert (answer["counts"]["total"], answer["next"], live["state"]) == (1, None, "live")
    assert (live["actor"], live["reason"], live["scope_id"]) == ("ana", "look first", str(run.pk))
    again = post(api, f"runs/{run.pk}/freeze", {"reason": "look first"})
    assert (again.status_code, again.json()["code"]) == (409, "conflict")
    thawed = post(api, f"runs/{run.pk}/thaw", {"reason": "looked"}).json()
    assert (thawed["released_count"], thawed["freezes"]) == (2, [done.json()["freeze"]])
    assert api.get(f"/api/v1/runs/{run.pk}/").json()["state"] == run.state
    acts = Audit.objects.filter(object_kind="run").order_by("id")
    assert [act.action for act in acts] == ["freeze", "thaw"]


def test_every_scope_has_its_address(api: Client, run: Run) -> None:
    ti = TaskInstance.objects.get(task_id="tell")
    shard = Flow.objects.get(pk=run.flow_id).shard
    for address in (f"task-instances/{ti.pk}", f"flows/{run.flow_id}", f"leases/{shard}"):
        assert post(api, f"{address}/freeze", {"reason": "r"}).status_code == 200, address
    assert post(api, "freeze", {"reason": "r"}).status_code == 200
    listed = api.get("/api/v1/freezes/?limit=3").json()
    assert (len(listed["results"]), listed["counts"]["shown"]) == (3, 4)
    assert len(api.get(listed["next"]).json()["results"]) == 1
    only = api.get("/api/v1/freezes/?scope_kind=flow&actor=ana").json()["results"]
    assert [one["scope_id"] for one in only] == [run.flow_id]
    assert api.get("/api/v1/freezes/?scope_kind=nope").status_code == 400
    for address in (f"task-instances/{ti.pk}", f"flows/{run.flow_id}", f"leases/{shard}"):
        assert post(api, f"{address}/thaw", {"reason": "r"}).status_code == 200, address
    assert TaskInstance.objects.filter(held_by__isnull=False).count() == 2
    assert post(api, "thaw", {"reason": "r"}).status_code == 200
    assert not TaskInstance.objects.filter(held_by__isnull=False).exists()
    assert api.get("/api/v1/freezes/").json()["results"] == []
    over = api.get("/api/v1/freezes/?state=ended&order=-id").json()
    assert over["counts"]["total"] == 4
    one = api.get(f"/api/v1/freezes/{over['results'][0]['id']}/").json()
    assert (one["scope_kind"], one["state"], one["ended_at"] is not None) == ("all", "ended", True)


@pytest.mark.parametrize(
    "body", [{}, {"reason": " "}, {"reason": "r", "mode": "warm"}, {"reason": "r", "until": "soon"}]
)
def test_a_bad_body_freezes_nothing(api: Client, run: Run, body: Any) -> None:
    assert post(api, f"runs/{run.pk}/freeze", body).status_code == 400
    assert not Freeze.objects.exists()


def test_nobody_freezes_without_a_login_or_what_is_not_there(
    api: Client, stranger: Client, run: Run
) -> None:
    assert post(stranger, f"runs/{run.pk}/freeze", {"reason": "r"}).status_code == 401
    assert post(api, "runs/999999/freeze", {"reason": "r"}).status_code == 404
    assert post(api, "flows/none/freeze", {"reason": "r"}).status_code == 404
    assert post(api, f"runs/{run.pk}/thaw", {"reason": "r"}).status_code == 409


def test_the_command_line_freezes_and_thaws(run: Run) -> None:
    def said(*words: str) -> str:
        out = StringIO()
        call_command(*words, stdout=out)
        return out.getvalue()

    flow_id = str(run.flow_id)
    text = said("tasks", "freeze", flow_id, run.run_key, "load", "--dry-run", "--mode", "hard")
    assert "1 task instances in 1 runs would be held, 1 executions stopped" in text
    told = json.loads(said("flows", "freeze", flow_id, run.run_key, "--reason", "r", "--json"))
    assert told["held_count"] == 2
    assert "2 task instances go on" in said("flows", "thaw", flow_id, run.run_key, "--reason", "r")
    said("flows", "freeze", "--all", "--reason", "r", "--until", "2099-01-01T00:00:00Z")
    with pytest.raises(SystemExit):
        said("flows", "freeze", flow_id, "--all", "--reason", "r")
    said("flows", "thaw", "--all", "--reason", "r")
    assert not Freeze.objects.filter(ended_at__isnull=True).exists()


def test_a_mapped_task_of_a_run_is_frozen_listed_and_thawed(api: Client) -> None:
    run = factories.make_run(state="running")
    factories.make_mapped(run, "part", success=1, none=3)
    address = f"/api/v1/runs/{run.pk}/tasks/part"
    body = {"reason": "look first"}
    plan = api.post(f"{address}/freeze/", body, content_type="application/json").json()
    assert (plan["scope_kind"], plan["scope_id"]) == ("task", f"{run.pk}:part")
    assert plan["held_count"] == 3
    (row,) = api.get("/api/v1/freezes/?scope_kind=task").json()["results"]
    assert row["id"] == plan["freeze"]
    done = api.post(f"{address}/thaw/", body, content_type="application/json").json()
    assert done["released_count"] == 3
    unknown = api.post(
        f"/api/v1/runs/{run.pk}/tasks/nobody/freeze/", body, content_type="application/json"
    )
    assert unknown.status_code == 404
