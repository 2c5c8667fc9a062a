"""Backfills over the API: preview, create, look, change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from scheduler_app.models import Backfill
from tests import factories

if TYPE_CHECKING:
    from django.test import Client

pytestmark = pytest.mark.django_db(transaction=True)


def post(client: Client, address: str, body: dict[str, Any]) -> Any:
    return client.post(address, body, content_type="application/json")


ASKED = {
    "from_date": "2026-01-01T00:00:00Z",
    "to_date": "2026-01-03T12:00:00Z",
}


@pytest.fixture(autouse=True)
def flow() -> Any:
    return factories.make_flow(flow_id="sales")


def test_a_preview_changes_nothing_and_is_what_is_answered_without_a_word(api: Client) -> None:
    answer = post(api, "/api/v1/flows/sales/backfills/", ASKED)
    body = answer.json()
    assert (answer.status_code, body["id"], body["counts"]) == (200, None, {"created": 3})
    assert [one["logical_date"][:10] for one in body["dates"]] == [
        "2026-01-01",
        "2026-01-02",
        "2026-01-03",
    ]
    assert not Backfill.objects.exists()


def test_one_is_asked_for_looked_at_and_changed(api: Client) -> None:
    made = post(
        api,
        "/api/v1/flows/sales/backfills/",
        {**ASKED, "dry_run": False, "reason": "late", "run_backwards": True},
    )
    assert made.status_code == 201
    number = made.json()["id"]
    one = api.get(f"/api/v1/backfills/{number}/").json()
    assert (one["state"], one["dates"], one["waiting"], one["actor"]) == ("running", 3, 3, "ana")
    dates = api.get(f"/api/v1/backfills/{number}/dates/").json()
    assert [row["logical_date"][8:10] for row in dates["results"]] == ["03", "02", "01"]
    assert dates["counts"]["total"] == 3
    for act, state in (("pause", "paused"), ("unpause", "running"), ("cancel", "cancelled")):
        answer = post(api, f"/api/v1/backfills/{number}/{act}/", {"reason": "why not"})
        assert (answer.status_code, answer.json()["state"]) == (200, state)
    assert api.get("/api/v1/backfills/?state=running").json()["counts"]["total"] == 0
    assert api.get("/api/v1/backfills/?state=cancelled").json()["counts"]["shown"] == 1
    over = post(api, f"/api/v1/backfills/{number}/limit/", {"reason": "x", "max_active_runs": 3})
    assert over.status_code == 409


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({}, 404),
        ({"to_date": "2025-01-03T00:00:00Z"}, 400),
        ({"from_date": "yesterday"}, 400),
        ({"reprocess": "some"}, 400),
        ({"dry_run": False}, 400),  # without a reason
    ],
)
def test_a_bad_one_is_refused(api: Client, change: dict[str, Any], status: int) -> None:
    flow_id = "sales" if change else "none"
    assert (
        post(api, f"/api/v1/flows/{flow_id}/backfills/", {**ASKED, **change}).status_code == status
    )
