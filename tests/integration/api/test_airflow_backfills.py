"""Backfills and clears of several runs over the compatible API, as its public client reads them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from airflow_client.client import models

from scheduler_app.models import Audit, Backfill, Run, TaskInstance
from tests import factories

if TYPE_CHECKING:
    from django.test import Client

pytestmark = pytest.mark.django_db(transaction=True)

ASKED = {
    "dag_id": "sales",
    "from_date": "2026-01-01T00:00:00Z",
    "to_date": "2026-01-03T12:00:00Z",
    "run_backwards": True,
    "dag_run_conf": {"day": 1},
}


def send(api: Client, method: str, path: str, body: Any = None) -> Any:
    text = "" if body is None else json.dumps(body)
    return api.generic(method, f"/api/v2/{path}", text, content_type="application/json")


@pytest.fixture(autouse=True)
def flow() -> Any:
    return factories.make_flow(flow_id="sales", task_ids=("a", "b"))


def test_a_backfill_is_looked_at_asked_for_paused_and_cancelled(api: Client) -> None:
    tried = send(api, "POST", "backfills/dry_run", ASKED)
    found = models.DryRunBackfillCollectionResponse.from_json(tried.content.decode())
    assert found is not None
    assert [str(one.logical_date)[:10] for one in found.backfills] == [
        "2026-01-03",
        "2026-01-02",
        "2026-01-01",
    ]
    assert not Backfill.objects.exists()
    made = send(api, "POST", "backfills", ASKED)
    assert made.status_code == 200
    one = models.BackfillResponse.from_json(made.content.decode())
    assert one is not None
    assert (one.dag_id, one.is_paused, one.max_active_runs) == ("sales", False, 10)
    assert (one.reprocess_behavior, one.dag_run_conf, one.completed_at) == (
        "none",
        {"day": 1},
        None,
    )
    for verb, is_paused in (("pause", True), ("unpause", False)):
        answer = send(api, "PUT", f"backfills/{one.id}/{verb}")
        assert (answer.status_code, answer.json()["is_paused"]) == (200, is_paused)
    ended = send(api, "PUT", f"backfills/{one.id}/cancel").json()
    assert ended["completed_at"] is not None
    assert ended["daylight"]["state"] == "cancelled"
    assert send(api, "PUT", f"backfills/{one.id}/pause").status_code == 409
    listed = send(api, "GET", "backfills?dag_id=sales&order_by=-id")
    whole = models.BackfillCollectionResponse.from_json(listed.content.decode())
    assert whole is not None
    assert [each.id for each in whole.backfills] == [one.id]
    assert send(api, "GET", "backfills?active=true").json()["total_entries"] == 0
    assert set(Audit.objects.values_list("actor", flat=True)) == {"ana"}


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({**ASKED, "dag_id": "nobody"}, 404),
        ({**ASKED, "reprocess_behavior": "some"}, 422),
        ({**ASKED, "colour": "red"}, 422),
        ({**ASKED, "max_active_runs": 0}, 400),
        ({**ASKED, "run_on_latest_version": False}, 400),
        ({**ASKED, "to_date": "2025-01-01T00:00:00Z"}, 400),
    ],
)
def test_a_faulty_wish_for_a_backfill_is_refused(
    api: Client, body: dict[str, Any], status: int
) -> None:
    assert send(api, "POST", "backfills", body).status_code == status
    assert not Backfill.objects.exists()


def test_a_second_backfill_of_a_flow_and_an_unknown_one_are_refused(api: Client) -> None:
    send(api, "POST", "backfills", ASKED)
    assert send(api, "POST", "backfills", ASKED).status_code == 409
    assert send(api, "GET", "backfills/999").status_code == 404


def test_several_runs_are_previewed_and_cleared(api: Client, flow: Any) -> None:
    for key in ("one", "two"):
        run = factories.make_run(flow=flow, run_key=key, state="failed")
        factories.make_task_instance(run=run, task_id="a", state="success")
        factories.make_task_instance(run=run, task_id="b", state="failed")
    body: dict[str, Any] = {"dag_runs": [{"dag_run_id": "one"}, {"dag_run_id": "two"}]}
    tried = send(api, "POST", "dags/sales/clearDagRuns", {**body, "only_failed": True}).json()
    assert [one["task_id"] for one in tried["task_instances"]] == ["b", "b"]
    assert set(Run.objects.values_list("state", flat=True)) == {"failed"}
    done = send(api, "POST", "dags/sales/clearDagRuns", {**body, "dry_run": False})
    answer = models.DAGRunCollectionResponse.from_json(done.content.decode())
    assert answer is not None
    assert {one.state for one in answer.dag_runs} == {"queued"}
    assert set(TaskInstance.objects.values_list("state", flat=True)) == {"none"}


@pytest.mark.parametrize(
    ("dag_id", "body", "status"),
    [
        ("sales", {}, 400),
        ("sales", {"dag_runs": [{"dag_run_id": "nobody"}]}, 404),
        ("~", {"dag_runs": [{"dag_run_id": "one"}]}, 400),
        ("sales", {"dag_runs": [{"dag_run_id": "one", "dag_id": "other"}]}, 400),
        ("sales", {"partition_key": "x"}, 400),
        ("sales", {"dag_runs": [{"colour": "red"}]}, 422),
        ("sales", {"only_new": True, "only_failed": True}, 422),
    ],
)
def test_a_faulty_clear_of_runs_is_refused(
    api: Client, dag_id: str, body: dict[str, Any], status: int
) -> None:
    assert send(api, "POST", f"dags/{dag_id}/clearDagRuns", body).status_code == status
