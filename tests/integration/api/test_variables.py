"""Variables over Daylight's own API."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from scheduler_app.models import Audit, Variable
from scheduler_app.queries import variables
from scheduler_app.queries.filters import VariableFilter
from tests.integration.api.test_exports import whole

if TYPE_CHECKING:
    from django.test import Client

pytestmark = pytest.mark.django_db(transaction=True)

SECRET = "hunter2-hunter2"


def send(api: Client, method: str, path: str, **body: Any) -> Any:
    return api.generic(method, f"/api/v1/{path}", json.dumps(body), content_type="application/json")


def make(api: Client, key: str, value: Any, **more: Any) -> Any:
    return send(api, "POST", "variables/", key=key, value=value, reason="for a test", **more)


def test_one_is_made_read_changed_and_deleted(api: Client) -> None:
    made = make(api, "team/limit", {"rows": 1}, description="rows a day")
    assert made.status_code == 201
    told = made.json()
    assert (told["value"], told["version"], told["updated_by"]) == ({"rows": 1}, 1, "ana")
    path = "variables/team/limit/"
    changed = send(api, "PATCH", path, value=5, reason="more", expected_version=1)
    assert (changed.status_code, changed.json()["value"]) == (200, 5)
    assert api.get(f"/api/v1/{path}").json()["description"] == "rows a day"
    assert send(api, "DELETE", path, reason="over").status_code == 204
    assert api.get(f"/api/v1/{path}").status_code == 404
    history = api.get("/api/v1/variable-changes/?key=team/limit&order=id").json()["results"]
    assert [(c["action"], c["before"], c["after"], c["reason"]) for c in history] == [
        ("created", None, {"rows": 1}, "for a test"),
        ("changed", {"rows": 1}, 5, "more"),
        ("deleted", 5, None, "over"),
    ]
    one = api.get(f"/api/v1/variable-changes/{history[0]['id']}/").json()
    assert one == history[0]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"value": 2}, 400),  # no reason
        ({"value": 2, "reason": "r", "expected_version": 7}, 409),
        ({"value": 2, "reason": "r", "expected": 9}, 409),
        ({"value": 2, "reason": "r", "expected": True}, 409),
        ({"value": 2, "reason": "r", "colour": 1}, 400),
        ({"value": 2, "reason": "r", "expected": 1}, 200),
    ],
)
def test_a_change_is_guarded(api: Client, body: dict[str, Any], status: int) -> None:
    make(api, "a", 1)
    assert send(api, "PATCH", "variables/a/", **body).status_code == status
    assert Variable.objects.get().value == (2 if status == 200 else 1)


def test_one_that_is_there_is_not_made_again(api: Client) -> None:
    make(api, "a", 1)
    assert make(api, "a", 2).status_code == 409
    assert make(api, "new", 2).status_code == 400
    assert make(api, "x\x00", 2).status_code == 400


def test_numbers_are_counted_as_whole_ones_where_they_are(api: Client) -> None:
    first = send(api, "POST", "variables/n/increment/", reason="r", start=5)
    assert first.json()["value"] == 6
    assert send(api, "POST", "variables/n/increment/", reason="r", by=-2).json()["value"] == 4
    assert type(Variable.objects.get().value) is int
    make(api, "word", "x")
    assert send(api, "POST", "variables/word/increment/", reason="r").status_code == 400


def test_a_secret_is_in_no_answer(api: Client) -> None:
    assert make(api, "s", {"user": "u", "word": SECRET}, is_secret=True).json()["value"] is None
    send(api, "PATCH", "variables/s/", value=SECRET, reason="r")
    answers = [
        api.get(f"/api/v1/{path}").content.decode()
        for path in ("variables/", "variables/s/", "variable-changes/", "audit/")
    ]
    answers.append(whole(variables.NOUN, VariableFilter(), "csv").decode())
    assert SECRET not in "".join(answers)
    assert "***" in answers[2]
    assert Audit.objects.filter(action="variable.set").count() == 2


def test_lists_are_filtered(api: Client) -> None:
    for key in ("db_limit", "db_pool", "other"):
        make(api, key, 1, is_secret=key == "other")
    found = api.get("/api/v1/variables/?q=DB&order=-key").json()
    assert [row["key"] for row in found["results"]] == ["db_pool", "db_limit"]
    assert found["counts"]["total"] == 2
    assert api.get("/api/v1/variables/?secret=yes").json()["counts"]["shown"] == 1
    assert (
        api.get("/api/v1/variable-changes/?action=created&actor=ana").json()["counts"]["shown"] == 3
    )
