"""Pools and limits of keys over Daylight's own API and the command line."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from scheduler_app.models import Audit, KeyLimit, Pool
from tests import factories
from tests.integration.commands.conftest import call

if TYPE_CHECKING:
    from django.test import Client

    from tests.integration.commands.conftest import Call

__all__ = ["call"]

pytestmark = pytest.mark.django_db(transaction=True)


def send(api: Client, method: str, path: str, **body: Any) -> Any:
    return api.generic(method, f"/api/v1/{path}", json.dumps(body), content_type="application/json")


def test_a_pool_is_made_resized_and_deleted(api: Client) -> None:
    made = send(api, "POST", "pools/", name="etl", slots=2, reason="r")
    assert (made.status_code, made.json()["deferred_slots"]) == (201, 0)
    assert send(api, "POST", "pools/", name="etl", slots=2, reason="r").status_code == 409
    changed = send(api, "PATCH", "pools/etl/", slots=5, include_deferred=True, reason="r")
    assert (changed.json()["slots"], changed.json()["include_deferred"]) == (5, True)
    assert send(api, "PATCH", "pools/etl/", slots=5).status_code == 400, "no reason"
    assert send(api, "PATCH", "pools/etl/", slots=-1, reason="r").status_code == 400
    assert send(api, "PATCH", "pools/gone/", slots=1, reason="r").status_code == 404
    assert send(api, "DELETE", "pools/etl/", reason="r").status_code == 204
    acts = Audit.objects.filter(object_kind="pool").order_by("id").values_list("action", flat=True)
    assert list(acts) == ["pool.create", "pool.change", "pool.delete"]


def test_holders_and_waiters_are_told_page_by_page(api: Client) -> None:
    Pool.objects.create(name="etl", slots=2)
    run = factories.make_run()
    for number in range(3):
        ti = factories.make_task_instance(
            run=run, task_id=f"h{number}", state="running", pool="etl"
        )
        factories.make_attempt(ti=ti, state="running", is_live=True, pool="etl")
    wait = {"code": "pool_full", "detail": "No room.", "since": "2025-06-01T00:00:00+00:00"}
    ti = factories.make_task_instance(
        run=run, task_id="w", state="scheduled", pool="etl", wait=wait
    )
    pool = api.get("/api/v1/pools/etl/").json()
    assert (pool["slots"], pool["running_slots"]) == (2, 3)
    held = api.get("/api/v1/pools/etl/holders/?limit=2").json()
    assert (len(held["results"]), held["total"], held["next_offset"]) == (2, 3, 2)
    waits = api.get("/api/v1/pools/etl/waiting/").json()
    assert [(one["task_id"], one["code"]) for one in waits["results"]] == [("w", "pool_full")]
    assert "state" not in waits["results"][0]
    of_task = api.get(f"/api/v1/task-instances/{ti.pk}/holders/?offset=2").json()
    assert [one["task_id"] for one in of_task["results"]] == ["h2"]
    assert api.get(f"/api/v1/task-instances/{ti.pk}/").json()["why"]["holders"] is not None
    for bad in ("limit=0", "limit=x", "offset=-1", "colour=red"):
        assert api.get(f"/api/v1/pools/etl/holders/?{bad}").status_code == 400


def test_limits_of_keys_are_set_and_removed(api: Client) -> None:
    path = "limits/customer:acme/"
    assert api.get(f"/api/v1/{path}").status_code == 404
    assert send(api, "PUT", path, slots=3, reason="r").json()["slots"] == 3
    assert send(api, "PUT", path, slots=-3, reason="r").status_code == 400
    assert [one["key"] for one in api.get("/api/v1/limits/").json()["results"]] == ["customer:acme"]
    assert send(api, "DELETE", path, reason="r").status_code == 204
    assert send(api, "DELETE", path, reason="r").status_code == 404
    assert not KeyLimit.objects.exists()


def test_the_command_line_tells_and_limits_too(call: Call) -> None:
    assert call("pools", "holders", "default", "--json").json["total"] == 0
    assert "0 wait in pool default" in call("pools", "waiting", "default").out
    assert call("pools", "holders", "gone").code == 1
    assert call("limits", "set", "customer:*", "2", "--reason", "r").code == 0
    assert "customer:*" in call("limits", "list").out
    assert call("limits", "set", "customer:*", "3").code == 1, "no reason"
    assert call("limits", "remove", "customer:*", "--reason", "r").code == 0
    assert call("limits", "remove", "customer:*", "--reason", "r").code == 1
