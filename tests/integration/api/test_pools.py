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


def test_keys_in_use_are_listed_with_who_holds_and_who_waits(api: Client) -> None:
    run = factories.make_run()
    for number, keys in enumerate((["a:1", "b/x"], ["a:1"], [], None)):
        ti = factories.make_task_instance(run=run, task_id=f"h{number}", state="running")
        factories.make_attempt(ti=ti, state="running", is_live=True, limit_keys=keys)
    for number, priority in enumerate((1, 5)):
        factories.make_task_instance(
            run=run,
            task_id=f"w{number}",
            state="scheduled",
            priority=priority,
            wait={
                "code": "key_limit",
                "about": "a:1",
                "detail": "No room.",
                "since": f"2025-06-0{number + 1}T00:00:00+00:00",
            },
        )
    KeyLimit.objects.create(key="a:*", slots=1)
    KeyLimit.objects.create(key="c", slots=4, description="idle")
    rows = {one["key"]: one for one in api.get("/api/v1/limits/").json()["results"]}
    assert {
        key: (one["slots"], one["rule"], one["is_set"], one["held"], one["waiting"])
        for key, one in rows.items()
    } == {
        "a:*": (1, None, True, 0, 0),
        "a:1": (1, "a:*", False, 2, 2),
        "b/x": (None, None, False, 1, 0),
        "c": (4, None, True, 0, 0),
    }
    assert rows["a:1"]["waits_since"] == "2025-06-01T00:00:00Z"

    def listed(query: str) -> list[str]:
        return [one["key"] for one in api.get(f"/api/v1/limits/?{query}").json()["results"]]

    assert listed("waits=yes") == ["a:1"]
    assert listed("is_set=no&order=-held") == ["a:1", "b/x"]
    assert listed("q=A:") == ["a:*", "a:1"]
    first = api.get("/api/v1/limits/?limit=3").json()
    assert (len(first["results"]), first["counts"]["total"]) == (3, 4)
    assert [one["key"] for one in api.get(first["next"]).json()["results"]] == ["c"]
    held = api.get("/api/v1/limits/a:1/holders/").json()
    assert [one["task_id"] for one in held["results"]] == ["h0", "h1"]
    assert api.get("/api/v1/limits/b/x/holders/").json()["total"] == 1
    waits = api.get("/api/v1/limits/a:1/waiting/?limit=1").json()
    assert [one["task_id"] for one in waits["results"]] == ["w1"], "the higher priority first"
    assert (waits["total"], waits["next_offset"]) == (2, 1)
    assert api.get("/api/v1/limits/none/holders/").status_code == 404


def test_the_command_line_tells_and_limits_too(call: Call) -> None:
    assert call("pools", "holders", "default", "--json").json["total"] == 0
    assert "0 wait in pool default" in call("pools", "waiting", "default").out
    assert call("pools", "holders", "gone").code == 1
    assert call("limits", "set", "customer:*", "2", "--reason", "r").code == 0
    assert "customer:*" in call("limits", "list").out
    assert call("limits", "show", "customer:*", "--json").json["slots"] == 2
    assert "0 hold slots of customer:*" in call("limits", "holders", "customer:*").out
    assert call("limits", "waiting", "customer:*", "--json").json["total"] == 0
    assert call("limits", "show", "gone").code == 1
    assert call("limits", "set", "customer:*", "3").code == 1, "no reason"
    assert call("limits", "remove", "customer:*", "--reason", "r").code == 0
    assert call("limits", "remove", "customer:*", "--reason", "r").code == 1
