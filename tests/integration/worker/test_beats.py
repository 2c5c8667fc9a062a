"""Heartbeats of the main process, and how it stops what is not wanted or takes too long."""

from __future__ import annotations

import itertools
import os
import signal
import textwrap
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from scheduler_app.models import Attempt, TaskInstance
from scheduler_app.transitions.attempt import lose
from scheduler_app.worker import beats, folder, witness
from tests.workshop import Hints, wait_until

if TYPE_CHECKING:
    from scheduler_app.transitions.attempt import Message
    from tests.workshop import Forked, Workshop

SLOW = """
import time
from scheduler_app.authoring import flow, task

@task(retries=1, retry_delay=0)
def t():
    time.sleep(60)

@flow
def f():
    t()
"""
# Minds neither a signal nor an exception for as long as it sleeps.
DEAF = SLOW.replace(
    "time.sleep(60)",
    """
    import signal
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGURG, signal.SIGTERM, signal.SIGALRM})
    time.sleep(60)""",
)


def flow_of(body: str) -> str:
    """A flow whose task has this body; it says when it is under way."""
    return (
        "import os, signal, subprocess, sys, time\n"
        "from scheduler_app.authoring import flow, task\n"
        "@task(retries=3, retry_delay=0)\n"
        "def t():\n"
        f"{textwrap.indent(textwrap.dedent(body).strip(), '    ')}\n"
        "@flow\n"
        "def f():\n"
        "    t()\n"
    )


SAY = 'print("under way", flush=True)'
# Busy in one call of C: no Python code of the process, no handler either, runs meanwhile.
IN_C = "import hashlib; hashlib.pbkdf2_hmac('sha256', b'x', b'y', 2_000_000_000)"
# How user code may take being told to stop, and what ends it.
STUBBORN = {
    "it minds the exception": (
        f"""
        try:
            {SAY}
            time.sleep(60)
        finally:
            print("tidied up", flush=True)
        """,
        "exception",
    ),
    "it sleeps": (f"{SAY}\ntime.sleep(60)", "exception"),
    "it raises something else instead": (
        f"""
        try:
            {SAY}
            time.sleep(60)
        except BaseException:
            raise ValueError("not now") from None
        """,
        "exception",
    ),
    "it swallows exceptions": (
        f"""
        {SAY}
        while True:
            try:
                time.sleep(60)
            except BaseException:
                pass
        """,
        "signal",
    ),
    "it has its own way with SIGTERM": (
        f"""
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))
        {SAY}
        while True:
            try:
                time.sleep(60)
            except SystemExit:
                raise
            except BaseException:
                pass
        """,
        "signal",
    ),
    "it leaves at SIGTERM": (
        f"""
        signal.signal(signal.SIGTERM, lambda *_: os._exit(3))
        signal.signal(signal.SIGURG, signal.SIG_IGN)
        {SAY}
        time.sleep(60)
        """,
        "signal",
    ),
    "it ignores SIGTERM too": (
        f"""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        {SAY}
        while True:
            try:
                time.sleep(60)
            except BaseException:
                pass
        """,
        "kill",
    ),
    "it is in a call of C": (f"{SAY}\n{IN_C}", "kill"),
}


class Main:
    """The threads of a main process that matter here."""

    def __init__(self, workshop: Workshop) -> None:
        self.workshop = workshop
        notices = Hints()
        self.witness = witness.Witness(workshop.station, notices=notices)
        self.beats = beats.Beats(workshop.station, self.witness, notices=notices)
        self.children: list[Forked] = []

    def start(self, source: str) -> tuple[Message, Forked]:
        """An execution under way."""
        message = self.workshop.issue_one(source)
        child = self.workshop.start(message)
        self.children.append(child)
        self.witness.accepted(child.pid, str(message.attempt_id))
        wait_until(lambda: self.workshop.attempt(message).state == "running")
        return message, child

    def returned(self, message: Message, child: Forked) -> None:
        """The event loop hears that the child is through."""
        self.witness.returned(child.pid, str(message.attempt_id), child.outcome())


@pytest.fixture
def main(workshop: Workshop, settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Main]:
    settings.HEARTBEAT_INTERVAL_S = 0.1
    monkeypatch.setattr(beats, "STOP_GRACE_S", 1.0)
    monkeypatch.setattr(beats, "LOOK_INTERVAL_S", 0.05)
    made = Main(workshop)
    made.witness.start()
    made.beats.start()
    yield made
    made.beats.stop(5)
    for child in made.children:
        try:
            os.kill(child.pid, signal.SIGKILL)
            os.waitpid(child.pid, 0)
        except (ProcessLookupError, ChildProcessError):
            continue
    made.witness.stop(5)


def test_a_long_execution_beats_and_a_wanted_one_goes_on(main: Main, workshop: Workshop) -> None:
    message, child = main.start(SLOW)
    first = wait_until(lambda: workshop.attempt(message).heartbeat_at)
    wait_until(lambda: workshop.attempt(message).heartbeat_at > first)
    assert os.waitpid(child.pid, os.WNOHANG) == (0, 0)


def test_a_workers_clock_that_jumps_changes_no_heartbeat(
    main: Main, workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Heartbeats are the database's moments, and intervals are counted by a clock that never jumps."""
    message, _ = main.start(SLOW)
    wall = time.time()
    for jumped in (wall + 3600, wall - 7200, wall + 86_400):
        monkeypatch.setattr(time, "time", itertools.repeat(jumped).__next__)
        seen = {workshop.attempt(message).heartbeat_at, None}
        wait_until(lambda: workshop.attempt(message).heartbeat_at not in seen, within_s=60)  # noqa: B023 - called within the round
        told = workshop.connection.execute(
            "SELECT count(*) FROM attempt WHERE id = %s AND heartbeat_at"
            " BETWEEN clock_timestamp() - interval '1 min' AND clock_timestamp()",
            [message.attempt_id],
        )
        assert tuple(told.fetchone() or ()) == (1,)
    assert workshop.attempt(message).state == "running"


def test_an_attempt_that_is_no_longer_wanted_is_stopped_by_an_exception(
    main: Main, workshop: Workshop
) -> None:
    message, child = main.start(SLOW)
    lose(
        workshop.connection, attempt_ids=[message.attempt_id], dead_after_s=0, budget=3, source="t"
    )
    outcome = child.outcome(within_s=30)
    assert (outcome.what, outcome.outcome) == ("reported", "terminated")
    assert "Stopped: the attempt is no longer wanted (it is ended)" in workshop.printed(message)
    assert workshop.attempt(message).outcome == "lost"
    assert workshop.events(message)[-1].kind == "late_report"


def test_an_attempt_that_somebody_asked_to_stop_fails_with_that_reason(
    main: Main, workshop: Workshop
) -> None:
    message, child = main.start(SLOW)
    Attempt.objects.filter(pk=message.attempt_id).update(stop_reason="ada stopped it")
    assert child.outcome(within_s=30).outcome == "terminated"
    attempt = workshop.attempt(message)
    assert attempt.outcome == "terminated"
    assert (attempt.outcome_reason or "").startswith("ada stopped it. Its code ended at the exce")
    assert workshop.ti(message).state == "failed"  # no retry: a person wanted it to end


def test_a_deaf_task_that_was_asked_to_stop_is_killed_after_the_grace(
    main: Main, workshop: Workshop
) -> None:
    message, child = main.start(DEAF)
    time.sleep(0.3)
    Attempt.objects.filter(pk=message.attempt_id).update(stop_reason="ada stopped it")
    assert child.status(within_s=30) == -signal.SIGKILL
    attempt = wait_until(
        lambda: Attempt.objects.filter(pk=message.attempt_id, state="ended").first()
    )
    assert attempt.outcome == "terminated"
    assert attempt.outcome_reason.startswith("ada stopped it. ")
    assert workshop.ti(message).state == "failed"
    (event,) = wait_until(lambda: workshop.events(message))
    assert (event.kind, event.verdict) == ("exit_killed", "confirmed")
    assert (event.payload["why"], event.payload["stopped_by"]) == ("ada stopped it", "kill")
    assert workshop.folder.attempts(folder.STOP, folder.RUNNING) == []


def test_a_task_that_ignores_its_time_limit_is_killed_and_may_be_retried(
    main: Main, workshop: Workshop
) -> None:
    source = DEAF.replace("retry_delay=0", "retry_delay=0, timeout=0.3")
    message, child = main.start(source)
    assert child.status(within_s=30) == -signal.SIGKILL
    ti = wait_until(
        lambda: TaskInstance.objects.filter(pk=message.ti_id).exclude(state="running").first()
    )
    assert ti.state == "up_for_retry"
    assert "time limit of 0.3 s" in (workshop.attempt(message).outcome_reason or "")


def test_a_child_whose_report_waits_for_the_database_is_not_killed(
    main: Main, workshop: Workshop
) -> None:
    message, child = main.start(DEAF)
    time.sleep(0.3)
    workshop.folder.write(message.attempt_id, folder.REPORT, {"stands": "for a report"})
    (execution,) = main.witness.executions()
    main.beats.ask_to_stop(execution, why="too late", grace_s=0.1)
    time.sleep(0.5)
    assert os.waitpid(child.pid, os.WNOHANG) == (0, 0)
    workshop.folder.drop(message.attempt_id, folder.REPORT)


def test_an_attempt_that_waits_for_its_claim_is_not_taken_for_unwanted(
    main: Main, workshop: Workshop
) -> None:
    message = workshop.issue_one(SLOW)
    child = workshop.fork(lambda: time.sleep(60))
    main.children.append(child)
    main.witness.accepted(child.pid, str(message.attempt_id))
    time.sleep(0.8)
    assert workshop.folder.attempts(folder.STOP) == []


def test_a_child_that_hangs_with_a_second_delivery_is_killed_and_the_first_goes_on(
    main: Main, workshop: Workshop
) -> None:
    message, first = main.start(SLOW)
    second = workshop.fork(lambda: time.sleep(60))  # as if its claim had no answer
    main.children.append(second)
    main.witness.accepted(second.pid, str(message.attempt_id))
    (execution,) = [one for one in main.witness.executions() if one.pid == second.pid]
    main.beats.ask_to_stop(execution, why="too late", grace_s=0.1)
    assert second.status(within_s=30) != 0
    (event,) = wait_until(lambda: workshop.events(message))
    assert event.verdict_code == "duplicate_delivery"
    assert workshop.attempt(message).state == "running"
    assert os.waitpid(first.pid, os.WNOHANG) == (0, 0)


def test_an_attempt_whose_child_is_about_to_return_is_not_stopped(
    main: Main, workshop: Workshop, settings: Any
) -> None:
    """Its report was accepted a moment ago: unwanted for the beat, and yet nothing is wrong."""
    settings.HEARTBEAT_INTERVAL_S = 0.4
    message, child = main.start(SLOW.replace("time.sleep(60)", "time.sleep(0.6)"))
    outcome = child.outcome()
    time.sleep(0.3)
    main.witness.returned(child.pid, str(message.attempt_id), outcome)
    time.sleep(0.6)
    assert workshop.folder.attempts(folder.STOP) == []
    assert workshop.attempt(message).outcome == "success"


def test_a_kill_never_reaches_the_next_attempt_of_the_same_child(
    main: Main, workshop: Workshop
) -> None:
    """The main process still believes in the first attempt; its child is at the second."""
    first = workshop.issue_one(SLOW.replace("time.sleep(60)", "pass"))
    second = workshop.issue_one(SLOW.replace("time.sleep(60)", "time.sleep(1.5)"))

    def both() -> Any:
        from scheduler_app.worker.execute import execute_delivery  # noqa: PLC0415 - in the child

        return [
            execute_delivery(
                str(m.attempt_id), m.ti_id, m.fence, m.lease_token, workshop.identity
            ).outcome
            for m in (first, second)
        ]

    child = workshop.fork(both)
    main.children.append(child)
    main.witness.accepted(child.pid, str(first.attempt_id))
    wait_until(lambda: workshop.attempt(second).state == "running")
    (execution,) = main.witness.executions()
    main.beats.ask_to_stop(execution, why="too late", grace_s=0.1)
    outcomes: Any = child.outcome()
    assert outcomes == ["success", "success"]


# -- the three stages --------------------------------------------------------------------------


def ask(main: Main, message: Message) -> None:
    """The user code is under way, and somebody wants it to stop."""
    wait_until(lambda: "under way" in main.workshop.printed(message), within_s=60)
    Attempt.objects.filter(pk=message.attempt_id).update(stop_reason="ada terminated it: enough")


def ended(main: Main, message: Message) -> Attempt:
    """The attempt once it has ended."""
    attempt = wait_until(
        lambda: Attempt.objects.filter(pk=message.attempt_id, state="ended").first(), within_s=60
    )
    assert isinstance(attempt, Attempt)
    return attempt


@pytest.mark.parametrize("how", STUBBORN)
def test_user_code_is_stopped_by_the_first_stage_that_it_minds(
    main: Main, workshop: Workshop, how: str
) -> None:
    body, stage = STUBBORN[how]
    message, child = main.start(flow_of(body))
    ask(main, message)
    attempt = ended(main, message)
    if stage == "exception":
        main.returned(message, child)
    else:
        child.status(within_s=60)
    assert attempt.outcome == "terminated"
    assert (attempt.outcome_reason or "").startswith("ada terminated it: enough. ")
    assert {
        "exception": "ended at the exception",
        "signal": "SIGTERM ended it",
        "kill": "it was killed",
    }[stage] in (attempt.outcome_reason or "")
    ti = workshop.ti(message)
    assert (ti.state, ti.next_retry_at) == ("failed", None), "no other try"
    (event,) = wait_until(lambda: workshop.events(message), within_s=60)
    assert (event.verdict, event.payload["stopped_by"]) == ("confirmed", stage)
    assert event.payload["why"] == "ada terminated it: enough"
    assert workshop.folder.attempts(folder.STOP, folder.RUNNING) == []


def test_code_that_minds_the_exception_may_tidy_up_and_its_words_are_kept(
    main: Main, workshop: Workshop
) -> None:
    body, _ = STUBBORN["it minds the exception"]
    message, child = main.start(flow_of(body))
    ask(main, message)
    main.returned(message, child)
    assert workshop.printed(message) == (
        "under way\ntidied up\nStopped: ada terminated it: enough\n"
    )


@pytest.mark.parametrize("stage", ["exception", "signal", "kill"])
def test_what_the_code_started_ends_with_it(
    main: Main, workshop: Workshop, stage: str, tmp_path: Any
) -> None:
    """One in the same group, one that made a session of its own, and a child of that one."""
    swallow = "" if stage == "exception" else "except BaseException: pass"
    ignore = "signal.signal(signal.SIGTERM, signal.SIG_IGN)" if stage == "kill" else ""
    body = f"""
    {ignore}
    near = subprocess.Popen(["sleep", "600"])
    far = subprocess.Popen(
        ["sh", "-c", "sleep 600 & echo $! > {tmp_path}/below; wait"], start_new_session=True
    )
    while not os.path.exists("{tmp_path}/below") or not open("{tmp_path}/below").read():
        time.sleep(0.01)
    with open("{tmp_path}/pids", "w") as file:
        file.write(f"{{near.pid}} {{far.pid}}")
    {SAY}
    while True:
        try:
            time.sleep(60)
        {swallow or "finally: pass"}
    """
    message, child = main.start(flow_of(body))
    ask(main, message)
    assert ended(main, message).outcome == "terminated"
    if stage == "exception":
        main.returned(message, child)
    else:
        child.status(within_s=60)
    text = f"{(tmp_path / 'pids').read_text()} {(tmp_path / 'below').read_text()}"
    pids = [int(pid) for pid in text.split()]
    assert len(pids) == 3
    wait_until(lambda: not any(_is_running(pid) for pid in pids), within_s=60)
    assert wait_until(lambda: workshop.events(message))[0].payload["stopped_by"] == stage


def test_what_an_earlier_attempt_left_running_is_left_alone(
    main: Main, workshop: Workshop, tmp_path: Any
) -> None:
    """Of the same child of the pool: it may have been meant to go on."""
    leaver = flow_of(
        f"""
        left = subprocess.Popen(["sleep", "600"])
        open("{tmp_path}/left", "w").write(str(left.pid))
        """
    )
    first, second = (
        workshop.issue_one(leaver),
        workshop.issue_one(flow_of(f"{SAY}\ntime.sleep(60)")),
    )

    def both() -> Any:
        from scheduler_app.worker.execute import execute_delivery  # noqa: PLC0415 - in the child

        return [
            execute_delivery(
                str(m.attempt_id), m.ti_id, m.fence, m.lease_token, workshop.identity
            ).outcome
            for m in (first, second)
        ]

    child = workshop.fork(both)
    main.children.append(child)
    wait_until(lambda: workshop.attempt(second).state == "running", within_s=60)
    main.witness.accepted(child.pid, str(second.attempt_id))
    ask(main, second)
    outcomes: Any = child.outcome(within_s=60)
    assert outcomes == ["success", "terminated"]
    left = int((tmp_path / "left").read_text())
    try:
        assert _is_running(left)
    finally:
        os.kill(left, signal.SIGKILL)


def _is_running(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False
