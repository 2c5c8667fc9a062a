"""Marking runs and task instances over the API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from scheduler_app.models import Audit, Run, TaskInstance
from tests import factories

if TYPE_CHECKING:
    from django.test import Client

pytestmark = pytest.mark.django_db


def post(client: Client, address: str, body: Any) -> Any:
    return client.post(f"/api/v1/{address}/mark/", body, content_type="application/json")


@pytest.fixture
def run() -> Run:
    """One task runs, one waits for it."""
    made = factories.make_run(flow=factories.make_flow(task_ids=("load", "tell")))
    running = factories.make_task_instance(run=made, task_id="load", state="running")
    factories.make_attempt(ti=running)
    factories.make_task_instance(run=made, task_id="tell", state="none")
    return made


def test_a_task_instance_is_previewed_and_marked(api: Client, run: Run) -> None:
    load = TaskInstance.objects.get(task_id="load")
    preview = post(api, f"task-instances/{load.pk}", {"state": "success", "dry_run": True})
    assert preview.status_code == 200
    plan = preview.json()
    assert (plan["state"], plan["dry_run"], plan["excluded"]) == ("success", True, [])
    assert [(one["task_id"], one["becomes"], one["run"]) for one in plan["included"]] == [
        ("load", "success", run.pk)
    ]
    assert not Audit.objects.filter(action="mark").exists()
    done = post(api, f"task-instances/{load.pk}", {"state": "success", "reason": "by phone"})
    assert done.json()["included"] == plan["included"]
    told = api.get(f"/api/v1/task-instances/{load.pk}/").json()
    assert (told["state"], told["mark"]["state"], told["mark"]["actor"]) == (
        "running",
        "success",
        "ana",
    )
    assert told["why"]["sentence"].startswith("ana marked it success: by phone")
    tell = TaskInstance.objects.get(task_id="tell")
    assert (
        post(
            api, f"runs/{run.pk}", {"state": "skipped", "reason": "r", "task_instances": [tell.pk]}
        ).json()["runs"][0]["run_id"]
        == run.run_key
    )
    told = api.get(f"/api/v1/task-instances/{tell.pk}/").json()
    assert (told["state"], told["why"]["rule"]) == ("skipped", "marked")
    assert "ana marked it skipped: r" in told["why"]["sentence"]


def test_a_run_is_marked_and_says_so(api: Client, run: Run) -> None:
    body = {"state": "failed", "reason": "wrong day", "note": "n"}
    plan = post(api, f"runs/{run.pk}", body).json()
    assert {one["task_id"]: one["becomes"] for one in plan["included"]} == {
        "load": "failed",
        "tell": "skipped",
    }
    told = api.get(f"/api/v1/runs/{run.pk}/").json()
    assert (told["mark"]["state"], told["mark"]["reason"], told["note"]) == (
        "failed",
        "wrong day",
        "n",
    )


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"reason": "r"}, "state"),
        ({"state": "running", "reason": "r"}, "state"),
        ({"state": "success"}, "reason"),
        ({"state": "success", "reason": "r", "include_past": True}, "include_past"),
        ({"state": "success", "reason": "r", "task_instances": []}, "task_instances"),
        ({"state": "success", "reason": "r", "unknown": 1}, "unknown"),
    ],
)
def test_what_cannot_be_is_told_with_its_field(
    api: Client, run: Run, body: dict[str, Any], field: str
) -> None:
    answer = post(api, f"runs/{run.pk}", body)
    assert answer.status_code == 400
    assert field in str(answer.json())


def test_what_is_not_there_is_not_found(api: Client, stranger: Client, run: Run) -> None:
    assert post(api, "runs/987654", {"state": "failed", "reason": "r"}).status_code == 404
    other = factories.make_task_instance()
    body = {"state": "failed", "reason": "r", "task_instances": [other.pk]}
    assert post(api, f"runs/{run.pk}", body).status_code == 400
    assert post(stranger, f"runs/{run.pk}", {"state": "failed", "reason": "r"}).status_code == 401


def test_several_are_marked_by_number_by_filter_by_task_and_by_group(api: Client, run: Run) -> None:
    mapped = factories.make_mapped(run, "part", failed=4)
    asked = {"state": "success", "reason": "by hand"}
    done = post(api, "task-instances", {**asked, "task_instances": [mapped[0].pk]})
    assert [one["map_index"] for one in done.json()["included"]] == [0]
    address = f"/api/v1/task-instances/mark/?run={run.pk}&task_id=part&state=failed"
    found = api.post(address, asked, content_type="application/json").json()
    assert [one["map_index"] for one in found["included"]] == [1, 2, 3]
    refused = post(api, "task-instances", asked)
    assert (refused.status_code, refused.json()["field"]) == (400, "filter")
    again = post(api, f"runs/{run.pk}", {"state": "skipped", "reason": "r", "tasks": [["part", 2]]})
    assert [one["map_index"] for one in again.json()["included"]] == [2]
    unknown = post(api, f"runs/{run.pk}", {"state": "skipped", "reason": "r", "group": "nobody"})
    assert unknown.status_code == 404


def test_runs_are_marked_by_filter(api: Client, run: Run) -> None:
    address = f"/api/v1/runs/mark/?flow_id={run.flow_id}"
    body = {"state": "failed", "dry_run": True}
    plan = api.post(address, body, content_type="application/json").json()
    assert [one["id"] for one in plan["runs"]] == [run.pk]
