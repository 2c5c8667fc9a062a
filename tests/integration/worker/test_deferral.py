"""Deferring and resuming in real children: what is stored, what the resumed method gets."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from scheduler_app.models import Trigger
from scheduler_app.rules import reconcile, values
from scheduler_app.transitions.trigger import Fire, fire, fire_due
from scheduler_app.worker.facts import facts_of
from scheduler_app.worker.outcome import REPORTED

if TYPE_CHECKING:
    from scheduler_app.transitions.attempt import Message
    from tests.workshop import Workshop

HEAD = """
    from dataclasses import dataclass
    from datetime import datetime, timedelta, timezone
    from scheduler_app.authoring import *

    @dataclass(frozen=True)
    class Wanted(Trigger):
        name: str
        since: datetime = datetime(2026, 1, 1, tzinfo=timezone.utc)

        async def run(self):
            return 1
"""

WAITS = (
    HEAD
    + """
    @task
    def t(ctx, what="x"):
        raise Defer(Wanted("w"), method="came", kwargs={"what": (what, 1)}, timeout=timedelta(hours=2))

    @t.method
    def came(ctx, event, what):
        return {"event": event, "what": what, "resume": ctx.resume_index, "try": ctx.try_number}

    @flow
    def f():
        t("y")
"""
)


def _defer(workshop: Workshop, source: str) -> Message:
    message = workshop.issue_one(source)
    assert workshop.deliver(message).outcome == "deferred", workshop.attempt(message).error
    return message


def _resume(workshop: Workshop, message: Message, payload: dict[str, Any]) -> Message:
    trigger = Trigger.objects.get(ti_id=message.ti_id, is_waiting=True)
    state = "fired" if "event" in payload else "failed"
    (fired,) = fire(
        workshop.connection, fires=[Fire(trigger_id=trigger.pk, state=state, payload=payload)]
    )
    assert fired.what == "moved"
    return workshop.issue(message.run_id)


def test_a_task_that_raises_defer_waits_and_its_method_gets_event_and_kwargs(
    workshop: Workshop,
) -> None:
    message = workshop.issue_one(WAITS)
    outcome = workshop.deliver(message)
    assert (outcome.what, outcome.outcome) == (REPORTED, "deferred")
    ti = workshop.ti(message)
    assert (ti.state, ti.next_method) == ("deferred", "came")
    trigger = Trigger.objects.get()
    assert trigger.kind == "watched"
    assert trigger.classpath.endswith(":Wanted")
    assert values.decode(trigger.kwargs) == {
        "name": "w",
        "since": datetime(2026, 1, 1, tzinfo=UTC),
    }
    assert trigger.timeout_at is not None
    assert trigger.timeout_at - trigger.created_at == timedelta(hours=2)
    assert "Wanted(name='w'" in str(workshop.attempt(message).outcome_reason)

    resumed = _resume(workshop, message, {"event": values.encode({"at": (1, 2)})})
    workshop.deliver(resumed)
    attempt = workshop.attempt(resumed)
    assert attempt.outcome == "success", attempt.error
    assert values.decode(attempt.result) == {
        "event": {"at": (1, 2)},
        "what": ("y", 1),
        "resume": 1,
        "try": 1,
    }
    ti = workshop.ti(message)
    assert (ti.state, ti.next_method, ti.next_kwargs) == ("success", None, None)


def test_the_exit_of_a_deferring_attempt_is_ignored_as_stale(workshop: Workshop) -> None:
    message = _defer(workshop, WAITS)
    facts = facts_of(workshop.connection, [message.attempt_id])[message.attempt_id]
    verdict = reconcile.reconcile(
        reconcile.Event(kind="exit_success", attempt_id=str(message.attempt_id)),
        facts.of_attempt(),
        facts.of_task(),
        reconcile.Facts(grace_over=False, worker_alive=True),
    )
    assert (verdict.verdict, verdict.code) == ("ignored", "stale_after_defer")


@pytest.mark.parametrize(
    ("payload", "kind", "words"),
    [
        ({"error": {"kind": "timeout", "after_s": 7200.0}}, "DeferralTimeout", "7200 s"),
        (
            {"error": {"kind": "failed", "type": "OSError", "message": "gone", "traceback": "tb"}},
            "TriggerFailed",
            "OSError: gone",
        ),
    ],
)
def test_a_wait_that_ended_badly_fails_the_task_in_the_resumed_attempt(
    workshop: Workshop, payload: dict[str, Any], kind: str, words: str
) -> None:
    resumed = _resume(workshop, _defer(workshop, WAITS), payload)
    assert workshop.deliver(resumed).outcome == "failed"
    error = workshop.attempt(resumed).error
    assert error is not None
    assert error["type"].endswith(kind)
    assert words in error["message"]
    assert workshop.ti(resumed).state == "failed"


def test_a_method_with_a_parameter_for_it_is_handed_the_error(workshop: Workshop) -> None:
    source = WAITS.replace("def came(ctx, event, what):", "def came(error, event, what):").replace(
        'return {"event": event, "what": what, "resume": ctx.resume_index, "try": ctx.try_number}',
        "return [type(error).__name__, event]",
    )
    resumed = _resume(
        workshop, _defer(workshop, source), {"error": {"kind": "timeout", "after_s": 1}}
    )
    assert workshop.deliver(resumed).outcome == "success"
    assert workshop.attempt(resumed).result == ["DeferralTimeout", None]


def test_a_task_may_defer_again_and_again_in_one_try(workshop: Workshop) -> None:
    message = _defer(
        workshop,
        HEAD
        + """
    @task
    def t(ctx):
        ctx.defer(Wanted("0"), method=on, kwargs={"seen": []})

    @t.method
    def on(ctx, event, seen):
        seen = [*seen, event]
        if len(seen) < 3:
            ctx.defer(Wanted(str(len(seen))), method="on", kwargs={"seen": seen})
        return {"seen": seen, "resume": ctx.resume_index, "try": ctx.try_number}

    @flow
    def f():
        t()
    """,
    )
    for number in range(3):
        message = _resume(workshop, message, {"event": number})
        workshop.deliver(message)
    attempt = workshop.attempt(message)
    assert attempt.outcome == "success", attempt.error
    assert attempt.result == {"seen": [0, 1, 2], "resume": 3, "try": 1}


def test_a_class_task_defers_to_its_method_with_its_attributes(workshop: Workshop) -> None:
    message = _defer(
        workshop,
        HEAD
        + """
    class Waits(Task):
        name: str

        def execute(self, ctx):
            self.defer(trigger=Wanted(self.name), method_name="came", kwargs={"n": 1})

        async def came(self, ctx, event, n):
            return [self.name, event, n, ctx.resume_index]

    @flow
    def f():
        Waits(name="w", task_id="t")
    """,
    )
    resumed = _resume(workshop, message, {"event": "e"})
    workshop.deliver(resumed)
    attempt = workshop.attempt(resumed)
    assert attempt.result == ["w", "e", 1, 1], attempt.error


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ('raise Defer(Wanted("w"), method="nowhere")', "Put @t.method on the function"),
        ('raise Defer(Wanted(object()), method="came")', "trigger's arguments"),
        ('raise Defer("soon", method="came")', "defers to a Trigger, not to 'soon'"),
        (
            'class Here(Trigger): pass\n        raise Defer(Here(), method="came")',
            "cannot be found again",
        ),
    ],
)
def test_a_deferral_that_could_not_be_resumed_fails_at_once_and_says_why(
    workshop: Workshop, body: str, words: str
) -> None:
    method = "" if "nowhere" in body else "@t.method\n    def came(event): return event\n"
    source = f"{HEAD}\n    @task\n    def t(ctx):\n        {body}\n\n    {method}\n"
    message = workshop.issue_one(source + "\n    @flow\n    def f():\n        t()\n")
    assert workshop.deliver(message).outcome == "failed"
    error = workshop.attempt(message).error
    assert error is not None
    assert words in error["message"]
    assert not Trigger.objects.exists()


def test_kwargs_that_the_method_does_not_take_are_refused_before_the_wait(
    workshop: Workshop,
) -> None:
    message = workshop.issue_one(WAITS.replace('kwargs={"what": (what, 1)}', 'kwargs={"that": 1}'))
    assert workshop.deliver(message).outcome == "failed"
    error = workshop.attempt(message).error
    assert error is not None
    assert "cannot be resumed in 'came' with these kwargs" in error["message"]


def test_a_time_trigger_is_due_by_the_database_and_needs_no_triggerer(workshop: Workshop) -> None:
    message = _defer(
        workshop,
        HEAD
        + """
    class Waits(WaitForTime):
        pass

    @flow
    def f():
        Waits(after=timedelta(seconds=0), task_id="t")
    """,
    )
    trigger = Trigger.objects.get()
    assert (trigger.kind, trigger.due_at) == ("time", trigger.created_at)
    assert [one.what for one in fire_due(workshop.connection, limit=10).fired] == ["moved"]
    resumed = workshop.issue(message.run_id)
    workshop.deliver(resumed)
    attempt = workshop.attempt(resumed)
    assert values.decode(attempt.result) == trigger.due_at, attempt.error


def test_a_sensor_that_asks_on_a_worker_is_up_for_reschedule_in_the_same_try(
    workshop: Workshop,
) -> None:
    message = workshop.issue_one(
        HEAD
        + """
    class Third(Sensor):
        def poke(self, ctx):
            return ctx.resume_index == 2 and {"try": ctx.try_number}

    @flow
    def f():
        Third(poll_interval=timedelta(seconds=30), retries=1, task_id="t")
    """
    )
    for resume in range(2):
        assert workshop.deliver(message).outcome == "rescheduled", workshop.attempt(message).error
        ti = workshop.ti(message)
        assert (ti.state, ti.is_open, ti.resume_index) == ("up_for_reschedule", True, resume)
        assert ti.next_retry_at is not None
        assert ti.ended_at is not None
        assert ti.next_retry_at - ti.ended_at >= timedelta(seconds=29)
        message = workshop.issue(message.run_id)
    assert workshop.deliver(message).outcome == "success"
    assert workshop.attempt(message).result == {"try": 1}


def test_a_sensor_gives_up_after_its_time_since_the_try_began(workshop: Workshop) -> None:
    message = workshop.issue_one(
        HEAD
        + """
    @flow
    def f():
        WaitForFile(path="/nowhere/at/all", mode="reschedule", give_up_after=timedelta(seconds=5),
                    task_id="t")
    """
    )
    assert workshop.deliver(message).outcome == "rescheduled"
    workshop.connection.execute(
        "UPDATE task_instance SET started_at = started_at - interval '5 s' WHERE id = %s",
        [message.ti_id],
    )
    message = workshop.issue(message.run_id)
    assert workshop.deliver(message).outcome == "failed"
    error = workshop.attempt(message).error
    assert error is not None
    assert error["type"].endswith("DeferralTimeout")
