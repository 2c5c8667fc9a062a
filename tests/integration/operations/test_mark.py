"""Marking by hand: whatever the state, running work is stopped first, and the run follows."""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from django.db import connection as django_connection

from scheduler_app.models import Attempt, Audit, Flow, Run, RunAttempt, TaskInstance, Trigger
from scheduler_app.operations.clear import clear_run, clear_task_instances
from scheduler_app.operations.freeze import freeze
from scheduler_app.operations.mark import Reach, mark_run, mark_runs, mark_task_instances
from scheduler_app.operations.thaw import thaw
from scheduler_app.queries.audit_visibility import compare
from scheduler_app.rules.errors import Conflict, InvalidInput, NotAllowed, NotFound
from scheduler_app.rules.states import AttemptOutcome, TaskState
from scheduler_app.transitions import attempt as moves
from tests.together import together
from tests.world import chain

if TYPE_CHECKING:
    import psycopg

    from scheduler_app.transitions.attempt import Message
    from tests.world import World


Act = Callable[["psycopg.Connection[Any]"], Any]


def begun(world: World, *tasks: str, claim: bool = True, **options: Any) -> Message:
    """The first task of a run of a chain is queued, or runs."""
    run_id = world.run(world.flow("f", chain(*(tasks or ("a", "b", "c"))), **options))
    world.tick(run_id)
    (message,), world.messages = world.messages, []
    if claim:
        assert world.claim(message) is not None
    return message


def mark(*ti_ids: int, state: str = "success", **asked: Any) -> Any:
    reach = {key: asked.pop(key) for key in list(asked) if key.startswith("include_")}
    values: dict[str, Any] = {"actor": "ada", "reason": "by phone", **asked}
    return mark_task_instances(ti_ids=ti_ids, state=state, reach=Reach(**reach), **values)


def mark_whole(run_id: int, state: str = "failed", **asked: Any) -> Any:
    return mark_run(run_id=run_id, state=state, **{"actor": "ada", "reason": "by phone", **asked})


def ti(run_id: int, task_id: str) -> TaskInstance:
    return TaskInstance.objects.get(run_id=run_id, task_id=task_id)


def stop(world: World, message: Message, **to: Any) -> int | None:
    """The worker reports, usually that it stopped its task."""
    values: dict[str, Any] = {
        "state": TaskState.FAILED,
        "is_open": False,
        "outcome": AttemptOutcome.TERMINATED,
    }
    return moves.finish(
        world.connection,
        ti_id=message.ti_id,
        attempt_id=message.attempt_id,
        nonce=uuid.UUID(int=message.attempt_id.int),
        **{**values, **to},
    )


def nothing_is_hidden() -> bool:
    return [one for one in compare() if one.differences] == []


# -- task instances ------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["success", "failed", "skipped"])
def test_running_work_is_stopped_first_and_then_is_what_was_said(world: World, state: str) -> None:
    message = begun(world)
    plan = mark(message.ti_id, state=state)
    assert [(one.state, one.becomes) for one in plan.included] == [("running", state)]
    row = TaskInstance.objects.get(pk=message.ti_id)
    assert (row.state, row.is_open) == ("running", True)
    (beat,) = moves.beat(
        world.connection, attempt_ids=[message.attempt_id], worker_job_id=world.worker
    )
    assert beat.stop_reason == f"ada marked it {state}: by phone"
    world.tick(message.run_id)
    assert world.states(message.run_id)["b"] == "none", "nothing starts beside what still runs"
    assert stop(world, message) == message.run_id
    row = TaskInstance.objects.get(pk=message.ti_id)
    assert (row.state, row.is_open) == (state, False)
    assert row.mark is not None
    assert (row.mark["actor"], row.mark["state"]) == ("ada", state)
    assert Attempt.objects.get(pk=message.attempt_id).outcome == "terminated"
    run = world.play(message.run_id)
    assert run.state == {"success": "success", "failed": "failed", "skipped": "success"}[state]
    assert nothing_is_hidden()


def test_whatever_the_code_reports_before_it_stops_the_mark_counts_and_the_report_is_kept(
    world: World,
) -> None:
    message = begun(world, "a")
    mark(message.ti_id, state="failed")
    assert stop(
        world, message, state=TaskState.SUCCESS, outcome=AttemptOutcome.SUCCESS, result={"v": 1}
    )
    one = Attempt.objects.get(pk=message.attempt_id)
    assert (one.outcome, one.is_accepted, one.result) == ("success", True, {"v": 1})
    assert ti(message.run_id, "a").state == "failed"
    assert world.play(message.run_id).state == "failed"


@pytest.mark.parametrize("how", ["retry", "defer", "hand back", "loss"])
def test_however_a_marked_attempt_ends_nothing_follows_but_what_was_said(
    world: World, how: str
) -> None:
    message = begun(world, "a", "b")
    mark(message.ti_id, state="success")
    if how == "retry":
        stop(
            world,
            message,
            state=TaskState.UP_FOR_RETRY,
            is_open=True,
            outcome=AttemptOutcome.FAILED,
            retry_after_s=0,
        )
    elif how == "defer":
        assert world.defer_by(world.connection, message) is not None
        assert not Trigger.objects.exists()
    elif how == "hand back":
        moves.hand_back(
            world.connection,
            attempt_id=message.attempt_id,
            worker_job_id=world.worker,
            reason="it goes",
        )
    else:
        world.connection.execute(
            "UPDATE attempt SET started_at = clock_timestamp() - interval '1 hour',"
            " heartbeat_at = NULL"
        )
        moves.lose(
            world.connection,
            attempt_ids=[message.attempt_id],
            dead_after_s=-1e9,
            budget=3,
            source="test",
        )
    assert ti(message.run_id, "a").state == "success"
    assert world.play(message.run_id).state == "success"
    assert len(world.attempts(message.run_id)) == 2


def test_a_mark_may_be_changed_while_the_work_stops(world: World) -> None:
    message = begun(world, "a")
    mark(message.ti_id, state="failed")
    assert mark(message.ti_id, state="failed").included == (), "the same again changes nothing"
    mark(message.ti_id, state="success")
    stop(world, message)
    assert ti(message.run_id, "a").state == "success"


def test_a_cleared_task_that_stops_is_marked_instead_of_begun_anew(world: World) -> None:
    message = begun(world, "a")
    clear_task_instances(ti_ids=[message.ti_id], actor="bo", reason="r", dry_run=False)
    mark(message.ti_id, state="skipped")
    assert moves.begin_anew(world.connection, attempt_id=message.attempt_id, reason="stopped")
    assert ti(message.run_id, "a").state == "skipped"
    assert world.play(message.run_id).state == "success"


def test_queued_deferred_and_waiting_work_is_marked_at_once(world: World) -> None:
    queued = begun(world, "a", claim=False)
    mark(queued.ti_id)
    assert world.claim(queued) is None, "its message starts nothing"
    one = Attempt.objects.get(pk=queued.attempt_id)
    assert (one.state, one.outcome, one.outcome_reason) == (
        "ended",
        "terminated",
        "ada marked it success: by phone",
    )
    flow = world.flow("g", chain("a", "b"))
    run_id = world.run(flow)
    world.tick(run_id)
    (message,), world.messages = world.messages, []
    world.claim(message)
    world.defer(message)
    mark(ti(run_id, "b").pk, state="skipped")
    mark(message.ti_id, state="success")
    assert Trigger.objects.get(ti_id=message.ti_id).state == "cancelled"
    assert world.states(run_id) == {"a": "success", "b": "skipped"}
    assert world.play(run_id).state == "success"
    assert nothing_is_hidden()


def test_what_had_been_given_up_behind_a_success_is_looked_at_again(world: World) -> None:
    run_id = world.run(world.flow("f", chain("a", "b", "c")))
    assert world.play(run_id, failing=["a"]).state == "failed"
    plan = mark(ti(run_id, "a").pk)
    assert [(one.task_id, one.rule, one.becomes) for one in plan.included] == [
        ("a", "asked", "success"),
        ("b", "given_up", "none"),
        ("c", "given_up", "none"),
    ]
    run = Run.objects.get(pk=run_id)
    assert (run.state, run.run_attempt, run.ended_at) == ("queued", 1, None)
    assert world.play(run_id).state == "success"
    assert world.states(run_id) == dict.fromkeys("abc", "success")
    assert nothing_is_hidden()


def test_a_run_that_had_ended_ends_anew_by_what_its_tasks_are(world: World) -> None:
    run_id = world.run(world.flow("f", chain("a", "b")))
    before = world.play(run_id, failing=["b"])
    plan = mark(ti(run_id, "b").pk)
    assert [(one.state, one.becomes) for one in plan.runs] == [("failed", "success")]
    run = Run.objects.get(pk=run_id)
    assert (run.state, run.ended_at) == ("success", before.ended_at)
    assert RunAttempt.objects.get(run_id=run_id).state == "success"
    mark(ti(run_id, "b").pk, state="failed")
    assert Run.objects.get(pk=run_id).state == "failed"


def test_relatives_and_other_dates_come_along_when_asked_for(world: World) -> None:
    flow = world.flow("f", chain("a", "b", "c"), max_active_runs=9)
    runs = [world.run(flow, f"r{number}") for number in range(3)]
    plan = mark(ti(runs[1], "b").pk, include_upstream=True, dry_run=True)
    assert {one.task_id for one in plan.included} == {"a", "b"}
    plan = mark(ti(runs[1], "b").pk, include_downstream=True, dry_run=True)
    assert {one.task_id for one in plan.included} == {"b", "c"}
    plan = mark(ti(runs[1], "b").pk, include_past=True, dry_run=True)
    assert {one.run_id for one in plan.included} == {runs[0], runs[1]}
    plan = mark(ti(runs[1], "b").pk, include_future=True, include_past=True)
    assert {(one.run_id, one.task_id) for one in plan.included} == {(run, "b") for run in runs}
    assert {world.states(run)["b"] for run in runs} == {"success"}
    assert Audit.objects.filter(action="mark").count() == 3, "one entry a run"


def test_a_run_without_a_date_has_no_past(world: World) -> None:
    run_id = world.run(world.flow("f", chain("a")))
    Run.objects.filter(pk=run_id).update(logical_date=None)
    with pytest.raises(InvalidInput, match="no past"):
        mark(ti(run_id, "a").pk, include_past=True)


def test_what_is_frozen_is_left_alone_and_said(world: World) -> None:
    flow = world.flow("f", chain("a", "b"), max_active_runs=9)
    one, two = world.run(flow, "r1"), world.run(flow, "r2")
    freeze(scope_kind="run", scope_id=one, actor="bo", reason="look")
    with pytest.raises(NotAllowed, match="frozen"):
        mark(ti(one, "a").pk)
    plan = mark(ti(one, "a").pk, ti(two, "a").pk)
    assert [run.id for run in plan.refused] == [one]
    assert "frozen" in plan.refused[0].why
    assert (world.states(one)["a"], world.states(two)["a"]) == ("none", "success")
    freeze(scope_kind="task_instance", scope_id=ti(two, "b").pk, actor="bo", reason="look")
    with pytest.raises(NotAllowed, match="thaw"):
        mark(ti(two, "b").pk)
    plan = mark_whole(two)
    assert [(s.task_id, s.rule) for s in plan.excluded if s.rule == "frozen"] == [("b", "frozen")]
    assert "thawed" in plan.runs[0].effect
    thaw(scope_kind="task_instance", scope_id=ti(two, "b").pk, actor="bo", reason="done")
    mark_whole(two)
    assert Run.objects.get(pk=two).state == "failed"


def test_refusals(world: World) -> None:
    run_id = world.run(world.flow("f", chain("a")))
    own = ti(run_id, "a").pk
    with pytest.raises(InvalidInput, match="running"):
        mark(own, state="running")
    with pytest.raises(InvalidInput, match="Say why"):
        mark(own, reason=" ")
    with pytest.raises(NotFound):
        mark(987654)
    with pytest.raises(NotFound):
        mark_whole(987654)
    with pytest.raises(InvalidInput, match="success or failed"):
        mark_whole(run_id, state="skipped")
    with pytest.raises(InvalidInput):
        mark_runs(run_ids=[], state="failed", actor="ada", reason="r")
    Run.objects.filter(pk=run_id).update(
        filter_code="ghost_run", filtered_at="2026-01-01T00:00Z", filter_detail={}
    )
    with pytest.raises(Conflict, match="set aside"):
        mark(own)


def test_a_preview_changes_nothing_and_is_not_audited(world: World) -> None:
    message = begun(world)
    before = list(TaskInstance.objects.values()), list(Run.objects.values())
    plan = mark(message.ti_id, reason="", dry_run=True)
    assert plan.dry_run
    assert "stopped first" in plan.included[0].effect
    mark_whole(message.run_id, reason="", dry_run=True)
    assert (list(TaskInstance.objects.values()), list(Run.objects.values())) == before
    assert not Audit.objects.filter(action="mark").exists()


def test_an_entry_says_who_why_and_what_it_was_before_and_after(world: World) -> None:
    message = begun(world, "a", "b")
    mark(message.ti_id, state="failed")
    entry = Audit.objects.get(action="mark")
    assert entry.before is not None
    assert entry.after is not None
    assert (entry.actor, entry.reason, entry.flow_id) == ("ada", "by phone", "f")
    assert entry.before["task_instances"] == {str(message.ti_id): "running"}
    assert entry.after["task_instances"] == {str(message.ti_id): "stopping"}
    assert (entry.after["marked"], entry.after["run_state"]) == ("failed", "running")


# -- callbacks -----------------------------------------------------------------------------------


def calls() -> set[tuple[str | None, str, str]]:
    return {
        (one.task_id, (one.callback or {})["on"], (one.callback or {})["state"])
        for one in Attempt.objects.filter(kind="callback")
    }


def test_nothing_calls_back_unless_it_was_asked_for(world: World) -> None:
    names = {"on_failure": ("told",), "on_success": ("told",), "on_skipped": ("told",)}
    flow = world.flow("f", chain("a", callbacks=names), callbacks=names, max_active_runs=9)
    quiet, loud = world.run(flow, "r1"), world.run(flow, "r2")
    mark(ti(quiet, "a").pk, state="failed")
    assert world.play(quiet).state == "failed"
    assert calls() == set()
    mark(ti(loud, "a").pk, state="failed", callbacks=True)
    assert calls() == {("a", "on_failure", "failed")}
    (one,) = Attempt.objects.filter(kind="callback")
    assert one.callback is not None
    assert (one.ti_id, one.callback["reason"]) == (
        ti(loud, "a").pk,
        "ada marked it failed: by phone",
    )


def test_of_a_marked_run_nothing_calls_back_unless_it_was_asked_for(world: World) -> None:
    names = {"on_failure": ("told",)}
    flow = world.flow("f", chain("a"), callbacks=names, max_active_runs=9)
    for number, wanted in enumerate((False, True)):
        run_id = world.run(flow, f"at once {number}")
        mark_whole(run_id, callbacks=wanted)
        assert Run.objects.get(pk=run_id).state == "failed"
        assert bool(calls()) == wanted
    Attempt.objects.filter(kind="callback").delete()
    for number, wanted in enumerate((False, True)):
        run_id = world.run(flow, f"later {number}")
        world.tick(run_id)
        (message,), world.messages = world.messages, []
        world.claim(message)
        mark_whole(run_id, callbacks=wanted)
        stop(world, message)
        world.tick(run_id)
        assert Run.objects.get(pk=run_id).state == "failed"
        assert calls() == ({(None, "on_failure", "failed")} if wanted else set())


# -- runs ----------------------------------------------------------------------------------------


def test_a_run_marked_as_failed_stops_what_runs_and_skips_the_rest(world: World) -> None:
    message = begun(world)
    plan = mark_whole(message.run_id)
    assert {one.task_id: one.becomes for one in plan.included} == {
        "a": "failed",
        "b": "skipped",
        "c": "skipped",
    }
    run = Run.objects.get(pk=message.run_id)
    assert (run.state, run.mark is not None) == ("running", True)
    assert world.states(message.run_id) == {"a": "running", "b": "skipped", "c": "skipped"}
    world.tick(message.run_id)
    assert Run.objects.get(pk=message.run_id).state == "running", "its last process still runs"
    stop(world, message)
    world.tick(message.run_id)
    run = Run.objects.get(pk=message.run_id)
    assert (run.state, run.state_reason) == ("failed", "ada marked the run failed: by phone")
    assert run.mark is not None
    assert (run.mark["actor"], run.mark["state"]) == ("ada", "failed")
    assert world.states(message.run_id) == {"a": "failed", "b": "skipped", "c": "skipped"}
    assert nothing_is_hidden()


def test_a_run_marked_as_success_counts_what_is_left_as_success(world: World) -> None:
    run_id = world.run(world.flow("f", chain("a", "b", "c")))
    before = world.play(run_id, failing=["a"])
    mark_whole(run_id, state="success")
    run = Run.objects.get(pk=run_id)
    assert (run.state, run.ended_at) == ("success", before.ended_at)
    assert world.states(run_id) == dict.fromkeys("abc", "success")
    assert RunAttempt.objects.get(run_id=run_id).state == "success"
    (attempt,) = world.attempts(run_id)
    assert attempt.outcome == "failed", "what it came to stays in the record"


def test_a_run_that_has_not_started_ends_at_once(world: World) -> None:
    run_id = world.run(world.flow("f", chain("a", "b")))
    mark_whole(run_id)
    run = Run.objects.get(pk=run_id)
    assert (run.state, run.is_active) == ("failed", False)
    assert world.states(run_id) == {"a": "skipped", "b": "skipped"}
    assert world.play(run_id).state == "failed"


def test_a_run_that_succeeded_may_be_marked_as_failed_and_keeps_its_tasks(world: World) -> None:
    run_id = world.run(world.flow("f", chain("a")))
    before = world.play(run_id)
    plan = mark_whole(run_id)
    assert plan.included == ()
    run = Run.objects.get(pk=run_id)
    assert (run.state, run.ended_at, world.states(run_id)) == (
        "failed",
        before.ended_at,
        {"a": "success"},
    )
    assert Audit.objects.filter(action="mark").count() == 1
    mark_whole(run_id)
    assert Audit.objects.filter(action="mark").count() == 1, "the same again changes nothing"


def test_a_marked_run_is_not_tried_again_and_a_clear_forgets_the_mark(world: World) -> None:
    run_id = world.run(world.flow("f", chain("a")))
    world.play(run_id, failing=["a"])
    Run.objects.filter(pk=run_id).update(retry_at="2099-01-01T00:00Z")
    mark_whole(run_id)
    run = Run.objects.get(pk=run_id)
    assert (run.retry_at, run.mark is not None) == (None, True)
    clear_run(run_id=run_id, actor="bo", reason="again", dry_run=False)
    assert Run.objects.get(pk=run_id).mark is None
    assert ti(run_id, "a").mark is None
    assert world.play(run_id).state == "success"


def test_several_runs_are_marked_one_by_one_and_one_refusal_keeps_no_other(world: World) -> None:
    flow = world.flow("f", chain("a"), max_active_runs=9)
    runs = [world.run(flow, f"r{number}") for number in range(3)]
    freeze(scope_kind="run", scope_id=runs[1], actor="bo", reason="look")
    plan = mark_runs(run_ids=runs, state="failed", actor="ada", reason="r")
    assert [one.id for one in plan.runs] == [runs[0], runs[2]]
    assert [one.id for one in plan.refused] == [runs[1]]
    assert [Run.objects.get(pk=run).state for run in runs] == ["failed", "queued", "failed"]


# -- at the same time ----------------------------------------------------------------------------

ROUNDS = 8


def marking(*ti_ids: int, state: str) -> Act:
    def act(connection: psycopg.Connection[Any]) -> Any:
        del connection  # operations have Django's own, one a thread
        time.sleep(random.uniform(0, 0.008))
        try:
            return mark(*ti_ids, state=state)
        finally:
            django_connection.close()

    return act


def later(act: Act) -> Act:
    """Spread over the milliseconds that a mark takes, so that each order comes up."""

    def acted(connection: psycopg.Connection[Any]) -> Any:
        time.sleep(random.uniform(0, 0.008))
        return act(connection)

    return acted


def a_running_one(world: World, key: str, *, claim: bool = True) -> Message:
    flow = Flow.objects.select_related("current_version").filter(flow_id="f").first()
    flow = flow or world.flow("f", chain("a", "b"), max_active_runs=99)
    run_id = world.run(flow, key)
    world.tick(run_id)
    (message,), world.messages = world.messages, []
    if claim:
        assert world.claim(message) is not None
    return message


def test_against_a_report_the_task_is_what_was_said_and_the_result_is_kept(world: World) -> None:
    for number in range(ROUNDS):
        message = a_running_one(world, f"r{number}")

        def reports(connection: psycopg.Connection[Any], m: Message = message) -> int | None:
            return moves.finish(
                connection,
                ti_id=m.ti_id,
                attempt_id=m.attempt_id,
                nonce=uuid.UUID(int=m.attempt_id.int),
                state=TaskState.SUCCESS,
                is_open=False,
                outcome=AttemptOutcome.SUCCESS,
                result={"v": 1},
            )

        accepted, _ = together([later(reports), marking(message.ti_id, state="failed")])
        assert accepted == message.run_id, "whichever came first"
        assert TaskInstance.objects.get(pk=message.ti_id).state == "failed"
        one = Attempt.objects.get(pk=message.attempt_id)
        assert (one.outcome, one.result) == ("success", {"v": 1})
    assert nothing_is_hidden()


def test_against_a_claim_it_is_stopped_first_or_never_starts(world: World) -> None:
    for number in range(ROUNDS):
        message = a_running_one(world, f"c{number}", claim=False)

        def claims(connection: psycopg.Connection[Any], m: Message = message) -> Any:
            return moves.claim(
                connection,
                ti_id=m.ti_id,
                attempt_id=m.attempt_id,
                token=m.lease_token,
                fence=m.fence,
                nonce=uuid.UUID(int=m.attempt_id.int),
                worker_job_id=world.worker,
                hostname="host-1",
                pid=4711,
            )

        claimed, _ = together([later(claims), marking(message.ti_id, state="success")])
        row = TaskInstance.objects.get(pk=message.ti_id)
        one = Attempt.objects.get(pk=message.attempt_id)
        if claimed is None:
            assert (row.state, one.state, one.outcome) == ("success", "ended", "terminated")
        else:
            assert (row.state, one.stop_requested_at is not None) == ("running", True)


def test_marks_and_clears_of_overlapping_tasks_at_once_wait_for_each_other_in_one_order(
    world: World,
) -> None:
    """Eight threads over two runs, named in opposite orders: no deadlock, and each state is somebody's."""
    first, second = a_running_one(world, "o1"), a_running_one(world, "o2")
    ids = [ti(run, name).pk for run in (first.run_id, second.run_id) for name in ("a", "b")]

    def clearing(connection: psycopg.Connection[Any]) -> Any:
        del connection
        try:
            return clear_task_instances(ti_ids=ids[:2][::-1], actor="bo", reason="r", dry_run=False)
        finally:
            django_connection.close()

    acts = [marking(*ids[:: 1 if n % 2 else -1], state="failed") for n in range(6)]
    together([*acts, later(clearing), later(clearing)])
    allowed = {"failed", "running", "restarting", "none"}
    assert set(TaskInstance.objects.filter(pk__in=ids).values_list("state", flat=True)) <= allowed
    assert nothing_is_hidden()
