"""A process that is asked what it runs answers at its next heartbeat."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from scheduler_app.models import Inquiry
from scheduler_app.processes.job import JobRow
from scheduler_app.transitions.ids import uuid7
from scheduler_app.transitions.inquiry import Holding, ask_workers
from tests.stack import wait_for

if TYPE_CHECKING:
    import psycopg


def _ask(raw: psycopg.Connection[Any], **only: Any) -> int:
    return ask_workers(
        raw, ask_id=uuid7(), asked_by=uuid7(), why="take_over", beat_within_s=60, **only
    )


def test_a_worker_answers_with_what_it_holds_at_the_moment_of_the_answer(
    raw: psycopg.Connection[Any], settings: Any
) -> None:
    settings.HEARTBEAT_INTERVAL_S = 0.1
    held: list[Holding] = []
    job = JobRow(kind="worker", on_stop=lambda: None, holdings=lambda: list(held))
    job.start()
    try:
        assert _ask(raw) == 1
        wait_for("an answer", lambda: Inquiry.objects.filter(answered_at__isnull=False).exists())
        assert Inquiry.objects.get().holdings == []
        held.append(
            Holding(attempt_id=uuid7(), pid=4711, is_alive=True, for_s=1.5, report_waits=False)
        )
        assert _ask(raw, worker_job_ids=[job.id]) == 1
        wait_for("both", lambda: not Inquiry.objects.filter(answered_at=None).exists())
    finally:
        job.end()
    last = Inquiry.objects.latest("id")
    assert last.answered_at is not None
    assert last.answered_at >= last.asked_at
    assert last.holdings == [
        {
            "attempt_id": str(held[0].attempt_id),
            "pid": 4711,
            "is_alive": True,
            "for_s": 1.5,
            "report_waits": False,
        }
    ]
    assert _ask(raw) == 0, "a worker that has ended is not asked"


@pytest.mark.parametrize("kind", ["scheduler", "triggerer"])
def test_only_workers_are_asked(raw: psycopg.Connection[Any], kind: str) -> None:
    job = JobRow(kind=kind, on_stop=lambda: None)
    job.start()
    try:
        assert _ask(raw) == 0
    finally:
        job.end()
