"""Being stopped: limits and requests reach user code, and nothing else."""

from __future__ import annotations

import os
import signal
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from scheduler_app.worker import folder
from scheduler_app.worker.guard import ASK, Guard, TaskStopped, TaskTimeout, seize

if TYPE_CHECKING:
    from collections.abc import Iterator

ONE = "01a2281b-0094-7720-8d01-77ca65ee54a7"
OTHER = "01a2281b-0094-7720-8d01-000000000000"


@pytest.fixture
def place(tmp_path: Path) -> folder.WorkerFolder:
    return folder.create(tmp_path, job_id=uuid.uuid4())


@pytest.fixture
def guard(place: folder.WorkerFolder) -> Iterator[Guard]:
    numbers = (ASK, signal.SIGTERM, signal.SIGALRM, signal.SIGINT)
    before = {number: signal.getsignal(number) for number in numbers}
    made = Guard(place)
    made.install()
    made.begin(ONE)
    yield made
    signal.setitimer(signal.ITIMER_REAL, 0)
    for number, handler in before.items():
        signal.signal(number, handler)


def _ask(place: folder.WorkerFolder, attempt_id: str) -> None:
    place.write(attempt_id, folder.STOP, {"why": "no longer wanted", "hand_back": False})
    os.kill(os.getpid(), ASK)


def _running(place: folder.WorkerFolder) -> None:
    Path(place.file(ONE, folder.RUNNING)).touch()


def test_user_code_returns_what_it_returns(guard: Guard) -> None:
    assert guard.run(lambda: 7, limit_s=5) == 7


def test_user_code_past_its_limit_is_interrupted(guard: Guard) -> None:
    with pytest.raises(TaskTimeout, match=r"time limit of 0\.05 s"):
        guard.run(lambda: time.sleep(10), limit_s=0.05)


def test_a_limit_that_user_code_swallows_fails_it_all_the_same(guard: Guard) -> None:
    def stubborn() -> str:
        try:
            time.sleep(10)
        except BaseException:  # noqa: BLE001 - the point of the test
            return "done anyway"
        return "never interrupted"

    with pytest.raises(TaskTimeout):
        guard.run(stubborn, limit_s=0.05)


def test_the_limit_of_one_run_does_not_reach_the_next(guard: Guard) -> None:
    guard.run(lambda: None, limit_s=0.05)
    assert guard.run(lambda: time.sleep(0.1), limit_s=None) is None


def test_a_request_to_stop_is_raised_in_user_code(guard: Guard, place: folder.WorkerFolder) -> None:
    with pytest.raises(TaskStopped, match="no longer wanted"):
        guard.run(lambda: _ask(place, ONE), limit_s=None)
    assert guard.asked_to_stop()


def test_a_request_about_another_attempt_does_nothing(
    guard: Guard, place: folder.WorkerFolder
) -> None:
    guard.run(lambda: _ask(place, OTHER), limit_s=None)
    assert not guard.asked_to_stop()


def test_a_signal_without_a_request_does_nothing(guard: Guard) -> None:
    guard.run(lambda: os.kill(os.getpid(), signal.SIGTERM), limit_s=None)
    assert not guard.asked_to_stop()


def test_a_request_before_user_code_stops_it_from_starting(
    guard: Guard, place: folder.WorkerFolder
) -> None:
    _ask(place, ONE)
    with pytest.raises(TaskStopped):
        guard.run(lambda: pytest.fail("user code ran"), limit_s=None)


def test_a_request_after_user_code_raises_nothing(guard: Guard, place: folder.WorkerFolder) -> None:
    guard.run(lambda: None, limit_s=None)
    _ask(place, ONE)
    assert guard.asked_to_stop()


def test_an_attempt_without_output_leaves_no_file(guard: Guard, place: folder.WorkerFolder) -> None:
    _running(place)
    guard.end(printed=False)
    assert place.attempts(folder.RUNNING, folder.PRINTED) == []


def test_the_file_of_an_attempt_without_output_is_kept_where_it_is_wanted(
    guard: Guard, place: folder.WorkerFolder
) -> None:
    _running(place)
    guard.end(printed=False, spare=place.file("7", folder.SPARE))
    assert place.attempts(folder.RUNNING, folder.PRINTED, folder.SPARE) == [("7", folder.SPARE)]
    assert not seize(place, ONE)


def test_an_attempt_with_output_leaves_it_to_be_shipped(
    guard: Guard, place: folder.WorkerFolder
) -> None:
    _running(place)
    guard.end(printed=True)
    assert place.attempts(folder.RUNNING, folder.PRINTED) == [(ONE, folder.PRINTED)]


def test_an_attempt_that_is_through_cannot_be_seized(
    guard: Guard, place: folder.WorkerFolder
) -> None:
    _running(place)
    guard.end(printed=True)
    assert not seize(place, ONE)


def test_an_attempt_that_was_seized_never_gets_to_its_end(
    guard: Guard, place: folder.WorkerFolder
) -> None:
    _running(place)
    assert seize(place, ONE)
    pid = os.fork()
    if pid == 0:
        guard.end(printed=False)
        os._exit(1)  # it went on: the test fails
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
