"""The next try of a task instance over the API: shown with its reason, moved, begun now."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from django.utils import timezone

from scheduler_app.models import Audit, TaskInstance
from tests import factories

if TYPE_CHECKING:
    from django.test import Client

pytestmark = pytest.mark.django_db


@pytest.fixture
def ti() -> TaskInstance:
    """It failed, and is tried again in an hour."""
    made = factories.make_task_instance(
        run=factories.make_run(),
        state="up_for_retry",
        try_number=2,
        max_tries=3,
        next_retry_at=timezone.now() + timedelta(hours=1),
        next_retry_why={
            "position": 2,
            "of": 4,
            "error": "OSError",
            "delay_s": 33.0,
            "backoff": 2.0,
            "jitter_s": 3.0,
        },
    )
    factories.make_attempt(ti=made, state="ended", outcome="failed")
    return made


def post(client: Client, ti: TaskInstance, body: Any) -> Any:
    address = f"/api/v1/task-instances/{ti.pk}/retry/"
    return client.post(address, body, content_type="application/json")


def test_the_reason_of_the_next_retry_is_shown(api: Client, ti: TaskInstance) -> None:
    told = api.get(f"/api/v1/task-instances/{ti.pk}/").json()
    assert told["next_retry_reason"] == (
        "try 2 of 4 failed with OSError: retry in 30 s, backoff 2.0, jitter +3 s"
    )
    assert "Retry in 30 s, backoff 2.0, jitter +3 s." in told["why"]["sentence"]


def test_it_is_moved_and_begun_now(api: Client, ti: TaskInstance) -> None:
    preview = post(api, ti, {"dry_run": True}).json()
    assert (preview["effect"], preview["dry_run"]) == ("The next try begins now.", True)
    at = "2031-01-31T06:00:00+02:00"
    moved = post(api, ti, {"reason": "after the load", "at": at}).json()
    assert moved["next_retry_at"] == "2031-01-31T04:00:00Z"
    assert moved["was"] == preview["was"]
    later = post(api, ti, {"reason": "later", "after_s": 90.5})
    assert later.json()["effect"] == "The next try begins 90.5 s from now."
    now = post(api, ti, {"reason": "hurry"})
    assert now.status_code == 200
    ti.refresh_from_db()
    assert ti.next_retry_at is not None
    assert ti.next_retry_at <= timezone.now()
    assert Audit.objects.filter(action="set_next_retry").count() == 3


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({}, "Say why"),
        ({"reason": "r", "at": "soon"}, "at"),
        ({"reason": "r", "after_s": -1}, "after_s"),
        ({"reason": "r", "after_s": 1, "at": "2031-01-31T06:00:00Z"}, "not both"),
    ],
)
def test_bad_input_is_a_problem_that_names_its_field(
    api: Client, ti: TaskInstance, body: Any, told: str
) -> None:
    answer = post(api, ti, body)
    assert answer.status_code == 400
    assert told in answer.content.decode()


def test_what_does_not_wait_is_a_conflict(api: Client, ti: TaskInstance) -> None:
    ti.state, ti.is_open = "success", False
    ti.save()
    answer = post(api, ti, {"reason": "r"})
    assert (answer.status_code, answer.json()["code"]) == (409, "conflict")
    assert "clear it" in answer.json()["detail"]
    assert api.post("/api/v1/task-instances/99999999/retry/", {}).status_code == 404
