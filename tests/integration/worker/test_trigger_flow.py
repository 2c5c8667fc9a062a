"""Tasks that trigger flows, in real children: one run an execution, whatever is lost or tried again."""

from __future__ import annotations

import os
import signal
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from django.utils import timezone

from scheduler_app.authoring.child_runs import Ask, IfExists
from scheduler_app.authoring.triggers import RunTrigger
from scheduler_app.models import Audit, Flow, Run, RunAttempt, TaskInstance, Trigger, TriggeredRun
from scheduler_app.operations.clear import clear_run
from scheduler_app.processes import failpoints
from scheduler_app.processes.child_runs import Parent, ask_for_run
from scheduler_app.processes.ended_runs import ended_runs
from scheduler_app.rules import values
from scheduler_app.transitions.attempt import hand_back
from scheduler_app.transitions.trigger import Fire, fire
from tests.recording import broken_laws
from tests.workshop import wait_until

if TYPE_CHECKING:
    from scheduler_app.transitions.attempt import Message
    from tests.recording import RecordingConnection
    from tests.workshop import Workshop

HEAD = """
    from datetime import datetime, timedelta, timezone
    from scheduler_app.authoring import *
"""
OTHER = """
    @task
    def work(ctx): ...

    @flow(flow_id="other", params={"day": "today", "rows": Param(1, type=int)})
    def other():
        work()
"""


def other(workshop: Workshop) -> None:
    """The flow that is triggered."""
    version = workshop.flow(HEAD + OTHER)
    Flow.objects.filter(flow_id="other").update(current_version=version)


def parent(call: str, body: str = "", **options: Any) -> str:
    """A flow whose task ``t`` is this call, or has this body."""
    made = (
        f"""
    @task(task_id="t"{"".join(f", {name}={value!r}" for name, value in options.items())})
    def t(ctx):
        {body}
"""
        if body
        else ""
    )
    return f"{HEAD}{made}\n    @flow\n    def f():\n        {call or 't()'}\n"


def children() -> list[Run]:
    """The runs of the other flow, oldest first."""
    return list(Run.objects.filter(flow_id="other").order_by("id"))


def end(run: Run, state: str) -> None:
    """The run has ended so."""
    TaskInstance.objects.filter(run=run).update(state=state, is_open=False)
    Run.objects.filter(pk=run.pk).update(
        state=state, is_active=False, ended_at=timezone.now(), state_reason="work failed."
    )
    RunAttempt.objects.filter(run=run).update(state=state, ended_at=timezone.now())


def resumed(workshop: Workshop, message: Message) -> Message:
    """The task's trigger fires with what the triggerer would see."""
    trigger = Trigger.objects.get(ti_id=message.ti_id, is_waiting=True)

    kwargs = values.decode(trigger.kwargs)
    event = ended_runs(workshop.connection, [RunTrigger(**kwargs)])[0]
    payload = {"event": values.encode(event)}
    fire(workshop.connection, fires=[Fire(trigger_id=trigger.pk, state="fired", payload=payload)])
    return workshop.issue(message.run_id)


def error_of(workshop: Workshop, message: Message) -> str:
    """Type and message of what the attempt raised."""
    error = workshop.attempt(message).error
    assert error is not None, "it did not fail"
    return f"{error['type']}: {error['message']}"


def retried(message: Message, workshop: Workshop) -> Message:
    """The next try is issued, now."""
    TaskInstance.objects.filter(pk=message.ti_id).update(next_retry_at=timezone.now())
    return workshop.issue(message.run_id)


def test_a_run_is_triggered_with_what_was_asked_for_and_both_know_it(workshop: Workshop) -> None:
    other(workshop)
    call = (
        'trigger_flow("other", task_id="t", conf={"day": Template("{ds}"), "more": datetime(2026, 1, 2)},'
        " logical_date=datetime(2026, 1, 2, tzinfo=timezone.utc), note='for f')"
    )
    message = workshop.issue_one(parent(call))
    assert workshop.deliver(message).outcome == "success", workshop.attempt(message).error
    (child,) = children()
    ds = Run.objects.get(pk=message.run_id).logical_date
    assert ds is not None
    assert child.conf == {"day": f"{ds:%Y-%m-%d}", "rows": 1, "more": "2026-01-02T00:00:00"}
    assert (child.state, child.run_type, child.note) == ("queued", "manual", "for f")
    assert (child.logical_date, child.actor) == (datetime(2026, 1, 2, tzinfo=UTC), "task f.t")
    assert values.decode(workshop.attempt(message).result) == {
        "flow_id": "other",
        "run_id": child.run_key,
        "state": "queued",
    }
    link = TriggeredRun.objects.get()
    assert (link.parent_run_id, link.ti_id, link.attempt_id, link.run_id) == (
        message.run_id,
        message.ti_id,
        message.attempt_id,
        child.pk,
    )
    assert (link.how, link.depth, link.waits, link.is_watched) == ("created", 1, False, False)
    entry = Audit.objects.get(action="trigger")
    assert (entry.actor, entry.object_id) == ("task f.t", str(child.pk))
    assert "Triggered run triggered__" in workshop.printed(message)


def test_the_task_waits_without_a_worker_and_ends_as_the_run_does(workshop: Workshop) -> None:
    other(workshop)
    call = 'trigger_flow("other", task_id="t", wait=True, give_up_after=timedelta(hours=1))'
    message = workshop.issue_one(parent(call))
    assert workshop.deliver(message).outcome == "deferred", workshop.attempt(message).error
    (child,) = children()
    trigger = Trigger.objects.get()
    assert values.decode(trigger.kwargs)["run_id"] == child.run_key
    assert trigger.timeout_at is not None
    assert TriggeredRun.objects.get().waits
    end(child, "success")
    again = resumed(workshop, message)
    assert workshop.deliver(again).outcome == "success", workshop.attempt(again).error
    assert values.decode(workshop.attempt(again).result)["state"] == "success"
    assert len(children()) == 1


@pytest.mark.parametrize("mode", ["defer", "reschedule"])
def test_a_failed_run_fails_its_task_and_the_next_try_makes_another(
    workshop: Workshop, mode: str
) -> None:
    other(workshop)
    call = f'trigger_flow("other", task_id="t", wait=True, mode={mode!r}, retries=1)'
    message = workshop.issue_one(parent(call))
    workshop.deliver(message)
    (child,) = children()
    end(child, "failed")
    again = resumed(workshop, message) if mode == "defer" else workshop.issue(message.run_id)
    assert workshop.deliver(again).outcome == "failed"
    said = error_of(workshop, again)
    assert "ChildRunFailed" in said
    assert (
        f"Run {child.run_key} of flow 'other', which this task triggered, ended as failed" in said
    )
    assert "work failed." in said
    assert workshop.ti(message).state == "up_for_retry"
    third = retried(message, workshop)
    workshop.deliver(third)
    assert len(children()) == 2
    assert [link.try_number for link in TriggeredRun.objects.order_by("id")] == [1, 2]
    # Asked again in the same try, however that ended, it is the same run.
    workshop.issue(message.run_id) if mode == "reschedule" else None
    assert len(children()) == 2


def test_a_policy_that_begins_the_run_again_is_waited_for(workshop: Workshop) -> None:
    other(workshop)
    message = workshop.issue_one(parent('trigger_flow("other", task_id="t", wait=True)'))
    workshop.deliver(message)
    (child,) = children()
    end(child, "failed")
    Run.objects.filter(pk=child.pk).update(retry_at=timezone.now() + timedelta(hours=1))

    asked = [RunTrigger("other", run_id=child.run_key)]
    assert ended_runs(workshop.connection, asked) == {}
    Run.objects.filter(pk=child.pk).update(retry_at=None)
    assert ended_runs(workshop.connection, asked)[0]["state"] == "failed"


@pytest.mark.parametrize("point", ["trigger_flow.before_commit", "trigger_flow.after_commit"])
def test_a_worker_killed_around_the_creation_leaves_one_run(
    workshop: Workshop, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    other(workshop)
    message = workshop.issue_one(parent('trigger_flow("other", task_id="t", wait=True)'))
    monkeypatch.setattr(failpoints, "_POINTS", {point: ("kill", 1)})
    assert workshop.start(message).status() == -signal.SIGKILL
    monkeypatch.setattr(failpoints, "_POINTS", {})
    assert len(children()) == (0 if point.endswith("before_commit") else 1)
    # Its worker is lost: the same try, dispatched again.
    hand_back(
        workshop.connection,
        attempt_id=message.attempt_id,
        worker_job_id=workshop.station.job_id,
        reason="lost",
    )
    again = workshop.issue(message.run_id)
    assert workshop.deliver(again).outcome == "deferred", workshop.attempt(again).error
    (child,) = children()
    link = TriggeredRun.objects.get()
    assert (link.run_id, link.try_number) == (child.pk, 1)
    if point.endswith("after_commit"):
        assert link.attempt_id == message.attempt_id
        assert "Found run" in workshop.printed(again)


def test_an_attempt_that_was_replaced_creates_nothing(workshop: Workshop) -> None:
    other(workshop)
    body = (
        "import time, pathlib\n"
        "        pathlib.Path(ctx.params['flag']).touch()\n"
        "        while not pathlib.Path(ctx.params['go']).exists(): time.sleep(0.02)\n"
        "        ctx.trigger_flow('other')"
    )
    flag, go = workshop.folder.path / "flag", workshop.folder.path / "go"
    message = workshop.issue_one(parent("", body), conf={"flag": str(flag), "go": str(go)})
    running = workshop.start(message)

    wait_until(flag.exists, within_s=60)
    TaskInstance.objects.filter(pk=message.ti_id).update(attempt_id=os.urandom(16).hex())
    go.touch()
    running.outcome(within_s=60)
    assert children() == []
    assert not TriggeredRun.objects.exists()


def test_user_code_asks_for_many_and_a_later_try_asks_for_those_that_are_missing(
    workshop: Workshop,
) -> None:
    other(workshop)
    body = (
        "for n in ((3, 1, 2) if ctx.try_number > 1 else (1, 2)):\n"
        "            child = ctx.trigger_flow('other', conf={'rows': n})\n"
        "        ctx.trigger_flow('other', conf={'rows': 1})\n"
        "        assert ctx.try_number > 1, child.how"
    )
    message = workshop.issue_one(parent("", body, retries=1))
    assert workshop.deliver(message).outcome == "failed"
    assert [child.conf["rows"] for child in children()] == [1, 2, 1]
    again = retried(message, workshop)
    assert workshop.deliver(again).outcome == "success", workshop.attempt(again).error
    assert sorted(child.conf["rows"] for child in children()) == [1, 1, 2, 3]


@pytest.mark.parametrize(
    ("if_exists", "outcome", "state", "words"),
    [
        (
            "fail",
            "failed",
            "failed",
            "RunExists: Flow 'other' has a run 'r7' already, which is success",
        ),
        ("join", "success", "success", ""),
        ("skip", "success", "skipped", ""),
        ("reset", "success", "success", ""),
    ],
)
def test_a_run_id_that_is_taken(
    workshop: Workshop, if_exists: str, outcome: str, state: str, words: str
) -> None:
    other(workshop)
    first = workshop.issue_one(parent('trigger_flow("other", task_id="t", run_id="r7")'))
    workshop.deliver(first)
    (child,) = children()
    end(child, "success")
    call = f'trigger_flow("other", task_id="t", run_id="r7", if_exists={if_exists!r})'
    message = workshop.issue_one(parent(call))
    assert workshop.deliver(message).outcome == outcome, workshop.attempt(message).error
    assert workshop.ti(message).state == state
    (child,) = children()
    attempts = list(RunAttempt.objects.filter(run=child).order_by("number"))
    assert (child.state, len(attempts)) == (
        ("queued", 2) if if_exists == "reset" else ("success", 1)
    )
    if if_exists == "reset":
        assert (attempts[1].cause, attempts[1].actor) == ("trigger", "task f.t")
        assert TaskInstance.objects.get(run=child).state == "none"
    if words:
        assert words in error_of(workshop, message)
    if state == "skipped":
        assert "Skipped: Flow 'other' has a run 'r7'" in str(
            workshop.attempt(message).outcome_reason
        )


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        ("ctx.trigger_flow('nowhere')", "NotFound: no flow is called 'nowhere'"),
        ("ctx.trigger_flow('other', conf={'rows': 'x'})", "'x' is not of type 'integer'"),
        ("ctx.trigger_flow('other', conf={'rows': object()})", "which JSON cannot hold"),
        ("ctx.trigger_flow('other', run_id='a b')", "run_id 'a b' is not allowed"),
        ("ctx.trigger_flow('other', if_exists='maybe')", "give one of 'fail', 'join'"),
        (
            "ctx.trigger_flow('other', logical_date=datetime(2026, 1, 1))",
            "give a datetime with a time zone",
        ),
        ("ctx.trigger_flow('other', fail_when_paused=True)", "Flow 'other' is paused"),
    ],
)
def test_what_cannot_be_asked_for_says_so(workshop: Workshop, ask: str, words: str) -> None:
    other(workshop)
    Flow.objects.filter(flow_id="other").update(is_paused=True)
    message = workshop.issue_one(parent("", ask))
    assert workshop.deliver(message).outcome == "failed"
    assert words in error_of(workshop, message)
    assert children() == []


def test_a_paused_flow_runs_and_a_frozen_one_waits_and_the_log_says_so(workshop: Workshop) -> None:
    other(workshop)
    Flow.objects.filter(flow_id="other").update(is_paused=True)
    message = workshop.issue_one(parent('trigger_flow("other", task_id="t")'))
    workshop.deliver(message)
    assert "is paused: what is asked for runs all the same" in workshop.printed(message)
    Flow.objects.filter(flow_id="other").update(is_paused=False, frozen_at=timezone.now())
    message = workshop.issue_one(parent('trigger_flow("other", task_id="t")'))
    workshop.deliver(message)
    assert "is frozen: its run begins when that is thawed" in workshop.printed(message)
    assert [child.frozen_at is not None for child in children()] == [False, True]


def test_flows_that_trigger_each_other_without_an_end_are_stopped(
    workshop: Workshop, settings: Any
) -> None:
    settings.TRIGGER_DEPTH_MAX = 2
    source = f'{HEAD}\n    @flow\n    def f():\n        trigger_flow("f", task_id="t")\n'
    version = workshop.flow(source)
    Flow.objects.filter(flow_id="f").update(current_version=version)
    run_id = workshop.run(version)
    for depth in (1, 2):
        message = workshop.issue(run_id)
        assert workshop.deliver(message).outcome == "success", workshop.attempt(message).error
        run_id = TriggeredRun.objects.get(depth=depth).run_id
        Run.objects.filter(pk=run_id).update(state="running", started_at=timezone.now())
    message = workshop.issue(run_id)
    assert workshop.deliver(message).outcome == "failed"
    said = error_of(workshop, message)
    assert "f → f → f → f" in said
    assert "trigger each other without an end" in said
    assert "DAYLIGHT_TRIGGER_DEPTH_MAX (2)" in said
    assert Run.objects.count() == 3


def test_a_clear_of_the_task_begins_afresh(workshop: Workshop) -> None:
    other(workshop)
    message = workshop.issue_one(parent('trigger_flow("other", task_id="t")'))
    workshop.deliver(message)
    end(Run.objects.get(pk=message.run_id), "success")

    clear_run(run_id=message.run_id, actor="ada", reason="again", dry_run=False)
    again = workshop.issue(message.run_id)
    TaskInstance.objects.filter(pk=message.ti_id).update(try_number=2)
    assert workshop.deliver(again).outcome == "success", workshop.attempt(again).error
    first, second = children()
    assert first.run_key != second.run_key


def test_its_transactions_keep_the_laws(workshop: Workshop, recording: RecordingConnection) -> None:
    """Locks in order: run, task instance, attempt."""
    other(workshop)
    message = workshop.issue_one(parent("", "pass"))
    ti = TaskInstance.objects.get(pk=message.ti_id)
    nonce = message.attempt_id
    TaskInstance.objects.filter(pk=ti.pk).update(state="running", claim_nonce=nonce)
    asking = Parent(
        flow_id="f",
        run_id=message.run_id,
        task_id="t",
        ti_id=ti.pk,
        attempt_id=message.attempt_id,
        nonce=nonce,
        budget_start=0,
        try_number=1,
        idempotency_key=str(message.attempt_id),
    )
    for key, if_exists in (("a", IfExists.FAIL), ("b", IfExists.RESET)):
        ask = Ask(flow_id="other", key=key, conf={}, run_id="r1", if_exists=if_exists)
        child, _ = ask_for_run(recording, ask=ask, parent=asking, depth_max=9, base_url="")
        assert child is not None
        end(Run.objects.get(pk=child.id), "success")
    assert broken_laws(recording.transactions, deciding=False) == []
