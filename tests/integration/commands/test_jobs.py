from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from scheduler_app.models import Job
from scheduler_app.queries import shown
from tests.factories import at, make_job

if TYPE_CHECKING:
    from tests.integration.commands.conftest import Call

pytestmark = pytest.mark.django_db


@pytest.fixture
def worker() -> Job:
    job = make_job(kind="worker", hostname="host-7", pid=4711)
    Job.objects.filter(pk=job.pk).update(heartbeat_at=shown.CLOCK)
    return job


def test_jobs_are_listed_with_who_is_alive_and_ended_ones_on_request(
    call: Call, worker: Job
) -> None:
    make_job(kind="scheduler", ended_at=at(9))
    answer = call("jobs", "list")
    heading, line = answer.lines()[:2]
    assert heading == [
        "ID",
        "KIND",
        "STATE",
        "ALIVE",
        "PROCESS",
        "STARTED",
        "HEARTBEAT",
        "PROGRESS",
    ]
    assert line[:5] == [str(worker.pk), "worker", "running", "yes", "host-7:4711"]
    assert "1 jobs, 1 filtered (ended_incarnation 1); --filtered shows them" in answer.out
    assert len(call("jobs", "list", "--filtered", "--json").json["results"]) == 2
    (only,) = call("jobs", "list", "--filtered", "--kind", "scheduler", "--json").json["results"]
    assert (only["kind"], only["alive"]) == ("scheduler", False)


def test_a_job_is_asked_to_stop_with_a_reason(call: Call, worker: Job) -> None:
    preview = call("jobs", "stop", str(worker.pk), "--dry-run")
    assert preview.code == 0
    assert "The worker host-7:4711 would be asked to stop." in preview.out
    refused = call("jobs", "stop", str(worker.pk))
    assert (refused.code, refused.err) == (1, "Say why: the reason is empty.\n")
    worker.refresh_from_db()
    assert worker.stop_requested_at is None
    answer = call("jobs", "stop", str(worker.pk), "--reason", "deploy", "--json")
    assert (answer.code, answer.json["is_asked"]) == (0, True)
    worker.refresh_from_db()
    assert (worker.stop_requested_by, worker.stop_reason) == ("ana", "deploy")
    assert "stopping" in call("jobs", "list").out


def test_what_cannot_be_stopped_is_a_refusal_and_a_bad_id_wrong_usage(call: Call) -> None:
    ended = make_job(ended_at=at(3))
    assert call("jobs", "stop", str(ended.pk), "--reason", "r").code == 1
    unknown = call("jobs", "stop", str(uuid4()), "--reason", "r")
    assert (unknown.code, "there is no job" in unknown.err) == (1, True)
    assert call("jobs", "stop", "worker-1", "--reason", "r").code == 2
    assert call("jobs").code == 2


def test_a_scheduler_is_drained_and_undrained(call: Call, worker: Job) -> None:
    job = make_job(kind="scheduler", hostname="host-8", pid=88)
    Job.objects.filter(pk=job.pk).update(heartbeat_at=shown.CLOCK)
    preview = call("jobs", "drain", str(job.pk), "--dry-run")
    assert "The scheduler host-8:88 would be drained." in preview.out
    assert call("jobs", "drain", str(job.pk)).code == 1, "not without a reason"
    answer = call("jobs", "drain", str(job.pk), "--reason", "patch", "--json")
    assert (answer.code, answer.json["is_drained"]) == (0, True)
    assert "drained" in call("jobs", "list").out
    assert call("jobs", "undrain", str(job.pk), "--reason", "done").code == 0
    assert "drained" not in call("jobs", "list").out
    refused = call("jobs", "drain", str(worker.pk), "--reason", "r")
    assert (refused.code, "only schedulers are drained" in refused.err) == (1, True)
