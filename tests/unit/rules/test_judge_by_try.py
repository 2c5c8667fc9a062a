"""Events that name a task and a try: what makes an end an external kill, and what does not."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_app.rules import reconcile, visibility
from scheduler_app.rules.reconcile import Action, Event, QueuedBy, TaskFacts, TryFacts, Verdict
from scheduler_app.rules.states import AttemptOutcome, AttemptState, TaskState

WITH_AN_EXECUTOR = ("scheduled", "queued", "running", "restarting")


def judge(
    kind: str, state: str, *, try_number: int = 1, next_method: str | None = None, **given: Any
) -> Verdict:
    """The verdict on an event of try 1, everything in favour of a kill unless said otherwise."""
    held = given.pop("held", False)
    facts: dict[str, Any] = {
        "grace_over": True,
        "queued_by": QueuedBy.SOURCE,
        "executor_holds": False,
        "is_resumed": False,
        "current_attempt_id": "a-2",
        "deferred_attempt_id": "a-1",
    }
    return reconcile.judge_by_try(
        Event(kind=kind, attempt_id=None, try_number=1),
        TaskFacts(
            state=TaskState(state), try_number=try_number, next_method=next_method, held=held
        ),
        TryFacts(**facts | given),
    )


def said(verdict: Verdict) -> tuple[str, str | None, Action]:
    return verdict.verdict, verdict.code, verdict.action


KILLED = ("confirmed", "killed_externally", Action.FAIL_KILLED)


@pytest.mark.parametrize(
    ("state", "is_resumed"), [("scheduled", False), ("queued", False), ("running", True)]
)
def test_the_leaving_of_a_process_that_deferred_is_stale_until_the_resume_has_ended(
    state: str, is_resumed: bool
) -> None:
    verdict = judge("exit_success", state, next_method="loaded", is_resumed=is_resumed)
    assert said(verdict) == ("ignored", "stale_after_defer", Action.NONE)
    assert "a-1" in verdict.reason
    assert said(judge("exit_success", state, is_resumed=is_resumed)) == KILLED, "no next method"
    failed = judge("exit_failed", state, next_method="loaded", is_resumed=is_resumed)
    assert said(failed) == KILLED, "a process that deferred leaves with success"


def test_a_running_task_that_has_not_been_resumed_has_no_deferral_to_leave_from() -> None:
    assert said(judge("exit_success", "running", next_method="loaded")) == KILLED


def test_the_exit_of_a_process_that_has_just_deferred_is_stale_too() -> None:
    verdict = judge("exit_success", "deferred", next_method="loaded")
    assert said(verdict) == ("ignored", "stale_after_defer", Action.NONE)


@pytest.mark.parametrize("state", WITH_AN_EXECUTOR)
@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"queued_by": QueuedBy.ANOTHER}, "stale_requeued"),
        ({"queued_by": QueuedBy.NOBODY}, "stale_requeued"),
        ({"executor_holds": True}, "stale_still_held"),
        ({"try_number": 2}, "stale_other_try"),
    ],
)
def test_an_end_that_may_be_of_another_execution_kills_nothing(
    state: str, given: dict[str, Any], code: str
) -> None:
    verdict = judge("exit_failed", state, **given)
    assert said(verdict) == ("ignored", code, Action.NONE)
    assert verdict.detail["task_state"] == state, "the compared values are kept"


@pytest.mark.parametrize("state", sorted({*TaskState} - {*WITH_AN_EXECUTOR}))
def test_an_end_of_a_task_that_no_executor_has_kills_nothing(state: str) -> None:
    assert judge("exit_failed", state).code == "stale_not_executing"


@pytest.mark.parametrize("state", WITH_AN_EXECUTOR)
def test_what_would_follow_waits_for_the_report_and_for_the_thaw(state: str) -> None:
    assert judge("exit_failed", state, grace_over=False).verdict == "pending"
    assert judge("exit_failed", state, held=True).verdict == "pending"
    assert said(judge("exit_failed", state)) == KILLED


def test_a_clean_stop_after_a_clear_is_no_kill() -> None:
    assert said(judge("exit_success", "restarting")) == (
        "confirmed",
        "cleared_and_stopped",
        Action.BEGIN_ANEW,
    )


@pytest.mark.parametrize("kind", ["executor_queued", "executor_running"])
def test_a_handle_is_noted_for_its_own_try_and_moves_nothing(kind: str) -> None:
    assert said(judge(kind, "queued")) == ("confirmed", None, Action.NONE)
    assert judge(kind, "queued", try_number=2).code == "stale_other_try"


@pytest.mark.parametrize("kind", ["executor_skipped", "handed_back", "late_report", "nonsense"])
def test_a_kind_that_cannot_be_told_without_an_attempt_is_set_aside(kind: str) -> None:
    assert said(judge(kind, "queued")) == ("ignored", "unknown_kind", Action.NONE)


def test_an_event_of_a_task_that_nobody_knows_is_a_ghosts() -> None:
    event = Event(
        kind="exit_failed",
        attempt_id=None,
        try_number=1,
        claimed={"flow_id": "f", "run_id": "r", "task_id": "t", "map_index": -1},
    )
    facts = TryFacts(
        grace_over=True,
        queued_by=QueuedBy.NOBODY,
        executor_holds=False,
        is_resumed=False,
        current_attempt_id=None,
    )
    verdict = reconcile.judge_by_try(event, None, facts)
    assert said(verdict) == ("ghost", "ghost_no_task", Action.NONE)
    assert "Flow f has no task instance t" in verdict.reason


@given(
    kind=st.sampled_from(sorted(reconcile._KINDS)),
    ti=st.builds(
        TaskFacts,
        state=st.sampled_from(TaskState),
        try_number=st.integers(1, 3),
        next_method=st.none() | st.just("loaded"),
        held=st.booleans(),
    ),
    facts=st.builds(
        TryFacts,
        grace_over=st.booleans(),
        queued_by=st.sampled_from(QueuedBy),
        executor_holds=st.booleans(),
        is_resumed=st.booleans(),
        current_attempt_id=st.none() | st.just("a-2"),
        attempt_state=st.none() | st.sampled_from(AttemptState),
        outcome=st.none() | st.sampled_from(AttemptOutcome),
    ),
)
def test_only_an_end_that_can_be_of_the_current_execution_acts_and_none_grants_success(
    kind: str, ti: TaskFacts, facts: TryFacts
) -> None:
    verdict = reconcile.judge_by_try(Event(kind=kind, attempt_id=None, try_number=1), ti, facts)
    assert verdict.reason
    standing = visibility.derive_event_standing(verdict.verdict, verdict.code)
    assert standing is None or visibility.EXECUTOR_EVENT in visibility.REASONS[standing].nouns
    assert verdict.action in (Action.NONE, Action.FAIL_KILLED, Action.BEGIN_ANEW)
    if verdict.action is Action.NONE:
        return
    assert kind in reconcile.EXITS
    assert (ti.try_number, ti.held) == (1, False)
    assert ti.state in WITH_AN_EXECUTOR
    assert (facts.queued_by, facts.executor_holds) == (QueuedBy.SOURCE, False)
