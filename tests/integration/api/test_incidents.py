"""Incidents over the API: lists, acknowledgement, and what each alert came to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from django.db import connection

from scheduler_app.models import Audit, Incident
from scheduler_app.transitions.incident import raise_incident, resolve_incident

if TYPE_CHECKING:
    from django.test import Client

pytestmark = pytest.mark.django_db


def make(kind: str = "nobody_listens", subject: str = "q", **more: Any) -> Incident:
    connection.ensure_connection()
    raise_incident(
        connection.connection, kind=kind, subject=subject, message=f"{kind} of {subject}.", **more
    )
    return Incident.objects.latest("id")


def acknowledge(client: Client, incident: Incident, body: Any) -> Any:
    return client.post(
        f"/api/v1/incidents/{incident.pk}/acknowledge/", body, content_type="application/json"
    )


def test_incidents_are_listed_by_state_flow_and_kind(api: Client) -> None:
    first, second = make(), make("deadline_missed", "run 1: f r", flow_id="f", run_id=1)
    resolve_incident(connection.connection, kind="nobody_listens", subject="q", resolution="Done.")
    answer = api.get("/api/v1/incidents/").json()
    assert [row["id"] for row in answer["results"]] == [second.pk, first.pk]
    assert answer["counts"]["total"] == 2
    (open_one,) = api.get("/api/v1/incidents/?state=open").json()["results"]
    assert (open_one["flow_id"], open_one["run"], open_one["count"]) == ("f", 1, 1)
    (over,) = api.get("/api/v1/incidents/?state=resolved").json()["results"]
    assert (over["id"], over["resolution"]) == (first.pk, "Done.")
    assert api.get("/api/v1/incidents/?flow_id=f&kind=nobody_listens").json()["results"] == []
    assert api.get("/api/v1/incidents/?state=loud").status_code == 400


def test_an_acknowledgement_is_audited_once_and_ends_nothing(api: Client) -> None:
    incident = make(flow_id="f")
    for _ in range(2):
        answer = acknowledge(api, incident, {"reason": "on it"})
        assert answer.status_code == 200
        assert answer.json()["state"] == "acknowledged"
        assert answer.json()["acknowledged_by"] == "ana"
    entry = Audit.objects.get(action="acknowledge")
    assert (entry.actor, entry.reason, entry.flow_id) == ("ana", "on it", "f")
    assert api.get("/api/v1/health/").json()["open_incidents"] == 1, "its condition lasts"


def test_what_only_a_person_can_end_is_over_with_it(api: Client) -> None:
    incident = make("callback_lost", "x")
    assert acknowledge(api, incident, {"reason": "done by hand"}).json()["state"] == "resolved"
    incident.refresh_from_db()
    assert incident.is_end_told, "whoever has just said so is not told"


@pytest.mark.parametrize(
    "body", [{}, {"reason": " "}, {"reason": "r" * 2001}, {"reason": "r", "x": 1}]
)
def test_a_bad_body_acknowledges_nothing(api: Client, body: Any) -> None:
    incident = make()
    assert acknowledge(api, incident, body).status_code == 400
    incident.refresh_from_db()
    assert incident.acknowledged_at is None


def test_what_is_over_or_not_there_cannot_be_acknowledged(api: Client, stranger: Client) -> None:
    incident = make()
    assert acknowledge(stranger, incident, {"reason": "r"}).status_code == 401
    resolve_incident(connection.connection, kind="nobody_listens", subject="q")
    assert acknowledge(api, incident, {"reason": "r"}).status_code == 409
    incident.pk = 999
    assert acknowledge(api, incident, {"reason": "r"}).status_code == 404


def test_alerts_are_listed_with_what_each_try_came_to(api: Client) -> None:
    incident = make(flow_id="f")
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO alert (incident_id, about, number, notifier_key, notifier, state, tries,"
            " due_at, said, created_at) VALUES (%s, 'opened', 0, 'k',"
            ' \'{"kind": "slack", "url": {"secret": "team"}}\', \'waiting\', 1,'
            ' clock_timestamp(), \'[{"said": "it answered 503."}]\', clock_timestamp())',
            [incident.pk],
        )
    (alert,) = api.get(f"/api/v1/alerts/?incident={incident.pk}&state=waiting").json()["results"]
    assert (alert["notifier"]["url"], alert["tries"]) == ({"secret": "team"}, 1)
    assert (alert["flow_id"], alert["kind"]) == ("f", "nobody_listens")
    assert api.get(f"/api/v1/alerts/{alert['id']}/").json()["said"] == [
        {"said": "it answered 503."}
    ]
    assert api.get("/api/v1/alerts/?state=sent").json()["results"] == []
