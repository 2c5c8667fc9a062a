"""Which executions are ghosts, from what workers report and what the records say."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from string import Formatter
from typing import Any

import pytest

from scheduler_app.rules import ghosts

NOW = datetime(2026, 1, 1, 2, 0, tzinfo=UTC)
SETTLED = timedelta(seconds=5)
A, B = uuid.UUID(int=1), uuid.UUID(int=2)
WORKER, OTHER = uuid.UUID(int=11), uuid.UUID(int=12)


def execution(attempt: uuid.UUID = A, **changed: Any) -> ghosts.Execution:
    return ghosts.Execution(
        **{
            "attempt_id": attempt,
            "worker_job_id": WORKER,
            "hostname": "w-1",
            "pid": 100,
            "reported_at": NOW,
            **changed,
        }
    )


def record(attempt: uuid.UUID = A, **changed: Any) -> ghosts.Record:
    return ghosts.Record(
        **{
            "attempt_id": attempt,
            "kind": "task",
            "state": "running",
            "outcome": None,
            "filter_code": None,
            "ended_at": None,
            "ti_id": 7,
            "task_id": "load",
            "map_index": -1,
            "try_number": 1,
            "shard": 3,
            "lease_token": 9,
            "current_attempt_id": attempt,
            "run": 5,
            "run_id": "r1",
            "flow_id": "sales",
            "run_state": "running",
            "run_type": "scheduled",
            "run_created_at": NOW - timedelta(hours=1),
            "run_ended_at": None,
            "logical_date": NOW - timedelta(days=1),
            **changed,
        }
    )


def closed(attempt: uuid.UUID = A, seconds_ago: float = 60, **changed: Any) -> ghosts.Record:
    return record(
        attempt,
        **{
            "state": "ended",
            "outcome": "lost",
            "ended_at": NOW - timedelta(seconds=seconds_ago),
            **changed,
        },
    )


def found(
    executions: list[ghosts.Execution],
    records: list[ghosts.Record],
    messages: list[ghosts.Waiting] | None = None,
) -> list[ghosts.Sighting]:
    return ghosts.compare(
        executions=executions,
        records={each.attempt_id: each for each in records},
        messages=messages or [],
        identity="here",
        settled_after=SETTLED,
    )


@pytest.mark.parametrize(
    ("of", "kind"),
    [
        (None, ghosts.NO_RECORD),
        (record(ti_id=None, run=None, filter_code="ghost_no_record"), ghosts.NO_RECORD),
        (record(), None),
        (closed(), ghosts.CLOSED),
        (closed(current_attempt_id=B, filter_code="lost_worker"), ghosts.SUPERSEDED),
        (record(current_attempt_id=B), ghosts.SUPERSEDED),
        (record(filter_code="duplicate_logical_date"), ghosts.SUPERSEDED),
        (closed(run_state="failed"), ghosts.TERMINAL_RUN),
        (record(kind="callback", ti_id=None, current_attempt_id=None), None),
        (record(kind="callback", current_attempt_id=B, run_state="success"), None),
        (closed(kind="callback", ti_id=None, run_state="success"), ghosts.CLOSED),
    ],
)
def test_the_kind_of_an_execution_follows_from_its_record(
    of: ghosts.Record | None, kind: str | None
) -> None:
    assert ghosts.kind_of_execution(of) == kind


def test_a_wanted_execution_is_no_ghost() -> None:
    assert found([execution()], [record()]) == []


def test_an_execution_whose_record_was_closed_a_moment_ago_is_about_to_end() -> None:
    assert found([execution()], [closed(seconds_ago=4)]) == []
    (seen,) = found([execution()], [closed(seconds_ago=6)])
    assert seen.kind == ghosts.CLOSED


def test_an_inventory_that_is_older_than_the_end_proves_nothing() -> None:
    early = execution(reported_at=NOW - timedelta(seconds=90))
    assert found([early], [closed(seconds_ago=60)]) == []


def test_a_process_of_a_run_that_ended_a_moment_ago_is_about_to_end() -> None:
    ended = closed(run_state="failed", run_ended_at=NOW - timedelta(seconds=1))
    assert found([execution()], [ended]) == []


def test_two_processes_of_one_task_instance_are_one_sighting_that_names_both() -> None:
    old = execution(A, pid=100)
    new = execution(B, worker_job_id=OTHER, hostname="w-2", pid=200)
    seen = found(
        [old, new], [closed(A, current_attempt_id=B, filter_code="lost_worker"), record(B)]
    )
    by_kind = {each.kind: each for each in seen}
    assert set(by_kind) == {ghosts.SUPERSEDED, ghosts.TWO_LIVE}
    twice = by_kind[ghosts.TWO_LIVE]
    assert (twice.attempt_id, twice.current_attempt_id, twice.pid) == (A, B, 100)
    sentence = ghosts.explain(twice.kind, twice.detail)
    assert "w-1:100" in sentence
    assert "w-2:200" in sentence
    assert "2 times" in sentence


def test_the_same_attempt_in_two_processes_is_two_live_executions_too() -> None:
    seen = found([execution(), execution(pid=101)], [record()])
    assert [each.kind for each in seen] == [ghosts.TWO_LIVE]


def test_mapped_instances_of_one_task_are_different_instances() -> None:
    several = [record(A, ti_id=7, map_index=0), record(B, ti_id=8, map_index=1)]
    assert found([execution(A), execution(B, pid=101)], several) == []


def test_messages_are_told_by_database_and_record() -> None:
    messages = [
        ghosts.Waiting(queue="default", attempt_id=A, identity="here"),
        ghosts.Waiting(queue="default", attempt_id=B, identity="here"),
        ghosts.Waiting(queue="etl", attempt_id=B, identity="there"),
        ghosts.Waiting(queue="etl", attempt_id=A, identity="there"),
    ]
    seen = found([], [record(A)], messages)
    assert [(each.kind, each.attempt_id) for each in seen][:2] == [
        (ghosts.MESSAGE, B),
        (ghosts.OTHER_DATABASE, B),
    ]
    assert len({(each.kind, each.subject) for each in seen}) == 2, "one a queue and database"


@pytest.mark.parametrize("kind", ghosts.KINDS.values(), ids=lambda kind: kind.code)
def test_each_kind_has_a_sentence_with_values_and_says_what_to_do(kind: ghosts.Kind) -> None:
    assert kind.template.endswith(".")
    assert [name for _, name, _, _ in Formatter().parse(kind.template) if name]
    assert kind.remedy.endswith(".")
    assert len(kind.code) <= 40, "the width of its column"
    assert ghosts.explain(kind.code, None).count("unknown") >= 1


def test_an_unknown_kind_is_its_own_sentence() -> None:
    assert ghosts.explain("from_the_future", {}) == "from_the_future"
