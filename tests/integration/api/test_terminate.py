"""Terminating runs and task instances over the API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from scheduler_app.models import Audit, Run, TaskInstance
from tests import factories

if TYPE_CHECKING:
    from django.test import Client

pytestmark = pytest.mark.django_db


def post(client: Client, address: str, body: Any) -> Any:
    return client.post(f"/api/v1/{address}/terminate/", body, content_type="application/json")


@pytest.fixture
def run() -> Run:
    """One task runs, one waits."""
    made = factories.make_run()
    running = factories.make_task_instance(run=made, task_id="load", state="running")
    factories.make_attempt(ti=running)
    factories.make_task_instance(run=made, task_id="tell", state="none")
    return made


def test_a_run_is_previewed_and_terminated(api: Client, run: Run) -> None:
    preview = post(api, f"runs/{run.pk}", {"dry_run": True})
    assert preview.status_code == 200
    plan = preview.json()
    assert (plan["run"], plan["dry_run"], plan["excluded"]) == (run.pk, True, [])
    assert [(one["task_id"], one["state"]) for one in plan["included"]] == [
        ("load", "running"),
        ("tell", "none"),
    ]
    assert "stopped on worker-1:" in plan["included"][0]["effect"]
    assert TaskInstance.objects.get(task_id="tell").state == "none"
    done = post(api, f"runs/{run.pk}", {"reason": "wrong day"})
    assert done.json()["included"] == plan["included"]
    assert TaskInstance.objects.get(task_id="tell").state == "failed"
    load = TaskInstance.objects.get(task_id="load")
    told = api.get(f"/api/v1/task-instances/{load.pk}/").json()
    assert told["stop_reason"] == "ana terminated the run: wrong day"
    assert told["why"]["rule"] == "terminating"
    assert told["why"]["sentence"].startswith("ana terminated the run: wrong day")
    assert Audit.objects.filter(action="terminate").count() == 1


def test_a_task_instance_is_terminated_once(api: Client, run: Run) -> None:
    del run
    ti = TaskInstance.objects.get(task_id="tell")
    assert post(api, f"task-instances/{ti.pk}", {"reason": "not needed"}).status_code == 200
    again = post(api, f"task-instances/{ti.pk}", {"reason": "not needed"})
    assert (again.status_code, again.json()["code"]) == (409, "conflict")
    assert "has ended as failed" in again.json()["detail"]


@pytest.mark.parametrize("body", [{}, {"reason": ""}, {"reason": 5, "more": 1}])
def test_a_bad_body_ends_nothing(api: Client, run: Run, body: Any) -> None:
    ti = TaskInstance.objects.get(task_id="tell")
    for address in (f"runs/{run.pk}", f"task-instances/{ti.pk}"):
        assert post(api, address, body).status_code == 400
    ti.refresh_from_db()
    assert ti.state == "none"


def test_nobody_terminates_without_a_login_or_what_is_not_there(
    api: Client, stranger: Client, run: Run
) -> None:
    assert post(stranger, f"runs/{run.pk}", {"reason": "r"}).status_code == 401
    assert post(api, "runs/999999", {"reason": "r"}).status_code == 404
    assert post(api, "task-instances/999999", {"reason": "r"}).status_code == 404


def test_several_task_instances_are_terminated_and_what_has_ended_is_told(
    api: Client, run: Run
) -> None:
    factories.make_mapped(run, "part", success=2, queued=3)
    address = f"/api/v1/task-instances/terminate/?run={run.pk}&task_id=part"
    done = api.post(address, {"reason": "enough"}, content_type="application/json").json()
    (plan,) = done["runs"]
    assert [one["map_index"] for one in plan["included"]] == [2, 3, 4]
    assert [one["effect"] for one in plan["excluded"]] == ["It has ended as success."] * 2
    states = TaskInstance.objects.filter(task_id="part").order_by("map_index")
    assert list(states.values_list("state", flat=True)) == ["success"] * 2 + ["failed"] * 3
    assert Audit.objects.get(action="terminate").reason == "enough"
