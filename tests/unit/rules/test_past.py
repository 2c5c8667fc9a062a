from __future__ import annotations

import pytest

from scheduler_app.rules import past, why
from scheduler_app.rules.definition import FlowDefinition, TaskDefinition
from scheduler_app.rules.states import TASK_TERMINAL, TaskState

LETS_GO = (TaskState.SUCCESS, TaskState.SKIPPED)


def test_a_run_before_that_did_not_have_the_task_lets_it_go() -> None:
    assert past.wait_for(run_key="r1", own=None, after={}) is None


@pytest.mark.parametrize("state", list(TaskState))
def test_only_success_and_skip_let_it_go(state: TaskState) -> None:
    wait = past.wait_for(run_key="r1", own=state, after={})
    assert (wait is None) == (state in LETS_GO)
    if wait is not None:
        over = state in TASK_TERMINAL
        assert wait.code == (past.PAST_FAILED if over else past.PAST_UNFINISHED)
        assert f"the run before, r1: there it is {state}" in wait.detail


def test_what_failed_behind_it_is_named_before_what_is_unfinished() -> None:
    after = {"b": TaskState.RUNNING, "c": TaskState.FAILED}
    wait = past.wait_for(run_key="r1", own=TaskState.SUCCESS, after=after)
    assert wait is not None
    assert (wait.code, "task c, which comes after it, is failed" in wait.detail) == (
        past.PAST_FAILED,
        True,
    )


def test_only_the_tasks_that_ask_are_asked_about() -> None:
    tasks = (
        TaskDefinition(task_id="a", wait_for_downstream=True),
        TaskDefinition(task_id="b", upstream=("a",), depends_on_past=True),
        TaskDefinition(task_id="c", upstream=("a", "b")),
    )
    found = past.tasks_with_past(FlowDefinition(flow_id="f", tasks=tasks))
    assert found == {"a": ("b", "c"), "b": ()}


def test_the_sentence_of_a_waiting_task_is_the_reason_itself() -> None:
    wait = past.wait_for(run_key="r1", own=TaskState.FAILED, after={})
    assert wait is not None
    told = why.explain(
        why.Facts(state="scheduled", wait_code=wait.code, wait_detail=wait.detail, decider="h:1")
    )
    assert (told.rule, told.sentence) == ("past_failed", f"{wait.detail}.")
