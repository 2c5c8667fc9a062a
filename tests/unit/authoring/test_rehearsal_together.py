"""``flow.test()`` with what reaches beyond one task: other flows, groups that are one unit, time limits."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from scheduler_app.authoring import (
    Context,
    Flow,
    GroupRetry,
    TimeTrigger,
    WaitForFile,
    flow,
    group,
    sensor,
    task,
    trigger_flow,
)
from scheduler_app.rules.errors import DefinitionError, InvalidInput

AT = datetime(2026, 3, 1, 6, tzinfo=UTC)
HOUR = timedelta(hours=1)


@task
def work(ctx: Context) -> None:
    """Takes two hours, and fails where the conf says so."""
    if ctx.resume_index == 0:
        ctx.defer(TimeTrigger(after=2 * HOUR), method="done")


@work.method
def done(ctx: Context, event: Any) -> Any:
    """Ends."""
    if ctx.conf.get("fails", 0) > 0:
        raise OSError("no")
    return event


@flow(params={"fails": 0})
def other() -> None:
    """The one that is triggered."""
    work()


@task
def quick() -> int:
    return 1


def asks(**options: Any) -> Flow:
    """A flow whose task triggers the other one."""

    @flow
    def f() -> None:
        trigger_flow(other, task_id="ask", **options) >> quick()

    return f


def test_a_triggered_flow_is_noted_or_rehearsed_by_the_same_clock() -> None:
    noted = asks(conf={"day": AT}).test(at=AT)
    (one,) = noted.triggered
    assert (one.flow_id, one.conf, one.run, one.at) == ("other", {"day": AT.isoformat()}, None, AT)
    assert noted.state == "success"
    ran = asks(wait=True).test(at=AT, flows=[other])
    (one,) = ran.triggered
    assert one.run is not None
    assert (one.run.state, one.run.ended_at - AT) == ("success", 2 * HOUR)
    assert (ran.ended_at - AT, ran.results["ask"]["state"]) == (2 * HOUR, "success")
    assert [one.outcome for one in ran.of("ask")] == ["deferred", "success"]


@pytest.mark.parametrize("mode", ["defer", "reschedule", "poke"])
def test_its_failure_is_the_tasks_and_a_retry_makes_another(mode: str) -> None:
    tested = asks(
        wait=True, mode=mode, conf={"fails": 1}, retries=1, retry_delay=0, poll_interval=HOUR
    )
    ended = tested.test(at=AT, flows=[other])
    assert ended.states == {"ask": "failed", "quick": "upstream_failed"}
    assert len(ended.triggered) == 2
    assert "of flow 'other', which this task triggered, ended as failed" in str(
        ended.of("ask")[-1].error
    )
    assert ended.ended_at - AT == 4 * HOUR


def test_how_a_flow_ends_that_is_not_there_is_for_the_test_to_say() -> None:
    waits = asks(wait=True)
    with pytest.raises(InvalidInput, match=r"flows=\[\.\.\.\] with flow 'other' in it"):
        waits.test()
    assert waits.test(events={"ask": "success"}).state == "success"
    assert waits.test(events={"ask": "failed"}).states["ask"] == "failed"


def test_flows_that_trigger_each_other_without_an_end_are_refused() -> None:
    @flow
    def again() -> None:
        trigger_flow("again", wait=True)

    ended = again.test(flows=[again])
    assert ended.state == "failed"


def test_a_group_is_tried_again_as_a_whole() -> None:
    tried: list[str] = []

    @task
    def debit() -> None:
        tried.append("debit")

    @task(retries=1, retry_delay=60)
    def credit(ctx: Context) -> None:
        tried.append("credit")
        if len(tried) < 5:
            raise OSError("no")

    @task
    def tell() -> None:
        tried.append("tell")

    def pays(attempts: int) -> Flow:
        @flow
        def f() -> None:
            with group("pay", retry=GroupRetry(max_attempts=attempts, cooldown=HOUR)) as pay:
                debit() >> credit()
            pay >> tell()

        return f

    ended = pays(3).test(at=AT)
    assert ended.state == "success", ended.reason
    assert tried == ["debit", "credit", "credit", "debit", "credit", "tell"]
    assert ended.group_attempts == {"pay": 2}
    assert ended.ended_at - AT == HOUR + timedelta(seconds=60)
    tried.clear()
    given_up = pays(1).test(at=AT)
    assert given_up.states == {
        "pay.debit": "success",
        "pay.credit": "failed",
        "tell": "upstream_failed",
    }


def test_time_limits_end_a_task_in_earnest_and_by_the_clock() -> None:
    @task(timeout=0.2)
    def hangs() -> None:
        time.sleep(60)

    @sensor(mode="poke", poll_interval=HOUR, timeout=2 * HOUR, retries=1, retry_delay=0)
    def asked() -> bool:
        return False

    @flow
    def f() -> None:
        hangs()
        asked()

    began = time.monotonic()
    ended = f.test(at=AT)
    assert time.monotonic() - began < 30
    assert ended.states == {"hangs": "failed", "asked": "failed"}
    assert [type(one.error).__name__ for one in ended.attempts] == ["TaskTimeout"] * 3
    assert ended.ended_at - AT == 4 * HOUR


def test_a_file_that_never_comes_is_given_up() -> None:
    @flow
    def f() -> None:
        WaitForFile(path="/nowhere", mode="reschedule", give_up_after=HOUR, task_id="wait")

    looked: list[int] = []
    ended = f.test(at=AT, events={"wait": lambda _: looked.append(1)})
    assert (ended.state, ended.ended_at - AT) == ("failed", HOUR)
    assert looked


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"if_exists": "perhaps"}, "if_exists='perhaps'. Give one of 'fail', 'join'"),
        ({"on_stop": "kill"}, "on_stop='kill'. Give one of 'leave', 'terminate'"),
        ({"wait_for_completion": True}, "Write wait=..."),
        ({"reset_dag_run": True}, "Write if_exists='reset'."),
        ({"trigger_run_id": "x"}, "Write run_id=..."),
    ],
)
def test_a_trigger_that_is_written_wrongly_says_where_and_what_to_do(
    options: dict[str, Any], words: str
) -> None:
    with pytest.raises(DefinitionError, match=r"test_rehearsal_together\.py:") as raised:
        asks(**options)
    assert words in str(raised.value)


def test_calls_of_one_flow_are_numbered_and_a_flow_that_is_none_is_refused() -> None:
    @flow
    def f() -> None:
        trigger_flow("other")
        trigger_flow("other")

    assert sorted(f.calls) == ["trigger_other", "trigger_other__1"]
    with pytest.raises(DefinitionError, match="is no flow"):

        @flow
        def g() -> None:
            trigger_flow("no flow!")
