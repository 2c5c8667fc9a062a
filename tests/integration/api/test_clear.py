"""Clearing runs and task instances over the API."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import pytest

from scheduler_app.models import Attempt, Audit, Run, TaskInstance
from scheduler_app.rules.definition import FlowDefinition, TaskDefinition, to_dict
from tests import factories

if TYPE_CHECKING:
    from django.test import Client

pytestmark = pytest.mark.django_db


def post(client: Client, address: str, body: Any) -> Any:
    return client.post(f"/api/v1/{address}/clear/", body, content_type="application/json")


@pytest.fixture
def run() -> Run:
    """Of three tasks in a row the second failed, so that the run failed."""
    made = factories.make_run(state="failed")
    definition = FlowDefinition(
        flow_id=made.flow_id,
        tasks=(
            TaskDefinition(task_id="load", retries=1),
            TaskDefinition(task_id="sum", upstream=("load",), retries=2),
            TaskDefinition(task_id="tell", upstream=("sum",)),
        ),
    )
    made.version.definition = to_dict(definition)
    made.version.save()
    for task_id, state in (("load", "success"), ("sum", "failed")):
        ti = factories.make_task_instance(run=made, task_id=task_id, state=state)
        factories.make_attempt(ti=ti, state="ended", outcome=state)
    factories.make_task_instance(run=made, task_id="tell", state="upstream_failed")
    return made


def ti_of(run: Run, task_id: str) -> TaskInstance:
    return TaskInstance.objects.get(run=run, task_id=task_id)


def test_a_preview_is_the_default_and_its_plan_is_carried_out(api: Client, run: Run) -> None:
    preview = post(api, f"runs/{run.pk}", {"only_failed": True})
    assert preview.status_code == 200
    plan = preview.json()
    assert (plan["run"], plan["dry_run"], plan["new_run_attempt"]) == (run.pk, True, 2)
    assert [(one["task_id"], one["rule"], one["executions"]) for one in plan["included"]] == [
        ("sum", "asked", 3),
        ("tell", "asked", 1),
    ]
    assert [(one["task_id"], one["rule"]) for one in plan["excluded"]] == [("load", "not_failed")]
    assert plan["excluded"][0]["effect"] == "Only failed ones are asked for, and it is success."
    assert (plan["worst_case_executions"], len(plan["hash"])) == (4, 64)
    assert plan["expires_at"].endswith("Z")
    assert ti_of(run, "sum").state == "failed"
    assert not Audit.objects.filter(action="clear").exists()
    done = post(
        api,
        f"runs/{run.pk}",
        {"dry_run": False, "plan_id": plan["plan_id"], "reason": "late file", "note": "once more"},
    )
    assert done.status_code == 200
    assert (done.json()["hash"], done.json()["dry_run"]) == (plan["hash"], False)
    told = api.get(f"/api/v1/runs/{run.pk}/").json()
    assert (told["state"], told["run_attempt"], told["note"]) == ("queued", 2, "once more")
    aside = Attempt.objects.get(ti=ti_of(run, "sum").pk)
    shown = api.get(f"/api/v1/attempts/{aside.pk}/").json()
    assert shown["filter_code"] == "superseded_by_run_attempt"
    assert "late file" in shown["filter_reason"]


def test_a_plan_that_no_longer_holds_is_refused_with_the_difference(api: Client, run: Run) -> None:
    plan = post(api, f"runs/{run.pk}", {}).json()
    TaskInstance.objects.filter(pk=ti_of(run, "tell").pk).update(state="success")
    refused = post(
        api, f"runs/{run.pk}", {"dry_run": False, "plan_id": plan["plan_id"], "reason": "r"}
    )
    assert (refused.status_code, refused.json()["code"]) == (409, "conflict")
    (one,) = refused.json()["difference"]
    assert (one["task_id"], one["planned"]["state"], one["now"]["state"]) == (
        "tell",
        "upstream_failed",
        "success",
    )


def test_one_task_instance_comes_with_its_relatives(api: Client, run: Run) -> None:
    address = f"task-instances/{ti_of(run, 'sum').pk}"
    alone = post(api, address, {}).json()
    assert [one["task_id"] for one in alone["included"]] == ["sum"]
    both = post(api, address, {"include_upstream": True, "include_downstream": True}).json()
    assert [(one["task_id"], one["rule"]) for one in both["included"]] == [
        ("load", "upstream"),
        ("sum", "asked"),
        ("tell", "downstream"),
    ]
    done = post(api, address, {"dry_run": False, "reason": "r", "include_downstream": True})
    assert done.json()["new_run_attempt"] is None
    assert Run.objects.get(pk=run.pk).run_attempt == 1
    named = [ti_of(run, "load").pk]
    assert (
        post(api, f"runs/{run.pk}", {"task_instances": named}).json()["included"][0]["id"] in named
    )


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        ({"only_failed": True, "only_running": True}, 400, "only_running"),
        ({"only_new": True, "only_failed": True}, 400, "only_new"),
        ({"dry_run": False}, 400, "reason"),
        ({"surprise": 1}, 400, "surprise"),
        ({"task_instances": []}, 400, "task_instances"),
        ({"include_upstream": True}, 400, "include_upstream"),
        ({"note": "x" * 1001}, 400, "note"),
        ({"plan_id": str(uuid.uuid4())}, 400, "plan_id"),
        ({"plan_id": str(uuid.uuid4()), "dry_run": False, "reason": "r"}, 404, "plan"),
    ],
)
def test_what_is_asked_wrongly_is_told(
    api: Client, run: Run, body: dict[str, Any], status: int, field: str
) -> None:
    refused = post(api, f"runs/{run.pk}", body)
    assert refused.status_code == status
    assert field in refused.content.decode()
    assert ti_of(run, "sum").state == "failed"


def test_a_note_may_have_a_thousand_characters(api: Client, run: Run) -> None:
    assert post(api, f"runs/{run.pk}", {"note": "x" * 1000}).status_code == 200


def test_nobody_clears_without_a_login_or_what_is_not_there(
    client: Client, api: Client, run: Run
) -> None:
    assert post(client, f"runs/{run.pk}", {}).status_code == 401
    assert post(api, "runs/999999999", {}).status_code == 404
    assert post(api, "task-instances/999999999", {}).status_code == 404


def test_tasks_are_named_by_id_and_index_or_by_group(api: Client, run: Run) -> None:
    plan = post(api, f"runs/{run.pk}", {"tasks": ["sum", ["tell", -1]]}).json()
    assert [one["task_id"] for one in plan["included"]] == ["sum", "tell"]
    assert post(api, f"runs/{run.pk}", {"tasks": [["sum", 9]]}).status_code == 404
    assert post(api, f"runs/{run.pk}", {"tasks": [7]}).status_code == 400
    assert post(api, f"runs/{run.pk}", {"group": "nope"}).status_code == 404


def test_several_runs_are_cleared_by_filter_as_one_plan(api: Client, run: Run) -> None:
    address = f"/api/v1/runs/clear/?flow_id={run.flow_id}&state=failed"

    def send(body: Any, to: str = address) -> Any:
        return api.post(to, body, content_type="application/json")

    plan = send({"only_failed": True}).json()
    assert (plan["state"], plan["included"], plan["worst_case_executions"]) == ("planned", 2, 4)
    (part,) = plan["runs"]
    assert (part["run"], part["state"], part["new_run_attempt"]) == (run.pk, "planned", 2)
    assert send({"dry_run": False, "plan_id": plan["plan_id"]}).status_code == 400, "no reason"
    TaskInstance.objects.filter(pk=ti_of(run, "tell").pk).update(state="skipped")
    refused = send({"dry_run": False, "plan_id": plan["plan_id"], "reason": "late"})
    assert refused.status_code == 409
    assert refused.json()["difference"][0]["run"] == run.pk
    plan = send({"only_failed": True}).json()
    done = send({"dry_run": False, "plan_id": plan["plan_id"], "reason": "late"}).json()
    assert (done["state"], done["runs"][0]["state"], done["reason"]) == ("ended", "done", "late")
    told = api.get(f"/api/v1/clear-batches/{plan['plan_id']}/").json()
    assert told == done
    assert send({}, f"/api/v1/clear-batches/{plan['plan_id']}/go-on/").json() == done
    undo = f"/api/v1/clears/{done['runs'][0]['plan_id']}/undo/"
    assert send({"dry_run": True}, undo).json()["task_instances"] == 1
    assert send({"reason": "wrong"}, undo).status_code == 200
    assert Run.objects.get(pk=run.pk).run_attempt == 1
    assert send({"reason": "wrong"}, undo).status_code == 409
    assert send({}, "/api/v1/runs/clear/").status_code == 400, "nothing named, nothing filtered"
    assert send({}, "/api/v1/runs/clear/?flow_id=nope").status_code == 400
    assert send({}, "/api/v1/runs/clear/?nope=1").status_code == 400


def test_task_instances_of_any_runs_are_cleared_as_one_plan(api: Client, run: Run) -> None:
    def send(body: Any, query: str = "") -> Any:
        address = f"/api/v1/task-instances/clear/{query}"
        return api.post(address, body, content_type="application/json")

    named = send({"task_instances": [ti_of(run, "sum").pk], "include_downstream": True}).json()
    assert [part["included"] for part in named["runs"]] == [2]
    past = send({"task_instances": [ti_of(run, "sum").pk], "include_past": True})
    assert past.status_code in (200, 400), "by whether its run has a date"
    found = send({}, f"?run={run.pk}&state=failed").json()
    assert found["included"] == 1
    done = send({"dry_run": False, "reason": "r"}, f"?run={run.pk}&state=failed").json()
    assert done["state"] == "ended"
    assert ti_of(run, "sum").state == "none"
