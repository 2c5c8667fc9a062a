"""Variables on the dashboard: list, one with its history, and the sheets that change it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from scheduler_app.models import Variable
from scheduler_app.operations.variables import set_variable

if TYPE_CHECKING:
    from django.test import Client

pytestmark = pytest.mark.django_db(transaction=True)

SECRET = "hunter2-hunter2"


def put(key: str, value: Any, **more: Any) -> None:
    set_variable(key=key, value=value, actor="ana", reason="for a test", **more)


def test_without_any_the_page_says_what_they_are_for(reader: Client) -> None:
    page = reader.get("/variables/").content.decode()
    assert "No variable yet" in page
    assert 'href="/variables/new/' in page


def test_one_is_made_changed_and_deleted_through_sheets(reader: Client) -> None:
    form = {"key": "team/limit", "value": '{"rows": 1}', "description": "rows", "secret": "no"}
    refused = reader.post("/variables/new/", {**form, "reason": ""})
    assert refused.status_code == 400
    assert "&quot;rows&quot;: 1" in refused.content.decode(), "what was typed is kept"
    bad = reader.post("/variables/new/", {**form, "value": "yes", "reason": "r"})
    assert "needs quotes" in bad.content.decode()
    done = reader.post("/variables/new/", {**form, "reason": "a start"})
    assert done.status_code == 302
    page = reader.get("/variables/team/limit/").content.decode()
    assert "a start" in page
    sheet = reader.get("/variables/team/limit/edit/").content.decode()
    assert "Change variable team/limit" in sheet
    change = {"value": "5", "description": "", "secret": "no", "version": "1", "reason": "more"}
    assert reader.post("/variables/team/limit/edit/", change).status_code == 302
    assert Variable.objects.get().value == 5
    stale = reader.post("/variables/team/limit/edit/", {**change, "value": "6"})
    assert stale.status_code == 409
    assert "version 2, not 1" in stale.content.decode()
    reader.post("/variables/team/limit/delete/", {"reason": "over"})
    assert not Variable.objects.exists()
    gone = reader.get("/variables/team/limit/").content.decode()
    assert "deleted" in gone
    assert "over" in gone
    assert reader.get("/variables/none/").status_code == 404


def test_a_secret_is_on_no_page_and_is_kept_by_an_empty_field(reader: Client) -> None:
    put("token", SECRET, is_secret=True)
    pages = [
        reader.get(path).content.decode()
        for path in ("/variables/", "/variables/token/", "/variables/token/edit/")
    ]
    assert SECRET not in "".join(pages)
    sealed = Variable.objects.get().sealed
    form = {"value": "", "description": "of the bank", "secret": "yes", "version": "1"}
    reader.post("/variables/token/edit/", {**form, "reason": "say what it is"})
    row = Variable.objects.get()
    assert (row.description, row.is_secret, row.version) == ("of the bank", True, 2)
    assert row.sealed is not None
    assert sealed is not None


def test_lists_are_filtered_and_ordered(reader: Client) -> None:
    for key in ("db_limit", "db_pool", "other"):
        put(key, 1)
    page = reader.get("/variables/?q=db&order=-key").content.decode()
    assert page.index("db_pool") < page.index("db_limit")
    assert "/variables/other/" not in page
