"""Flows: pause, unpause, versions."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from scheduler_app.models import Audit, Flow
from scheduler_app.rules.definition import to_dict
from tests import factories

if TYPE_CHECKING:
    from django.test import Client

pytestmark = pytest.mark.django_db


def post(client: Client, flow_id: str, verb: str, body: Any = "") -> Any:
    return client.post(f"/api/v1/flows/{flow_id}/{verb}/", body, content_type="application/json")


def test_pause_and_unpause_are_audited_once_each(api: Client) -> None:
    flow = factories.make_flow()
    for verb, state in (("pause", "paused"), ("pause", "paused"), ("unpause", "active")):
        answer = post(api, flow.flow_id, verb, {"reason": "deploy"})
        assert (answer.status_code, answer.json()["state"]) == (200, state)
    entries = (
        Audit.objects.filter(object_kind="flow")
        .order_by("id")
        .values_list("action", "actor", "reason")
    )
    assert [*entries] == [("pause", "ana", "deploy"), ("unpause", "ana", "deploy")]


@pytest.mark.parametrize("verb", ["pause", "unpause"])
def test_a_flow_that_is_not_there_cannot_be_paused(api: Client, verb: str) -> None:
    assert post(api, "nothing", verb).status_code == 404


@pytest.mark.parametrize("verb", ["pause", "unpause"])
def test_nobody_pauses_without_a_login(stranger: Client, verb: str) -> None:
    flow = factories.make_flow(is_paused=verb == "unpause")
    assert post(stranger, flow.flow_id, verb).status_code == 401
    assert Flow.objects.get().is_paused == flow.is_paused


def test_reading_does_not_pause(api: Client) -> None:
    flow = factories.make_flow()
    assert api.get(f"/api/v1/flows/{flow.flow_id}/pause/").status_code == 405


@pytest.mark.parametrize("body", [{"reason": "r" * 1001}, {"reason": 5.5, "x": 1}, "[1]"])
def test_a_bad_body_pauses_nothing(api: Client, body: Any) -> None:
    flow = factories.make_flow()
    assert post(api, flow.flow_id, "pause", body).status_code == 400
    assert not Flow.objects.get().is_paused


def test_the_versions_of_a_flow_are_listed_newest_first_and_have_their_graph(api: Client) -> None:
    flow = factories.make_flow()
    factories.make_version(flow, task_ids=("a", "b", "c"))
    factories.make_flow()
    body = api.get(f"/api/v1/flows/{flow.flow_id}/versions/").json()
    assert [row["number"] for row in body["results"]] == [2, 1]
    assert body["counts"]["total"] == 2
    one = api.get(f"/api/v1/flows/{flow.flow_id}/versions/2/").json()
    assert one["definition"] == to_dict(factories.make_definition(flow.flow_id, ("a", "b", "c")))
    assert {name: one[name] for name in body["results"][0]} == body["results"][0]


def test_a_removed_flow_is_filtered_with_its_last_place(api: Client) -> None:
    factories.make_flow(removed_at=factories.at(3), folder="/flows", path="a.py")
    assert api.get("/api/v1/flows/").json()["results"] == []
    body = api.get("/api/v1/flows/?filtered=only").json()
    assert body["counts"]["by_reason"] == {"flow_removed": 1}
    assert "a.py in /flows" in body["results"][0]["filter_reason"]


def test_a_flow_says_in_words_when_it_fires_and_its_next_five_times(api: Client) -> None:
    flow = factories.make_flow(is_paused=True)
    body = api.get(f"/api/v1/flows/{flow.flow_id}/").json()
    assert body["schedule_in_words"] == "every day at 02:00 UTC"
    times = [datetime.fromisoformat(text) for text in body["next_fire_times"]]
    assert len(times) == 5
    assert {later - time for time, later in pairwise(times)} == {timedelta(days=1)}
    assert {time.hour for time in times} == {2}
    assert "next_fire_times" not in api.get("/api/v1/flows/").json()["results"][0]
