"""Callbacks in a child: issued with the report that calls for them, claimed, called, finished."""

from __future__ import annotations

import json
import os
import signal
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from scheduler_app.models import Attempt, Flow, Run, TaskInstance
from scheduler_app.rules.callbacks import Call
from scheduler_app.scheduler import callbacks as of_scheduler
from scheduler_app.transitions.attempt import Message, claim
from scheduler_app.transitions.callback import NO_TI, NewCallbacks, issue_for_run
from scheduler_app.worker import report
from tests.workshop import TOKEN, wait_until

if TYPE_CHECKING:
    import psycopg

    from tests.workshop import Workshop

HEAD = """
import json, os, time
from datetime import timedelta
from scheduler_app.authoring import flow, task

def tell(context):
    ti, run, error = context["ti"], context["dag_run"], context["exception"]
    print(json.dumps({
        "callback": context["callback"], "task": ti and ti.task_id, "state": (ti or run).state,
        "try": context["try_number"], "run": run.run_id, "dag": run.dag_id, "conf": run.conf,
        "error": error and [type(error).__name__, str(error), isinstance(error, OSError)],
        "reason": context["reason"], "same": context["task_instance"] is ti,
        "params": context["params"], "up": ti and ti.xcom_pull(task_ids="up"),
    }))

def count(context):
    raise RuntimeError("the counter is full")
"""


def _flow(options: str, body: str = "return 1", more: str = "", of_flow: str = "") -> str:
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    return (
        f"{HEAD}{more}\n@task\ndef up():\n    return [1]\n\n"
        f"@task({options})\ndef t(ctx):\n{lines}\n\n@flow({of_flow})\ndef f():\n    up() >> t()\n"
    )


def callbacks_of(run_id: int) -> list[Attempt]:
    """The run's callbacks, oldest first."""
    return list(Attempt.objects.filter(run_id=run_id, kind="callback").order_by("fence"))


def message_of(row: Attempt) -> Message:
    """What the scheduler publishes of it."""
    assert row.run_id is not None
    assert row.fence is not None
    assert row.lease_token is not None
    return Message(
        attempt_id=row.id,
        ti_id=NO_TI,
        run_id=row.run_id,
        fence=row.fence,
        lease_token=row.lease_token,
        queue=row.queue,
    )


def test_a_failure_calls_each_of_its_callbacks_once_by_attempts_of_their_own(
    workshop: Workshop,
) -> None:
    source = _flow("on_failure_callback=[tell, count]", "raise OSError('no page 7')")
    run_id = workshop.run(workshop.flow(source), conf={"a": 1})
    workshop.deliver(workshop.issue(run_id, "up"))
    failed = workshop.issue(run_id)
    workshop.deliver(failed)
    first, second = callbacks_of(run_id)
    assert [(c.kind, c.state, c.is_live, c.filter_code) for c in (first, second)] == [
        ("callback", "issued", True, None)
    ] * 2
    assert first.callback == {
        "on": "on_failure",
        "index": 0,
        "name": "tell",
        "state": "failed",
        "reason": None,
        "of": str(failed.attempt_id),
    }
    # The authority of who ended the attempt is what it was issued with.
    assert (first.lease_token, first.ti_id, first.try_number) == (TOKEN, failed.ti_id, 1)
    assert first.fence is not None
    assert first.fence > failed.fence
    assert workshop.ti(failed).attempt_id == failed.attempt_id, "callbacks are nobody's current"

    outcome = workshop.deliver(message_of(first))
    assert (outcome.what, outcome.outcome) == ("reported", "success")
    said = json.loads(workshop.printed(message_of(first)))
    assert said == {
        "callback": "on_failure",
        "task": "t",
        "state": "failed",
        "try": 1,
        "run": Run.objects.get(pk=run_id).run_key,
        "dag": "f",
        "conf": {"a": 1},
        "error": ["OSError", "no page 7", True],
        "reason": "OSError: no page 7",
        "same": True,
        "params": {"a": 1},
        "up": [1],
    }
    outcome = workshop.deliver(message_of(second))
    assert (outcome.what, outcome.outcome) == ("reported", "failed")
    second.refresh_from_db()
    assert (second.state, second.outcome, second.is_accepted) == ("ended", "failed", True)
    assert second.outcome_reason == "RuntimeError: the counter is full"
    assert second.error is not None
    assert "the counter is full" in workshop.printed(message_of(second))
    ti = workshop.ti(failed)
    assert (ti.state, ti.attempt_id) == ("failed", failed.attempt_id), "the task is untouched"
    assert len(callbacks_of(run_id)) == 2


@pytest.mark.parametrize(
    ("options", "body", "called"),
    [
        ("retries=1, retry_delay=0", "raise OSError", ["on_retry"]),
        ("", "raise OSError", ["on_failure"]),
        ("", "return 1", ["on_success"]),
        ("", "ctx.defer(TimeTrigger(after=timedelta(hours=1)), method='m')", []),
        ("", "raise Reschedule(after=1)", []),
        ("", "import sys; sys.exit(3)", ["on_failure"]),
        ("timeout=0.2", "time.sleep(60)", ["on_failure"]),
        ("retries=1, timeout=0.2", "time.sleep(60)", ["on_retry"]),
    ],
)
def test_each_end_calls_for_the_callbacks_that_are_about_it(
    workshop: Workshop, options: str, body: str, called: list[str]
) -> None:
    more = "from scheduler_app.authoring import Reschedule, TimeTrigger\n"
    every = ", ".join(f"on_{on}_callback=tell" for on in ("retry", "failure", "success", "skipped"))
    source = _flow(f"{every}, {options}", body, more).replace(
        "\n@flow", "\n@t.method\ndef m(ctx, event): ...\n\n@flow"
    )
    message = workshop.issue_one(source)
    workshop.deliver(message)
    found = callbacks_of(message.run_id)
    assert [c.callback["on"] for c in found if c.callback] == called
    if called:
        assert found[0].callback is not None
        assert found[0].callback["state"] == workshop.ti(message).state


def test_a_result_that_the_database_refuses_calls_for_the_failure_that_it_becomes(
    workshop: Workshop,
) -> None:
    made = report.Report(
        ti_id=1,
        attempt_id=str(uuid.uuid4()),
        nonce=str(uuid.uuid4()),
        state="success",
        is_open=False,
        outcome="success",
        result="\x00",
        callbacks={"on_failure": ["tell"], "on_success": ["tell"]},
    )
    message = workshop.issue_one(_flow(""))
    nonce = uuid.uuid4()
    claim(
        workshop.connection,
        ti_id=message.ti_id,
        attempt_id=message.attempt_id,
        token=TOKEN,
        fence=message.fence,
        nonce=nonce,
        worker_job_id=workshop.station.job_id,
        hostname="host-1",
        pid=1,
    )
    made = replace(made, ti_id=message.ti_id, attempt_id=str(message.attempt_id), nonce=str(nonce))
    report.send(workshop.connection, made, source="worker: test", job_id=workshop.station.job_id)
    (called,) = callbacks_of(message.run_id)
    assert called.callback is not None
    assert called.callback["on"] == "on_failure"


def test_the_beginning_of_a_try_is_called_with_the_claim_and_once_per_claim(
    workshop: Workshop,
) -> None:
    source = _flow("on_execute_callback=[tell, tell], retries=1, retry_delay=0", "raise OSError")
    version = workshop.flow(source)
    run_id = workshop.run(version)
    first = workshop.issue(run_id, on_execute=("tell", "tell"))
    workshop.deliver(first)
    called = callbacks_of(run_id)
    assert [c.callback and (c.callback["on"], c.callback["index"]) for c in called] == [
        ("on_execute", 0),
        ("on_execute", 1),
    ]
    # A second delivery is refused, and calls nothing.
    assert workshop.deliver(first).what == "refused"
    workshop.deliver(workshop.issue(run_id, on_execute=("tell", "tell")))
    assert len(callbacks_of(run_id)) == 4
    workshop.deliver(message_of(called[0]))
    said = json.loads(workshop.printed(message_of(called[0])))
    assert (said["callback"], said["state"], said["error"]) == ("on_execute", "running", None)


def test_a_callback_of_a_run_has_no_task_instance(workshop: Workshop) -> None:
    source = _flow("", of_flow="on_failure_callback=tell, params={'p': 1}")
    run_id = workshop.run(workshop.flow(source))
    issue_for_run(
        workshop.connection,
        run_id=run_id,
        token=TOKEN,
        queue="default",
        new=NewCallbacks.of(
            [Call(on="on_failure", index=0, name="tell")], state="failed", reason="Task t failed."
        ),
    )
    (row,) = callbacks_of(run_id)
    assert workshop.deliver(message_of(row)).outcome == "success"
    said = json.loads(workshop.printed(message_of(row)))
    assert (said["task"], said["state"], said["try"]) == (None, "failed", None)
    assert said["reason"] == "Task t failed."
    assert said["error"] == ["ReportedError", "Task t failed.", False]
    assert said["params"] == {"p": 1}


def test_a_second_delivery_of_a_callback_is_refused_and_recorded(workshop: Workshop) -> None:
    message = workshop.issue_one(_flow("on_success_callback=tell"))
    workshop.deliver(message)
    (row,) = callbacks_of(message.run_id)
    again = message_of(row)
    assert workshop.deliver(again).what == "reported"
    assert workshop.deliver(again).what == "refused"
    assert [e.verdict_code for e in workshop.events(again)] == ["duplicate_delivery"]
    wrong = workshop.deliver(again, token=TOKEN + 1)
    assert wrong.what == "refused"
    assert [e.verdict_code for e in workshop.events(again)][-1] == "fenced_stale_leader"


@pytest.mark.parametrize("scope", ["ti", "run", "flow"])
def test_a_freeze_holds_callbacks_until_the_thaw(
    workshop: Workshop, raw: psycopg.Connection[Any], scope: str
) -> None:
    message = workshop.issue_one(_flow("on_success_callback=tell"))
    workshop.deliver(message)
    (row,) = callbacks_of(message.run_id)
    now = "2026-01-01T00:00:00Z"
    if scope == "ti":
        TaskInstance.objects.filter(pk=message.ti_id).update(held_by=7)
    elif scope == "run":
        Run.objects.filter(pk=message.run_id).update(frozen_at=now)
    else:
        Flow.objects.filter(pk="f").update(frozen_at=now)
    Attempt.objects.filter(pk=row.pk).update(published_at=now)
    assert workshop.deliver(message_of(row)).what == "refused"
    assert [e.verdict_code for e in workshop.events(message_of(row))] == ["refused_frozen"]
    row.refresh_from_db()
    assert (row.state, row.published_at) == ("issued", None)
    terms = {3: TOKEN}
    assert of_scheduler.unpublished(raw, terms=terms, queue_slots={}) == []
    TaskInstance.objects.filter(pk=message.ti_id).update(held_by=None)
    Run.objects.filter(pk=message.run_id).update(frozen_at=None)
    Flow.objects.filter(pk="f").update(frozen_at=None)
    (published,) = of_scheduler.unpublished(raw, terms=terms, queue_slots={})
    assert published == message_of(row)
    assert workshop.deliver(published).outcome == "success"


def test_a_callback_that_takes_too_long_is_ended_as_failed(
    workshop: Workshop, settings: Any
) -> None:
    settings.CALLBACK_TIMEOUT_S = 0.2
    more = "def slow(context):\n    time.sleep(60)\n"
    message = workshop.issue_one(_flow("on_success_callback=slow", more=more))
    workshop.deliver(message)
    (row,) = callbacks_of(message.run_id)
    assert workshop.deliver(message_of(row)).outcome == "failed"
    row.refresh_from_db()
    assert row.outcome_reason == "TaskTimeout: The task reached its time limit of 0.2 s."
    assert workshop.ti(message).state == "success"


def test_a_callback_that_its_file_no_longer_makes_fails_and_says_so(workshop: Workshop) -> None:
    more = "import os\nmade = [tell] if os.environ.get('MAKE') else []\n"
    message = workshop.issue_one(_flow("on_success_callback=made", more=more))
    workshop.deliver(message)
    assert callbacks_of(message.run_id) == []
    issue_for_run(
        workshop.connection,
        run_id=message.run_id,
        token=TOKEN,
        queue="default",
        new=NewCallbacks.of([Call(on="on_success", index=2, name="gone")], state="success"),
    )
    (row,) = callbacks_of(message.run_id)
    assert workshop.deliver(message_of(row)).outcome == "failed"
    row.refresh_from_db()
    assert row.outcome_reason is not None
    assert "no on_success_callback number 3 at the flow itself" in row.outcome_reason


def test_a_killed_callback_leaves_its_row_running_for_the_witness(workshop: Workshop) -> None:
    more = "def slow(context):\n    print('begun', flush=True)\n    time.sleep(60)\n"
    message = workshop.issue_one(_flow("on_success_callback=slow", more=more))
    workshop.deliver(message)
    (row,) = callbacks_of(message.run_id)
    child = workshop.start(message_of(row))
    wait_until(lambda: "begun" in workshop.printed(message_of(row)), within_s=60)
    os.kill(child.pid, signal.SIGKILL)
    assert child.status() == -signal.SIGKILL
    row.refresh_from_db()
    assert (row.state, row.pid) == ("running", child.pid)
