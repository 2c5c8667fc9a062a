"""Leases over the API: a release by hand, a drained scheduler."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from scheduler_app.models import Audit, Job, Lease
from scheduler_app.queries import shown
from tests import factories

if TYPE_CHECKING:
    from django.test import Client

pytestmark = pytest.mark.django_db


def post(client: Client, address: str, body: dict[str, Any]) -> Any:
    return client.post(address, body, content_type="application/json")


@pytest.fixture
def holder() -> Job:
    """A scheduler that holds shard 3 with token 7."""
    job = factories.make_job(kind="scheduler")
    Job.objects.filter(pk=job.pk).update(heartbeat_at=shown.CLOCK)
    Lease.objects.filter(shard=3).update(holder=job.pk, token=7)
    return job


def test_a_release_is_previewed_refused_for_another_term_and_done(api: Client, holder: Job) -> None:
    preview = post(api, "/api/v1/leases/3/release/", {"dry_run": True})
    assert (preview.status_code, preview.json()["token"]) == (200, 7)
    assert post(api, "/api/v1/leases/3/release/", {}).status_code == 400
    stale = post(api, "/api/v1/leases/3/release/", {"reason": "r", "token": 6})
    assert (stale.status_code, stale.json()["code"]) == (409, "conflict")
    done = post(api, "/api/v1/leases/3/release/", {"reason": "r", "token": 7})
    assert (done.status_code, done.json()["holder"]) == (200, str(holder.pk))
    assert api.get("/api/v1/leases/3/").json()["state"] == "free"
    assert Audit.objects.get(object_kind="shard").action == "release_lease"
    assert post(api, "/api/v1/leases/99/release/", {"reason": "r"}).status_code == 404


def test_a_scheduler_is_drained_and_undrained(api: Client, holder: Job) -> None:
    preview = post(api, f"/api/v1/jobs/{holder.pk}/drain/", {"dry_run": True})
    assert (preview.json()["shards"], preview.json()["is_drained"]) == (1, False)
    done = post(api, f"/api/v1/jobs/{holder.pk}/drain/", {"reason": "patch"})
    assert (done.status_code, done.json()["is_drained"]) == (200, True)
    assert api.get(f"/api/v1/jobs/{holder.pk}/").json()["drain_reason"] == "patch"
    assert post(api, f"/api/v1/jobs/{holder.pk}/undrain/", {"reason": "done"}).status_code == 200
    assert api.get(f"/api/v1/jobs/{holder.pk}/").json()["drain_requested_at"] is None
    worker = factories.make_job(kind="worker")
    assert post(api, f"/api/v1/jobs/{worker.pk}/drain/", {"reason": "r"}).status_code == 409
