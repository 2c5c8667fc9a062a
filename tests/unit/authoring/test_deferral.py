"""Deferring: what is raised, which methods a task can resume in, and what they are given."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from scheduler_app.authoring import (
    Context,
    Defer,
    DeferralTimeout,
    Flow,
    Reschedule,
    Sensor,
    Task,
    TimeTrigger,
    TriggerFailed,
    WaitForFile,
    WaitForTime,
    flow,
    task,
)
from scheduler_app.rules.errors import DefinitionError, InvalidInput

SOON = TimeTrigger(after=timedelta(seconds=1))


class Services:
    """A worker that is asked for no more than a look and the time."""

    def look(self, trigger: Any) -> Any:
        """A real one."""
        return trigger.looked()

    def here(self) -> timedelta:
        """No time has passed."""
        return timedelta()

    def now(self) -> datetime:
        """Always the same."""
        return datetime(2026, 1, 1, tzinfo=UTC)

    def still_mine(self) -> bool:
        """Always."""
        return True

    def idempotency_key(self) -> str:
        """Always the same."""
        return "k"

    def result(self, task_id: str, map_index: int = -1) -> Any:
        """Nothing is known."""
        raise AssertionError(task_id, map_index)


def _ctx(**changed: Any) -> Context:
    fields: dict[str, Any] = {
        "flow_id": "f",
        "run_id": "r",
        "task_id": "t",
        "map_index": -1,
        "logical_date": None,
        "data_interval_start": None,
        "data_interval_end": None,
        "conf": {},
        "params": {},
        "try_number": 1,
        "resume_index": 0,
        "run_attempt": 1,
        "attempt_id": "a",
        "fence": 1,
        "services": Services(),
    }
    return Context(**{**fields, **changed})


@task
def waits(ctx: Context, name: str) -> None:
    """Defers."""
    ctx.defer(SOON, method=came, kwargs={"name": name})


@waits.method
def came(ctx: Context, event: Any, name: str) -> Any:
    """Tells what it got."""
    return [ctx.task_id, event, name]


@waits.method
def either(event: Any, error: Exception | None, **more: Any) -> Any:
    """Takes the error too."""
    return [event, error, more]


class Waits(Task):
    """A class task that defers."""

    name: str

    def execute(self, ctx: Context) -> Any:
        """Defers."""
        self.defer(trigger=SOON, method_name="came", timeout=5)

    async def came(self, event: Any, ctx: Context) -> Any:
        """Tells what it got."""
        return [self.name, event, ctx.task_id]


def _flow() -> Flow:
    @flow
    def f() -> None:
        waits("x")
        waits.override(task_id="again")("y")
        Waits(name="z", task_id="klass")

    return f


def test_a_deferral_says_what_it_waits_for_and_where_it_goes_on() -> None:
    call = _flow().calls["waits"]
    with pytest.raises(Defer) as raised:
        call.execute(_ctx(), {})
    wanted = raised.value
    assert (wanted.trigger, wanted.method, wanted.kwargs) == (SOON, "came", {"name": "x"})
    assert wanted.timeout_s is None
    with pytest.raises(Defer) as raised:
        _flow().calls["klass"].execute(_ctx(), {})
    assert (raised.value.method, raised.value.timeout_s) == ("came", 5.0)


def test_a_deferral_passes_a_catch_of_everything() -> None:
    assert not issubclass(Defer, Exception)
    assert not issubclass(Reschedule, Exception)


def test_the_method_gets_what_it_names() -> None:
    calls = _flow().calls
    stored = {"kwargs": {"name": "n"}, "event": 7}
    assert calls["waits"].resume(_ctx(), {}, "came", stored) == ["t", 7, "n"]
    assert calls["again"].resume(_ctx(), {}, "came", stored) == ["t", 7, "n"]
    assert calls["klass"].resume(_ctx(), {}, "came", {"kwargs": {}, "event": 7}) == ["z", 7, "t"]
    got = calls["waits"].resume(_ctx(), {}, "either", {"kwargs": {"a": 1}, "event": 7})
    assert got == [7, None, {"a": 1}]


def test_an_error_is_raised_unless_the_method_takes_it() -> None:
    call = _flow().calls["waits"]
    timeout = {"kwargs": {"name": "n"}, "error": {"kind": "timeout", "after_s": 2.0}}
    with pytest.raises(DeferralTimeout, match="within 2 s"):
        call.resume(_ctx(), {}, "came", timeout)
    failed = {
        "kwargs": {},
        "error": {"kind": "failed", "type": "OSError", "message": "gone", "traceback": "tb"},
    }
    with pytest.raises(TriggerFailed, match="OSError: gone") as raised:
        call.resume(_ctx(), {}, "came", failed)
    assert (raised.value.type, raised.value.trigger_traceback) == ("OSError", "tb")
    event, error, _ = call.resume(_ctx(), {}, "either", timeout)
    assert event is None
    assert isinstance(error, DeferralTimeout)


def test_a_resume_that_cannot_work_is_refused_before_the_wait() -> None:
    calls = _flow().calls
    calls["waits"].check_resume("came", {"name": "n"})
    with pytest.raises(InvalidInput, match="Did you mean 'came'"):
        calls["waits"].check_resume("cane", {})
    with pytest.raises(InvalidInput, match="with these kwargs"):
        calls["waits"].check_resume("came", {"nome": 1})
    with pytest.raises(InvalidInput, match="no method 'gone'"):
        calls["klass"].check_resume("gone", {})


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Defer("soon", method="came"), "not to 'soon'"),  # type: ignore[arg-type] # the fault
        (lambda: Defer(SOON, method=""), "neither a name"),
        (lambda: Defer(SOON, method="came", kwargs={"event": 1}), "cannot be called event"),
        (lambda: Defer(SOON, method="came", timeout=-1), "timeout=-1"),
        (lambda: Reschedule(after=-1), "after=-1"),
    ],
)
def test_a_wrong_deferral_says_what_is_wrong(make: Any, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        make()


def test_a_task_has_each_method_once() -> None:
    @task
    def one() -> None:
        """Nothing."""

    @one.method
    def on(event: Any) -> None:
        """First."""

    with pytest.raises(DefinitionError, match="two methods called 'on'"):
        one.method(on)
    with pytest.raises(DefinitionError, match="is no function"):
        one.method(3)  # type: ignore[type-var] # the fault


class Asks(Sensor):
    """Asks on a worker."""

    answer: Any = None

    def poke(self, ctx: Context) -> Any:
        """The answer."""
        return self.answer


def _sensors() -> Flow:
    @flow
    def f() -> None:
        Asks(task_id="no", poll_interval=timedelta(seconds=7), give_up_after=timedelta(minutes=1))
        Asks(answer=[1], task_id="yes")
        WaitForFile(path="/nowhere", mode="reschedule", task_id="file")
        WaitForFile(path="/nowhere", task_id="parked", give_up_after=timedelta(hours=1))
        WaitForTime(after=timedelta(hours=1), task_id="hour")

    return f


def test_a_sensor_asks_again_later_or_gives_up_or_answers() -> None:
    calls = _sensors().calls
    for elapsed_s, after_s in ((0, 7.0), (59, 1.0)):  # the last one is asked at the limit
        with pytest.raises(Reschedule) as raised:
            calls["no"].execute(_ctx(elapsed_before=timedelta(seconds=elapsed_s)), {})
        assert raised.value.after_s == after_s
    with pytest.raises(DeferralTimeout):
        calls["no"].execute(_ctx(elapsed_before=timedelta(minutes=1)), {})
    assert calls["yes"].execute(_ctx(), {}) == [1]
    with pytest.raises(Reschedule):
        calls["file"].execute(_ctx(), {})


def test_a_sensor_defers_where_a_trigger_can_wait() -> None:
    calls = _sensors().calls
    with pytest.raises(Defer) as raised:
        calls["parked"].execute(_ctx(), {})
    assert raised.value.timeout_s == 3600
    calls["parked"].check_resume(raised.value.method, raised.value.kwargs)
    assert calls["parked"].resume(_ctx(), {}, "came", {"kwargs": {}, "event": "p"}) == "p"
    with pytest.raises(Defer, match="TimeTrigger"):
        calls["hour"].execute(_ctx(), {})


def test_a_sensor_without_a_poke_is_a_fault_of_the_definition() -> None:
    class Silent(Sensor):
        """Forgot it."""

    with pytest.raises(DefinitionError, match="no poke method"):

        @flow
        def f() -> None:
            Silent()
