"""What scripts outside rely on: addresses, fields, counts, codes and messages, to the letter."""

from __future__ import annotations

import csv
import io
import json
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest

from tests.stack import PASSWORD, wait_for

if TYPE_CHECKING:
    from tests.stack import Stack

FLOW = """
    from datetime import timedelta
    from scheduler_app.authoring import flow, task

    @task(retries=1, retry_delay=timedelta(seconds=0))
    def unsteady(ctx):
        if ctx.try_number == 1:
            raise OSError("the first try fails")

    @flow(params={"declared": 1})
    def contract():
        unsteady()
"""

FIELDS = {
    "runs": "id flow_id run_id shard state run_type logical_date data_interval_start"
    " data_interval_end run_attempt version conf note queued_at started_at ended_at frozen_at",
    "task-instances": "id flow_id run_id task_id map_index state try_number max_tries attempt_id pool"
    " queue priority queued_at started_at ended_at next_retry_at",
    "attempts": "id flow_id run_id task_id map_index try_number resume_index dispatch_no run_attempt"
    " shard lease_token fence state outcome hostname pid issued_at published_at started_at"
    " heartbeat_at ended_at",
    "executor-events": "id attempt_id flow_id run_id task_id kind source received_at verdict"
    " verdict_reason",
    "leases": "shard holder token expires_at",
    "lease-events": "shard kind holder token at detail",
    "jobs": "id kind hostname pid state started_at heartbeat_at progress_at",
}
STANDING = {"filter_code", "filter_reason", "filtered_at", "superseded_by"}
LISTS = ("flows", *FIELDS, "triggers", "pools", "variables", "cases", "reviews", "audit")


@pytest.fixture(scope="module")
def run(stack: Stack) -> dict[str, Any]:
    stack.write_flow("contract.py", FLOW)
    stack.wait_for_flow("contract")
    made = stack.trigger("contract", conf={"undeclared": [1]}, run_id="by-hand", note="why")
    stack.wait_for_run(made)
    return made


def test_a_trigger_answers_all_fields_of_the_run(run: dict[str, Any]) -> None:
    assert set(FIELDS["runs"].split()) <= set(run)
    assert run["run_id"] == "by-hand"
    assert run["conf"] == {"declared": 1, "undeclared": [1]}
    assert run["note"] == "why"
    assert run["state"] in {"queued", "running"}  # a scheduler is quick


@pytest.mark.parametrize("noun", LISTS)
def test_every_list_has_results_next_and_counts_that_add_up(
    stack: Stack, run: dict[str, Any], noun: str
) -> None:
    del run
    for query in ("", "?filtered=1", "?filtered=only", "?limit=1"):
        page = stack.api("GET", f"/api/v1/{noun}/{query}")
        assert set(page) == {"results", "next", "counts"}
        counts = page["counts"]
        assert set(counts) == {"shown", "filtered", "total", "by_reason", "exact"}
        assert counts["shown"] + counts["filtered"] == counts["total"]
        assert sum(counts["by_reason"].values()) == counts["filtered"]
        for row in page["results"]:
            assert set(FIELDS.get(noun, "").split()) <= set(row)


def test_the_three_views_of_a_list_agree_and_filtered_rows_say_why(
    stack: Stack, run: dict[str, Any]
) -> None:
    path = f"/api/v1/attempts/?flow_id=contract&run_id={run['run_id']}"
    shown = stack.api("GET", path)
    both = stack.api("GET", f"{path}&filtered=1")
    only = stack.api("GET", f"{path}&filtered=only")
    assert shown["counts"] == both["counts"] == only["counts"]
    assert (len(shown["results"]), len(only["results"]), len(both["results"])) == (1, 1, 2)
    (row,) = only["results"]
    assert set(row) >= STANDING
    assert row["filter_code"] == "superseded_by_retry"
    assert row["superseded_by"] == shown["results"][0]["id"]
    assert "1" in row["filter_reason"]
    assert stack.api("GET", f"{path}&filtered=only&why=lost_worker")["results"] == []


def test_states_repeat_and_pages_follow(stack: Stack, run: dict[str, Any]) -> None:
    for _ in range(2):
        stack.wait_for_run(stack.trigger("contract"))
    path = "/api/v1/runs/?flow_id=contract&state=success&state=failed&limit=2"
    first = stack.api("GET", path)
    assert len(first["results"]) == 2
    second = stack.api("GET", first["next"].replace(stack.url, ""))
    seen = [row["id"] for row in first["results"] + second["results"]]
    assert len(set(seen)) == len(seen) == first["counts"]["total"]
    assert run["id"] in seen


def test_details_by_id_and_by_the_flow_s_own_address(stack: Stack, run: dict[str, Any]) -> None:
    assert stack.api("GET", f"/api/v1/runs/{run['id']}/")["state"] == "success"
    assert stack.api("GET", "/api/v1/flows/contract/runs/by-hand/")["id"] == run["id"]
    assert stack.api("GET", "/api/v1/flows/contract/")["flow_id"] == "contract"
    assert stack.api("GET", "/api/v1/flows/contract/versions/")["counts"]["total"] == 1


def test_pause_and_unpause_and_a_manual_run_meanwhile(stack: Stack, run: dict[str, Any]) -> None:
    del run
    stack.api("POST", "/api/v1/flows/contract/pause/", {})
    assert stack.api("GET", "/api/v1/flows/contract/")["is_paused"] is True
    assert stack.wait_for_run(stack.trigger("contract"))["state"] == "success"
    stack.api("POST", "/api/v1/flows/contract/unpause/", {})
    assert stack.api("GET", "/api/v1/flows/contract/")["is_paused"] is False


@pytest.mark.parametrize(
    ("method", "path", "body", "code"),
    [
        ("GET", "/api/v1/flows/nowhere/", None, 404),
        ("POST", "/api/v1/flows/nowhere/runs/", {}, 404),
        ("POST", "/api/v1/flows/contract/runs/", {"run_id": "by-hand"}, 409),
        ("POST", "/api/v1/flows/contract/runs/", {"run_id": "not/allowed"}, 400),
        ("POST", "/api/v1/flows/contract/runs/", {"conf": [1]}, 400),
        ("POST", "/api/v1/flows/contract/runs/", {"logical_date": "yesterday"}, 400),
        ("GET", "/api/v1/runs/?limit=501", None, 400),
        ("GET", "/api/v1/runs/?state=nonsense", None, 400),
        ("GET", "/api/v1/runs/?order=nonsense", None, 400),
        ("GET", "/api/v1/runs/?cursor=nonsense", None, 400),
    ],
)
def test_bad_input_gets_a_problem_that_says_what_and_where(
    stack: Stack, run: dict[str, Any], method: str, path: str, body: Any, code: int
) -> None:
    del run
    with pytest.raises(urllib.error.HTTPError) as refused:
        stack.api(method, path, body)
    assert refused.value.code == code
    assert refused.value.headers["Content-Type"].startswith("application/problem+json")
    problem = json.loads(refused.value.read())
    assert problem["detail"]
    assert problem["code"]


def test_nothing_but_health_and_metrics_answers_without_a_login(stack: Stack) -> None:
    for path in ("/healthz", "/metrics"):
        with urllib.request.urlopen(stack.url + path) as answer:
            assert answer.status == 200
    for noun in LISTS:
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(f"{stack.url}/api/v1/{noun}/")
        with refused.value as answer:
            assert answer.code in (401, 403)


def test_a_token_is_made_with_201_and_a_wrong_password_refused(stack: Stack) -> None:
    def ask(password: str) -> Any:
        body = json.dumps({"username": "admin", "password": password}).encode()
        request = urllib.request.Request(
            f"{stack.url}/auth/token", body, {"Content-Type": "application/json"}
        )
        return urllib.request.urlopen(request)

    with ask(PASSWORD) as answer:
        assert answer.status == 201
        assert json.loads(answer.read())["access_token"]
    with pytest.raises(urllib.error.HTTPError) as refused:
        ask("wrong")
    with refused.value as answer:
        assert answer.code in (400, 401)


def test_counters_exist_and_count(stack: Stack, run: dict[str, Any]) -> None:
    del run

    def processed() -> float:
        with urllib.request.urlopen(f"{stack.url}/metrics") as answer:
            lines = answer.read().decode().splitlines()
        values = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
        assert float(values["scheduler_tasks_killed_externally_total"]) >= 0
        return float(values["scheduler_executor_events_processed_total"])

    wait_for("events are counted", lambda: processed() >= 2)


@pytest.mark.parametrize("noun", ["runs", "task-instances", "attempts", "executor-events"])
def test_exports_hold_what_the_list_holds(stack: Stack, run: dict[str, Any], noun: str) -> None:
    del run
    query = "flow_id=contract&filtered=1"
    ids = [row["id"] for row in stack.api("GET", f"/api/v1/{noun}/?{query}&limit=500")["results"]]
    token = stack.api("GET", "/api/v1/health/") and stack._token

    def fetch(form: str) -> str:
        request = urllib.request.Request(
            f"{stack.url}/api/v1/{noun}/export/?{query}&format={form}",
            headers={"Authorization": f"Bearer {token}"},
        )
        with urllib.request.urlopen(request) as answer:
            text: str = answer.read().decode()
            return text

    lines = [json.loads(line) for line in fetch("ndjson").splitlines()]
    assert sorted(str(line["id"]) for line in lines) == sorted(str(i) for i in ids)
    rows = list(csv.DictReader(io.StringIO(fetch("csv"))))
    assert sorted(row["id"] for row in rows) == sorted(str(i) for i in ids)


def test_health_gives_each_component_s_last_progress(stack: Stack) -> None:
    text = json.dumps(stack.api("GET", "/api/v1/health/"))
    for component in ("scheduler", "triggerer", "worker", "web"):
        assert component in text
