"""Job rows: alive by the database's clock, asked to stop, copied, and counted."""

from __future__ import annotations

import copy
import os
import threading
import time
import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from django.conf import settings

from scheduler_app.models import Counter, Job
from scheduler_app.processes import database
from scheduler_app.processes import job as job_module
from scheduler_app.processes.job import TWIN_EXIT, JobRow
from scheduler_app.queries import jobs, metrics, shown
from scheduler_app.queries.filters import JobFilter
from scheduler_app.queries.scope import EVERYTHING
from scheduler_app.scheduler import reach
from scheduler_app.transitions.job import (
    ask_job_to_stop,
    beat_job,
    drain_job,
    end_job,
    undrain_job,
)
from tests import factories
from tests.integration.simulation.clock import Clock
from tests.workshop import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator


class Process:
    """A job row of this process, and what it was told."""

    def __init__(self, kind: str = "worker") -> None:
        self.told: list[str] = []
        self.row = JobRow(
            kind=kind,
            on_stop=lambda: self.told.append("stop"),
            on_twin=lambda: self.told.append("twin"),
        )


@pytest.fixture
def process(raw: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch) -> Iterator[Process]:
    del raw
    monkeypatch.setattr(job_module, "LOOK_S", 0.05)
    made = Process()
    made.row.start()
    yield made
    made.row.end()


def counted(what: str, kind: str = "worker") -> int:
    return Counter.objects.get(name=f"{kind}_{what}_total").value


def heard(age_s: float, **overrides: Any) -> Job:
    """A worker whose last heartbeat is so old."""
    made = factories.make_job(
        detail={"queues": ["default"], "concurrency": 2}, name=f"{age_s}", **overrides
    )
    Job.objects.filter(pk=made.pk).update(heartbeat_at=shown.CLOCK - timedelta(seconds=age_s))
    return made


# -- alive -------------------------------------------------------------------------------------


def test_a_job_is_alive_for_2_1_beats_exactly(raw: psycopg.Connection[Any]) -> None:
    del raw
    job = factories.make_job()
    clock = Clock()
    try:
        clock.connection.execute("UPDATE job SET heartbeat_at = clock_timestamp()")
        beat_s = 5.0

        def is_alive() -> bool:
            row = clock.connection.execute(
                "SELECT job_is_alive(ended_at, heartbeat_at, %s) FROM job WHERE id = %s",
                [2.1 * beat_s, job.pk],
            ).fetchone()
            assert row is not None
            return bool(row[0])

        clock.advance(2.1 * beat_s - 0.001)
        assert is_alive()
        clock.advance(0.001)
        assert not is_alive(), "as old as 2.1 beats is not younger"
        clock.connection.execute("UPDATE job SET heartbeat_at = clock_timestamp()")
        clock.connection.execute("UPDATE job SET ended_at = clock_timestamp()")
        assert not is_alive(), "it ended"
    finally:
        clock.close()


def test_the_setting_follows_the_interval_of_the_heartbeat() -> None:
    assert pytest.approx(2.1 * settings.HEARTBEAT_INTERVAL_S) == settings.JOB_ALIVE_S


def test_lists_filters_metrics_and_queues_agree_on_who_is_alive(
    raw: psycopg.Connection[Any],
) -> None:
    young = heard(settings.JOB_ALIVE_S - 1)
    old = heard(settings.JOB_ALIVE_S + 0.1)
    assert {row.id: row.alive for row in jobs.page(JobFilter(), EVERYTHING).rows} == {
        young.pk: True,
        old.pk: False,
    }
    for asked, found in (("yes", young), ("no", old)):
        (row,) = jobs.page(JobFilter(alive=(asked,)), EVERYTHING).rows
        assert row.id == found.pk
    assert metrics.numbers().jobs_alive == {"worker": 1}
    stations = reach.alive(raw, alive_s=settings.JOB_ALIVE_S)
    assert reach.queue_slots(stations, carrier="celery") == {"default": 2}


# -- stopped from outside ----------------------------------------------------------------------


def test_a_stop_through_the_row_is_heard_between_two_beats_and_passed_on_once(
    raw: psycopg.Connection[Any], process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "HEARTBEAT_INTERVAL_S", 3600.0)
    assert ask_job_to_stop(raw, job_id=process.row.id, actor="ada", reason="deploy")
    assert not ask_job_to_stop(raw, job_id=process.row.id, actor="bob", reason="me too")
    wait_until(lambda: process.told)
    threading.Event().wait(0.3)
    assert process.told == ["stop"]
    row = Job.objects.get(pk=process.row.id)
    assert (row.stop_requested_by, row.stop_reason) == ("ada", "deploy")


@pytest.mark.parametrize(
    "lose",
    [
        lambda raw, job_id: end_job(raw, job_id=job_id),
        lambda raw, job_id: raw.execute("DELETE FROM job WHERE id = %s", [job_id]),
    ],
)
def test_a_process_whose_row_was_ended_or_is_gone_stops(
    raw: psycopg.Connection[Any],
    process: Process,
    lose: Callable[[psycopg.Connection[Any], uuid.UUID], object],
) -> None:
    lose(raw, process.row.id)
    wait_until(lambda: process.told)
    assert process.told == ["stop"]


# -- copies ------------------------------------------------------------------------------------


def test_of_two_copies_of_a_process_exactly_one_goes_on(raw: psycopg.Connection[Any]) -> None:
    """A restored snapshot of a machine has the same id, host and pid, and the same memory."""
    original = Process()
    original.row.start()
    original.row.end()
    raw.execute("UPDATE job SET ended_at = NULL, state = 'running'")
    twin = copy.copy(original.row)
    twin._nonces = copy.copy(original.row._nonces)
    for _ in range(3):
        assert not original.row.beat(raw).has_twin
    assert twin.beat(raw).has_twin
    assert not original.row.beat(raw).has_twin
    assert twin.beat(raw).has_twin


def test_a_lost_answer_or_a_database_of_before_makes_no_copy(raw: psycopg.Connection[Any]) -> None:
    process = Process()
    process.row.start()
    process.row.end()
    raw.execute("UPDATE job SET ended_at = NULL, state = 'running'")
    before = raw.execute("SELECT beat_nonce FROM job").fetchone()
    for _ in range(3):
        process.row.beat(raw)
    assert before is not None
    raw.execute("UPDATE job SET beat_nonce = %s", [before[0]])  # as a promoted standby may have it
    assert not process.row.beat(raw).has_twin
    process.row._nonces.append(uuid.uuid4())
    assert not process.row.beat(raw).has_twin


def test_a_forked_copy_ends_at_its_first_beat_and_the_original_goes_on(
    raw: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_module, "LOOK_S", 0.05)
    monkeypatch.setattr(settings, "HEARTBEAT_INTERVAL_S", 0.1)
    told: list[str] = []
    row = JobRow(kind="worker", on_stop=lambda: told.append("stop"))
    row.start()
    pid = os.fork()
    if not pid:
        row._beat_forever()
        os._exit(1)
    try:
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == TWIN_EXIT
        seen = Job.objects.get(pk=row.id).heartbeat_at
        wait_until(lambda: Job.objects.get(pk=row.id).heartbeat_at > seen)
        assert told == []
    finally:
        row.end()
    assert raw.execute("SELECT state FROM job").fetchone() == ("ended",)


# -- counted -----------------------------------------------------------------------------------


def test_starts_and_ends_are_counted_from_nought_and_an_end_once(
    raw: psycopg.Connection[Any],
) -> None:
    assert {
        f"{kind}_{what}_total"
        for kind in ("scheduler", "triggerer", "worker", "web")
        for what in ("start", "end", "heartbeat_failure")
    } <= set(metrics.numbers().counters)
    for kind in ("scheduler", "worker", "worker"):
        process = Process(kind)
        process.row.start()
        process.row.end()
        end_job(raw, job_id=process.row.id)
    assert [counted(what) for what in ("start", "end", "heartbeat_failure")] == [2, 2, 0]
    assert [counted(what, "scheduler") for what in ("start", "end")] == [1, 1]
    assert counted("start", "web") == 0


def test_failed_heartbeats_are_counted_when_the_database_is_back(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "HEARTBEAT_INTERVAL_S", 0.1)
    failed: list[int] = []

    def away(*args: Any, **options: Any) -> Any:
        if len(failed) < 3:
            failed.append(1)
            raise psycopg.OperationalError("the server closed the connection")
        return beat_job(*args, **options)

    monkeypatch.setattr(job_module, "beat_job", away)
    wait_until(lambda: counted("heartbeat_failure") == 3, within_s=20)
    assert process.told == []


def test_what_failed_last_is_counted_with_the_end(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*args: Any, **options: Any) -> Any:
        raise psycopg.OperationalError("the server closed the connection")

    monkeypatch.setattr(settings, "HEARTBEAT_INTERVAL_S", 0.1)
    monkeypatch.setattr(job_module, "beat_job", away)
    wait_until(lambda: process.row._failures >= 2, within_s=20)
    process.row.end()
    assert counted("heartbeat_failure") >= 2


def test_a_beat_of_a_raw_connection_compares_nothing(raw: psycopg.Connection[Any]) -> None:
    job = factories.make_job()
    with database.connect("lease") as connection:
        assert beat_job(connection, job_id=job.pk, progressed=True).stop_reason is None
    del raw


def test_a_heartbeat_measures_how_far_this_clock_is_from_the_databases(
    raw: psycopg.Connection[Any], process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_module, "wall_clock_s", lambda: time.time() + 300)
    process.row.beat(raw)  # measures
    process.row.beat(raw)  # tells
    row = Job.objects.get(pk=process.row.id)
    assert row.clock_ahead_s is not None
    assert row.clock_within_s is not None
    assert 300 - 60 < row.clock_ahead_s < 300 + 60
    assert abs(row.clock_ahead_s - 300) <= row.clock_within_s + 1


def test_a_process_reads_that_it_is_drained_and_that_it_is_no_more(
    raw: psycopg.Connection[Any],
) -> None:
    process = Process(kind="scheduler")
    process.row.start()
    try:
        drain_job(raw, job_id=process.row.id, actor="ada", reason="r")
        wait_until(lambda: process.row.is_drained)
        undrain_job(raw, job_id=process.row.id)
        wait_until(lambda: not process.row.is_drained)
        assert process.told == []
    finally:
        process.row.end()
