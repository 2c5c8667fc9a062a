"""Every kind of sensor, in each mode, on a clock of its own; and what each says when it is written wrongly."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from scheduler_app.authoring import (
    Context,
    FileTrigger,
    Flow,
    Sensor,
    Skip,
    Template,
    WaitForEvent,
    WaitForFile,
    WaitForRun,
    WaitForTime,
    flow,
    group,
    sensor,
    task,
)
from scheduler_app.authoring.options import TASK_OPTIONS
from scheduler_app.authoring.sensors import POLLING_OPTIONS, SensorBody
from scheduler_app.authoring.triggers import grown
from scheduler_app.authoring.typed import SensorOptions
from scheduler_app.rules.errors import DefinitionError

if TYPE_CHECKING:
    from collections.abc import Callable

AT = datetime(2026, 3, 1, 6, tzinfo=UTC)
MODES = ("defer", "reschedule", "poke")
MINUTE = timedelta(minutes=1)


def of(make: Callable[..., Any], **options: Any) -> Flow:
    """A flow of one sensor."""

    @flow
    def f() -> None:
        make(task_id="wait", **options)

    return f


class Third(Sensor):
    """True at the third ask."""

    def poke(self, ctx: Context) -> Any:
        """How often it was asked."""
        asked: int = ctx.checkpoint.get("asked", 0) + 1
        ctx.checkpoint.set("asked", asked)
        return asked if asked == 3 else None


@sensor(poll_interval=MINUTE, task_id="wait")
def third(ctx: Context) -> Any:
    """The same as a function."""
    return Third.poke(None, ctx)  # type: ignore[arg-type] # it is not asked who it is


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("how", ["class", "function"])
def test_a_condition_in_python_is_asked_until_it_is_true(mode: Any, how: str) -> None:
    @flow
    def f() -> None:
        if how == "class":
            Third(task_id="wait", mode=mode, poll_interval=MINUTE)
        else:
            third.override(mode=mode)()

    done = f.test(at=AT)
    assert (done.state, done.results["wait"]) == ("success", 3), done.reason
    assert done.ended_at - AT == 2 * MINUTE
    outcomes = [one.outcome for one in done.attempts]
    between = {"defer": "deferred", "reschedule": "rescheduled"}.get(mode)
    assert outcomes == ([between, between, "success"] if between else ["success"])
    assert {one.try_number for one in done.attempts} == {1}


@pytest.mark.parametrize("mode", MODES)
def test_time_passes_by_the_clock_whatever_the_mode(mode: Any) -> None:
    for options, due in (
        ({"after": 3 * MINUTE}, AT + 3 * MINUTE),
        ({"after": 30}, AT + MINUTE / 2),
        ({"at": AT + 2 * MINUTE}, AT + 2 * MINUTE),
        ({"at": Template("{ds}T07:00:00+00:00")}, AT + timedelta(hours=1)),
        ({"after_interval": timedelta(hours=2)}, AT + timedelta(hours=2)),
        ({"at": AT - MINUTE}, AT),
    ):
        done = of(WaitForTime, mode=mode, **options).test(at=AT)
        assert done.state == "success", done.attempts
        assert done.ended_at == due, options


@pytest.mark.parametrize("mode", MODES)
def test_a_wait_that_takes_too_long_fails_or_is_skipped(mode: Any) -> None:
    for make, options in (
        (WaitForTime, {"after": timedelta(hours=9)}),
        (WaitForFile, {"path": "/nowhere"}),
        (Third, {"poll_interval": timedelta(hours=2)}),
    ):
        for soft_fail in (False, True):
            done = of(
                make, mode=mode, give_up_after=90 * MINUTE, soft_fail=soft_fail, **options
            ).test(at=AT, events={"wait": TimeoutError()})
            assert done.states == {"wait": "skipped" if soft_fail else "failed"}, (make, mode)
            assert done.ended_at - AT == 90 * MINUTE, "and asked no longer than that"
            if not soft_fail:
                assert type(done.attempts[-1].error).__name__ == "DeferralTimeout"


@pytest.mark.parametrize("mode", MODES)
def test_another_run_or_its_task_is_waited_for(mode: Any) -> None:
    asked = []

    def ended(state: str) -> Callable[[Any], Any]:
        def event(trigger: Any) -> Any:
            asked.append(trigger)
            return {"flow_id": "up", "run_id": "r", "task_id": trigger.task_id, "state": state}

        return event

    waits = of(
        WaitForRun,
        mode=mode,
        flow_id="up",
        execution_delta=timedelta(days=1),
        wait_task_id="load",
        skip_states=("skipped",),
    )
    done = waits.test(at=AT, events={"wait": ended("success")})
    assert done.results["wait"]["state"] == "success"
    assert (asked[0].logical_date, asked[0].task_id) == (AT - timedelta(days=1), "load")
    assert waits.test(at=AT, events={"wait": ended("skipped")}).states == {"wait": "skipped"}
    failed = waits.test(at=AT, events={"wait": ended("failed")})
    assert failed.states == {"wait": "failed"}
    told = "Task load of run r of flow 'up' ended as failed, not as success."
    assert told in str(failed.attempts[-1].error)


@pytest.mark.parametrize("mode", ["reschedule", "poke"])
def test_what_an_ask_raises_counts_as_not_yet_where_that_is_said(mode: Any) -> None:
    def asks(silent: bool) -> Flow:
        @task.sensor(mode=mode, poll_interval=MINUTE, silent_failures=silent)
        def wait(ctx: Context) -> bool:
            asked: int = ctx.checkpoint.get("asked", 0) + 1
            ctx.checkpoint.set("asked", asked)
            if asked == 1:
                raise OSError("not there")
            return True

        @flow
        def f() -> None:
            wait()

        return f

    assert asks(True).test(at=AT).state == "success"
    failed = asks(False).test(at=AT)
    assert (failed.state, str(failed.attempts[0].error)) == ("failed", "not there")


def test_intervals_grow_to_their_greatest_and_no_further() -> None:
    grows = [grown(MINUTE, 2.0, 5 * MINUTE, n) / MINUTE for n in range(5)]
    assert grows == [1, 2, 4, 5, 5]
    assert grown(MINUTE, 2.0, None, 10**9) == timedelta(days=1)
    assert grown(MINUTE, 1.0, None, 10**9) == MINUTE
    trigger = FileTrigger("/x", poll_interval=MINUTE, poll_backoff=3.0)
    assert trigger.interval(2) == 9 * MINUTE
    done = of(Third, poll_interval=MINUTE, poll_backoff=3.0, poll_interval_max=2 * MINUTE).test(
        at=AT
    )
    assert done.ended_at - AT == 3 * MINUTE


def test_a_task_says_that_it_is_skipped_and_what_is_after_it_is_skipped_too() -> None:
    @task(retries=3)
    def nothing_new() -> None:
        try:
            raise Skip("nothing new")
        except Exception:  # noqa: BLE001 - what a careless task does
            pytest.fail("a skip passes a catch of everything")

    @task
    def load() -> None: ...

    @flow
    def f() -> None:
        nothing_new() >> load()

    done = f.test()
    assert done.states == {"nothing_new": "skipped", "load": "skipped"}
    assert done.state == "success"
    assert done.attempts[0].why == "Skipped: nothing new"


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: WaitForFile(path="/x", mode="often"), "mode='often'. Give mode one of 'defer'"),
        (lambda: WaitForFile(path="/x", poll_interval=0), "Give poll_interval a duration longer"),
        (lambda: WaitForFile(path="/x", poll_backoff=0.5), "Give poll_backoff a number from 1"),
        (lambda: WaitForFile(path="/x", soft_fail="no"), "Give soft_fail True or False"),
        (lambda: WaitForFile(path="/x", poke_interval=5), "Write poll_interval=..."),
        (lambda: WaitForRun(flow_id="x", external_task_id="t"), "Write wait_task_id=..."),
        (lambda: WaitForEvent(mode="reschedule"), "Leave mode out: it is deferred"),
        (third.override(mode="often"), "mode='often'"),  # type: ignore[arg-type] # the fault
        (third.override(exponential_backoff=True), "Write poll_backoff=2.0"),  # type: ignore[call-arg] # the fault
    ],
)
def test_a_sensor_that_is_written_wrongly_says_where_and_what_to_do(
    make: Callable[[], Any], words: str
) -> None:
    with pytest.raises(DefinitionError, match=r"test_sensors\.py:") as raised:

        @flow
        def f() -> None:
            make()

    assert words in str(raised.value)


def test_a_type_checker_knows_every_option_of_a_sensor() -> None:
    known = set(SensorOptions.__annotations__)
    assert set(POLLING_OPTIONS) <= known
    assert not set(POLLING_OPTIONS) & set(TASK_OPTIONS)


def _how(flow_: Flow, task_id: str) -> tuple[str, timedelta, timedelta | None]:
    body = flow_.calls[task_id].body
    how = body.how if isinstance(body, SensorBody) else body.instance.polling()  # type: ignore[attr-defined]
    return (str(how.mode), how.interval, how.give_up_after)


@task
def plain() -> None:
    """No sensor."""


class Impatient(Third):
    """Says itself how often it asks."""

    poll_interval = timedelta(seconds=2)


def test_default_args_say_how_sensors_wait_unless_they_say_it_themselves() -> None:
    hour = timedelta(hours=1)

    @flow(default_args={"mode": "poke", "poll_interval": 7, "give_up_after": hour, "retries": 1})
    def f() -> None:
        WaitForFile(path="/x", task_id="file")
        WaitForFile(path="/x", task_id="own", poll_interval=MINUTE, mode="defer")
        WaitForEvent(task_id="event")
        Third(task_id="third")
        Impatient(task_id="impatient")
        third.override(task_id="function")()
        third.override(task_id="overridden", mode="defer", poll_interval=timedelta(seconds=3))()
        with group("g", default_args={"mode": "reschedule"}):
            WaitForFile(path="/x", task_id="file")
            third.override(task_id="function")()
            plain()

    seven = timedelta(seconds=7)
    assert {task_id: _how(f, task_id) for task_id in f.calls if task_id != "g.plain"} == {
        "file": ("poke", seven, hour),
        "own": ("defer", MINUTE, hour),
        "event": ("defer", seven, hour),
        "third": ("poke", seven, hour),
        "impatient": ("poke", timedelta(seconds=2), hour),
        "function": ("poke", MINUTE, hour),  # its decorator says how often
        "overridden": ("defer", timedelta(seconds=3), hour),
        "g.file": ("reschedule", seven, hour),
        "g.function": ("reschedule", MINUTE, hour),
    }
    assert {task.retries for task in f.definition().tasks} == {1}, "and the rest is for all of them"
    assert (
        f.test(at=AT, events={"file": "/x", "own": "/x", "event": 1, "g.file": "/x"}).state
        == "success"
    )


def test_a_wrong_default_of_sensors_is_told_with_the_others() -> None:
    with pytest.raises(DefinitionError, match=r"default_args has mode='sleep'\. Give mode one of"):

        @flow(default_args={"mode": "sleep"})
        def f() -> None:
            plain()


@pytest.mark.parametrize("mode", MODES)
def test_elapsed_goes_on_while_it_waits_in_each_mode(mode: Any) -> None:
    @sensor(poll_interval=MINUTE, mode=mode)
    def late(ctx: Context) -> Any:
        return ctx.elapsed if ctx.elapsed >= 3 * MINUTE else None

    @flow
    def f() -> None:
        late()

    assert f.test(at=AT).results["late"] == 3 * MINUTE


def test_a_poke_that_is_a_coroutine_is_waited_for() -> None:
    class Slow(Sensor):
        async def poke(self, ctx: Context) -> bool:
            return ctx.resume_index == 2

    @flow
    def f() -> None:
        Slow()

    done = f.test()
    assert [one.outcome for one in done.of("Slow")] == ["rescheduled", "rescheduled", "success"]
