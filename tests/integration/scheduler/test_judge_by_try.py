"""Events by (task, try) in the judge's hands: each on its own, none lost, frozen ones after the thaw."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from scheduler_app.models import (
    Attempt,
    Counter,
    ExecutorEvent,
    Incident,
    LeaseEvent,
    TaskInstance,
    Trigger,
)
from scheduler_app.operations.clear import clear_task_instances
from scheduler_app.processes import database
from scheduler_app.queries.audit_visibility import compare
from scheduler_app.scheduler import judge
from scheduler_app.transitions.executor_event import NewEvent, record_events
from scheduler_app.transitions.ids import uuid7
from tests.recording import broken_laws
from tests.world import World, chain

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scheduler_app.scheduler.leases import Leases
    from scheduler_app.transitions.attempt import Message
    from tests.recording import RecordingConnection


@pytest.fixture(autouse=True)
def _no_grace(settings: Any) -> None:
    """A report would have arrived."""
    settings.EXIT_GRACE_S = 0.0


@pytest.fixture
def other(raw: psycopg.Connection[Any]) -> Iterator[psycopg.Connection[Any]]:
    """Somebody else's connection."""
    del raw
    with database.connect("scheduler") as connection:
        yield connection


def _say(
    raw: psycopg.Connection[Any], message: Message, kind: str = "exit_failed", **more: Any
) -> int:
    values = {"attempt_id": None, "ti_id": message.ti_id, "try_number": 1, "source": "executor: x"}
    assert record_events(raw, events=[NewEvent(kind=kind, **values | more)]) == 1
    return ExecutorEvent.objects.latest("id").pk


def _queued(world: World, flow_id: str = "f", **options: Any) -> Message:
    """An issued attempt that nobody has claimed."""
    run_id = world.run(world.flow(flow_id, chain("a", retries=1, retry_delay_s=0, **options)))
    return world.tick(run_id).messages[0]


def _deferred(world: World) -> tuple[Message, int]:
    message = _queued(world)
    assert world.claim(message) is not None
    return message, world.defer(message)


def _code(event: int) -> str | None:
    return ExecutorEvent.objects.get(pk=event).verdict_code


@pytest.mark.parametrize("step", ["deferred", "scheduled", "queued", "running", "success"])
def test_the_exit_of_a_deferring_process_is_stale_in_every_order(
    world: World, raw: psycopg.Connection[Any], step: str
) -> None:
    """By (task, try), with the real rows of a real deferral, at each step that follows it."""
    message, trigger_id = _deferred(world)
    if step != "deferred":
        assert world.fire(trigger_id) == "moved"
    if step in ("queued", "running", "success"):
        world.messages.clear()
        world.tick(message.run_id)
    if step in ("running", "success"):
        assert world.claim(world.messages[0]) is not None
    if step == "success":
        world.finish(world.messages[0])
    event = _say(raw, message, "exit_success")
    assert world.judge() == set()
    expected = "stale_not_executing" if step == "success" else "stale_after_defer"
    assert _code(event) == expected
    assert world.states(message.run_id) == {"a": step}
    assert Counter.objects.get(name="scheduler_tasks_killed_externally_total").value == 0
    if step != "success":
        reason = ExecutorEvent.objects.get(pk=event).verdict_reason or ""
        assert str(message.attempt_id) in reason, "the attempt that deferred is named"


def test_an_attempt_that_is_killed_by_try_cannot_be_claimed_any_more(
    world: World, raw: psycopg.Connection[Any]
) -> None:
    message = _queued(world)
    event = _say(raw, message)
    assert world.judge() == {message.run_id}
    assert _code(event) == "killed_externally"
    attempt = Attempt.objects.get(pk=message.attempt_id)
    assert (attempt.state, attempt.outcome, attempt.is_accepted) == ("ended", "terminated", False)
    assert world.claim(message) is None
    world.messages.clear()
    world.tick(message.run_id)
    assert [a.try_number for a in world.attempts(message.run_id)] == [1, 2]
    assert [d for one in compare() for d in one.differences] == []


def test_a_statement_that_came_before_the_attempt_was_issued_is_of_another_execution(
    world: World, raw: psycopg.Connection[Any]
) -> None:
    """It waited, while its scheduler was away, and the same try was dispatched meanwhile."""
    message = _queued(world)
    event = _say(raw, message)
    raw.execute(
        "UPDATE attempt SET issued_at = clock_timestamp() + interval '1 s' WHERE id = %s",
        [message.attempt_id],
    )
    assert world.judge() == set()
    assert _code(event) == "stale_requeued"
    assert world.states(message.run_id) == {"a": "queued"}


def test_another_schedulers_requeue_is_known_by_the_lease_that_issued_the_attempt(
    world: World, raw: psycopg.Connection[Any]
) -> None:
    message = _queued(world)
    token = message.lease_token
    assert LeaseEvent.objects.get(shard=3, token=token, kind="acquired").holder == (
        world.leases.holder
    )
    stranger = _say(raw, message, source_job_id=uuid7())
    assert world.judge() == set()
    assert _code(stranger) == "stale_requeued"
    own = _say(raw, message, source_job_id=world.leases.holder)
    assert world.judge() == {message.run_id}
    assert _code(own) == "killed_externally"


def test_a_task_that_its_executor_took_on_again_is_not_killed_by_the_end_before(
    world: World, raw: psycopg.Connection[Any]
) -> None:
    message = _queued(world)
    first = _say(raw, message)
    _say(raw, message, "executor_running", source="executor: another")
    again = _say(raw, message, "executor_running", payload={"info": "pod-8"})
    assert world.judge() == set()
    assert _code(first) == "stale_still_held"
    assert ExecutorEvent.objects.get(pk=again).verdict == "confirmed"
    end = _say(raw, message)
    assert world.judge() == {message.run_id}
    assert _code(end) == "killed_externally"


def test_a_report_that_is_under_way_is_waited_for(
    world: World, raw: psycopg.Connection[Any], settings: Any
) -> None:
    settings.EXIT_GRACE_S = 3600.0
    message = _queued(world)
    assert world.claim(message) is not None
    event = _say(raw, message, "exit_success")
    assert world.judge() == set()
    world.finish(message)
    assert world.judge() == set()
    assert (_code(event), world.states(message.run_id)) == ("stale_not_executing", {"a": "success"})


def test_a_locked_row_loses_no_event_and_keeps_no_other_from_its_verdict(
    world: World, raw: psycopg.Connection[Any], other: psycopg.Connection[Any]
) -> None:
    locked, free = _queued(world, "locked"), _queued(world, "free")
    waits, goes = _say(raw, locked), _say(raw, free)
    by_id = _say(raw, locked, attempt_id=locked.attempt_id)
    with other.transaction():
        other.execute("SELECT 1 FROM task_instance WHERE id = %s FOR UPDATE", [locked.ti_id])
        moved, is_waiting = judge.judge_pending(
            raw, leases=world.leases, terms=world.leases.terms()
        )
        assert (moved, is_waiting) == ({free.run_id}, True)
        pending = ExecutorEvent.objects.filter(verdict="pending")
        assert set(pending.values_list("pk", flat=True)) == {waits, by_id}
        assert _code(goes) == "killed_externally"
    assert world.judge() == {locked.run_id}
    assert _code(waits) == "killed_externally"
    judged = ExecutorEvent.objects.get(pk=by_id)
    assert (judged.verdict, judged.verdict_code) == ("confirmed", None), "it agrees with the kill"


def test_an_event_that_cannot_be_judged_is_told_and_keeps_no_other_from_its_verdict(
    world: World, raw: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    poisoned, healthy = _queued(world, "poisoned"), _queued(world, "healthy")
    first, second = _say(raw, poisoned), _say(raw, healthy)
    verdict = judge._verdict

    def fails(row: dict[str, Any]) -> Any:
        if row["event_id"] == first:
            message = "no such thing"
            raise LookupError(message)
        return verdict(row)

    monkeypatch.setattr(judge, "_verdict", fails)
    assert world.judge() == {healthy.run_id}
    assert _code(second) == "killed_externally"
    incident = Incident.objects.get(kind="executor_event_not_judged", resolved_at=None)
    assert incident.subject == str(first)
    assert "no such thing" in incident.message
    monkeypatch.undo()
    assert world.judge() == {poisoned.run_id}
    assert not Incident.objects.filter(resolved_at=None).exists()


def test_events_of_frozen_tasks_wait_for_the_thaw_and_hold_up_no_others(
    world: World, raw: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judge, "EVENTS_MAX", 3)
    frozen, running = _queued(world, "frozen"), _queued(world, "running")
    raw.execute("UPDATE task_instance SET held_by = 7 WHERE id = %s", [frozen.ti_id])
    held = [_say(raw, frozen, "exit_failed") for _ in range(5)]
    noted = [_say(raw, frozen, "executor_running") for _ in range(2)]
    event = _say(raw, running)
    assert world.judge() == {running.run_id}
    assert _code(event) == "killed_externally"
    assert ExecutorEvent.objects.filter(verdict="pending").count() == len(held) + len(noted)
    raw.execute("UPDATE task_instance SET held_by = NULL")
    assert world.judge() == set()
    # The executor took it on again after each of those ends.
    assert {_code(one) for one in held} == {"stale_still_held"}
    end = _say(raw, frozen)
    assert world.judge() == {frozen.run_id}
    assert _code(end) == "killed_externally"


def test_more_young_events_than_one_look_reads_hold_up_no_others(
    world: World, raw: psycopg.Connection[Any], settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.EXIT_GRACE_S = 3600.0
    monkeypatch.setattr(judge, "EVENTS_MAX", 2)
    message = _queued(world)
    for _ in range(5):
        _say(raw, message)
    last = _say(raw, message, try_number=9)
    world.judge()
    assert _code(last) == "stale_other_try"
    assert ExecutorEvent.objects.filter(verdict="pending").count() == 5


def test_the_compared_values_of_every_verdict_are_stored(
    world: World, raw: psycopg.Connection[Any]
) -> None:
    message = _queued(world)
    stale, true = _say(raw, message, try_number=4), _say(raw, message, payload={"info": "pod-7"})
    world.judge()
    for event, rule_values in (
        (stale, {"try_number": 4, "task_try_number": 1, "task_state": "queued"}),
        (true, {"try_number": 1, "task_state": "queued", "queued_by": "source", "info": "pod-7"}),
    ):
        detail = ExecutorEvent.objects.get(pk=event).verdict_detail or {}
        assert detail.items() >= {**rule_values, "rule": "judge_by_try"}.items()
    assert ExecutorEvent.objects.get(pk=true).filter_detail is None, "it is of current standing"


@pytest.mark.parametrize(
    "change",
    ["ti_id = ti_id + 1", "try_number = 7", "kind = 'exit_success'", "payload = '{}'"],
)
def test_what_was_said_of_a_try_cannot_be_changed(
    world: World, raw: psycopg.Connection[Any], change: str
) -> None:
    _say(raw, _queued(world), payload={"info": 1})
    with pytest.raises(psycopg.errors.RaiseException, match="cannot be changed"):
        raw.execute(f"UPDATE executor_event SET {change}".encode())


def test_a_cleared_task_begins_anew_with_a_whole_budget_when_its_attempt_has_stopped(
    world: World, raw: psycopg.Connection[Any]
) -> None:
    message = _queued(world)
    assert world.claim(message) is not None
    raw.execute("UPDATE task_instance SET next_method = 'loaded'")
    clear_task_instances(ti_ids=[message.ti_id], actor="ada", reason="again", dry_run=False)
    event = _say(raw, message, "exit_killed", attempt_id=message.attempt_id)
    assert world.judge() == {message.run_id}
    assert _code(event) == "cleared_and_stopped"
    ti = TaskInstance.objects.get(pk=message.ti_id)
    assert (ti.state, ti.max_tries, ti.budget_start, ti.next_method) == ("none", 2, 1, None)
    assert Counter.objects.get(name="scheduler_tasks_killed_externally_total").value == 0
    world.ticker.forget([message.run_id])
    world.messages.clear()
    world.tick(message.run_id)
    assert [a.try_number for a in world.attempts(message.run_id)] == [1, 2]
    assert Attempt.objects.get(pk=message.attempt_id).filter_code == "superseded_by_clear"
    assert [d for one in compare() for d in one.differences] == []


def test_an_attempt_whose_task_was_decided_meanwhile_does_not_stay_live(
    world: World, raw: psycopg.Connection[Any]
) -> None:
    """Its run could never end."""
    message = _queued(world)
    assert world.claim(message) is not None
    raw.execute("UPDATE task_instance SET state = 'success', is_open = false")
    event = _say(raw, message, "exit_failed", attempt_id=message.attempt_id)
    assert world.judge() == {message.run_id}
    assert _code(event) == "task_over"
    assert not Attempt.objects.filter(is_live=True).exists()
    assert world.states(message.run_id) == {"a": "success"}


def test_judging_by_try_proves_the_lease_first_and_keeps_the_lock_order(
    recording: RecordingConnection, leases: Leases
) -> None:
    world = World(recording, leases)
    message = _queued(world)
    _say(recording, message)
    _say(recording, message, "exit_success")
    recording.transactions.clear()
    assert world.judge() == {message.run_id}
    assert broken_laws(recording.transactions, deciding=True) == []


def test_no_trigger_is_left_waiting_by_a_kill(world: World, raw: psycopg.Connection[Any]) -> None:
    message, trigger_id = _deferred(world)
    assert world.fire(trigger_id) == "moved"
    event = _say(raw, message, "exit_failed")
    assert world.judge() == {message.run_id}
    assert _code(event) == "killed_externally"
    ti = TaskInstance.objects.get(pk=message.ti_id)
    assert (ti.state, ti.next_method, ti.next_kwargs) == ("up_for_retry", None, None)
    assert not Trigger.objects.filter(is_waiting=True).exists()
