"""Reports at the database: accepted once, repeated without harm, too late with the compared values."""

from __future__ import annotations

import json
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from scheduler_app.models import Checkpoint, Progress
from scheduler_app.rules.definition import TaskDefinition
from scheduler_app.transitions.attempt import claim, lose
from scheduler_app.worker import report

if TYPE_CHECKING:
    from scheduler_app.transitions.attempt import Message
    from tests.workshop import Workshop

SOURCE = """
from scheduler_app.authoring import flow, task

@task(retries=1, retry_delay=0)
def t():
    return 1

@flow
def f():
    t()
"""


@pytest.fixture
def message(workshop: Workshop) -> Message:
    return workshop.issue_one(SOURCE)


def _claimed(workshop: Workshop, message: Message, nonce: uuid.UUID) -> report.Report:
    found = claim(
        workshop.connection,
        ti_id=message.ti_id,
        attempt_id=message.attempt_id,
        token=message.lease_token,
        fence=message.fence,
        nonce=nonce,
        worker_job_id=workshop.station.job_id,
        hostname="host-1",
        pid=1,
    )
    assert found is not None
    return report.success(
        found,
        attempt_id=str(message.attempt_id),
        nonce=str(nonce),
        task=TaskDefinition(task_id="t"),
        result={"a": 1},
    )


def _send(workshop: Workshop, made: report.Report) -> int | None:
    return report.send(
        workshop.connection, made, source="worker: test", job_id=workshop.station.job_id
    )


def test_a_report_is_accepted_and_its_repetition_passes(
    workshop: Workshop, message: Message
) -> None:
    made = _claimed(workshop, message, uuid.uuid4())
    assert _send(workshop, made) == message.run_id
    ended_at = workshop.attempt(message).ended_at
    assert _send(workshop, made) == message.run_id
    assert workshop.attempt(message).ended_at == ended_at
    assert workshop.events(message) == []


def test_a_report_of_a_replaced_attempt_is_an_event(workshop: Workshop, message: Message) -> None:
    made = _claimed(workshop, message, uuid.uuid4())
    lose(
        workshop.connection, attempt_ids=[message.attempt_id], dead_after_s=0, budget=3, source="t"
    )
    successor = workshop.issue(message.run_id)
    assert _send(workshop, made) is None
    late = workshop.events(message)[-1]
    assert (late.kind, late.verdict_code) == ("late_report", "stale_superseded")
    assert str(successor.attempt_id) in (late.verdict_reason or "")
    assert workshop.attempt(successor).state == "issued"
    assert workshop.ti(message).state == "queued"


def test_a_report_with_another_nonce_changes_nothing(workshop: Workshop, message: Message) -> None:
    made = _claimed(workshop, message, uuid.uuid4())
    assert _send(workshop, replace(made, nonce=str(uuid.uuid4()))) is None
    assert workshop.attempt(message).state == "running"
    assert [event.kind for event in workshop.events(message)] == ["late_report"]


def test_the_same_late_report_is_told_once(workshop: Workshop, message: Message) -> None:
    made = replace(_claimed(workshop, message, uuid.uuid4()), nonce=str(uuid.uuid4()))
    _send(workshop, made)
    _send(workshop, made)
    assert len(workshop.events(message)) == 1


def test_what_the_database_refuses_to_store_fails_the_task_with_its_words(
    workshop: Workshop, message: Message
) -> None:
    made = replace(_claimed(workshop, message, uuid.uuid4()), result="a\x00b")
    assert _send(workshop, made) == message.run_id
    attempt = workshop.attempt(message)
    assert (attempt.outcome, attempt.result) == ("failed", None)
    assert attempt.error is not None
    assert attempt.error["type"] == "ReportRefused"
    assert workshop.ti(message).state == "failed"


def test_what_the_task_saved_and_the_database_missed_comes_with_the_report(
    workshop: Workshop, message: Message
) -> None:
    """As after the database was away when the task ended: spooled as JSON, and sent later."""
    made = replace(
        _claimed(workshop, message, uuid.uuid4()),
        saves=[{"scope": "flow", "owner": None, "key": "page", "value": 7}],
        progress={"done": 7, "total": 7, "note": ""},
    )
    spooled = report.Report(**json.loads(json.dumps(made.as_json())))
    assert _send(workshop, spooled) is not None
    assert _send(workshop, spooled) is not None  # only the answer was lost
    row = Checkpoint.objects.get()
    assert (row.owner, row.key, row.value, row.version) == ("f", "page", 7, 1)
    assert Progress.objects.get(pk=message.attempt_id).done == 7
