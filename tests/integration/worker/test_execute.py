"""One delivery in a child, from claim to finish: what tasks may do, and what comes of it."""

from __future__ import annotations

import json
import signal
import uuid
from typing import TYPE_CHECKING, Any

import pytest

from scheduler_app.rules import values

if TYPE_CHECKING:
    from tests.workshop import Workshop

HEAD = """
from datetime import timedelta
from scheduler_app.authoring import flow, task

"""


def _flow(body: str, options: str = "", more: str = "") -> str:
    """A flow with one task ``t`` of this body."""
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    return f"{HEAD}{more}\n@task({options})\ndef t(ctx):\n{lines}\n\n@flow\ndef f():\n    t()\n"


def test_a_task_that_returns_succeeds_with_its_result(workshop: Workshop) -> None:
    message = workshop.issue_one(_flow("return {'rows': 3, 'when': timedelta(seconds=1)}"))
    outcome = workshop.deliver(message)
    assert (outcome.what, outcome.outcome, outcome.printed) == ("reported", "success", False)
    attempt, ti = workshop.attempt(message), workshop.ti(message)
    assert (attempt.state, attempt.outcome, attempt.is_accepted) == ("ended", "success", True)
    assert (ti.state, ti.is_open) == ("success", False)
    assert values.decode(attempt.result)["rows"] == 3
    assert attempt.hostname == "host-1"
    assert attempt.worker_job_id == workshop.station.job_id
    assert attempt.published_at is not None
    assert workshop.events(message) == []  # the exit event is the main process's


def test_the_context_says_what_the_task_is(workshop: Workshop) -> None:
    body = (
        "return [ctx.flow_id, ctx.run_id, ctx.task_id, ctx.map_index, ctx.try_number, ctx.fence,"
        " ctx.attempt_id, ctx.conf, ctx.params, ctx.still_mine(), ctx.idempotency_key,"
        " ctx.logical_date]"
    )
    source = _flow(body).replace("@flow\n", "@flow(params={'a': 1, 'b': 2})\n")
    message = workshop.issue_one(source, conf={"b": 3, "undeclared": True})
    workshop.deliver(message)
    attempt = workshop.attempt(message)
    (flow_id, run_id, task_id, index, number, fence, own_id, conf, params, mine, key, date) = (
        values.decode(attempt.result)
    )
    run = attempt.run
    assert run is not None
    assert (flow_id, run_id, task_id, index, number) == ("f", run.run_key, "t", -1, 1)
    assert (fence, own_id, mine) == (message.fence, str(message.attempt_id), True)
    assert conf == {"b": 3, "undeclared": True}
    assert params == {"a": 1, "b": 3, "undeclared": True}
    assert date == run.logical_date
    assert uuid.UUID(key)


def test_results_of_other_tasks_are_arguments_at_any_depth(workshop: Workshop) -> None:
    source = f"""{HEAD}
@task
def one():
    return (1, 2)

@task
def two():
    return {{"x": b"raw"}}

@task
def t(ctx, values):
    return [values["deep"][0], values["two"]["x"], ctx.results["one"]]

@flow
def f():
    t({{"deep": [one()], "two": two()}})
"""
    run_id = workshop.run(workshop.flow(source))
    for task_id in ("one", "two"):
        workshop.deliver(workshop.issue(run_id, task_id))
    message = workshop.issue(run_id)
    workshop.deliver(message)
    assert values.decode(workshop.attempt(message).result) == [(1, 2), b"raw", (1, 2)]


def test_a_failed_task_says_why_and_waits_for_its_retry(workshop: Workshop) -> None:
    message = workshop.issue_one(
        _flow("raise ValueError('no page 7')", "retries=1, retry_delay=timedelta(seconds=30)")
    )
    outcome = workshop.deliver(message)
    assert (outcome.what, outcome.outcome) == ("reported", "failed")
    attempt, ti = workshop.attempt(message), workshop.ti(message)
    assert (ti.state, ti.is_open) == ("up_for_retry", True)
    assert ti.next_retry_at is not None
    assert attempt.ended_at is not None
    assert 29 < (ti.next_retry_at - attempt.ended_at).total_seconds() < 31
    assert attempt.error is not None
    assert attempt.error["type"] == "ValueError"
    assert "flow.py" in attempt.error["traceback"]
    assert "scheduler_app" not in attempt.error["traceback"], "the user's own code alone"
    assert "worker/execute.py" in attempt.error["whole_traceback"]
    assert attempt.outcome_reason == "ValueError: no page 7"
    assert "ValueError: no page 7" in workshop.printed(message)


def test_the_key_stays_and_the_fence_grows_from_try_to_try(workshop: Workshop) -> None:
    body = "print(ctx.idempotency_key, ctx.fence, ctx.try_number)\nraise OSError"
    first = workshop.issue_one(_flow(body, "retries=1, retry_delay=0"))
    workshop.deliver(first)
    second = workshop.issue(first.run_id)
    workshop.deliver(second)
    one, two = (workshop.printed(m).splitlines()[0].split() for m in (first, second))
    assert one[0] == two[0]
    assert int(one[1]) < int(two[1])
    assert (one[2], two[2]) == ("1", "2")
    assert workshop.ti(second).state == "failed"


@pytest.mark.parametrize(
    ("body", "kind", "part"),
    [
        ("return object()", "InvalidInput", "of type object"),
        ("return {'deep': [1, {2: lambda: 0}]}", "InvalidInput", "function"),
        ("return 'x' * 50_000_000", "InvalidInput", "50,000,002 bytes"),
        ("import sys; sys.exit(0)", "SystemExit", "sys.exit(0)"),
        ("import sys; sys.exit('gone')", "SystemExit", "sys.exit(gone)"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt", ""),
        ("raise GeneratorExit('x')", "GeneratorExit", "x"),
        ("raise MemoryError('all of it')", "MemoryError", "all of it"),
        ("raise type('Own', (BaseException,), {})('mine')", "Own", "mine"),
        ("def deeper(): deeper()\ndeeper()", "RecursionError", ""),
        ("raise ValueError('a\\x00b \\ud800')", "ValueError", "a\\x00b \\ud800"),
        ("raise ValueError('x' * 10_000_000)", "ValueError", "characters left out"),
    ],
)
def test_whatever_a_task_does_is_a_failure_in_words(
    workshop: Workshop, body: str, kind: str, part: str
) -> None:
    message = workshop.issue_one(_flow(body))
    assert workshop.deliver(message).outcome == "failed"
    error = workshop.attempt(message).error
    assert error is not None
    assert error["type"].rpartition(".")[2] == kind
    assert part in error["message"]
    assert len(json.dumps(error)) < 100_000
    assert workshop.ti(message).state == "failed"


def test_a_task_past_its_time_limit_is_stopped_and_may_be_retried(workshop: Workshop) -> None:
    body = "import time\ntry:\n    time.sleep(60)\nexcept Exception:\n    return 'swallowed'"
    message = workshop.issue_one(_flow(body, "timeout=0.3, retries=1"))
    assert workshop.deliver(message).outcome == "failed"
    error = workshop.attempt(message).error
    assert error is not None
    assert (error["type"], error["message"]) == (
        "TaskTimeout",
        "The task reached its time limit of 0.3 s.",
    )
    assert workshop.ti(message).state == "up_for_retry"


def test_the_main_process_is_told_the_limit(workshop: Workshop) -> None:
    message = workshop.issue_one(_flow("return 1", "timeout=7.5"))
    workshop.deliver(message)
    notes = [note for note in workshop.station.notes.read() if "claimed" not in note]
    limits = [note["limit_s"] for note in notes]
    assert limits == [30.0, None, 7.5, None]  # loading, loaded, the task's own, through


def test_printed_bytes_of_any_kind_are_kept(workshop: Workshop) -> None:
    body = "import os\nprint('text')\nos.write(2, bytes(range(256)))\nctx.log.info('logged %s', 1)"
    message = workshop.issue_one(_flow(body))
    assert workshop.deliver(message).printed
    path = workshop.folder.file(message.attempt_id, ".log")
    with open(path, "rb") as file:
        data = file.read()
    assert data.startswith(b"text\n" + bytes(range(256)))
    assert b"INFO daylight.task: logged 1\n" in data


def test_user_code_sees_no_addresses_and_no_secrets(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAYLIGHT_SECRET_KEY", "canary")
    monkeypatch.setenv("SOME_URL", "redis://:canary@somewhere")
    monkeypatch.setenv("MY_SETTING", "kept")
    body = "import os, subprocess\nreturn subprocess.run(['env'], capture_output=True, text=True).stdout"
    message = workshop.issue_one(_flow(body))
    workshop.deliver(message)
    seen = workshop.attempt(message).result
    assert "canary" not in str(seen)
    assert "MY_SETTING=kept" in str(seen)


def test_what_one_task_changes_in_its_process_the_next_does_not_see(workshop: Workshop) -> None:
    body = (
        "import os, sys, signal\n"
        "seen = [os.environ.get('LEFT'), os.getcwd(), signal.getsignal(signal.SIGTERM) is None]\n"
        "os.environ['LEFT'] = 'behind'\nos.chdir('/')\nsignal.signal(signal.SIGTERM, signal.SIG_DFL)\n"
        "sys.stdout = None\n"
        "return seen"
    )
    version = workshop.flow(_flow(body))
    messages = [workshop.issue(workshop.run(version)) for _ in range(2)]

    def both() -> None:
        from scheduler_app.worker.execute import execute_delivery  # noqa: PLC0415 - in the child

        for message in messages:
            execute_delivery(
                str(message.attempt_id),
                message.ti_id,
                message.fence,
                message.lease_token,
                workshop.identity,
            )

    workshop.fork(both).outcome()
    first, second = (values.decode(workshop.attempt(m).result) for m in messages)
    assert first == second
    assert first[0] is None


def test_a_task_may_use_processes_of_its_own_and_end_them(workshop: Workshop) -> None:
    body = (
        "import multiprocessing, time\n"
        "with multiprocessing.get_context('fork').Pool(2) as pool:\n"
        "    doubled = pool.map(double, [1, 2])\n"
        "slow = multiprocessing.get_context('fork').Process(target=time.sleep, args=(60,))\n"
        "slow.start()\nslow.terminate()\nslow.join(10)\n"
        "return [doubled, slow.exitcode]"
    )
    more = "def double(number):\n    return 2 * number\n"
    message = workshop.issue_one(_flow(body, "timeout=30", more))
    workshop.deliver(message)
    assert workshop.attempt(message).result == [[2, 4], -signal.SIGTERM]


def test_a_program_that_a_task_starts_ignores_no_signal(workshop: Workshop) -> None:
    body = (
        "import subprocess\n"
        "status = subprocess.run(['cat', '/proc/self/status'], capture_output=True, text=True).stdout\n"
        "return [line for line in status.splitlines() if line.startswith('SigIgn')][0]"
    )
    message = workshop.issue_one(_flow(body))
    workshop.deliver(message)
    ignored = int(str(workshop.attempt(message).result).split()[1], 16)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM):
        assert not ignored & (1 << (number - 1))


def test_a_clock_that_one_task_left_running_does_not_end_the_next(workshop: Workshop) -> None:
    version = workshop.flow(
        _flow("import signal, time\nsignal.alarm(1)\ntime.sleep(0.8)\nreturn 1")
    )
    messages = [workshop.issue(workshop.run(version)) for _ in range(2)]

    def both() -> None:
        from scheduler_app.worker.execute import execute_delivery  # noqa: PLC0415 - in the child

        for m in messages:
            execute_delivery(str(m.attempt_id), m.ti_id, m.fence, m.lease_token, workshop.identity)

    workshop.fork(both).outcome()
    assert [workshop.attempt(m).outcome for m in messages] == ["success", "success"]


def test_a_flow_file_that_does_not_load_here_fails_the_task_and_keeps_its_retries(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = (
        "import os\nif os.environ.get('BROKEN'):\n    raise ImportError('no such library here')\n"
    )
    message = workshop.issue_one(_flow("return 1", "retries=2", more))
    monkeypatch.setenv("BROKEN", "1")
    assert workshop.deliver(message).outcome == "failed"
    error = workshop.attempt(message).error
    assert error is not None
    assert (error["type"], error["message"]) == ("ImportError", "no such library here")
    assert workshop.ti(message).state == "up_for_retry"


def test_a_flow_file_that_hangs_while_loading_is_stopped(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    settings.FLOW_FILE_TIMEOUT_S = 0.1
    more = "import os, time\nif os.environ.get('SLOW'):\n    time.sleep(60)\n"
    message = workshop.issue_one(_flow("return 1", "", more))
    monkeypatch.setenv("SLOW", "1")
    assert workshop.deliver(message).outcome == "failed"
    error = workshop.attempt(message).error
    assert error is not None
    assert error["type"] == "TaskTimeout"


def test_a_task_that_kills_its_process_leaves_the_attempt_running_for_the_witness(
    workshop: Workshop,
) -> None:
    message = workshop.issue_one(_flow("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)"))
    assert workshop.start(message).status() == -signal.SIGKILL
    assert workshop.attempt(message).state == "running"


def test_a_second_delivery_of_a_claimed_attempt_is_refused_and_told(workshop: Workshop) -> None:
    message = workshop.issue_one(_flow("print('ran')"))
    workshop.deliver(message)
    before = workshop.attempt(message)
    outcome = workshop.deliver(message)
    assert (outcome.what, outcome.printed) == ("refused", False)
    (event,) = workshop.events(message)
    assert (event.kind, event.verdict, event.verdict_code, event.filter_code) == (
        "delivery_refused",
        "refused",
        "duplicate_delivery",
        "duplicate_delivery",
    )
    assert event.filter_detail is not None
    assert event.filter_detail["claimed_nonce"] == str(before.nonce)
    assert str(before.nonce) in (event.verdict_reason or "")
    assert event.payload["pid"] != before.pid
    assert workshop.attempt(message).ended_at == before.ended_at


def test_each_refused_delivery_is_an_event_of_its_own(workshop: Workshop) -> None:
    message = workshop.issue_one(_flow("return 1"))
    for _ in range(4):
        workshop.deliver(message)
    assert [event.verdict_code for event in workshop.events(message)] == ["duplicate_delivery"] * 3


@pytest.mark.parametrize("changed", [{"token": 99}, {"fence": 10_000_000}])
def test_a_delivery_of_a_leader_that_lost_its_lease_is_fenced(
    workshop: Workshop, changed: dict[str, Any]
) -> None:
    message = workshop.issue_one(_flow("return 1"))
    assert workshop.deliver(message, **changed).what == "refused"
    (event,) = workshop.events(message)
    assert event.verdict_code == "fenced_stale_leader"
    assert str(next(iter(changed.values()))) in (event.verdict_reason or "")
    assert workshop.attempt(message).state == "issued"


def test_a_delivery_for_another_database_is_refused_without_a_claim(workshop: Workshop) -> None:
    message = workshop.issue_one(_flow("return 1"))
    other = f"{workshop.identity.rpartition(':')[0]}:{uuid.uuid4()}"
    assert workshop.deliver(message, identity=other).what == "refused"
    (event,) = workshop.events(message)
    assert (event.verdict, event.verdict_code) == ("refused", "fenced_other_database")
    assert other in (event.verdict_reason or "")
    assert workshop.attempt(message).state == "issued"


def test_a_delivery_that_nobody_issued_is_a_ghost_with_a_row(workshop: Workshop) -> None:
    message = workshop.issue_one(_flow("return 1"))
    unknown = uuid.uuid4()
    assert workshop.deliver(message, attempt_id=str(unknown)).what == "refused"
    from scheduler_app.models import Attempt, ExecutorEvent  # noqa: PLC0415 - only here

    ghost = Attempt.objects.get(pk=unknown)
    assert (ghost.filter_code, ghost.run_id, ghost.is_live) == ("ghost_no_record", None, False)
    event = ExecutorEvent.objects.get(attempt_id=unknown)
    assert (event.verdict, event.filter_code) == ("ghost", "ghost_no_record")
    assert workshop.attempt(message).state == "issued"


def test_a_delivery_of_a_held_task_is_refused_and_uses_up_nothing(workshop: Workshop) -> None:
    message = workshop.issue_one(_flow("return 1"))
    ti = workshop.ti(message)
    ti.held_by = 77
    ti.save(update_fields=["held_by"])
    assert workshop.deliver(message).what == "refused"
    (event,) = workshop.events(message)
    assert event.verdict_code == "refused_frozen"
    assert "77" in (event.verdict_reason or "")
    after = workshop.ti(message)
    assert (after.state, after.try_number) == ("queued", 1)
    assert workshop.attempt(message).state == "issued"


def test_a_delivery_of_a_replaced_attempt_is_refused(workshop: Workshop) -> None:
    first = workshop.issue_one(_flow("raise OSError", "retries=1, retry_delay=0"))
    workshop.deliver(first)
    second = workshop.issue(first.run_id)
    assert workshop.deliver(first).what == "refused"
    assert workshop.events(first)[-1].verdict_code == "refused_superseded"
    assert str(second.attempt_id) in (workshop.events(first)[-1].verdict_reason or "")
    assert workshop.attempt(second).state == "issued"
