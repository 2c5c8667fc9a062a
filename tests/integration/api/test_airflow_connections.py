"""Connections over the compatible API: sealed at rest, masked in every answer, audited."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from scheduler_app.models import Audit, Connection
from scheduler_app.operations.connections import reveal_connection
from scheduler_app.operations.variables import rotate_keys
from scheduler_app.processes import sealing

if TYPE_CHECKING:
    from django.http import HttpResponse
    from django.test import Client

pytestmark = pytest.mark.django_db

PASSWORD = "hunter2-hunter2"
TOKEN = "tok-0123456789"
BODY: dict[str, Any] = {
    "connection_id": "warehouse",
    "conn_type": "postgres",
    "host": "db.internal",
    "login": "etl",
    "schema": "sales",
    "port": 5432,
    "password": PASSWORD,
    "extra": json.dumps({"sslmode": "require", "token": TOKEN}),
    "description": "orders",
}


def send(api: Client, method: str, path: str, body: object = None) -> HttpResponse:
    data = "" if body is None else json.dumps(body)
    address = f"/api/v2/{path}"
    return api.generic(method, address, data, content_type="application/json")  # type: ignore[return-value]


def said(answer: HttpResponse, status: int = 200) -> Any:
    assert answer.status_code == status, answer.content
    return json.loads(answer.content) if answer.content else None


def opened() -> Any:
    return reveal_connection(connection_id="warehouse", actor="ana", reason="test")


def test_a_connection_is_sealed_at_rest_and_masked_in_answers(api: Client) -> None:
    made = said(send(api, "POST", "connections", BODY), 201)
    assert made["password"] == "***"
    assert json.loads(made["extra"]) == {"sslmode": "***", "token": "***"}
    assert {name: made[name] for name in ("host", "login", "schema", "port", "description")} == {
        name: BODY[name] for name in ("host", "login", "schema", "port", "description")
    }
    assert said(send(api, "GET", "connections/warehouse")) == made
    assert said(send(api, "GET", "connections")) == {"connections": [made], "total_entries": 1}
    row = Connection.objects.get()
    assert all(secret not in str(vars(row)) for secret in (PASSWORD, TOKEN))
    found = opened()
    assert (found.password, found.extra["token"]) == (PASSWORD, TOKEN)
    told = json.dumps(list(Audit.objects.values("action", "before", "after", "reason")))
    assert "connection.set" in told
    assert all(secret not in told for secret in (PASSWORD, TOKEN))


def test_a_second_one_of_an_id_is_refused(api: Client) -> None:
    said(send(api, "POST", "connections", BODY), 201)
    told = said(send(api, "POST", "connections", BODY), 409)
    assert told["detail"]["reason"] == "Unique constraint violation"


def test_what_was_read_can_be_written_back(api: Client) -> None:
    made = said(send(api, "POST", "connections", BODY), 201)
    del made["daylight"]
    made["host"] = "db2.internal"
    assert said(send(api, "PATCH", "connections/warehouse", made))["host"] == "db2.internal"
    found = opened()
    assert (found.password, found.extra) == (PASSWORD, json.loads(BODY["extra"]))
    short = {"connection_id": "warehouse", "conn_type": "postgres", "port": 5433}
    assert said(send(api, "PATCH", "connections/warehouse", short))["login"] == "etl"
    masked = send(api, "PATCH", "connections/warehouse?update_mask=password", {**short, "port": 1})
    assert said(masked)["password"] is None
    assert (opened().password, opened().port) == ("", 5433)


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"connection_id": "a b"}, 400),
        ({"connection_id": ".."}, 400),
        ({"conn_type": ""}, 400),
        ({"port": 65_536}, 400),
        ({"port": "x"}, 422),
        ({"extra": "{not json"}, 400),
        ({"extra": "[1]"}, 400),
        ({"extra": {"a": 1}}, 422),
        ({"host": "x" * 5001}, 400),
        ({"team_name": "t"}, 400),
        ({"unknown": 1}, 422),
    ],
)
def test_a_wrong_connection_is_refused_and_no_secret_is_quoted(
    api: Client, change: dict[str, Any], status: int
) -> None:
    answer = send(api, "POST", "connections", {**BODY, **change})
    assert answer.status_code == status
    if status == 400:
        assert PASSWORD not in answer.content.decode()
    assert not Connection.objects.exists()


def test_one_is_deleted_and_is_gone(api: Client) -> None:
    said(send(api, "POST", "connections", BODY), 201)
    assert send(api, "DELETE", "connections/warehouse").status_code == 204
    told = said(send(api, "GET", "connections/warehouse"), 404)
    assert told["detail"] == "The Connection with connection_id: `warehouse` was not found"
    assert send(api, "DELETE", "connections/warehouse").status_code == 404


def test_lists_are_ordered_and_narrowed(api: Client) -> None:
    for name, host in (("b", "one"), ("a", "two"), ("c", "one")):
        body = {"connection_id": name, "conn_type": "http", "host": host}
        said(send(api, "POST", "connections", body), 201)

    def names(query: str) -> list[str]:
        told = said(send(api, "GET", f"connections?{query}"))
        return [one["connection_id"] for one in told["connections"]]

    assert names("") == ["a", "b", "c"]
    assert names("order_by=-host&order_by=connection_id") == ["a", "b", "c"]
    assert names("limit=1&offset=1") == ["b"]
    assert names("connection_id_pattern=a|c") == ["a", "c"]
    assert send(api, "GET", "connections?order_by=password").status_code == 400


def test_many_at_once_each_by_itself(api: Client) -> None:
    small = {"connection_id": "x", "conn_type": "http"}
    body = {
        "actions": [
            {"action": "create", "entities": [small, {"connection_id": "a b", "conn_type": "x"}]},
            {
                "action": "create",
                "action_on_existence": "overwrite",
                "entities": [{**small, "host": "h"}],
            },
            {"action": "delete", "entities": ["nowhere"]},
        ]
    }
    told = said(send(api, "PATCH", "connections", body))
    assert told["create"]["success"] == ["x", "x"]
    assert told["create"]["errors"][0]["status_code"] == 400
    assert told["delete"]["errors"][0]["status_code"] == 404
    assert Connection.objects.get().host == "h"


def test_nothing_is_called_from_the_web_process(api: Client) -> None:
    assert "disabled" in said(send(api, "POST", "connections/test", BODY), 403)["detail"]


def test_strangers_see_none(stranger: Client) -> None:
    assert send(stranger, "GET", "connections").status_code == 401
    assert send(stranger, "POST", "connections", BODY).status_code == 401


def test_a_rotation_takes_connections_along(api: Client, tmp_path: Any, settings: Any) -> None:
    settings.DATA_DIR = tmp_path
    settings.VARIABLE_KEYS = ()
    sealing.add_key()
    said(send(api, "POST", "connections", BODY), 201)
    before = Connection.objects.get().sealed_with
    done = rotate_keys(actor="ana", reason="test")
    assert done.resealed == 1
    assert Connection.objects.get().sealed_with == done.key_name != before
    assert opened().password == PASSWORD
