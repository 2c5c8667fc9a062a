"""Connections over Daylight's own API."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from scheduler_app.models import Audit, Connection
from scheduler_app.operations.connections import reveal_connection
from scheduler_app.queries import connections
from scheduler_app.queries.filters import ConnectionFilter
from tests.integration.api.test_exports import whole

if TYPE_CHECKING:
    from django.test import Client

pytestmark = pytest.mark.django_db(transaction=True)

PASSWORD = "hunter2-hunter2"
TOKEN = "tok-0123456789"
BODY: dict[str, Any] = {
    "connection_id": "warehouse",
    "conn_type": "postgres",
    "host": "db.internal",
    "port": 5432,
    "password": PASSWORD,
    "extra": {"sslmode": "require", "token": TOKEN},
    "reason": "for a test",
}


def send(api: Client, method: str, path: str, **body: Any) -> Any:
    return api.generic(method, f"/api/v1/{path}", json.dumps(body), content_type="application/json")


def test_one_is_made_read_changed_and_deleted(api: Client) -> None:
    made = send(api, "POST", "connections/", **BODY)
    assert made.status_code == 201
    told = made.json()
    assert (told["host"], told["port"], told["has_password"]) == ("db.internal", 5432, True)
    assert (told["extra_keys"], told["version"], told["updated_by"]) == (
        ["sslmode", "token"],
        1,
        "ana",
    )
    path = "connections/warehouse/"
    changed = send(api, "PATCH", path, host="db2", reason="moved", expected_version=1)
    assert (changed.status_code, changed.json()["host"]) == (200, "db2")
    assert api.get(f"/api/v1/{path}").json() == changed.json()
    kept = {"sslmode": "***", "role": "etl"}
    assert send(api, "PATCH", path, extra=kept, reason="a role").status_code == 200
    found = reveal_connection(connection_id="warehouse", actor="ana", reason="test")
    assert (found.password, found.extra) == (PASSWORD, {"sslmode": "require", "role": "etl"})
    assert send(api, "PATCH", path, password="", reason="open").json()["has_password"] is False
    assert send(api, "DELETE", path, reason="over").status_code == 204
    assert api.get(f"/api/v1/{path}").status_code == 404
    assert not Connection.objects.exists()
    entries = Audit.objects.filter(object_kind="connection").order_by("id")
    assert [entry.action for entry in entries if entry.action != "connection.reveal"] == [
        "connection.set",
        "connection.set",
        "connection.set",
        "connection.set",
        "connection.delete",
    ]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"host": "x"}, 400),  # no reason
        ({"host": "x", "reason": "r", "expected_version": 7}, 409),
        ({"host": "x\x00", "reason": "r"}, 400),
        ({"port": 70_000, "reason": "r"}, 400),
        ({"port": None, "reason": "r"}, 200),
        ({"extra": "{}", "reason": "r"}, 400),
        ({"conn_type": "", "reason": "r"}, 400),
        ({"colour": 1, "reason": "r"}, 400),
    ],
)
def test_a_change_is_checked(api: Client, body: dict[str, Any], status: int) -> None:
    assert send(api, "POST", "connections/", **BODY).status_code == 201
    answer = send(api, "PATCH", "connections/warehouse/", **body)
    assert answer.status_code == status, answer.content
    assert Connection.objects.get().host == "db.internal"


def test_one_that_is_there_is_not_made_again_and_one_that_is_not_is_not_changed(
    api: Client,
) -> None:
    assert send(api, "POST", "connections/", **BODY).status_code == 201
    assert send(api, "POST", "connections/", **BODY).status_code == 409
    assert send(api, "POST", "connections/", **{**BODY, "connection_id": "a/b"}).status_code == 400
    assert send(api, "PATCH", "connections/none/", host="x", reason="r").status_code == 404
    assert send(api, "DELETE", "connections/none/", reason="r").status_code == 404


def test_what_opens_it_is_in_no_answer(api: Client) -> None:
    answers = [send(api, "POST", "connections/", **BODY).content.decode()]
    answers += [
        api.get(f"/api/v1/connections/{path}").content.decode() for path in ("", "warehouse/")
    ]
    answers.append(whole(connections.NOUN, ConnectionFilter(), "ndjson").decode())
    answers.append(send(api, "POST", "connections/", **BODY).content.decode())  # refused
    answers.append(json.dumps(list(Audit.objects.values("before", "after"))))
    assert all(secret not in "".join(answers) for secret in (PASSWORD, TOKEN))


def test_the_list_is_filtered_ordered_and_paged(api: Client) -> None:
    for name, kind in (("db_a", "postgres"), ("db_b", "postgres"), ("mail", "smtp")):
        body = {"connection_id": name, "conn_type": kind, "reason": "r"}
        assert send(api, "POST", "connections/", **body).status_code == 201
    first = api.get("/api/v1/connections/?q=DB&order=-connection_id&limit=1").json()
    assert [row["connection_id"] for row in first["results"]] == ["db_b"]
    assert first["counts"]["total"] == 2
    rest = api.get(first["next"]).json()
    assert [row["connection_id"] for row in rest["results"]] == ["db_a"]
    assert rest["next"] is None
    kinds = api.get("/api/v1/connections/?conn_type=smtp").json()
    assert [row["connection_id"] for row in kinds["results"]] == ["mail"]
    assert api.get("/api/v1/connections/?password=x").status_code == 400
