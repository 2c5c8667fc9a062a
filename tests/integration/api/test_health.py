"""Health and metrics answer without a login; what each component does needs one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from django.db import OperationalError
from django.utils import timezone

from scheduler_app.queries import health, metrics, runs
from tests import factories

if TYPE_CHECKING:
    from django.test import Client

pytestmark = pytest.mark.django_db


def away(*args: object, **kwargs: object) -> None:
    raise OperationalError("the database is away")


def test_healthz_answers_without_a_login(stranger: Client) -> None:
    answer = stranger.get("/healthz")
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})


def test_healthz_says_so_when_the_database_is_away(
    stranger: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "clock_of_database", away)
    assert stranger.get("/healthz").status_code == 503


def test_every_component_tells_its_progress(api: Client, stranger: Client) -> None:
    now = timezone.now()
    factories.make_job(kind="scheduler", heartbeat_at=now, progress_at=now)
    body = api.get("/api/v1/health/").json()
    assert body["is_healthy"] is False
    components = {component["kind"]: component for component in body["components"]}
    assert sorted(components) == ["scheduler", "triggerer", "web", "worker"]
    assert components["scheduler"]["is_healthy"]
    assert components["scheduler"]["progress_at"] == now.isoformat().replace("+00:00", "Z")
    assert components["worker"]["progress_at"] is None
    assert stranger.get("/api/v1/health/").status_code == 401


def test_metrics_are_there_from_zero_without_a_login(stranger: Client) -> None:
    factories.make_task_instance(state="running")
    answer = stranger.get("/metrics")
    assert answer.status_code == 200
    assert answer["Content-Type"].startswith("text/plain; version=0.0.4")
    lines = answer.content.decode().splitlines()
    assert "scheduler_executor_events_processed_total 0.0" in lines
    assert "scheduler_tasks_killed_externally_total 0.0" in lines
    assert "# TYPE scheduler_tasks_killed_externally_total counter" in lines
    assert 'scheduler_task_instances_open{state="running"} 1.0' in lines
    assert not [line for line in lines if "_created" in line and "runs_created" not in line]


def test_metrics_say_so_when_the_database_is_away(
    stranger: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "numbers", away)
    assert stranger.get("/metrics").status_code == 503


@pytest.mark.parametrize("address", ["/healthz", "/metrics"])
def test_nothing_is_posted_there(stranger: Client, address: str) -> None:
    assert stranger.post(address).status_code == 405


@pytest.mark.parametrize("kind", [OperationalError, psycopg.OperationalError])
def test_the_api_asks_to_come_again_when_the_database_is_away(
    api: Client, monkeypatch: pytest.MonkeyPatch, kind: type[Exception]
) -> None:
    def gone(*_: Any) -> None:
        raise kind("the database is away")

    monkeypatch.setattr(runs, "one", gone)
    answer = api.get("/api/v1/runs/1/")
    assert answer.status_code == 503
    assert answer["Retry-After"] == "5"
    assert answer.json()["code"] == "database_unavailable"


def test_what_nobody_foresaw_is_logged_under_the_id_that_is_told(
    api: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*args: object) -> None:
        raise ZeroDivisionError("a secret inside")

    monkeypatch.setattr(runs, "one", broken)
    answer = api.get("/api/v1/runs/1/")
    assert answer.status_code == 500
    body = answer.json()
    assert body["code"] == "internal_error"
    assert "secret" not in answer.content.decode()
    assert body["error_id"] in {getattr(record, "error_id", "") for record in caplog.records}
