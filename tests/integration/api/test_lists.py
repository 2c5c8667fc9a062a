"""What every list and every detail of the API has in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from scheduler_app.api import urls
from scheduler_app.api.lines import lines
from scheduler_app.api.reading import ApiView, NounExport, NounList
from scheduler_app.queries import exports, lens
from scheduler_app.queries.list_filter import Lens
from scheduler_app.queries.scope import EVERYTHING
from tests import factories

if TYPE_CHECKING:
    from django.test import Client

pytestmark = pytest.mark.django_db

PATHS = [
    "flows",
    "runs",
    "task-instances",
    "attempts",
    "executor-events",
    "leases",
    "lease-events",
    "take-overs",
    "take-over-items",
    "inquiries",
    "jobs",
    "triggers",
    "pools",
    "limits",
    "variables",
    "variable-changes",
    "connections",
    "cases",
    "reviews",
    "freezes",
    "incidents",
    "alerts",
    "backfills",
    "backfill-dates",
    "guards",
    "automatic-actions",
    "run-attempts",
    "audit",
    "ghosts",
    "ghost-audits",
    "records",
]


def listings() -> dict[str, type[NounList]]:
    found = {}
    for pattern in urls.V1:
        view = getattr(getattr(pattern, "callback", None), "view_initkwargs", {})
        if "listing" in view:
            found[str(pattern.pattern).removesuffix("/export/")] = view["listing"]
    return found


LISTINGS = listings()


def fill() -> None:
    run = factories.make_run(conf={"deep": [1, {"a": None}]}, note="=2+3")
    ti = factories.make_task_instance(run=run, state="running", map_index=2, wait={"code": "pool"})
    factories.make_attempt(
        ti=ti, state="ended", outcome="failed", try_number=1, filter_code="superseded_by_retry"
    )
    attempt = factories.make_attempt(ti=ti, try_number=2)
    factories.make_event(attempt=attempt, payload={"exit": -9})
    factories.make_ghost_attempt()
    factories.make_job()
    factories.make_job(ended_at=factories.at(5))
    factories.make_flow(removed_at=factories.at(7), tags=["a", "b"])
    factories.make_rest()


def test_every_noun_of_the_contract_has_its_list() -> None:
    assert sorted(LISTINGS) == sorted(PATHS)


@pytest.mark.parametrize("path", PATHS)
def test_rows_are_what_their_serializer_makes_of_them(path: str) -> None:
    fill()
    listing = LISTINGS[path]
    rows = lens.page(listing.noun, listing.asked(filtered=Lens.ALL), EVERYTHING).rows
    assert rows
    told: Any = listing.serializer(rows, many=True).data
    assert lines(listing.serializer, rows) == told


@pytest.mark.parametrize("path", PATHS)
def test_a_list_has_results_next_and_counts(api: Client, path: str) -> None:
    fill()
    answer = api.get(f"/api/v1/{path}/")
    assert answer.status_code == 200
    body = answer.json()
    assert sorted(body) == ["counts", "next", "results"]
    assert body["results"], "there is a row of each noun"
    assert body["next"] is None
    counts = body["counts"]
    assert sorted(counts) == ["by_reason", "exact", "filtered", "shown", "total"]
    assert counts["shown"] == len(body["results"])
    assert counts["total"] == counts["shown"] + counts["filtered"]
    assert counts["filtered"] == sum(counts["by_reason"].values())


@pytest.mark.parametrize("path", PATHS)
def test_a_list_says_the_same_rows_as_its_query(api: Client, path: str) -> None:
    fill()
    listing = LISTINGS[path]
    page = lens.page(listing.noun, listing.asked(filtered=Lens.ALL), EVERYTHING)
    expected = [exports.plain(listing.noun, row) for row in page.rows]
    assert api.get(f"/api/v1/{path}/?filtered=1").json()["results"] == expected


@pytest.mark.parametrize("path", PATHS)
def test_each_row_of_a_list_has_a_detail_by_its_key(api: Client, path: str) -> None:
    fill()
    for row in api.get(f"/api/v1/{path}/?filtered=1").json()["results"]:
        one = api.get(f"/api/v1/{path}/{row[LISTINGS[path].noun.key]}/")
        assert one.status_code == 200
        assert {name: value for name, value in one.json().items() if name in row} == row


@pytest.mark.parametrize("path", PATHS)
def test_the_fields_of_the_contract_are_there(api: Client, path: str) -> None:
    fill()
    wanted = {
        "runs": "id flow_id run_id shard state run_type logical_date data_interval_start"
        " data_interval_end run_attempt version conf note queued_at started_at ended_at frozen_at",
        "task-instances": "id flow_id run_id task_id map_index state try_number max_tries attempt_id"
        " pool queue priority queued_at started_at ended_at next_retry_at",
        "attempts": "id flow_id run_id task_id map_index try_number resume_index dispatch_no"
        " run_attempt shard lease_token fence state outcome hostname pid issued_at published_at"
        " started_at heartbeat_at ended_at",
        "executor-events": "id attempt_id flow_id run_id task_id kind source received_at verdict"
        " verdict_reason",
        "leases": "shard holder token expires_at",
        "lease-events": "shard kind holder token at detail why",
        "jobs": "id kind hostname pid state started_at heartbeat_at progress_at",
    }
    standing = "filter_code filter_reason filtered_at superseded_by"
    row = api.get(f"/api/v1/{path}/").json()["results"][0]
    assert set(wanted.get(path, "").split()) <= set(row)
    if path in {"runs", "task-instances", "attempts", "executor-events", "flows", "jobs"}:
        assert set(standing.split()) <= set(row)


def test_the_two_ids_of_a_run_are_its_text_and_its_number(api: Client) -> None:
    run = factories.make_run(run_key="manual__x")
    ti = factories.make_task_instance(run=run)
    row = api.get("/api/v1/task-instances/").json()["results"][0]
    assert (row["id"], row["run_id"], row["run"]) == (ti.id, "manual__x", run.id)


@pytest.mark.parametrize("path", PATHS)
def test_nobody_reads_without_a_login(stranger: Client, path: str) -> None:
    for address in (f"/api/v1/{path}/", f"/api/v1/{path}/export/?format=csv", f"/api/v1/{path}/1/"):
        answer = stranger.get(address)
        if answer.status_code != 404:  # no such key at all, such as a number for a uuid
            assert answer.status_code == 401
            assert answer["WWW-Authenticate"] == "Bearer"
        assert answer["Content-Type"] == "application/problem+json"


@pytest.mark.parametrize(
    ("path", "method"),
    [
        (path, method)
        for path in PATHS
        for method in ("post", "put", "patch", "delete")
        if (path, method)
        not in {
            ("executor-events", "post"),  # the door for executors from outside
            ("variables", "post"),  # makes one
            ("connections", "post"),
            ("pools", "post"),
        }
    ],
)
def test_a_list_cannot_be_written(api: Client, path: str, method: str) -> None:
    answer = getattr(api, method)(f"/api/v1/{path}/", {}, content_type="application/json")
    assert answer.status_code == 405
    assert answer.json()["code"] == "method_not_allowed"


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    ("query", "parameter"),
    [
        ("limit=0", "limit"),
        ("limit=501", "limit"),
        ("order=nothing", "order"),
        ("cursor=%00", "cursor"),
        ("filtered=maybe", "filtered"),
        ("colour=red", "colour"),
    ],
)
def test_a_bad_parameter_is_told_by_name(
    api: Client, path: str, query: str, parameter: str
) -> None:
    answer = api.get(f"/api/v1/{path}/?{query}")
    assert answer.status_code == 400
    problem = answer.json()
    assert sorted({"type", "title", "status", "detail", "code"} - set(problem)) == []
    assert (problem["code"], problem["status"]) == ("invalid_input", 400)
    assert problem["parameter"] == parameter
    assert problem["detail"].startswith(f"{parameter}: ")


@pytest.mark.parametrize(
    "address",
    [
        "flows/none/",
        "flows/none/versions/",
        "flows/none/versions/1/",
        "flows/none/runs/",
        "flows/none/runs/none/",
        "flows/a%00b/",
        "runs/1/",
        f"runs/{10**30}/",
        "task-instances/1/",
        "attempts/0191f3a4-0000-7000-8000-000000000000/",
        "attempts/0191f3a4-0000-7000-8000-000000000000/log/",
        "attempts/none/",
        "leases/4711/",
        "pools/none/",
        "nothing/at/all/",
    ],
)
def test_what_is_not_there_is_a_problem_too(api: Client, address: str) -> None:
    answer = api.get(f"/api/v1/{address}")
    assert answer.status_code == 404
    assert answer["Content-Type"] == "application/problem+json"
    assert answer.json()["code"] == "not_found"


def test_an_address_without_its_slash_is_sent_on(api: Client) -> None:
    answer = api.get("/api/v1/runs?limit=1")
    assert (answer.status_code, answer["Location"]) == (301, "/api/v1/runs/?limit=1")


def test_following_next_walks_the_whole_list_under_the_same_filter(api: Client) -> None:
    flow = factories.make_flow()
    made = [factories.make_run(flow=flow).id for _ in range(5)]
    factories.make_run()
    seen: list[Any] = []
    address = f"/api/v1/runs/?flow_id={flow.flow_id}&limit=2&filtered=1"
    for _ in range(4):
        body = api.get(address).json()
        seen += [row["id"] for row in body["results"]]
        assert body["counts"]["shown"] == 5
        if body["next"] is None:
            break
        assert body["next"].startswith("http://testserver/api/v1/runs/?")
        parts = urlsplit(body["next"])
        address = f"{parts.path}?{parts.query}"
    assert seen == made[::-1]


def test_runs_of_a_flow_are_its_own_and_their_next_stays_there(api: Client) -> None:
    flow = factories.make_flow()
    made = [factories.make_run(flow=flow).id for _ in range(3)]
    other = factories.make_run()
    address = f"/api/v1/flows/{flow.flow_id}/runs/?limit=2&flow_id={other.flow_id}"
    body = api.get(address).json()
    assert [row["id"] for row in body["results"]] == made[:0:-1]
    parts = urlsplit(body["next"])
    assert parts.path == f"/api/v1/flows/{flow.flow_id}/runs/"
    rest = api.get(f"{parts.path}?{parts.query}").json()
    assert [row["id"] for row in rest["results"]] == made[:1]


def test_repeated_parameters_mean_any_of_them(api: Client) -> None:
    runs = [factories.make_run(state=state) for state in ("running", "success", "failed")]
    body = api.get("/api/v1/runs/?state=success&state=failed").json()
    assert {row["id"] for row in body["results"]} == {runs[1].id, runs[2].id}


def test_one_reason_can_be_asked_for(api: Client) -> None:
    fill()
    body = api.get("/api/v1/attempts/?why=ghost_no_record").json()
    assert [row["filter_code"] for row in body["results"]] == ["ghost_no_record"]
    assert body["counts"]["by_reason"] == {"ghost_no_record": 1, "superseded_by_retry": 1}
    assert "was issued" in body["results"][0]["filter_reason"]


def test_every_view_of_the_api_is_closed_unless_it_says_otherwise() -> None:
    callbacks: list[Any] = [
        getattr(pattern, "callback", None) for pattern in [*urls.V1, *urls.urlpatterns]
    ]
    views = [callback.view_class for callback in callbacks if hasattr(callback, "view_class")]
    assert NounExport in views
    open_views = {
        view.__name__ for view in views if view.permission_classes != ApiView.permission_classes
    }
    assert open_views == {"TokenIssue"}
    assert all(issubclass(view, ApiView) for view in views)
