"""Triggering a run, and finding it by both its ids."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from django.db import connection
from django.utils import timezone

from scheduler_app.api import reading
from scheduler_app.models import Audit, Run, TaskInstance
from scheduler_app.operations import trigger_run as trigger_run_module
from scheduler_app.processes.new_runs import flow_now
from scheduler_app.queries import metrics
from scheduler_app.queries.scope import Scope
from scheduler_app.rules.run_keys import manual_run_key
from tests import factories

if TYPE_CHECKING:
    from django.test import Client

pytestmark = pytest.mark.django_db


def trigger(client: Client, flow_id: str, body: Any) -> Any:
    return client.post(f"/api/v1/flows/{flow_id}/runs/", body, content_type="application/json")


def test_a_run_is_made_with_all_its_fields(api: Client) -> None:
    flow = factories.make_flow()
    body = {
        "conf": {"undeclared": [1, {"a": None}]},
        "logical_date": "2026-02-03T04:05:06Z",
        "run_id": "by-hand~1",
        "note": "please",
    }
    answer = trigger(api, flow.flow_id, body)
    assert answer.status_code == 201
    made = answer.json()
    assert {name: made[name] for name in body} == body
    assert (made["state"], made["run_type"], made["actor"]) == ("queued", "manual", "ana")
    assert (made["flow_id"], made["version"]) == (flow.flow_id, 1)
    assert TaskInstance.objects.filter(run_id=made["id"]).count() == 2
    assert api.get(f"/api/v1/runs/{made['id']}/").json() == made
    assert api.get(f"/api/v1/flows/{flow.flow_id}/runs/by-hand~1/").json() == made
    entry = Audit.objects.get(action="trigger")
    assert (entry.actor, entry.object_id) == ("ana", str(made["id"]))
    assert (entry.object_kind, entry.flow_id, entry.reason) == ("run", flow.flow_id, "please")
    assert (entry.before, entry.after) == (
        None,
        {"run_id": "by-hand~1", "conf": {"undeclared": [1, {"a": None}]}},
    )
    assert created() == 1


def created() -> int:
    """Runs that were created, as the metrics page tells it."""
    return metrics.numbers().counters["scheduler_runs_created_total"]


@pytest.mark.parametrize("body", [{}, "", {"conf": None, "logical_date": None, "run_id": None}])
def test_nothing_needs_to_be_said(api: Client, body: Any) -> None:
    answer = trigger(api, factories.make_flow().flow_id, body)
    assert answer.status_code == 201
    assert answer.json()["conf"] == {}
    assert answer.json()["run_id"].startswith("manual__")


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({"conf": [1]}, "conf"),
        ({"conf": "x"}, "conf"),
        ({"conf": {"a": "\x00"}}, "NUL"),
        ({"conf": {"\x00": 1}}, "NUL"),
        ('{"conf": {"a": "\\ud800"}}', "surrogate"),
        ('{"conf": {"a": 1e999}}', "conf"),
        ('{"conf": {"a": NaN}}', "JSON"),
        (json.dumps({"conf": {"a": None}}).replace("null", "[" * 150 + "]" * 150), "deep"),
        ('{"conf": ' + "[" * 100_000 + "]" * 100_000 + "}", "deep"),
        ({"run_id": "with space"}, "run"),
        ({"run_id": ""}, "run_id"),
        ({"run_id": "a" * 251}, "run"),
        ({"run_id": "ä"}, "run"),
        ({"logical_date": "tomorrow"}, "logical_date"),
        ({"note": "n" * 1001}, "note"),
        ({"note": "a\x00"}, "note"),
        ({"state": "success"}, "state: no such field"),
        ([], "object"),
        ("null", "object"),
        ("{", "JSON"),
    ],
)
def test_a_bad_body_makes_no_run_and_is_told(api: Client, body: Any, told: str) -> None:
    answer = trigger(api, factories.make_flow().flow_id, body)
    assert answer.status_code == 400, answer.content
    assert told in answer.json()["detail"]
    assert not Run.objects.exists()


def test_a_run_id_that_exists_is_a_conflict(api: Client) -> None:
    run = factories.make_run()
    answer = trigger(api, run.flow_id, {"run_id": run.run_key})
    assert answer.status_code == 409
    assert answer.json()["code"] == "conflict"
    assert Run.objects.count() == 1
    assert not Audit.objects.filter(action="trigger").exists()
    assert created() == 0


@pytest.mark.parametrize("body", [{}, {"run_id": ""}, "{"])
def test_a_flow_that_is_not_there_has_no_runs(api: Client, body: Any) -> None:
    for made in (trigger(api, "nothing", body), trigger_many(api, "nothing", body)):
        assert made.status_code == 404
        assert made.json()["detail"] == "There is no flow nothing, or you may not see it."
    assert trigger(api, "a%00b", body).status_code == 404


def test_a_flow_that_may_not_be_seen_has_no_runs(
    api: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, hidden = factories.make_flow(), factories.make_flow()
    scope = Scope(flow_ids=frozenset([seen.flow_id]), sees_shared=False)
    monkeypatch.setattr(reading, "visible_flows", lambda _: scope)
    assert trigger(api, hidden.flow_id, {}).status_code == 404
    assert trigger_many(api, hidden.flow_id, {"runs": [{}]}).status_code == 404
    assert not Run.objects.exists()
    assert trigger(api, seen.flow_id, {}).status_code == 201


def test_a_removed_flow_is_a_conflict(api: Client) -> None:
    flow = factories.make_flow(removed_at=timezone.now())
    answer = trigger(api, flow.flow_id, {})
    assert (answer.status_code, answer.json()["field"]) == (409, "flow_id")


def test_a_run_is_of_the_version_that_is_current_when_it_is_asked_for(api: Client) -> None:
    flow = factories.make_flow()
    assert trigger(api, flow.flow_id, {}).json()["version"] == 1
    factories.make_version(flow, task_ids=("a", "b", "c"))
    made = trigger(api, flow.flow_id, {}).json()
    assert made["version"] == 2
    assert TaskInstance.objects.filter(run_id=made["id"]).count() == 3


def test_a_paused_flow_runs_by_hand(api: Client) -> None:
    assert trigger(api, factories.make_flow(is_paused=True).flow_id, {}).status_code == 201


def test_nobody_triggers_without_a_login(stranger: Client) -> None:
    assert trigger(stranger, factories.make_flow().flow_id, {}).status_code == 401
    assert not Run.objects.exists()


def test_a_body_that_is_too_large_is_refused(api: Client) -> None:
    answer = trigger(api, factories.make_flow().flow_id, {"note": "n" * 3_000_000})
    assert answer.status_code == 413
    assert answer.json()["code"] == "too_large"


def test_a_body_of_another_kind_is_refused(api: Client) -> None:
    flow = factories.make_flow()
    answer = api.post(f"/api/v1/flows/{flow.flow_id}/runs/", "<a/>", content_type="text/xml")
    assert answer.status_code == 415
    assert answer["Content-Type"] == "application/problem+json"


def trigger_many(client: Client, flow_id: str, body: Any) -> Any:
    return client.post(f"/api/v1/flows/{flow_id}/trigger/", body, content_type="application/json")


def test_many_runs_are_made_in_one_call_in_the_order_asked(api: Client) -> None:
    flow = factories.make_flow()
    wanted = [{"run_id": "b", "conf": {"n": 1}}, {}, {"run_id": "a", "note": "its own"}]
    answer = trigger_many(api, flow.flow_id, {"runs": wanted, "note": "for all"})
    assert answer.status_code == 201
    made = answer.json()
    assert made["count"] == 3
    assert [made["runs"][0]["run_id"], made["runs"][2]["run_id"]] == ["b", "a"]
    found = [Run.objects.get(pk=one["id"]) for one in made["runs"]]
    assert [one.note for one in found] == ["for all", "for all", "its own"]
    assert (found[0].conf, found[0].state) == ({"n": 1}, "queued")
    assert Audit.objects.filter(action="trigger").count() == 3


def test_runs_asked_for_in_the_same_microsecond_have_ids_of_their_own(
    api: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow = factories.make_flow()
    seen = flow_now(connection.connection, flow.flow_id)
    moments = iter([seen, seen])
    monkeypatch.setattr(
        trigger_run_module, "flow_now", lambda link, of: next(moments, None) or flow_now(link, of)
    )
    first = trigger_many(api, flow.flow_id, {"runs": [{}] * 3}).json()["runs"]
    answer = trigger_many(api, flow.flow_id, {"runs": [{}] * 4})
    assert answer.status_code == 201
    keys = [one["run_id"] for one in [*first, *answer.json()["runs"]]]
    assert len(set(keys)) == 7
    assert all(key.startswith("manual__") for key in keys)
    found = Run.objects.filter(pk__in=[one["id"] for one in answer.json()["runs"]])
    assert all(
        one.logical_date and one.run_key == manual_run_key(one.logical_date) for one in found
    )


@pytest.mark.parametrize("is_frozen", [False, True])
def test_the_answer_is_what_is_stored(api: Client, *, is_frozen: bool) -> None:
    flow = factories.make_flow(frozen_at=timezone.now() if is_frozen else None)
    conf = r'{"z": 1e300, "a": [-0.0, 1.50, "\u00e9\\"], "z": 1e20}'
    made = trigger(api, flow.flow_id, f'{{"conf": {conf}, "note": " as typed "}}')
    assert made.status_code == 201, made.content
    found = api.get(f"/api/v1/runs/{made.json()['id']}/")
    assert made.content == found.content
    assert (made.json()["state"] == "frozen") is is_frozen
    listed = api.get(f"/api/v1/flows/{flow.flow_id}/runs/").json()["results"]
    assert listed == [made.json()]


def test_where_one_of_many_runs_cannot_be_made_none_is(api: Client) -> None:
    flow = factories.make_flow()
    wanted = [{"run_id": "one"}, {"run_id": "two"}, {"run_id": "one"}]
    answer = trigger_many(api, flow.flow_id, {"runs": wanted})
    assert answer.status_code == 409
    assert answer.json()["field"] == "runs.2.run_id"
    assert "no run was made" in answer.json()["detail"]
    assert not Run.objects.exists()
    refused: list[dict[str, Any]] = [
        {"runs": []},
        {"runs": [{}] * 1001},
        {"runs": [{"conf": [1]}]},
        {},
    ]
    for body in refused:
        assert trigger_many(api, flow.flow_id, body).status_code == 400
    assert not Run.objects.exists()
    assert trigger_many(api, "no-such-flow", {"runs": [{}]}).status_code == 404


def test_what_a_trigger_sends_is_planned_once(api: Client) -> None:
    flow = factories.make_flow()
    numbers = [trigger(api, flow.flow_id, {}).json()["id"] for _ in range(3)]
    assert len(set(numbers)) == 3
    with connection.cursor() as cursor:
        cursor.execute("SELECT statement FROM pg_prepared_statements")
        planned = [statement for (statement,) in cursor.fetchall()]
    for part in (
        "api_token",
        "INSERT INTO run ",
        "INSERT INTO audit",
        "FROM flow f",
    ):
        assert sum(part in statement for statement in planned) == 1, (part, planned)
