"""What a worker does about executions of its own that no record acknowledges."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from scheduler_app.models import Attempt, ExecutorEvent, Flow, Ghost, Inventory, Run, TaskInstance
from scheduler_app.queries import audit_visibility
from scheduler_app.rules import ghosts
from scheduler_app.transitions.attempt import lose
from scheduler_app.transitions.ghost import request_stop
from tests.integration.worker.test_beats import SLOW, Main, main
from tests.workshop import wait_until

__all__ = ["main"]  # the fixture

if TYPE_CHECKING:
    from scheduler_app.transitions.attempt import Message
    from tests.workshop import Workshop


def forget(raw: psycopg.Connection[Any], message: Message, *, also_the_run: bool = True) -> None:
    """The database is as it was before the attempt was issued, as after restoring a backup."""
    with raw.transaction():
        raw.execute("DELETE FROM attempt WHERE id = %s", [message.attempt_id])
        if also_the_run:
            raw.execute("DELETE FROM task_instance WHERE run_id = %s", [message.run_id])
            raw.execute("DELETE FROM run_attempt WHERE run_id = %s", [message.run_id])
            raw.execute("DELETE FROM run WHERE id = %s", [message.run_id])
        else:
            raw.execute(
                "UPDATE task_instance SET attempt_id = NULL, state = 'none', claim_nonce = NULL"
                " WHERE id = %s",
                [message.ti_id],
            )


@pytest.fixture(autouse=True)
def _long_enough(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Even a young execution is remembered."""
    monkeypatch.setattr("scheduler_app.worker.witness.ANNOUNCE_AFTER_S", 0.05)
    yield
    assert [d for c in audit_visibility.compare() for d in c.differences] == []


def remembered(main: Main, message: Message) -> None:
    """The worker has read what its attempt belongs to."""
    wait_until(
        lambda: any(
            e.known for e in main.witness.executions() if e.attempt_id == message.attempt_id
        )
    )


def test_a_worker_says_what_it_executes_also_when_it_is_nothing(
    main: Main,
    workshop: Workshop,
) -> None:
    wait_until(lambda: Inventory.objects.filter(pk=workshop.station.job_id, executions=[]))
    message, child = main.start(SLOW)
    (said,) = wait_until(lambda: Inventory.objects.get().executions)
    assert (said["attempt"], said["pid"]) == (str(message.attempt_id), child.pid)


def test_an_execution_that_the_database_forgot_is_recorded_with_its_run_and_stopped(
    main: Main,
    workshop: Workshop,
    raw: psycopg.Connection[Any],
) -> None:
    message, child = main.start(SLOW)
    remembered(main, message)
    run = Run.objects.get(pk=message.run_id)
    Flow.objects.update(current_version=run.version_id)
    forget(raw, message)
    ghost = wait_until(lambda: Ghost.objects.filter(kind=ghosts.NO_RECORD).first())
    assert (ghost.attempt_id, ghost.pid, ghost.seen_by) == (message.attempt_id, child.pid, "beat")
    assert f"flow {run.flow_id}, run {run.run_key}, task t" in ghosts.explain(
        ghost.kind, ghost.detail
    )
    attempt = Attempt.objects.get(pk=message.attempt_id)
    assert attempt.filter_code == "ghost_no_record"
    assert attempt.task_id == "t"
    lost = Run.objects.get(filter_code="ghost_run")
    assert attempt.run_id == lost.pk
    assert (lost.filter_code, lost.run_key) == ("ghost_run", f"{run.run_key}~ghost")
    assert lost.logical_date == run.logical_date
    event = ExecutorEvent.objects.get(kind="inventory")
    assert (event.verdict, event.filter_code) == ("ghost", "ghost_no_record")
    assert child.outcome(within_s=20).outcome == "terminated"
    assert "this database never issued the attempt" in workshop.printed(message)
    main.witness._forget(child.pid, str(message.attempt_id))
    wait_until(lambda: Ghost.objects.get().end_reason == "its process ended")
    assert not Attempt.objects.get(pk=message.attempt_id).is_accepted
    assert ExecutorEvent.objects.filter(kind="late_report", verdict="ghost").exists()


def test_a_worker_that_never_could_ask_remembers_the_claim(
    main: Main, raw: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database was away, and came back as it was before: nothing was read between."""
    monkeypatch.setattr("scheduler_app.worker.witness.ANNOUNCE_AFTER_S", 3600)
    message, _ = main.start(SLOW)
    remembered(main, message)
    run = Run.objects.get(pk=message.run_id)
    Flow.objects.update(current_version=run.version_id)
    forget(raw, message)
    ghost = wait_until(lambda: Ghost.objects.filter(kind=ghosts.NO_RECORD).first())
    assert ghost.detail["run_id"] == run.run_key
    assert ghost.detail["task_id"] == "t"
    assert Run.objects.get().filter_code == "ghost_run"


def test_an_execution_of_a_run_that_is_still_there_belongs_to_that_run(
    main: Main,
    raw: psycopg.Connection[Any],
) -> None:
    message, _ = main.start(SLOW)
    remembered(main, message)
    forget(raw, message, also_the_run=False)
    wait_until(lambda: Ghost.objects.filter(kind=ghosts.NO_RECORD).exists())
    assert Attempt.objects.get(pk=message.attempt_id).run_id == message.run_id
    assert Run.objects.count() == 1


@pytest.mark.parametrize("policy", ["leave", "human"])
def test_by_another_policy_it_goes_on_until_somebody_asks_for_its_end(
    main: Main,
    raw: psycopg.Connection[Any],
    settings: Any,
    policy: str,
) -> None:
    settings.GHOST_POLICY = policy
    message, child = main.start(SLOW)
    remembered(main, message)
    forget(raw, message)
    ghost = wait_until(lambda: Ghost.objects.filter(policy=policy).first())
    seen_at = ghost.last_seen_at
    later = wait_until(lambda: Ghost.objects.filter(last_seen_at__gt=seen_at).first())
    assert later.detail["task_id"] == "t", "what it works for stays known"
    assert not later.detail["run_id"].endswith("~ghost")
    assert os.waitpid(child.pid, os.WNOHANG) == (0, 0), "it goes on"
    assert request_stop(raw, ghost_id=ghost.id, actor="ana")
    assert child.outcome(within_s=20).outcome == "terminated"


def test_an_execution_that_was_replaced_is_seen_with_the_one_that_replaced_it(
    main: Main,
    workshop: Workshop,
) -> None:
    message, child = main.start(SLOW)
    lose(
        workshop.connection, attempt_ids=[message.attempt_id], dead_after_s=0, budget=3, source="t"
    )
    TaskInstance.objects.filter(pk=message.ti_id).update(state="up_for_retry")
    second = workshop.issue(message.run_id)
    ghost = wait_until(lambda: Ghost.objects.filter(kind=ghosts.SUPERSEDED).first())
    assert ghost.attempt_id == message.attempt_id
    assert ghost.current_attempt_id == second.attempt_id
    assert ghost.detail["filter_code"] == "superseded_by_retry"
    assert child.outcome(within_s=20).outcome == "terminated"


def test_a_delivery_of_another_database_is_a_ghost_that_names_the_worker(
    workshop: Workshop,
) -> None:
    message = workshop.issue_one(SLOW)
    assert workshop.deliver(message, identity="other:database").what == "refused"
    (ghost,) = Ghost.objects.all()
    assert ghost.kind == ghosts.OTHER_DATABASE
    assert ghost.worker_job_id == workshop.station.job_id
    assert ghost.policy == "human"
    assert "of database other:database" in ghosts.explain(ghost.kind, ghost.detail)
    (event,) = workshop.events(message)
    assert event.verdict_code == "fenced_other_database"
