"""Which callables are due after a move, and what events mean for callbacks."""

from __future__ import annotations

import pytest

from scheduler_app.rules import callbacks, reconcile
from scheduler_app.rules.callbacks import CallbackOn
from scheduler_app.rules.definition import (
    FlowDefinition,
    TaskDefinition,
    digest,
    from_dict,
    to_dict,
)
from scheduler_app.rules.states import (
    AttemptKind,
    AttemptOutcome,
    AttemptState,
    RunState,
    TaskState,
)

ALL = {on.value: ("one", "two") for on in CallbackOn}
CALLS_FOR = {
    TaskState.RUNNING: "on_execute",
    TaskState.UP_FOR_RETRY: "on_retry",
    TaskState.SUCCESS: "on_success",
    TaskState.FAILED: "on_failure",
    TaskState.SKIPPED: "on_skipped",
}


@pytest.mark.parametrize("state", list(TaskState))
def test_a_move_calls_for_the_one_list_that_is_about_it(state: TaskState) -> None:
    calls = callbacks.due(ALL, state)
    wanted = CALLS_FOR.get(state)
    assert [(call.on, call.index, call.name) for call in calls] == (
        [] if wanted is None else [(wanted, 0, "one"), (wanted, 1, "two")]
    )


def test_an_upstream_failure_calls_nothing_since_the_task_that_failed_has() -> None:
    assert callbacks.due(ALL, TaskState.UPSTREAM_FAILED) == ()


def test_the_end_of_a_run_calls_for_its_own() -> None:
    of_run = {"on_failure": ("page",)}
    assert [call.name for call in callbacks.due(of_run, RunState.FAILED)] == ["page"]
    assert callbacks.due(of_run, RunState.SUCCESS) == ()


def test_a_definition_without_callbacks_has_the_digest_that_it_always_had() -> None:
    plain = FlowDefinition(flow_id="f", tasks=(TaskDefinition(task_id="t"),))
    stored = to_dict(plain)
    assert "callbacks" not in stored
    assert "callbacks" not in stored["tasks"][0]
    assert from_dict(stored) == plain


def test_callbacks_are_part_of_the_stored_definition() -> None:
    task = TaskDefinition(task_id="t", callbacks={"on_retry": ("tell", "count")})
    made = FlowDefinition(flow_id="f", tasks=(task,), callbacks={"on_failure": ("page",)})
    assert from_dict(to_dict(made)) == made
    plain = FlowDefinition(flow_id="f", tasks=(TaskDefinition(task_id="t"),))
    assert digest(made, "0") != digest(plain, "0")


def _judge(
    kind: str,
    *,
    state: AttemptState = AttemptState.RUNNING,
    outcome: AttemptOutcome | None = None,
    is_current: bool = True,
    held: bool = False,
    grace_over: bool = True,
    worker_alive: bool = True,
    is_anothers: bool = False,
) -> tuple[str, str | None, reconcile.Action]:
    found = reconcile.reconcile(
        reconcile.Event(kind=kind, attempt_id="c"),
        reconcile.AttemptFacts(
            attempt_id="c",
            state=state,
            outcome=outcome,
            is_current=is_current,
            superseded_by=None,
            kind=AttemptKind.CALLBACK,
            held=held,
        ),
        None,  # a callback of a run has no task instance, and none is asked for
        reconcile.Facts(grace_over=grace_over, worker_alive=worker_alive, is_anothers=is_anothers),
    )
    return found.verdict, found.code, found.action


@pytest.mark.parametrize("worker_alive", [True, False])
def test_a_callback_whose_process_ended_without_a_word_is_called_again(worker_alive: bool) -> None:
    said = _judge(reconcile.EXIT_KILLED, worker_alive=worker_alive)
    assert said == ("confirmed", "callback_lost", reconcile.Action.REPEAT_CALLBACK)


def test_what_ends_a_callback_waits_for_the_grace_and_for_the_thaw() -> None:
    assert _judge(reconcile.EXIT_KILLED, grace_over=False)[0] == "pending"
    assert _judge(reconcile.EXIT_KILLED, held=True)[0] == "pending"
    assert _judge(reconcile.EXIT_KILLED, state=AttemptState.ISSUED, held=True)[0] == "pending"


def test_an_exit_that_agrees_with_the_report_of_a_callback_is_confirmed() -> None:
    ended = {"state": AttemptState.ENDED, "outcome": AttemptOutcome.SUCCESS}
    assert _judge(reconcile.EXIT_SUCCESS, **ended)[0] == "confirmed"  # type: ignore[arg-type]  # one of each kind
    assert _judge(reconcile.EXIT_KILLED, **ended)[:2] == ("ignored", "late_after_terminal")  # type: ignore[arg-type]  # as above


def test_events_of_a_call_that_was_replaced_or_is_anothers_change_nothing() -> None:
    none = reconcile.Action.NONE
    assert _judge(reconcile.EXIT_KILLED, is_current=False) == ("ignored", "stale_superseded", none)
    assert _judge(reconcile.EXIT_KILLED, is_anothers=True) == (
        "refused",
        "duplicate_delivery",
        none,
    )
    assert _judge(reconcile.LATE_REPORT) == ("ignored", "stale_superseded", none)


def test_a_callback_that_nobody_claimed_is_published_again() -> None:
    said = _judge(reconcile.EXIT_FAILED, state=AttemptState.ISSUED)
    assert said == ("confirmed", "never_claimed", reconcile.Action.PUBLISH_AGAIN)


def test_a_refused_delivery_of_a_callback_is_one() -> None:
    refused = reconcile.DELIVERY_REFUSED
    issued = AttemptState.ISSUED
    assert _judge(refused)[:2] == ("refused", "duplicate_delivery")
    assert _judge(refused, state=issued, held=True)[:2] == ("refused", "refused_frozen")
    assert _judge(refused, state=issued)[:2] == ("refused", "refused_superseded")


def test_a_callback_is_begun_a_bounded_number_of_times() -> None:
    calls = 1
    while callbacks.may_call_again(calls):
        calls += 1
    assert calls == callbacks.CALLS_MAX
