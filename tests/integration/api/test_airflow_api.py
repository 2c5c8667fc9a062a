"""The compatible API by raw requests: transport, refusals, filters, and what the client cannot say."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from asgiref.sync import sync_to_async
from django.db import connections
from django.urls import URLPattern
from django.utils import timezone

from scheduler_app.airflow_api import more, urls
from scheduler_app.airflow_api.views import AirflowView
from scheduler_app.models import (
    ApiToken,
    AttemptLogChunk,
    Audit,
    FlowFile,
    Pool,
    Run,
    TaskInstance,
    Variable,
)
from scheduler_app.operations.variables import set_variable
from scheduler_app.queries.scope import EVERYTHING
from tests import factories

if TYPE_CHECKING:
    from django.contrib.auth.models import User
    from django.test import Client

pytestmark = pytest.mark.django_db(transaction=True)

PASSWORD = "correct horse battery staple"
SECRET = "hunter2-hunter2"


def send(api: Client, method: str, path: str, body: Any = None, **headers: Any) -> Any:
    return api.generic(
        method,
        f"/api/v2/{path}",
        "" if body is None else json.dumps(body),
        content_type="application/json",
        **headers,
    )


def said(answer: Any, status: int = 200) -> Any:
    assert answer.status_code == status, answer.content
    return answer.json()


@pytest.fixture
def failed() -> Any:
    """A failed run of a flow whose one task failed."""
    flow = factories.make_flow(task_ids=("a", "b"))
    run = factories.make_run(flow=flow, state="failed", run_key="manual__one")
    factories.make_task_instance(run=run, task_id="a", state="success")
    factories.make_task_instance(run=run, task_id="b", state="failed")
    return run


def test_every_address_needs_a_token_but_two(stranger: Client) -> None:
    for pattern in urls.urlpatterns:
        assert isinstance(pattern, URLPattern)
        view: Any = pattern.callback
        assert issubclass(view.view_class, AirflowView)
        assert bool(view.view_class.authentication_classes) != (
            str(pattern.pattern) in ("version", "monitor/health")
        )
    assert said(send(stranger, "GET", "dags"), 401) == {"detail": "Not authenticated"}
    assert send(stranger, "GET", "version").status_code == 200
    assert said(send(stranger, "GET", "monitor/health"))["metadatabase"] == {"status": "healthy"}


def test_a_token_that_has_run_out_is_told_so(
    api: Client, stranger: Client, bearer: dict[str, str]
) -> None:
    assert send(api, "GET", "dags").status_code == 200
    ApiToken.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    assert said(send(api, "GET", "dags"), 401) == {"detail": "Token Expired"}
    del stranger, bearer


def test_a_token_is_given_for_a_form_and_for_json(stranger: Client, ana: User) -> None:
    login = {"username": ana.username, "password": PASSWORD}
    for path in ("/auth/token", "/auth/token/cli"):
        assert stranger.post(path, login, content_type="application/json").status_code == 201
    form = "username=ana&password=correct%20horse+battery%20staple"
    answer = stranger.post("/auth/token", form, content_type="application/x-www-form-urlencoded")
    assert said(answer, 201)["access_token"]
    wrong = stranger.post(
        "/auth/token", {**login, "password": "x"}, content_type="application/json"
    )
    assert wrong.status_code == 401
    lasting = sorted(
        round((t.expires_at - t.created_at).total_seconds()) for t in ApiToken.objects.all()
    )
    assert lasting == [3600, 86400, 86400]


@pytest.mark.parametrize("method", ["GET", "POST", "PATCH", "DELETE"])
def test_an_address_that_is_not_part_of_it_says_what_is(api: Client, method: str) -> None:
    told = said(send(api, method, "assets/events"), 404)
    assert told["detail"].startswith(f"{method} /api/v2/assets/events is not part of the Airflow-")
    assert "docs/airflow_api.md" in told["detail"]


def test_faults_of_a_body_are_told_one_by_one(api: Client) -> None:
    factories.make_flow(flow_id="f")
    told = said(send(api, "POST", "dags/f/dagRuns", {"conf": [1], "colour": 2}), 422)["detail"]
    assert [(item["type"], item["loc"]) for item in told] == [
        ("missing", ["body", "logical_date"]),
        ("dict_type", ["body", "conf"]),
        ("extra_forbidden", ["body", "colour"]),
    ]
    assert send(api, "POST", "dags/f/dagRuns", [1]).status_code == 422
    broken = api.post("/api/v2/dags/f/dagRuns", "{", content_type="application/json")
    assert said(broken, 422)["detail"][0]["type"] == "json_invalid"


@pytest.mark.parametrize(
    "path", ["dags?limit=-1", "dags?limit=x", "dags/~/dagRuns?run_after_gte=x"]
)
def test_faults_of_parameters_are_422(api: Client, path: str) -> None:
    assert said(send(api, "GET", path), 422)["detail"][0]["loc"][0] == "query"


@pytest.mark.parametrize(
    "path",
    [
        "dags?order_by=nonsense",
        "dags?order_by=" + ",".join(["dag_id"] * 11),
        "dags/~/dagRuns?state=frozen",
        "dags/~/dagRuns?cursor=",
        "dags/~/dagRuns/~/taskInstances?executor=x",
    ],
)
def test_what_a_list_cannot_do_is_refused_and_not_passed_over(api: Client, path: str) -> None:
    assert said(send(api, "GET", path), 400)["detail"]


def test_pages_are_capped_and_empty_ones_keep_the_total(api: Client) -> None:
    for number in range(3):
        factories.make_flow(flow_id=f"f{number}", tags=["even"] if number % 2 == 0 else [])
    assert said(send(api, "GET", "dags?limit=0")) == {"dags": [], "total_entries": 3}
    page = said(send(api, "GET", "dags?limit=1000&order_by=-dag_id&offset=1&unknown=1"))
    assert [dag["dag_id"] for dag in page["dags"]] == ["f1", "f0"]
    assert said(send(api, "GET", "dags?tags=even"))["total_entries"] == 2
    assert said(send(api, "GET", "dags?dag_id_pattern=F_|nothing"))["total_entries"] == 3
    assert said(send(api, "GET", "dags?dag_id_prefix_pattern=f1"))["total_entries"] == 1


def test_filtered_rows_are_not_part_of_it_and_frozen_is_no_state(api: Client) -> None:
    run = factories.make_run(state="running", run_key="r", frozen_at=factories.at(1))
    factories.make_run(flow=run.flow, state="failed", filter_code="ghost_run")
    listed = said(send(api, "GET", f"dags/{run.flow_id}/dagRuns"))
    assert [one["dag_run_id"] for one in listed["dag_runs"]] == ["r"]
    assert listed["dag_runs"][0]["state"] == "running"
    assert listed["dag_runs"][0]["daylight"]["state"] == "frozen"


def test_what_is_not_there_is_told_in_airflows_words(api: Client, failed: Run) -> None:
    dag = failed.flow_id
    assert said(send(api, "GET", "dags/x"), 404)["detail"] == "Dag with dag_id: 'x' not found"
    told = said(send(api, "GET", f"dags/{dag}/dagRuns/x"), 404)["detail"]
    assert told == f"The DagRun with dag_id: `{dag}` and run_id: `x` was not found"
    path = f"dags/{dag}/dagRuns/manual__one/taskInstances/x"
    assert "was not found" in said(send(api, "GET", path), 404)["detail"]


def test_nothing_is_deleted(api: Client, failed: Run) -> None:
    for path in (f"dags/{failed.flow_id}", f"dags/{failed.flow_id}/dagRuns/manual__one"):
        assert "deletes no history" in said(send(api, "DELETE", path), 409)["detail"]
    assert Run.objects.count() == 1


def test_a_clear_is_a_preview_unless_it_is_said_otherwise(api: Client, failed: Run) -> None:
    path = f"dags/{failed.flow_id}/dagRuns/manual__one/clear"
    told = said(send(api, "POST", path, {"only_failed": True}))
    assert [ti["task_id"] for ti in told["task_instances"]] == ["b"]
    assert Run.objects.get().state == "failed"
    both = said(send(api, "POST", path, {"only_failed": True, "only_new": True}), 422)
    assert "cannot both be" in both["detail"][0]["msg"]
    run = said(send(api, "POST", path, {"only_failed": True, "dry_run": False, "note": "again"}))
    assert run["state"] == "queued"
    assert run["note"] == "again"
    assert run["daylight"]["run_attempt"] == 2


def test_task_instances_are_cleared_by_name_by_state_and_by_date(api: Client, failed: Run) -> None:
    path = f"dags/{failed.flow_id}/clearTaskInstances"

    def names(**body: Any) -> list[str]:
        told = said(send(api, "POST", path, body))
        return sorted(ti["task_id"] for ti in told["task_instances"])

    assert names(dag_run_id="manual__one") == ["b"]  # only_failed is on unless it is said
    assert names(dag_run_id="manual__one", only_failed=False) == ["a", "b"]
    assert names(dag_run_id="manual__one", only_failed=False, task_ids=["a"]) == ["a"]
    assert names(dag_run_id="manual__one", only_failed=False, task_ids=[["b", -1]]) == ["b"]
    assert names(dag_run_id="manual__one", task_ids=[]) == []
    assert names(start_date="2000-01-01T00:00:00Z", end_date="2001-01-01T00:00:00Z") == []
    assert names(task_ids=["b"], dry_run=False) == ["b"]
    assert Run.objects.get().state == "queued"
    assert send(api, "POST", path, {"include_past": True}).status_code == 400
    assert send(api, "POST", path, {"task_ids": [1]}).status_code == 422


def test_a_clear_can_refuse_what_runs(api: Client) -> None:
    run = factories.make_run(state="running", run_key="r")
    ti = factories.make_task_instance(run=run, task_id="a", state="running")
    factories.make_attempt(ti=ti)
    path = f"dags/{run.flow_id}/clearTaskInstances"
    body = {"dag_run_id": "r", "only_failed": False, "prevent_running_task": True}
    assert "is running" in said(send(api, "POST", path, body), 409)["detail"]


def test_a_secret_is_masked_and_can_be_set(api: Client) -> None:
    set_variable(key="s", value=SECRET, is_secret=True, actor="ana", reason="test")
    told = said(send(api, "GET", "variables/s"))
    assert (told["value"], told["is_encrypted"]) == ("***", True)
    changed = send(api, "PATCH", "variables/s?update_mask=value", {"key": "s", "value": "x" * 9})
    assert said(changed)["value"] == "***"
    assert Variable.objects.get().is_secret
    assert SECRET not in send(api, "GET", "eventLogs").content.decode()


def test_many_variables_at_once_each_by_itself(api: Client) -> None:
    body = {
        "actions": [
            {
                "action": "create",
                "entities": [{"key": "a", "value": 1}, {"key": " ", "value": 1}],
            },
            {
                "action": "create",
                "action_on_existence": "skip",
                "entities": [{"key": "a", "value": 2}],
            },
            {
                "action": "create",
                "action_on_existence": "overwrite",
                "entities": [{"key": "a", "value": 3}],
            },
            {"action": "update", "entities": [{"key": "b", "value": 3}]},
            {"action": "delete", "action_on_non_existence": "skip", "entities": ["c"]},
        ]
    }
    told = said(send(api, "PATCH", "variables", body))
    assert told["create"]["success"] == ["a", "a"]
    assert told["create"]["errors"][0]["status_code"] == 400
    assert told["update"]["errors"][0]["status_code"] == 404
    assert told["delete"] == {"success": [], "errors": []}
    assert Variable.objects.get().value == 3


def test_pools_are_guarded(api: Client) -> None:
    Pool.objects.get_or_create(name="default", defaults={"slots": 4})
    assert (
        said(send(api, "DELETE", "pools/default"), 400)["detail"] == "Default Pool can't be deleted"
    )
    assert send(api, "POST", "pools", {"name": "p", "slots": 2}).status_code == 201
    assert said(send(api, "POST", "pools", {"name": "p", "slots": 2}), 409)["detail"]["reason"]
    run = factories.make_run(state="running")
    factories.make_task_instance(run=run, state="scheduled", pool="p")
    assert "unfinished" in said(send(api, "DELETE", "pools/p"), 409)["detail"]
    assert send(api, "PATCH", "pools/p", {"slots": -1}).status_code == 400
    assert said(send(api, "PATCH", "pools/p", {"slots": 5}))["slots"] == 5


def test_the_log_is_lines_and_ndjson_for_who_accepts_that(api: Client) -> None:
    run = factories.make_run(state="failed", run_key="r")
    ti = factories.make_task_instance(run=run, task_id="a", state="failed")
    attempt = factories.make_attempt(ti=ti, state="ended", outcome="failed")
    AttemptLogChunk.objects.create(
        attempt_id=attempt.id, start_offset=0, data=b"one\ntwo\n", at=factories.at(1)
    )
    path = f"dags/{run.flow_id}/dagRuns/r/taskInstances/a/logs/{attempt.try_number}"
    told = said(send(api, "GET", path))
    assert told == {"content": [{"event": "one"}, {"event": "two"}], "continuation_token": None}
    lines = send(api, "GET", path, headers={"Accept": "application/x-ndjson"})
    assert lines.content == b'{"event": "one"}\n{"event": "two"}\n'
    assert send(api, "GET", path[:-1] + "9").status_code == 404


def test_a_run_and_a_task_instance_are_marked(api: Client, failed: Run) -> None:
    run = f"dags/{failed.flow_id}/dagRuns/manual__one"
    task = f"{run}/taskInstances/b"
    dry = said(send(api, "PATCH", f"{task}/dry_run", {"new_state": "success"}))
    assert [ti["task_id"] for ti in dry["task_instances"]] == ["b"]
    assert TaskInstance.objects.get(task_id="b").state == "failed"
    again = send(api, "PATCH", task, {"new_state": "failed"})
    assert said(again, 409)["detail"] == "Task id b is already in failed state"
    marked = said(send(api, "PATCH", task, {"new_state": "success"}))
    assert [ti["state"] for ti in marked["task_instances"]] == ["success"]
    assert Run.objects.get().state == "success"
    noted = said(send(api, "PATCH", f"{run}?update_mask=note", {"state": "failed", "note": "hm"}))
    assert (noted["note"], noted["state"]) == ("hm", "success")
    assert said(send(api, "PATCH", run, {"state": "failed"}))["state"] == "failed"
    assert send(api, "PATCH", run, {"state": "frozen"}).status_code == 422
    acts = Audit.objects.exclude(action="token.issue")
    reasons = set(acts.values_list("reason", flat=True))
    assert reasons == {"asked for over the Airflow-compatible API"}


def test_a_run_that_is_set_to_queued_begins_anew_what_failed(api: Client, failed: Run) -> None:
    run = f"dags/{failed.flow_id}/dagRuns/manual__one"
    assert said(send(api, "PATCH", run, {"state": "queued"}))["state"] == "queued"
    states = dict(TaskInstance.objects.values_list("task_id", "state"))
    assert states["a"] == "success"
    assert states["b"] != "failed"


def test_small_lists(api: Client, failed: Run) -> None:
    factories.make_flow(flow_id="tagged", tags=["b", "a"])
    stats = said(send(api, "GET", f"dagStats?dag_ids={failed.flow_id}"))["dags"]
    assert {one["state"]: one["count"] for one in stats[0]["stats"]} == {
        "queued": 0,
        "running": 0,
        "success": 0,
        "failed": 1,
    }
    assert said(send(api, "GET", "dagTags"))["tags"] == ["a", "b"]
    FlowFile.objects.create(
        folder="/flows",
        path="bad.py",
        errors=[{"file": "bad.py", "line": 3, "message": "It breaks.", "remedy": "Mend it."}],
        loaded_at=factories.at(1),
    )
    faults = said(send(api, "GET", "importErrors"))
    assert faults["import_errors"][0]["stack_trace"] == "bad.py:3: It breaks. Mend it."
    assert said(send(api, "GET", "importErrors/1"))["filename"] == "bad.py"
    assert send(api, "GET", "importErrors/2").status_code == 404
    versions = said(send(api, "GET", f"dags/{failed.flow_id}/dagVersions"))["dag_versions"]
    assert [one["version_number"] for one in versions] == [1]
    one = said(send(api, "GET", f"dags/{failed.flow_id}/dagVersions/1"))
    assert one == versions[0]
    links = f"dags/{failed.flow_id}/dagRuns/manual__one/taskInstances/a/links"
    assert said(send(api, "GET", links))["extra_links"] == {}


async def test_a_run_is_waited_for(failed: Run) -> None:
    lines = [line async for line in more._watched(EVERYTHING, failed.pk, 0.01, ("a",))]
    await sync_to_async(connections.close_all)()  # of the thread that it reads in
    assert lines == [b'{"state": "failed", "results": {}}\n']


def test_mapped_instances_are_listed_found_by_label_and_cleared_by_index(api: Client) -> None:
    flow = factories.make_flow(flow_id="sales", task_ids=("part",))
    run = factories.make_run(flow=flow, run_key="one", state="failed")
    parts = factories.make_mapped(run, "part", success=2, failed=3)
    TaskInstance.objects.filter(pk=parts[3].pk).update(map_label="customer 17")
    base = "dags/sales/dagRuns/one/taskInstances"
    listed = said(send(api, "GET", f"{base}/part/listMapped?order_by=map_index"))
    assert [one["map_index"] for one in listed["task_instances"]] == [0, 1, 2, 3, 4]
    assert [one["rendered_map_index"] for one in listed["task_instances"]] == [
        *("0", "1", "2", "customer 17", "4")
    ]
    found = said(send(api, "GET", f"{base}?rendered_map_index_pattern=CUSTOMER"))
    assert [one["map_index"] for one in found["task_instances"]] == [3]
    assert said(send(api, "GET", f"{base}/part/3"))["state"] == "failed"
    body = {"dag_run_id": "one", "task_ids": [["part", 3], ["part", 4]], "dry_run": False}
    done = said(send(api, "POST", "dags/sales/clearTaskInstances", body))
    assert done["total_entries"] == 2
    states = TaskInstance.objects.order_by("map_index").values_list("state", flat=True)
    assert list(states) == ["success", "success", "failed", "none", "none"]
