"""DESIGN's table of verdicts, row by row, and what holds for every event."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_app.rules import reconcile, visibility
from scheduler_app.rules.reconcile import Action, AttemptFacts, Event, Facts, TaskFacts, Verdict
from scheduler_app.rules.states import AttemptOutcome, AttemptState, TaskState

ISSUED, RUNNING, ENDED = AttemptState.ISSUED, AttemptState.RUNNING, AttemptState.ENDED
KINDS = (
    "exit_success",
    "exit_failed",
    "exit_killed",
    "worker_lost",
    "handed_back",
    "delivery_refused",
    "late_report",
)
EXITS = KINDS[:4]


def attempt(state: AttemptState = RUNNING, **overrides: Any) -> AttemptFacts:
    values: dict[str, Any] = {
        "attempt_id": "a-1",
        "state": state,
        "outcome": None,
        "is_current": True,
        "superseded_by": None,
    }
    return AttemptFacts(**values | overrides)


def ended(outcome: str, **overrides: Any) -> AttemptFacts:
    return attempt(ENDED, outcome=AttemptOutcome(outcome), **overrides)


def task(**overrides: Any) -> TaskFacts:
    values: dict[str, Any] = {
        "state": TaskState.RUNNING,
        "try_number": 1,
        "next_method": None,
        "held": False,
    }
    return TaskFacts(**values | overrides)


def facts(**overrides: Any) -> Facts:
    values: dict[str, Any] = {
        "grace_over": True,
        "worker_alive": True,
        "infrastructure_losses": 1,
        "infrastructure_budget": 3,
    }
    return Facts(**values | overrides)


def judge(
    kind: str,
    about: AttemptFacts | None,
    *,
    ti: TaskFacts | None = None,
    known: Facts | None = None,
    claimed: dict[str, Any] | None = None,
) -> Verdict:
    event = Event(kind=kind, attempt_id="a-1", claimed=claimed or {})
    parents = None if about is None else ti or task()
    return reconcile.reconcile(event, about, parents, known or facts())


def said(verdict: Verdict) -> tuple[str, str | None, Action]:
    return verdict.verdict, verdict.code, verdict.action


@pytest.mark.parametrize("kind", KINDS)
def test_an_event_of_an_attempt_that_was_never_issued_is_a_ghosts(kind: str) -> None:
    verdict = judge(kind, None)
    assert said(verdict) == ("ghost", "ghost_no_record", Action.NONE)
    assert verdict.reason == "No attempt with id a-1 was issued."


def test_an_event_that_names_no_attempt_is_a_ghosts() -> None:
    event = Event(kind="exit_failed", attempt_id=None, try_number=2)
    assert reconcile.reconcile(event, None, None, facts()).verdict == "ghost"


def test_a_second_event_of_a_recorded_ghost_is_a_ghosts_too() -> None:
    event = Event(kind="exit_success", attempt_id="a-1")
    verdict = reconcile.reconcile(event, ended("lost", is_current=False), None, facts())
    assert said(verdict) == ("ghost", "ghost_no_record", Action.NONE)


@pytest.mark.parametrize("kind", EXITS)
@pytest.mark.parametrize("is_current", [True, False])
def test_the_exit_of_a_deferring_attempt_is_stale_whenever_it_arrives(
    kind: str, is_current: bool
) -> None:
    resumed = task(state=TaskState.QUEUED, next_method="loaded")
    verdict = judge(kind, ended("deferred", is_current=is_current), ti=resumed)
    assert said(verdict) == ("ignored", "stale_after_defer", Action.NONE)


@pytest.mark.parametrize("kind", [*EXITS, "handed_back", "late_report"])
@pytest.mark.parametrize("state", [ISSUED, RUNNING])
def test_an_event_of_a_replaced_attempt_is_stale_and_names_the_new_one(
    kind: str, state: AttemptState
) -> None:
    verdict = judge(kind, attempt(state, is_current=False, superseded_by="a-2"))
    assert said(verdict) == ("ignored", "stale_superseded", Action.NONE)
    assert verdict.reason.endswith("of attempt a-1; the current one is a-2.")


@pytest.mark.parametrize(
    ("kind", "outcome"),
    [
        ("exit_success", "success"),
        ("exit_success", "rescheduled"),
        ("exit_failed", "failed"),
        ("exit_failed", "terminated"),
        ("exit_killed", "terminated"),
        ("exit_killed", "failed"),
        ("worker_lost", "lost"),
        ("handed_back", "lost"),
    ],
)
def test_an_event_that_agrees_with_the_report_is_confirmed(kind: str, outcome: str) -> None:
    verdict = judge(kind, ended(outcome))
    assert said(verdict) == ("confirmed", None, Action.NONE)
    assert outcome in verdict.reason


@pytest.mark.parametrize(
    ("kind", "outcome"),
    [
        ("exit_failed", "success"),
        ("exit_killed", "success"),
        ("worker_lost", "success"),
        ("exit_success", "failed"),
        ("exit_success", "lost"),
        ("exit_killed", "lost"),
        ("handed_back", "success"),
        ("late_report", "lost"),
        ("late_report", "success"),
    ],
)
def test_an_event_that_disagrees_with_the_report_comes_too_late(kind: str, outcome: str) -> None:
    verdict = judge(kind, ended(outcome))
    assert said(verdict) == ("ignored", "late_after_terminal", Action.NONE)
    assert f"had ended as {outcome} before" in verdict.reason


@pytest.mark.parametrize("kind", [*EXITS, "handed_back"])
def test_an_attempt_that_nobody_claimed_is_published_again(kind: str) -> None:
    verdict = judge(kind, attempt(ISSUED), ti=task(state=TaskState.QUEUED))
    assert said(verdict) == ("confirmed", "never_claimed", Action.PUBLISH_AGAIN)


@pytest.mark.parametrize("kind", EXITS)
def test_a_child_that_ended_without_a_report_was_killed_once_its_grace_is_over(kind: str) -> None:
    early = judge(kind, attempt(), known=facts(grace_over=False))
    assert said(early) == ("pending", None, Action.NONE)
    late = judge(kind, attempt())
    assert said(late) == ("confirmed", "killed_externally", Action.FAIL_KILLED)


@pytest.mark.parametrize("kind", EXITS)
@pytest.mark.parametrize("worker_alive", [True, False])
def test_the_end_of_a_second_delivery_does_not_touch_the_first(
    kind: str, worker_alive: bool
) -> None:
    verdict = judge(
        kind, attempt(), known=facts(is_anothers=True, worker_alive=worker_alive, grace_over=False)
    )
    assert said(verdict) == ("refused", "duplicate_delivery", Action.NONE)


@pytest.mark.parametrize("kind", EXITS)
def test_an_attempt_whose_worker_is_silent_is_lost_not_killed(kind: str) -> None:
    verdict = judge(kind, attempt(), known=facts(worker_alive=False))
    assert said(verdict) == ("confirmed", "worker_lost", Action.MARK_LOST)
    assert "loss 2 of at most 3" in verdict.reason


def test_what_is_handed_back_is_lost_though_its_worker_lives() -> None:
    verdict = judge("handed_back", attempt())
    assert said(verdict) == ("confirmed", "worker_lost", Action.MARK_LOST)


@pytest.mark.parametrize("state", [ISSUED, RUNNING])
@pytest.mark.parametrize("kind", [*EXITS, "handed_back"])
def test_what_would_follow_for_a_frozen_task_waits(kind: str, state: AttemptState) -> None:
    verdict = judge(kind, attempt(state), ti=task(held=True))
    assert said(verdict) == ("pending", None, Action.NONE)
    assert "frozen" in verdict.reason


@pytest.mark.parametrize("state", [ISSUED, RUNNING])
def test_a_report_without_the_claim_does_not_touch_the_attempt(state: AttemptState) -> None:
    assert said(judge("late_report", attempt(state))) == (
        "ignored",
        "stale_superseded",
        Action.NONE,
    )


@pytest.mark.parametrize(
    "code",
    [
        "duplicate_delivery",
        "refused_superseded",
        "refused_frozen",
        "refused_run_finished",
        "fenced_stale_leader",
        "fenced_other_database",
    ],
)
def test_a_refused_delivery_keeps_the_reason_that_its_worker_gave(code: str) -> None:
    verdict = judge("delivery_refused", attempt(), known=facts(refusal=code))
    assert said(verdict) == ("refused", code, Action.NONE)


def test_the_sentence_of_a_refusal_has_the_values_that_were_compared() -> None:
    verdict = judge(
        "delivery_refused",
        attempt(),
        known=facts(refusal="fenced_stale_leader"),
        claimed={
            "token_presented": 471,
            "token_issued": 483,
            "fence_presented": 9,
            "fence_issued": 12,
        },
    )
    assert verdict.reason == (
        "The delivery of attempt a-1 carries token 471 and fence 9; issued were 483 and 12."
    )


def test_a_delivery_of_another_database_is_refused_though_no_row_is_here() -> None:
    verdict = judge("delivery_refused", None, known=facts(refusal="fenced_other_database"))
    assert said(verdict) == ("refused", "fenced_other_database", Action.NONE)


@pytest.mark.parametrize(
    ("about", "held", "code"),
    [
        (attempt(ISSUED, is_current=False), False, "refused_superseded"),
        (attempt(ISSUED), True, "refused_frozen"),
        (attempt(ISSUED), False, "refused_superseded"),
        (attempt(RUNNING), False, "duplicate_delivery"),
        (ended("success"), False, "duplicate_delivery"),
    ],
)
def test_a_refusal_without_a_reason_gets_one_from_the_facts(
    about: AttemptFacts, held: bool, code: str
) -> None:
    verdict = judge("delivery_refused", about, ti=task(held=held))
    assert said(verdict) == ("refused", code, Action.NONE)


def test_the_compared_values_are_kept_and_no_claim_can_hide_them() -> None:
    verdict = judge("exit_failed", ended("success"), claimed={"outcome": "failed", "pid": 7})
    assert verdict.detail["outcome"] == "success"
    assert verdict.detail["pid"] == 7
    assert verdict.detail["rule"] == "reconcile"


attempts = st.one_of(
    st.builds(
        attempt,
        st.sampled_from([ISSUED, RUNNING]),
        is_current=st.booleans(),
        superseded_by=st.none() | st.just("a-2"),
    ),
    st.builds(ended, st.sampled_from([o.value for o in AttemptOutcome]), is_current=st.booleans()),
)
tasks = st.builds(
    TaskFacts,
    state=st.sampled_from(TaskState),
    try_number=st.integers(1, 5),
    next_method=st.none() | st.just("loaded"),
    held=st.booleans(),
)
worlds = st.builds(
    Facts,
    grace_over=st.booleans(),
    worker_alive=st.booleans(),
    refusal=st.none() | st.sampled_from(["duplicate_delivery", "fenced_other_database"]),
)


@given(st.sampled_from(KINDS), st.none() | attempts, st.none() | tasks, worlds)
def test_every_event_is_judged_with_a_reason_and_a_code_of_the_table(
    kind: str, about: AttemptFacts | None, ti: TaskFacts | None, world: Facts
) -> None:
    verdict = reconcile.reconcile(Event(kind=kind, attempt_id="a-1"), about, ti, world)
    assert verdict.reason
    is_set_aside = verdict.verdict in {"ignored", "refused", "ghost"}
    standing = visibility.derive_event_standing(verdict.verdict, verdict.code)
    assert (standing is not None) == is_set_aside
    if standing is not None:
        assert visibility.EXECUTOR_EVENT in visibility.REASONS[standing].nouns


@given(st.sampled_from(KINDS), st.none() | attempts, st.none() | tasks, worlds)
def test_only_a_confirmed_event_of_the_current_attempt_acts_and_none_grants_success(
    kind: str, about: AttemptFacts | None, ti: TaskFacts | None, world: Facts
) -> None:
    verdict = reconcile.reconcile(Event(kind=kind, attempt_id="a-1"), about, ti, world)
    if verdict.action is Action.NONE:
        return
    assert verdict.verdict == "confirmed"
    assert about is not None
    assert about.is_current
    assert about.state is not ENDED
    assert ti is not None
    assert not ti.held
    assert (verdict.action is Action.PUBLISH_AGAIN) == (about.state is ISSUED)


def test_an_event_of_a_kind_that_this_version_does_not_know_starts_nothing() -> None:
    for state in (ISSUED, RUNNING):
        verdict = judge("executor_skipped", attempt(state))
        assert said(verdict) == ("ignored", "unknown_kind", Action.NONE)


@pytest.mark.parametrize("kind", ["executor_queued", "executor_running"])
def test_a_handle_is_noted_and_starts_nothing(kind: str) -> None:
    verdict = judge(kind, attempt(ISSUED), claimed={"info": "pod-7"})
    assert said(verdict) == ("confirmed", None, Action.NONE)
    assert "pod-7" in verdict.reason


@pytest.mark.parametrize("kind", EXITS)
def test_a_cleared_task_begins_anew_when_its_attempt_has_stopped_however_it_ended(
    kind: str,
) -> None:
    verdict = judge(kind, attempt(RUNNING), ti=task(state=TaskState.RESTARTING))
    assert said(verdict) == ("confirmed", "cleared_and_stopped", Action.BEGIN_ANEW)


def test_the_end_of_an_attempt_whose_task_is_decided_already_leaves_the_task() -> None:
    verdict = judge("exit_killed", attempt(RUNNING), ti=task(state=TaskState.SUCCESS))
    assert said(verdict) == ("confirmed", "task_over", Action.CLOSE)
