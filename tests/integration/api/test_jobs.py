"""Jobs over the API: who is alive, and asking one to stop."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import pytest

from scheduler_app.models import Audit, Job
from scheduler_app.queries import shown
from tests import factories

if TYPE_CHECKING:
    from django.test import Client

pytestmark = pytest.mark.django_db


def live(**overrides: Any) -> Job:
    job = factories.make_job(**overrides)
    Job.objects.filter(pk=job.pk).update(heartbeat_at=shown.CLOCK)
    return job


def stop(client: Client, job_id: uuid.UUID, body: Any) -> Any:
    return client.post(f"/api/v1/jobs/{job_id}/stop/", body, content_type="application/json")


def test_lists_and_details_say_who_is_alive(api: Client) -> None:
    job, silent = live(), factories.make_job()
    assert api.get(f"/api/v1/jobs/{job.pk}/").json()["alive"] is True
    (only,) = api.get("/api/v1/jobs/?alive=no").json()["results"]
    assert (only["id"], only["alive"]) == (str(silent.pk), False)


def test_a_stop_answers_with_what_follows(api: Client) -> None:
    job = live(kind="scheduler")
    preview = stop(api, job.pk, {"dry_run": True})
    assert (preview.status_code, preview.json()["is_asked"]) == (200, False)
    answer = stop(api, job.pk, {"reason": "deploy"})
    assert answer.status_code == 200
    assert answer.json()["effects"] == preview.json()["effects"]
    assert answer.json()["is_asked"] is True
    job.refresh_from_db()
    assert (job.stop_requested_by, job.stop_reason) == ("ana", "deploy")
    assert Audit.objects.filter(object_kind="job").count() == 1


def test_an_ended_or_dead_process_is_a_conflict(api: Client) -> None:
    for job in (factories.make_job(ended_at=factories.at(3)), factories.make_job()):
        answer = stop(api, job.pk, {"reason": "r"})
        assert (answer.status_code, answer.json()["code"]) == (409, "conflict")


@pytest.mark.parametrize(
    "body", [{}, {"reason": " "}, {"reason": "r", "x": 1}, {"reason": "r" * 1001}]
)
def test_a_bad_body_stops_nothing(api: Client, body: Any) -> None:
    job = live()
    answer = stop(api, job.pk, body)
    assert answer.status_code == 400
    assert answer["Content-Type"] == "application/problem+json"
    job.refresh_from_db()
    assert job.stop_requested_at is None


def test_who_is_not_there_is_not_stopped_and_nobody_stops_without_a_login(
    api: Client, stranger: Client
) -> None:
    assert stop(api, uuid.uuid4(), {"reason": "r"}).status_code == 404
    job = live()
    assert stop(stranger, job.pk, {"reason": "r"}).status_code == 401
    assert api.get(f"/api/v1/jobs/{job.pk}/stop/").status_code == 405
