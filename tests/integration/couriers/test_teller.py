from __future__ import annotations

import json
import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from django.db.models import F

from scheduler_app.authoring import Secret, SlackNotifier, WebhookNotifier
from scheduler_app.couriers.limits import Limits
from scheduler_app.couriers.teller import Teller, plan, tell_one
from scheduler_app.models import Alert, Incident
from scheduler_app.processes import database
from scheduler_app.transitions.incident import raise_incident, resolve_incident
from tests.integration.couriers.conftest import LOOPBACK
from tests.world import chain

if TYPE_CHECKING:
    import psycopg

    from tests.receivers import WebServer
    from tests.world import World


@pytest.fixture(autouse=True)
def _loopback(settings: Any, web: WebServer) -> None:
    """The installation is told at the test's web server, which it may reach."""
    settings.NOTIFIER_NETWORKS = [str(one) for one in LOOPBACK.allowed]
    settings.BASE_URL = "https://daylight.example"
    settings.ALERTS = [WebhookNotifier(web.url("/ops")).described()]


def _raise(raw: psycopg.Connection[Any], subject: str = "q", **more: Any) -> None:
    raise_incident(
        raw, kind="nobody_listens", subject=subject, message=f"Nobody listens on {subject}.", **more
    )


def _tell(raw: psycopg.Connection[Any]) -> int:
    """Everything that is due goes out; how many letters."""
    plan(raw)
    number = 0
    while tell_one(raw):
        number += 1
    return number


def _later(seconds: float) -> None:
    """So much time has passed."""
    by = timedelta(seconds=seconds)
    Incident.objects.update(
        told_at=F("told_at") - by, raised_at=F("raised_at") - by, resolved_at=F("resolved_at") - by
    )
    Alert.objects.update(due_at=F("due_at") - by, created_at=F("created_at") - by)


def _bodies(web: WebServer) -> list[dict[str, Any]]:
    return [json.loads(taken.body) for taken in web.taken]


def test_an_incident_is_told_once_and_its_end_once_it_has_stayed_away(
    raw: psycopg.Connection[Any], web: WebServer
) -> None:
    for _ in range(3):
        _raise(raw)
        _tell(raw)
    (body,) = _bodies(web)
    incident = Incident.objects.get()
    assert (body["event"], body["kind"]) == ("incident.opened", "nobody_listens")
    assert body["subject"] == "Incident: Nobody listens on a queue"
    assert body["url"] == f"https://daylight.example/incidents/{incident.pk}/"
    resolve_incident(raw, kind="nobody_listens", subject="q", resolution="A worker came.")
    assert _tell(raw) == 0, "it may come back at once"
    _later(400)
    assert _tell(raw) == 1
    assert _tell(raw) == 0
    over = _bodies(web)[1]
    assert over["event"] == "incident.resolved"
    assert "A worker came." in over["text"]
    sent = Alert.objects.order_by("id")
    assert [(a.about, a.state, a.tries) for a in sent] == [
        ("opened", "sent", 1),
        ("resolved", "sent", 1),
    ]
    assert "answered 204" in sent[0].said[0]["said"]


def test_a_condition_that_comes_and_goes_is_one_incident_and_one_letter(
    raw: psycopg.Connection[Any], web: WebServer
) -> None:
    for _ in range(5):
        _raise(raw)
        _tell(raw)
        resolve_incident(raw, kind="nobody_listens", subject="q")
        _tell(raw)
    assert (Incident.objects.get().count, len(web.taken)) == (5, 1)
    _later(400)
    _tell(raw)  # the end is told; what comes now is another one
    _raise(raw)
    assert Incident.objects.count() == 2
    _tell(raw)
    assert [body["event"] for body in _bodies(web)] == [
        "incident.opened",
        "incident.resolved",
        "incident.opened",
    ]


def test_a_storm_is_one_letter_and_what_follows_within_a_minute_another(
    raw: psycopg.Connection[Any], web: WebServer
) -> None:
    for number in range(40):
        _raise(raw, f"q{number:02}")
    assert _tell(raw) == 1
    (body,) = _bodies(web)
    assert len(body["incidents"]) == 40
    assert body["subject"].startswith("Incident: 40 times")
    assert body["text"].count("Nobody listens on") == 10
    assert "... and 30 more." in body["text"]
    for number in range(40, 50):
        _raise(raw, f"q{number:02}")
        assert _tell(raw) == 0
    _later(61)
    assert _tell(raw) == 1
    assert len(_bodies(web)[1]["incidents"]) == 10
    assert Alert.objects.filter(state="sent").count() == 50
    assert Alert.objects.values("letter").distinct().count() == 2


def test_what_lasts_is_told_again_until_somebody_acknowledges_it(
    raw: psycopg.Connection[Any], web: WebServer, settings: Any
) -> None:
    settings.ALERT_REMIND_AFTER_S = 600
    _raise(raw)
    _tell(raw)
    _later(599)
    assert _tell(raw) == 0
    for _ in range(2):
        _later(601)
        assert _tell(raw) == 1
        assert _tell(raw) == 0
    Incident.objects.update(acknowledged_at=F("raised_at"), acknowledged_by="ada")
    _later(601)
    assert _tell(raw) == 0
    assert [body["event"] for body in _bodies(web)] == [
        "incident.opened",
        *["incident.reminder"] * 2,
    ]


def test_a_flow_s_own_notifiers_are_told_in_place_of_the_installation_s(
    world: World, raw: psycopg.Connection[Any], web: WebServer
) -> None:
    own = WebhookNotifier(web.url("/team"), subject="{flow_id}: {title} ({incident.count})")
    world.flow("mine", chain("a"), alerts=(own.described(),))
    world.flow("other", chain("a"))
    for flow_id in ("mine", "other"):
        _raise(raw, flow_id, flow_id=flow_id)
    assert _tell(raw) == 2
    told = {taken.path: json.loads(taken.body) for taken in web.taken}
    assert told["/team"]["subject"] == "mine: Nobody listens on a queue (1)"
    assert told["/ops"]["flow_id"] == "other"


def test_without_a_notifier_it_stands_on_its_page_alone(
    raw: psycopg.Connection[Any], settings: Any
) -> None:
    settings.ALERTS = []
    _raise(raw)
    assert _tell(raw) == 0
    assert (Alert.objects.count(), Incident.objects.get().told_count) == (0, 1)


def test_a_receiver_that_is_away_is_tried_again_later_and_then_given_up(
    raw: psycopg.Connection[Any], web: WebServer
) -> None:
    _raise(raw)
    web.answers = [(503, {})] * 99
    for tries in range(1, 8):
        assert _tell(raw) == 1
        assert _tell(raw) == 0, "not before its pause is over"
        assert Alert.objects.get().tries == tries
        _later(3601)
        Incident.objects.update(told_at=F("raised_at") + timedelta(days=1))
    alert = Alert.objects.get()
    assert (alert.state, len(alert.said)) == ("failed", 7)
    assert alert.ended_at is not None
    assert _tell(raw) == 0
    keys = {taken.headers["Daylight-Key"] for taken in web.taken}
    assert len(keys) == 1, "its receiver can tell that these are one"


def test_what_can_never_be_sent_is_given_up_at_once_and_says_why(
    raw: psycopg.Connection[Any], settings: Any
) -> None:
    settings.ALERTS = [SlackNotifier(Secret("nowhere")).described()]
    _raise(raw)
    assert _tell(raw) == 1
    alert = Alert.objects.get()
    assert (alert.state, alert.tries) == ("failed", 1)
    assert "DAYLIGHT_NOTIFIER_SECRET_NOWHERE" in alert.said[0]["said"]


def test_two_tellers_send_each_alert_once(
    raw: psycopg.Connection[Any], web: WebServer, settings: Any
) -> None:
    settings.ALERTS = [WebhookNotifier(web.url(f"/{i}")).described() for i in range(8)]
    _raise(raw)
    start = threading.Barrier(2)

    def run() -> None:
        with database.connect("scheduler") as own:
            start.wait(timeout=30)
            _tell(own)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert sorted(taken.path for taken in web.taken) == [f"/{i}" for i in range(8)]


def test_an_alert_whose_sender_died_over_it_is_sent_by_another(
    raw: psycopg.Connection[Any], web: WebServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    _raise(raw)
    plan(raw)

    def die(*arguments: Any, **more: Any) -> str:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("scheduler_app.couriers.teller.send", die)
        with pytest.raises(KeyboardInterrupt):
            tell_one(raw)
    assert not tell_one(raw), "whoever claimed it may be on its way still"
    _later(181)
    assert tell_one(raw)
    assert (Alert.objects.get().state, Alert.objects.get().tries, len(web.taken)) == ("sent", 2, 1)


def test_the_thread_tells_by_itself_and_says_that_pages_changed(
    raw: psycopg.Connection[Any], web: WebServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scheduler_app.couriers.teller.TURN_S", 0.05)
    told = threading.Event()
    teller = Teller(on_told=told.set)
    teller.start()
    try:
        _raise(raw)
        assert told.wait(timeout=60)
        for _ in range(600):
            if web.taken and Alert.objects.filter(state="sent").exists():
                break
            threading.Event().wait(0.1)
    finally:
        teller.stop()
    assert len(web.taken) == 1


def test_no_secret_is_in_any_row(
    raw: psycopg.Connection[Any], web: WebServer, settings: Any
) -> None:
    canary = "canary-0123456789abcdef"
    settings.NOTIFIER_SECRETS = {"HOOK": web.url(f"/x/{canary}"), "KEY": canary}
    settings.ALERTS = [
        SlackNotifier(Secret("hook")).described(),
        WebhookNotifier(web.url("/signed"), key=Secret("key")).described(),
    ]
    web.answers = [(500, {})] * 2
    _raise(raw)
    _tell(raw)
    assert len(web.taken) == 2
    with raw.cursor() as cursor:
        cursor.execute("SELECT a::text FROM alert a UNION ALL SELECT n::text FROM incident n")
        assert canary not in str(cursor.fetchall())
    assert Limits.of_installation().allowed == LOOPBACK.allowed
