"""Health and metrics: the last progress of each part, and numbers of the whole stack."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.conf import settings
from django.db import connection
from django.utils import timezone

from scheduler_app.models import FlowFile, Incident
from scheduler_app.queries import flow_files, health, metrics
from scheduler_app.queries.scope import EVERYTHING, NOTHING
from scheduler_app.transitions.counters import count
from tests import factories

pytestmark = pytest.mark.django_db


def test_a_component_is_healthy_while_one_of_it_gets_on() -> None:
    now = timezone.now()
    stalled = now - timedelta(seconds=settings.HEARTBEAT_DEAD_AFTER_S + 5)
    for kind in ("scheduler", "triggerer", "worker"):
        factories.make_job(kind=kind, heartbeat_at=now, progress_at=now)
    factories.make_job(kind="worker", heartbeat_at=stalled, progress_at=stalled)
    web = factories.make_job(kind="web", heartbeat_at=now, progress_at=stalled)
    told = health.health(EVERYTHING)
    assert not told.is_healthy
    by_kind = {component.kind: component for component in told.components}
    assert {kind for kind, one in by_kind.items() if one.is_healthy} == {
        "scheduler",
        "triggerer",
        "worker",
    }
    assert by_kind["worker"].alive == 1
    assert by_kind["web"].alive == 1, "it beats, and does not get on"
    assert by_kind["web"].progress_at == stalled
    web.progress_at = now
    web.save()
    assert health.health(EVERYTHING).is_healthy


def test_a_component_without_a_process_is_unhealthy() -> None:
    factories.make_job(kind="worker", ended_at=factories.at(3))
    component = {one.kind: one for one in health.health(EVERYTHING).components}["worker"]
    assert (component.is_healthy, component.alive, component.progress_at) == (False, 0, None)


def test_open_incidents_are_counted() -> None:
    for resolved_at in (None, factories.at(2)):
        Incident.objects.create(
            kind="k", subject=f"{resolved_at}", message="m", raised_at=factories.at(1), resolved_at=resolved_at
        )  # fmt: skip
    assert health.health(EVERYTHING).open_incidents == 1
    assert health.health(NOTHING).open_incidents == 0


def test_revisions_grow() -> None:
    assert health.revision() < health.revision()


def test_counters_are_there_from_zero_and_add_up() -> None:
    assert metrics.numbers().counters["scheduler_tasks_killed_externally_total"] == 0
    connection.ensure_connection()
    for _ in range(2):
        count(connection.connection, "scheduler_tasks_killed_externally_total", 2)
    assert metrics.numbers().counters["scheduler_tasks_killed_externally_total"] == 4


def test_gauges_count_what_is_open() -> None:
    run = factories.make_run()
    factories.make_run(state="success")
    ti = factories.make_task_instance(run=run, state="running")
    factories.make_task_instance(run=run, state="success")
    factories.make_event(attempt=factories.make_attempt(ti=ti), verdict="pending")
    factories.make_job(heartbeat_at=timezone.now())
    factories.make_job()
    numbers = metrics.numbers()
    assert numbers.runs_active == {"running": 1}
    assert numbers.task_instances_open == {"running": 1}
    assert numbers.attempts_live == {"running": 1}
    assert numbers.jobs_alive == {"worker": 1}
    assert numbers.executor_events_pending == 1


def test_a_file_with_faults_tells_each_with_its_remedy() -> None:
    for path, errors, removed_at in (
        ("good.py", [], None),
        ("bad.py", [{"file": "bad.py", "line": 3, "message": "m", "remedy": "r"}], None),
        ("gone.py", [{"message": "m"}], factories.at(4)),
    ):
        FlowFile.objects.create(folder="/flows", path=path, errors=errors, removed_at=removed_at)
    (file,) = flow_files.faulty(EVERYTHING)
    assert file.path == "bad.py"
    assert (file.faults[0].line, file.faults[0].remedy) == (3, "r")
    assert flow_files.faulty(NOTHING) == ()
