"""The pages of incidents: the list, one of them, the badge, and the word that it is known."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from django.db import connection

from scheduler_app.couriers.teller import plan
from scheduler_app.models import Audit, Incident
from scheduler_app.transitions.incident import raise_incident, resolve_incident

if TYPE_CHECKING:
    from django.test import Client


@pytest.fixture
def incident(transactional_db: None) -> Incident:
    del transactional_db
    connection.ensure_connection()
    raise_incident(
        connection.connection,
        kind="nobody_listens",
        subject="gpu",
        message="Nobody listens on queue 'gpu' <b>.",
    )
    return Incident.objects.get()


def test_without_any_the_page_says_so_and_there_is_no_badge(
    reader: Client, transactional_db: None
) -> None:
    del transactional_db
    page = reader.get("/incidents/").content.decode()
    assert "Nothing has come up that a person must know of." in page
    assert page.partition('id="incident-badge"')[2].partition(">")[0].rstrip().endswith("hidden")


def test_an_open_incident_is_on_home_on_its_list_and_in_the_top_bar(
    reader: Client, incident: Incident
) -> None:
    home = reader.get("/").content.decode()
    listed = reader.get("/incidents/?state=open").content.decode()
    for page in (home, listed):
        assert f'href="/incidents/{incident.pk}/"' in page
        assert "&lt;b&gt;" in page
        badge = page.partition('id="incident-badge"')[2].partition("</a>")[0]
        assert "hidden>" not in badge.replace("visually-hidden", "")
        assert "1<span" in badge
    fragment = reader.get("/runs/", headers={"HX-Request": "true"}).content.decode()
    assert 'hx-swap-oob="true"' in fragment, (
        "a live refresh of any page brings the badge up to date"
    )
    assert "No incidents match" in reader.get("/incidents/?state=resolved").content.decode()


def test_it_is_acknowledged_from_its_page_with_a_reason(reader: Client, incident: Incident) -> None:
    page = f"/incidents/{incident.pk}/"
    assert "Nobody was told outside this page." in reader.get(page).content.decode()
    sheet = reader.get(f"{page}acknowledge/").content.decode()
    assert "Its reminders stop" in sheet
    assert reader.post(f"{page}acknowledge/", {"reason": " "}).status_code == 400
    done = reader.post(f"{page}acknowledge/", {"reason": "a worker is on its way"})
    assert done.headers["Location"] == page
    shown = reader.get(page).content.decode()
    assert "a worker is on its way" in shown
    assert "acknowledge/" not in shown
    assert Audit.objects.get(action="acknowledge").actor == "ana"
    assert "Nobody listens" not in reader.get("/").content.decode()
    assert reader.get("/incidents/99/").status_code == 404


def test_its_page_tells_who_was_told_and_what_came_of_it(
    reader: Client, incident: Incident, settings: object
) -> None:
    settings.ALERTS = [{"kind": "slack", "url": {"secret": "team"}}]  # type: ignore[attr-defined] # of Django
    with connection.cursor():
        plan(connection.connection)
    page = reader.get(f"/incidents/{incident.pk}/").content.decode()
    assert "slack at secret team" in page
    assert "came up" in page
    resolve_incident(
        connection.connection, kind="nobody_listens", subject="gpu", resolution="It is taken now."
    )
    assert "It is taken now." in reader.get(f"/incidents/{incident.pk}/").content.decode()
