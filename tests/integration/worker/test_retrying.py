"""What real children report of tasks that fail: which exceptions are tried again, when, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from scheduler_app.rules.retry import told

if TYPE_CHECKING:
    from scheduler_app.models import TaskInstance
    from tests.workshop import Workshop

HEAD = """
import time
from datetime import timedelta
from scheduler_app.authoring import FailNow, RetryAfter, flow, retry, task

class Refused(ConnectionError):
    pass

"""
FLOW = """

@flow(default_args={"retries": 2, "retry_delay": 60})
def f():
    t()
"""


def flow_of(options: str, *lines: str) -> str:
    """A flow whose task t has these options and this body."""
    body = "\n".join(f"    {line}" for line in lines)
    return f"{HEAD}@task({options})\ndef t(ctx):\n{body}\n{FLOW}"


def after(workshop: Workshop, source: str) -> TaskInstance:
    """The task instance after its first try."""
    message = workshop.issue_one(source)
    workshop.deliver(message)
    return workshop.ti(message)


@pytest.mark.parametrize(
    ("options", "line", "state", "words"),
    [
        ("retry_on=OSError", "raise Refused('no')", "up_for_retry", "retry in 60 s"),
        ("retry_on=(Refused,)", "raise Refused('no')", "up_for_retry", "retry in 60 s"),
        ("retry_on=(Refused,)", "raise ConnectionError('no')", "failed", "its retry_on leaves"),
        ("retry_on=('Refused',)", "raise Refused('no')", "up_for_retry", "retry in 60 s"),
        ("fail_on=LookupError", "{}['x']", "failed", "has KeyError fail at once"),
        ("fail_on=LookupError", "raise OSError", "up_for_retry", "retry in 60 s"),
        (
            "retry_policies={OSError: retry(retries=9, retry_delay=5)}",
            "raise Refused('no')",
            "up_for_retry",
            "try 1 of 10 failed",
        ),
        ("retry_policies={OSError: retry(retries=0)}", "raise Refused", "failed", "fail at once"),
        ("", "ctx.retry_after(timedelta(seconds=7), 'busy')", "up_for_retry", "in 7 s (busy)"),
        ("max_retry_delay=5", "raise RetryAfter(7)", "up_for_retry", "cut to 5 s"),
        ("", "raise FailNow('gone')", "failed", "asked for no retry (gone)"),
        ("retries=0", "ctx.retry_after(1)", "failed", "no retry is left"),
        ("", "ctx.retry_after(-1)", "up_for_retry", "failed with scheduler_app.rules.errors"),
        ("timeout=0.2, retry_on=TimeoutError", "time.sleep(60)", "up_for_retry", "TaskTimeout"),
        ("timeout=0.2, fail_on=TimeoutError", "time.sleep(60)", "failed", "fail at once"),
    ],
)
def test_what_follows_a_failure(
    workshop: Workshop, options: str, line: str, state: str, words: str
) -> None:
    ti = after(workshop, flow_of(options, line))
    assert ti.state == state
    assert words in told(ti.next_retry_why or {})
    assert (ti.next_retry_at is not None) == (state == "up_for_retry")


def test_the_time_is_the_end_of_the_try_and_the_delay_that_is_told(workshop: Workshop) -> None:
    ti = after(workshop, flow_of("backoff=2.0, retry_delay=40", "raise OSError"))
    why: dict[str, Any] = ti.next_retry_why or {}
    assert ti.next_retry_at is not None
    assert ti.ended_at is not None
    waits_s = (ti.next_retry_at - ti.ended_at).total_seconds()
    assert waits_s == pytest.approx(why["delay_s"], abs=0.001)
    assert 40 <= waits_s < 80


def test_a_task_that_asks_for_a_later_try_gets_it_as_its_next_try(workshop: Workshop) -> None:
    source = flow_of(
        "", "if ctx.try_number == 1:", "    ctx.retry_after(0)", "return ctx.try_number"
    )
    first = workshop.issue_one(source)
    workshop.deliver(first)
    second = workshop.issue(workshop.ti(first).run_id)
    workshop.deliver(second)
    assert workshop.attempt(second).result == 2
    assert workshop.attempt(first).outcome == "failed"
    assert "RetryAfter: asked for a retry" in (workshop.attempt(first).outcome_reason or "")
