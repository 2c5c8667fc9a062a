"""Connections on the dashboard: list, one with its changes, and the sheets that change it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from django.test import Client

from scheduler_app.models import Connection
from scheduler_app.operations.connections import reveal_connection, set_connection

if TYPE_CHECKING:
    from scheduler_app.rules.connections import ConnectionParts

pytestmark = pytest.mark.django_db(transaction=True)

PASSWORD = "hunter2-hunter2"
TOKEN = "tok-0123456789"
FORM = {
    "connection_id": "warehouse",
    "conn_type": "postgres",
    "host": "db.internal",
    "login": "etl",
    "schema": "sales",
    "port": "5432",
    "password": PASSWORD,
    "extra": '{"sslmode": "require", "token": "' + TOKEN + '"}',
    "description": "orders",
}


def put(connection_id: str, **more: Any) -> None:
    said = {"conn_type": "http", **more}
    set_connection(connection_id=connection_id, actor="ana", reason="for a test", **said)


def opened() -> ConnectionParts:
    return reveal_connection(connection_id="warehouse", actor="ana", reason="test")


def test_without_any_the_page_says_what_they_are_for(reader: Client) -> None:
    page = reader.get("/connections/").content.decode()
    assert "No connection yet" in page
    assert 'href="/connections/new/' in page
    assert 'data-total="0"' in page


def test_one_is_made_changed_and_deleted_through_sheets(reader: Client) -> None:
    refused = reader.post("/connections/new/", {**FORM, "reason": ""})
    assert refused.status_code == 400
    assert "db.internal" in refused.content.decode(), "what was typed is kept"
    assert PASSWORD not in refused.content.decode(), "but for the password"
    for wrong, told in (
        ("port", "whole number"),
        ("extra", "JSON object"),
        ("conn_type", "1 to 250"),
    ):
        bad = reader.post("/connections/new/", {**FORM, wrong: "x y", "reason": "r"})
        assert bad.status_code == 400
        assert told in bad.content.decode()
    done = reader.post("/connections/new/", {**FORM, "reason": "a start"})
    assert done.status_code == 302
    assert (opened().password, opened().extra["token"], opened().port) == (PASSWORD, TOKEN, 5432)
    again = reader.post("/connections/new/", {**FORM, "reason": "twice"})
    assert again.status_code == 409
    page = reader.get("/connections/of/warehouse/").content.decode()
    assert "a start" in page
    assert "db.internal" in page
    change = {
        **FORM,
        "host": "db2.internal",
        "password": "",
        "extra": '{"sslmode": "***", "token": "***", "role": "etl"}',
        "version": "1",
        "reason": "moved",
    }
    assert reader.post("/connections/edit/warehouse/", change).status_code == 302
    found = opened()
    assert (found.host, found.password) == ("db2.internal", PASSWORD), "an empty field keeps it"
    assert found.extra == {"sslmode": "require", "token": TOKEN, "role": "etl"}
    page = reader.get("/connections/of/warehouse/").content.decode()
    assert "host db.internal → db2.internal · extras role" in page
    stale = reader.post("/connections/edit/warehouse/", {**change, "host": "db3"})
    assert stale.status_code == 409
    assert "version 2, not 1" in stale.content.decode()
    both = {**change, "version": "2", "password": "new", "drop_password": "yes"}
    assert reader.post("/connections/edit/warehouse/", both).status_code == 400
    drop = {**change, "version": "2", "drop_password": "yes"}
    assert reader.post("/connections/edit/warehouse/", drop).status_code == 302
    assert opened().password == ""
    reader.post("/connections/delete/warehouse/", {"reason": "over"})
    assert not Connection.objects.exists()
    gone = reader.get("/connections/of/warehouse/").content.decode()
    assert "deleted" in gone
    assert "over" in gone
    assert reader.get("/connections/of/none/").status_code == 404


def test_what_opens_it_is_on_no_page(reader: Client) -> None:
    put("warehouse", password=PASSWORD, extra={"token": TOKEN})
    paths = ("", "of/warehouse/", "edit/warehouse/", "delete/warehouse/")
    pages = "".join(reader.get(f"/connections/{path}").content.decode() for path in paths)
    assert PASSWORD not in pages
    assert TOKEN not in pages
    assert "token" in pages, "what its extras are called"


def test_the_list_is_filtered_ordered_and_paged(reader: Client) -> None:
    for number, name in enumerate(("db_orders", "db_sales", "mail")):
        put(name, host=f"h{number}", conn_type="smtp" if name == "mail" else "postgres")
    page = reader.get("/connections/?q=db&order=-connection_id").content.decode()
    assert page.index("db_sales") < page.index("db_orders")
    assert "/of/mail/" not in page
    assert 'data-shown="2"' in page
    assert "/of/db_sales/" not in reader.get("/connections/?conn_type=smtp").content.decode()
    assert "/of/db_sales/" in reader.get("/connections/?host=h1").content.decode()
    first = reader.get("/connections/?limit=2").content.decode()
    assert "cursor=" in first
    assert "/of/mail/" not in first
    nothing = reader.get("/connections/?q=zzz").content.decode()
    assert "No connection yet" not in nothing


def test_nobody_sees_them_who_is_not_signed_in() -> None:
    put("warehouse")
    for path in ("", "of/warehouse/", "new/", "edit/warehouse/", "delete/warehouse/"):
        answer = Client().get(f"/connections/{path}")
        assert answer.status_code == 302
        assert "/sign-in/" in answer["Location"] or "login" in answer["Location"]
    assert Client().get("/api/v1/connections/").status_code == 401
