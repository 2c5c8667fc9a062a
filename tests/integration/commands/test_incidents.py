from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from django.db import connection

from scheduler_app.authoring import EmailNotifier, WebhookNotifier
from scheduler_app.models import Audit, Incident
from scheduler_app.transitions.incident import raise_incident
from tests import receivers

if TYPE_CHECKING:
    from tests.integration.commands.conftest import Call

pytestmark = pytest.mark.django_db


@pytest.fixture
def incident() -> Incident:
    connection.ensure_connection()
    raise_incident(
        connection.connection,
        kind="nobody_listens",
        subject="gpu",
        message="Nobody listens on gpu.",
    )
    return Incident.objects.get()


def test_incidents_are_listed_shown_and_acknowledged(call: Call, incident: Incident) -> None:
    listed = call("incidents", "list", "--check")
    assert (listed.code, "Nobody listens on gpu." in listed.out) == (1, True)
    assert "1 incidents are open or acknowledged" in listed.out
    shown = call("incidents", "show", str(incident.pk))
    assert "Nobody was told: no notifier is named for it." in shown.out
    done = call("incidents", "acknowledge", str(incident.pk), "--reason", "on it")
    assert (done.code, done.out.strip()) == (0, f"Incident {incident.pk} is acknowledged.")
    assert Audit.objects.get(action="acknowledge").actor == "ana"
    assert call("incidents", "list", "--check").code == 0
    (row,) = call("incidents", "list", "--json", "--state", "acknowledged").json["results"]
    assert row["acknowledge_note"] == "on it"
    assert "acknowledged by ana: on it" in call("incidents", "show", str(incident.pk)).out


def test_a_refusal_is_one_line(call: Call, incident: Incident) -> None:
    assert call("incidents", "show", "99").code == 1
    answer = call("incidents", "acknowledge", str(incident.pk), "--reason", " ")
    assert (answer.code, answer.err.strip()) == (1, "reason: say what is done about it.")
    assert call("incidents", "acknowledge", str(incident.pk)).code == 2


def test_notifiers_are_listed_without_what_opens_anything(call: Call, settings: Any) -> None:
    settings.ALERTS = [
        EmailNotifier("ops@example.com").described(),
        WebhookNotifier("https://hooks.example.com/a/token-0123456789").described(),
    ]
    answer = call("notifiers", "list")
    assert "e-mail to ops@example.com" in answer.out
    assert "webhook at https://hooks.example.com" in answer.out
    assert "token-0123456789" not in answer.out
    settings.ALERTS = []
    assert "DAYLIGHT_ALERTS" in call("notifiers", "list").out


def test_a_notifier_is_tried_by_hand(call: Call, settings: Any) -> None:
    settings.NOTIFIER_SECRETS = {"K": "shared"}
    with receivers.web_server() as web:
        refused = call("notifiers", "test", "--webhook", web.url())
        assert (refused.code, "DAYLIGHT_NOTIFIER_NETWORKS" in refused.out) == (1, True)
        settings.NOTIFIER_NETWORKS = ["127.0.0.0/8"]
        done = call("notifiers", "test", "--webhook", web.url(), "--key", "K", "--text", "hello")
        assert (done.code, "answered 204" in done.out) == (0, True)
        (taken,) = web.taken
        assert json.loads(taken.body)["text"] == "hello"
        assert taken.headers["Daylight-Signature"].startswith("v1=")
        settings.ALERTS = [WebhookNotifier(web.url("/ops")).described()]
        assert call("notifiers", "test").code == 0
        assert web.taken[1].path == "/ops"
    settings.ALERTS = []
    assert call("notifiers", "test").code == 2
    assert call("notifiers", "test", "--json-notifier", '{"kind": "pigeon"}').code == 2
