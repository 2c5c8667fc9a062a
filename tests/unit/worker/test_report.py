"""From what user code came to, to the report: errors in words that can be stored, and the next state."""

from __future__ import annotations

import json
import uuid
from dataclasses import replace
from typing import Any

import pytest

from scheduler_app.authoring.retrying import FailNow, RetryAfter
from scheduler_app.rules import retry, values
from scheduler_app.rules.definition import TaskDefinition
from scheduler_app.rules.errors import InvalidInput
from scheduler_app.rules.states import TaskState
from scheduler_app.rules.stopping import Stage
from scheduler_app.transitions.attempt import Claim
from scheduler_app.worker import report
from scheduler_app.worker.guard import TaskTimeout

IDS: dict[str, Any] = {"attempt_id": str(uuid.uuid4()), "nonce": str(uuid.uuid4())}


def _claim(**changed: Any) -> Claim:
    values: dict[str, Any] = {
        "ti_id": 1,
        "run_id": 2,
        "task_id": "t",
        "map_index": -1,
        "try_number": 1,
        "max_tries": 2,
        "budget_start": 0,
        "resume_index": 0,
        "next_method": None,
        "next_kwargs": None,
        "elapsed_s": 0.0,
        "run_attempt": 1,
        "dispatch_no": 1,
        "flow_id": "f",
        "run_key": "r",
        "run_type": "manual",
        "logical_date": None,
        "data_interval_start": None,
        "data_interval_end": None,
        "conf": {},
        "bundle_digest": "d",
    }
    return Claim(**{**values, **changed})


TASK = TaskDefinition(task_id="t", retries=2, retry_delay_s=30.0)


def _raised(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as caught:  # noqa: BLE001 - any error
        return caught


def test_a_failure_with_budget_left_is_tried_again_after_its_delay() -> None:
    made = report.failure(_claim(), **IDS, error=_raised(ValueError("no")), task=TASK)
    assert (made.state, made.is_open, made.outcome) == ("up_for_retry", True, "failed")
    assert made.retry_after_s == 30.0
    assert made.reason == "ValueError: no"


def test_a_rule_sees_every_base_of_the_exception() -> None:
    class Refused(ConnectionError):
        pass

    picky = replace(TASK, retry_on=("builtins.OSError",))
    made = report.failure(_claim(), **IDS, error=_raised(Refused("no")), task=picky)
    assert made.state == "up_for_retry"
    other = report.failure(_claim(), **IDS, error=_raised(KeyError("no")), task=picky)
    assert (other.state, other.retry_after_s) == ("failed", None)
    assert (other.retry_why or {})["none"] == "retry_on"


def test_a_time_limit_is_a_timeout_error_to_the_rules() -> None:
    picky = replace(TASK, retry_on=("builtins.TimeoutError",))
    made = report.failure(_claim(), **IDS, error=_raised(TaskTimeout("5 s")), task=picky)
    assert made.state == "up_for_retry"
    assert (made.retry_why or {})["error"] == "TaskTimeout"


def test_what_a_task_says_itself_is_obeyed_and_kept() -> None:
    asked = report.failure(_claim(), **IDS, error=_raised(RetryAfter(7, "busy")), task=TASK)
    assert (asked.state, asked.retry_after_s) == ("up_for_retry", 7)
    assert asked.reason == "RetryAfter: asked for a retry after 7 s: busy"
    final = report.failure(_claim(), **IDS, error=_raised(FailNow("gone")), task=TASK)
    assert (final.state, final.reason) == ("failed", "FailNow: gone")


def test_what_a_task_said_itself_is_told_with_what_it_followed_from() -> None:
    error = FailNow("gone")
    error.__cause__ = KeyError("x")
    final = report.failure(_claim(), **IDS, error=error, task=TASK)
    assert (final.retry_why or {})["error"] == "KeyError"


def test_a_failure_of_the_last_try_is_final() -> None:
    made = report.failure(_claim(try_number=3), **IDS, error=_raised(ValueError("no")), task=TASK)
    assert (made.state, made.is_open, made.retry_after_s) == ("failed", False, None)


def test_the_delay_grows_with_the_position_in_the_budget_and_not_with_the_try() -> None:
    growing = TaskDefinition(task_id="t", retries=2, retry_delay_s=10.0, backoff=3.0)
    after = [
        report.after_failure(
            growing,
            retry.Failure(),
            try_number=number,
            max_tries=99,
            budget_start=start,
            jitter_key="k",
        )
        for number, start in ((1, 0), (41, 40))
    ]
    assert [follows.delay_s for _, follows in after] == [after[0][1].delay_s] * 2
    assert after[0][1].retries


def test_of_a_task_that_the_worker_cannot_read_the_budget_alone_counts() -> None:
    """A worker may be older than the definition; the next try may meet a newer one."""
    tries = [
        report.after_failure(
            None,
            retry.Failure(names=("builtins.OSError",)),
            try_number=number,
            max_tries=2,
            budget_start=0,
            jitter_key="k",
        )[0]
        for number in (1, 2, 3)
    ]
    assert tries == [TaskState.UP_FOR_RETRY, TaskState.UP_FOR_RETRY, TaskState.FAILED]


def test_a_task_that_was_stopped_is_not_tried_again() -> None:
    made = report.stopped(_claim(), **IDS, why="marked failed by ada", stage=Stage.EXCEPTION)
    assert (made.state, made.outcome, made.error) == ("failed", "terminated", None)
    assert made.reason == "marked failed by ada. Its code ended at the exception that asked it to."


def test_what_a_stopped_task_raised_instead_is_kept() -> None:
    made = report.stopped(
        _claim(), **IDS, why="enough", stage=Stage.SIGNAL, error=_raised(SystemExit(3))
    )
    assert made.error is not None
    assert made.error["type"] == "SystemExit"
    assert "SIGTERM ended it" in (made.reason or "")


def test_a_report_comes_back_from_json_as_it_was() -> None:
    made = report.success(_claim(), **IDS, task=TaskDefinition(task_id="t"), result={"rows": 3})
    assert report.Report(**json.loads(json.dumps(made.as_json()))) == made


def test_an_error_is_told_with_its_type_message_and_place() -> None:
    described = report.describe(_raised(KeyError("page")))
    assert described["type"] == "KeyError"
    assert described["message"] == "'page'"
    assert "test_report.py" in described["traceback"]


def test_the_type_of_a_library_is_told_with_its_module() -> None:
    assert (
        report.describe(json.JSONDecodeError("x", "", 0))["type"] == "json.decoder.JSONDecodeError"
    )
    assert report.describe(TaskTimeout("over"))["type"] == "TaskTimeout"


def test_sys_exit_is_told_in_words() -> None:
    message = report.describe(_raised(SystemExit(3)))["message"]
    assert message == "the task called sys.exit(3); a task ends by returning or raising"


class _Evil(Exception):
    def __str__(self) -> str:
        raise SystemExit


def test_an_error_whose_text_raises_is_still_told() -> None:
    described = report.describe(_raised(_Evil()))
    assert "its __str__ raised SystemExit" in described["message"]


@pytest.mark.parametrize("text", ["a\x00b", "lone \ud800 surrogate", "\udcff"])
def test_text_that_a_database_refuses_is_made_storable(text: str) -> None:
    stored = report.storable(text, 100)
    assert "\x00" not in stored
    stored.encode()


def test_a_long_text_keeps_its_beginning_and_its_end() -> None:
    stored = report.storable("begin" + "x" * 1_000_000 + "end", 1000)
    assert len(stored) < 1100
    assert stored.startswith("begin")
    assert stored.endswith("end")
    assert "characters left out" in stored


def test_a_traceback_shows_the_users_frames_and_the_whole_one_is_kept() -> None:
    """Also of what an exception came from; where there are no other frames ours stay."""

    def user() -> None:
        try:
            values.encode(object())
        except InvalidInput as error:
            raise KeyError("mine") from error

    try:
        user()
    except KeyError as error:
        described = report.describe(error)
        own = report.describe(error.__cause__ or error)
    assert "in user" in described["traceback"]
    assert "rules/values.py" not in described["traceback"]
    assert "direct cause" in described["traceback"]
    assert "rules/values.py" in described["whole_traceback"]
    assert "in user" in own["traceback"]
    assert "whole_traceback" not in report.describe(ValueError("never raised"))
