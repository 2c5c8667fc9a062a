"""``flow.test()``: whole runs in this process, by the product's rules, with a clock of their own."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from scheduler_app.authoring import (
    Context,
    EventTrigger,
    FailNow,
    FileTrigger,
    Flow,
    Param,
    Reschedule,
    TimeTrigger,
    flow,
    task,
)
from scheduler_app.rules.errors import InvalidInput

AT = datetime(2026, 3, 1, 6, tzinfo=UTC)


def told(context: Any) -> None:
    raise AssertionError("a rehearsal calls nobody")


def test_results_go_from_task_to_task_as_they_do_between_processes() -> None:
    @task
    def extract() -> dict[str, Any]:
        return {"rows": (1, 2), "at": AT}

    @task
    def load(ctx: Context, given: dict[str, Any]) -> int:
        ctx.push("seen", given["at"])
        more: int = ctx.params["more"]
        rows: tuple[int, ...] = given["rows"]
        return sum(rows) + more

    @flow(params={"more": Param(10, type=int)})
    def f() -> None:
        load(extract())

    done = f.test(conf={"more": 20})
    assert (done.state, done.results["load"]) == ("success", 23)
    assert done.pushed["load", "seen"] == AT
    assert [(one.task_id, one.outcome) for one in done.attempts] == [
        ("extract", "success"),
        ("load", "success"),
    ]
    with pytest.raises(InvalidInput, match="more: 'x' is not of type 'integer'"):
        f.test(conf={"more": "x"})


def test_retries_take_no_time_but_the_clocks() -> None:
    @task(retries=3, retry_delay=timedelta(hours=1), backoff=2.0, jitter=0, on_retry_callback=told)
    def flaky(ctx: Context) -> int:
        done: int = ctx.checkpoint.get("done", 0)
        ctx.checkpoint.set("done", done + 1)
        if ctx.try_number < 3:
            raise OSError("no")
        return done

    @flow
    def f() -> None:
        flaky()

    began = time.monotonic()
    done = f.test(at=AT)
    assert time.monotonic() - began < 60
    assert [one.at - AT for one in done.of("flaky")] == [
        timedelta(),
        timedelta(hours=1),
        timedelta(hours=3),
    ]
    assert done.results["flaky"] == 2, "what earlier tries saved is found"
    assert done.of("flaky")[0].why == "try 1 of 4 failed with OSError: retry in 60 min, backoff 2.0"
    assert [(one.on, one.name) for one in done.callbacks] == [("on_retry", "told")] * 2


def test_a_failure_goes_on_by_the_trigger_rules_and_fails_the_run() -> None:
    @task(retries=5)
    def bad() -> None:
        raise FailNow("gone")

    @task
    def after() -> None: ...

    @task(trigger_rule="one_failed")
    def tell() -> str:
        return "told"

    @flow(on_failure_callback=told)
    def f() -> None:
        broken = bad()
        broken >> after()
        broken >> tell()

    done = f.test()
    assert done.states == {"bad": "failed", "after": "upstream_failed", "tell": "success"}
    assert done.state == "failed"
    assert isinstance(done.of("bad")[0].error, FailNow)
    assert [(one.task_id, one.on) for one in done.callbacks] == [(None, "on_failure")]


def waits(trigger: Any, **options: Any) -> Flow:
    """A flow of one task that waits for this."""

    @task
    def wait(ctx: Context) -> None:
        ctx.defer(trigger, method="fired", kwargs={"n": (1,)}, **options)

    @wait.method
    def fired(ctx: Context, event: Any, n: tuple[int, ...]) -> Any:
        return [event, n, ctx.resume_index, ctx.elapsed]

    @flow(flow_id="f")
    def f() -> None:
        wait()

    return f


def test_a_wait_for_a_moment_moves_the_clock() -> None:
    done = waits(TimeTrigger(after=timedelta(days=2))).test(at=AT)
    assert done.results["wait"][1:] == [(1,), 1, timedelta(days=2)]
    assert done.ended_at == AT + timedelta(days=2)
    assert [one.outcome for one in done.attempts] == ["deferred", "success"]


def test_what_a_task_waits_for_is_brought_about_by_the_test() -> None:
    seen = []

    def arrive(trigger: Any) -> str:
        seen.append(trigger)
        return "here"

    assert waits(FileTrigger("/x")).test(events={"wait": arrive}).results["wait"][0] == "here"
    assert seen == [FileTrigger("/x")]
    late = waits(EventTrigger("go"), timeout=60).test(at=AT, events={"wait": TimeoutError()})
    assert late.state == "failed"
    assert "did not come within 60 s" in str(late.of("wait")[-1].error)
    assert late.ended_at == AT + timedelta(seconds=60)
    broken = waits(EventTrigger("go")).test(events={"wait": OSError("away")})
    assert "The trigger failed: OSError: away" in str(broken.of("wait")[-1].error)
    with pytest.raises(InvalidInput, match="waits for the event 'go', which nobody brings about"):
        waits(EventTrigger("go")).test()


def test_looking_again_and_again_ends_with_the_runs_time() -> None:
    @task
    def look() -> None:
        raise Reschedule(after=timedelta(minutes=10))

    @flow(run_timeout=timedelta(hours=1))
    def f() -> None:
        look()

    done = f.test(at=AT)
    assert (done.state, done.ended_at) == ("failed", AT + timedelta(hours=1))
    assert "run_timeout of 3600 s" in done.reason
    assert [one.resume_index for one in done.attempts] == list(range(7))


def test_a_run_without_an_end_is_told() -> None:
    @task
    def look() -> None:
        raise Reschedule(after=0)

    @flow
    def f() -> None:
        look()

    with pytest.raises(InvalidInput, match="has made 10,000 attempts"):
        f.test()


def test_what_cannot_be_stored_fails_here_too() -> None:
    @task
    def a() -> object:
        return object()

    @flow
    def f() -> None:
        a()

    done = f.test()
    assert done.state == "failed"
    assert "result" in str(done.attempts[0].error)


def test_what_a_task_shows_and_tells_is_kept() -> None:
    @task
    def a(ctx: Context) -> None:
        ctx.artifacts.markdown("note", "done")
        for _ in ctx.progress([1, 2]):
            pass
        assert ctx.still_mine()
        assert ctx.fence == 1

    @flow
    def f() -> None:
        a()

    done = f.test()
    assert done.artifacts == {("a", "note"): ("markdown", {"text": "done"})}
    assert done.progress == {"a": (2, 2)}
