"""Records marked as reviewed, over the API and by command."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests import factories

if TYPE_CHECKING:
    from django.test import Client

pytestmark = pytest.mark.django_db


def post(client: Client, address: str, body: dict[str, Any]) -> Any:
    return client.post(address, body, content_type="application/json")


def test_records_are_marked_listed_and_unmarked(api: Client) -> None:
    key = f"attempt:{factories.make_ghost_attempt().pk}"
    preview = post(api, "/api/v1/records/reviewed/", {"keys": [key], "dry_run": True})
    assert preview.json()["included"][0]["state"] == "unreviewed"
    done = post(api, "/api/v1/records/reviewed/", {"keys": [key], "reason": "undone"})
    assert done.status_code == 200
    row = api.get(f"/api/v1/records/{key}/").json()
    assert (row["reviewed"]["by"], row["reviewed"]["note"]) == ("ana", "undone")
    listed = api.get("/api/v1/records/?filtered=only&reviewed=yes").json()
    assert [one["key"] for one in listed["results"]] == [key]
    assert post(api, "/api/v1/records/reviewed/", {"keys": [key]}).status_code == 400
    assert post(api, "/api/v1/records/reviewed/", {"keys": [], "reason": "r"}).status_code == 400
    missing = post(api, "/api/v1/records/reviewed/", {"keys": ["ghost:9"], "reason": "r"})
    assert missing.status_code == 404
    undone = post(api, "/api/v1/records/unreviewed/", {"keys": [key], "reason": "r"})
    assert undone.status_code == 200
    assert api.get(f"/api/v1/records/{key}/").json()["reviewed"] is None
