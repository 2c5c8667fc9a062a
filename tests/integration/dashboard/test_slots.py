"""Pools and limits of keys on the dashboard: who holds, who waits, and the sheets that resize them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from django.utils import timezone

from scheduler_app.models import Audit, KeyLimit, Pool
from tests import factories

if TYPE_CHECKING:
    from django.test import Client

    from tests.world import World

pytestmark = pytest.mark.django_db(transaction=True)


def test_without_any_the_page_says_when_a_key_appears(reader: Client) -> None:
    page = reader.get("/limits/").content.decode()
    assert "No key is set, held or waited for" in page
    assert 'href="/limits/new/' in page


def test_a_key_is_limited_resized_and_left_to_the_flows_again(reader: Client) -> None:
    form = {"key": "team/a b?", "slots": "two", "description": "bears 2", "reason": "r"}
    refused = reader.post("/limits/new/", form)
    assert refused.status_code == 400
    assert "is no whole number from 0 on" in refused.content.decode()
    assert "bears 2" in refused.content.decode(), "what was typed is kept"
    assert reader.post("/limits/new/", {**form, "slots": "2", "reason": ""}).status_code == 400
    assert reader.post("/limits/new/", {**form, "slots": "2"}).status_code == 302
    (link,) = {"/limits/of/team/a%20b%3F/"}
    listed = reader.get("/limits/").content.decode()
    assert link in listed
    assert "an operator" in listed
    assert "0 of 2" in reader.get(link).content.decode()
    edit = link.replace("/of/", "/edit/")
    assert "0 executions hold a slot of it now" in reader.get(edit).content.decode()
    assert reader.post(edit, {"slots": "0", "description": "", "reason": "r"}).status_code == 302
    assert "Nothing of the key begins" in reader.get(link).content.decode()
    remove = link.replace("/of/", "/remove/")
    assert reader.post(remove, {"reason": "over"}).status_code == 302
    assert not KeyLimit.objects.exists()
    assert reader.get(link).status_code == 404
    assert set(Audit.objects.values_list("action", flat=True)) == {"limit.set", "limit.remove"}


def test_a_key_in_use_names_who_holds_it_and_who_waits_page_by_page(
    world: World, reader: Client
) -> None:
    factories.make_job(
        id=world.leases.holder, kind="scheduler", heartbeat_at=timezone.now()
    )  # else it waits for a scheduler first
    run = factories.make_run()
    for number in range(60):
        ti = factories.make_task_instance(run=run, task_id=f"held{number}", state="running")
        factories.make_attempt(ti=ti, state="running", is_live=True, limit_keys=["customer:acme"])
    ti = factories.make_task_instance(
        run=run,
        task_id="waits",
        state="scheduled",
        wait={
            "code": "key_limit",
            "about": "customer:acme",
            "detail": "It needs a slot of key 'customer:acme', which has 2 slots, all taken.",
            "since": "2025-06-01T00:00:00+00:00",
        },
    )
    KeyLimit.objects.create(key="customer:*", slots=2)
    page = reader.get("/limits/of/customer:acme/").content.decode()
    assert "60 of 2" in page
    assert "58 more than there are" in page
    assert "Held by 60" in page
    assert "1 wait, in this order" in page
    assert 'href="/limits/of/customer:*/"' in page, "whose number it is"
    rest = reader.get("/limits/of/customer:acme/?held_from=50").content.decode()
    assert "held59" in rest
    assert "held49" not in rest
    assert reader.get("/limits/of/customer:acme/?held_from=x").status_code == 400
    rule = reader.get("/limits/of/customer:*/").content.decode()
    assert "Each key that begins so has" in rule
    assert 'href="/limits/?q=customer:"' in rule.replace("%3A", ":")
    task = reader.get(f"/task-instances/{ti.pk}/").content.decode()
    assert 'href="/limits/of/customer:acme/"' in task, "the task leads to its key"


def test_a_pool_names_who_holds_it_and_is_resized(reader: Client) -> None:
    Pool.objects.create(name="etl/x", slots=2)
    run = factories.make_run()
    ti = factories.make_task_instance(run=run, task_id="holds", state="running", pool="etl/x")
    factories.make_attempt(ti=ti, state="running", is_live=True, pool="etl/x", pool_slots=3)
    page = reader.get("/pools/of/etl/x/").content.decode()
    assert "3 of 2" in page
    assert "1 more than there are" in page
    assert "holds" in page
    form = {"slots": "4", "include_deferred": "yes", "description": "", "reason": "r"}
    assert reader.post("/pools/edit/etl/x/", form).status_code == 302
    assert "3 of 4" in reader.get("/pools/of/etl/x/").content.decode()
    assert reader.get("/pools/of/etl/x/?waits_from=-1").status_code == 400
