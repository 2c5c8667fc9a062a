"""Who gets in, and what a reader is told when something is not there or goes wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest
from django.contrib.auth import get_user_model
from django.db import OperationalError
from django.test import Client
from django.urls import reverse

from dashboard import urls
from scheduler_app.models import Run
from scheduler_app.queries import health

if TYPE_CHECKING:
    from tests.integration.dashboard.scene import Scene

OPEN = {"login", "logout", "set_look"}
ARGUMENTS = {
    "key": "limit",
    "connection_id": "warehouse",
    "task_id": "clean",
    "take_over": 1,
    "batch_id": "01a22832-83ed-728a-be99-43049e895bf7",
    "plan": "01a22832-83ed-728a-be99-43049e895bf7",
    "scope_id": 1,
    "flow_id": "nightly_sales",
    "run_id": "manual__healed",
    "run": 1,
    "ti": 1,
    "event": 1,
    "attempt_id": "01a22832-83ed-728a-be99-43049e895bf7",
    "ghost": 1,
    "incident": 1,
    "review": 1,
    "backfill": 1,
    "shard": 1,
    "job_id": "01a22832-83ed-728a-be99-43049e895bf7",
    "name": "default",
}


def addresses() -> list[str]:
    """One address of every view that needs a login."""
    found = []
    for pattern in urls.urlpatterns:
        if pattern.name in OPEN:
            continue
        kwargs = {name: ARGUMENTS[name] for name in pattern.pattern.converters}
        found.append(reverse(f"dashboard:{pattern.name}", kwargs=kwargs))
    return found


@pytest.mark.parametrize("address", addresses())
def test_nobody_sees_or_does_anything_without_a_login(transactional_db: None, address: str) -> None:
    del transactional_db
    for answer in (Client().get(address), Client().post(address)):
        assert answer.status_code in {302, 405}
        if answer.status_code == 302:
            assert answer.headers["Location"].startswith("/login/?next=")


def test_a_reader_signs_in_and_comes_to_the_page_that_was_asked_for(
    transactional_db: None,
) -> None:
    del transactional_db
    get_user_model().objects.create_user("ana", password="a-long-password")
    client = Client()
    wrong = client.post("/login/", {"username": "ana", "password": "no"})
    assert "do not fit together" in wrong.content.decode()
    form = {"username": "ana", "password": "a-long-password", "next": "/runs/?state=failed"}
    right = client.post("/login/", form)
    assert right.headers["Location"] == "/runs/?state=failed"
    assert client.get("/runs/").status_code == 200
    client.post("/logout/")
    assert client.get("/runs/").status_code == 302


def test_a_record_that_does_not_exist_is_named(reader: Client) -> None:
    response = reader.get("/runs/999/")
    assert response.status_code == 404
    assert "There is no run 999" in response.content.decode()


def test_an_address_without_a_page_is_a_page_too(reader: Client) -> None:
    response = reader.get("/nowhere/")
    assert response.status_code == 404
    assert "/nowhere/" in response.content.decode()


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("/runs/?state=bogus", "state: &#x27;bogus&#x27; is not one of"),
        ("/runs/?colour=red", "colour: no such parameter of this list"),
        ("/attempts/?cursor=%00", "cursor"),
        ("/task-instances/?started_at_gte=yesterday", "Write ISO 8601"),
        ("/executor-events/?filtered=maybe", "filtered: &#x27;maybe&#x27;"),
    ],
)
def test_a_filter_that_cannot_be_read_names_the_parameter_and_the_rule(
    reader: Client, address: str, told: str
) -> None:
    response = reader.get(address)
    assert response.status_code == 400
    assert told in response.content.decode()


@pytest.mark.parametrize("kind", [OperationalError, psycopg.OperationalError])
def test_pages_say_so_when_the_database_is_away(
    reader: Client, monkeypatch: pytest.MonkeyPatch, kind: type[Exception]
) -> None:
    def away() -> int:
        raise kind("the server closed the connection")

    monkeypatch.setattr(health, "revision", away)
    response = reader.get("/runs/")
    assert response.status_code == 503
    assert "The database does not answer" in response.content.decode()
    assert "Nothing is lost" in response.content.decode()


def test_text_of_others_is_shown_as_text(scene: Scene, reader: Client) -> None:
    note = '<script>alert(1)</script><img src=x onerror="alert(2)">'
    Run.objects.filter(pk=scene.healed).update(note=note, actor=note[:250])
    text = reader.get(f"/runs/{scene.healed}/").content.decode()
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert(1)" in text
