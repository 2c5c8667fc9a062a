"""What only the local executor has: a process per task, sockets, workers that share."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from scheduler_app.executors import local_peers, local_wire
from scheduler_app.executors.local import LocalExecutor
from scheduler_app.launch.environment import ROOT
from scheduler_app.models import Attempt
from tests.integration.executors.conftest import GARBAGE, SOON_S, flow_of, is_alive
from tests.integration.executors.test_workers import lines_of, most_at_once, noted
from tests.workshop import wait_until

if TYPE_CHECKING:
    from tests.integration.executors.conftest import Hall
    from tests.workshop import Workshop


# -- a process per task ---------------------------------------------------------------------------


def test_without_a_limit_twenty_sleeping_tasks_run_at_the_same_time(
    workshop: Workshop, local: Hall, tmp_path: Path
) -> None:
    worker = local.start_worker(concurrency=0)
    assert local.children(worker) == [], "there is a process where there is a task"
    gate = tmp_path / "gate"
    body = f"while not os.path.exists({str(gate)!r}): time.sleep(0.05)"
    messages = [workshop.issue_one(flow_of(body)) for _ in range(20)]
    local.publish(*messages)
    wait_until(lambda: Attempt.objects.filter(state="running").count() == 20, within_s=SOON_S)
    assert len(local.children(worker)) == 20
    assert local.depth() == 0
    gate.touch()
    attempts = [local.ended(message) for message in messages]
    assert [attempt.outcome for attempt in attempts] == ["success"] * 20
    assert len({attempt.pid for attempt in attempts}) == 20
    wait_until(lambda: local.children(worker) == [], within_s=SOON_S)
    for message in messages:
        (event,) = local.events(message)
        assert (event.kind, event.verdict) == ("exit_success", "confirmed")


def test_a_process_per_task_is_watched_stopped_and_handed_back_like_any_child(
    workshop: Workshop, local: Hall
) -> None:
    worker = local.start_worker(concurrency=0)
    killed, limited, long = (
        workshop.issue_one(flow_of("time.sleep(600)", options))
        for options in ("", "timeout=1", "retries=0")
    )
    local.publish(killed, limited, long)
    os.kill(local.running(killed).pid or 0, signal.SIGKILL)
    (event,) = local.events(killed)
    assert (event.kind, event.payload["signal_name"]) == ("exit_killed", "SIGKILL")
    assert local.ended(limited).outcome == "failed"
    local.running(long)
    worker.terminate()
    assert worker.wait(SOON_S) == 0
    assert workshop.ti(long).state == "scheduled"
    assert [e.kind for e in workshop.events(long)] == ["handed_back"]


def test_celery_refuses_a_worker_without_a_limit(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "manage.py", "worker", "--concurrency", "0"],
        cwd=ROOT,
        env={**os.environ, "DAYLIGHT_EXECUTOR": "celery", "DAYLIGHT_DATA_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=SOON_S,
    )
    assert done.returncode != 0
    assert "--concurrency 0 must be between 1 and 512 with the celery executor" in done.stderr


# -- sharing --------------------------------------------------------------------------------------


def test_the_worker_with_the_most_room_gets_the_message(
    workshop: Workshop, local: Hall, tmp_path: Path
) -> None:
    for concurrency in (1, 3):
        local.start_worker(concurrency=concurrency)
    ran = tmp_path / "ran"
    messages = [workshop.issue_one(noted(ran, 3)) for _ in range(4)]
    local.publish(*messages)
    wait_until(lambda: len(lines_of(ran)) >= 4, within_s=SOON_S)
    assert local.depth() == 0
    assert [local.ended(message).outcome for message in messages] == ["success"] * 4
    assert most_at_once(lines_of(ran)) == 4


def test_a_worker_that_does_not_answer_holds_up_nobody_for_long(
    workshop: Workshop, local: Hall
) -> None:
    stalled = local.start_worker()
    local.start_worker()
    os.kill(stalled.pid, signal.SIGSTOP)
    messages = [workshop.issue_one(flow_of("return 1")) for _ in range(3)]
    local.publish(*messages)
    assert [local.ended(message).outcome for message in messages] == ["success"] * 3
    os.kill(stalled.pid, signal.SIGCONT)


# -- sockets --------------------------------------------------------------------------------------


@pytest.mark.parametrize("line", GARBAGE, ids=lambda line: repr(line[:20]))
def test_a_stranger_s_line_is_refused_and_the_connection_closed(
    listening: Listening, line: bytes
) -> None:
    answers = listening.say(line)
    assert not any("taken" in answer and answer["taken"] for answer in answers)
    assert listening.say(b'{"ask": "load"}\n')[0]["waiting"] == {}


class Listening:
    """One worker for all lines of this module: it goes on whatever it is told."""

    def __init__(self, hall: Hall) -> None:
        self.hall = hall

    def say(self, line: bytes) -> list[Any]:
        return [json.loads(answer) for answer in self.hall.say(line).splitlines()]


@pytest.fixture
def listening(local: Hall) -> Listening:
    local.start_worker()
    return Listening(local)


def test_nobody_else_may_enter_the_folder_of_the_sockets(local: Hall) -> None:
    local.start_worker()
    folder = local_wire.socket_folder(local.data_dir)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    (path,) = folder.iterdir()
    assert stat.S_ISSOCK(path.stat().st_mode)


def test_the_socket_of_a_worker_goes_with_it_and_that_of_a_killed_one_when_it_is_missed(
    workshop: Workshop, local: Hall
) -> None:
    folder = local_wire.socket_folder(local.data_dir)
    first, second = local.start_worker(), local.start_worker()
    assert len(list(folder.iterdir())) == 2
    first.terminate()
    assert first.wait(SOON_S) == 0
    assert len(list(folder.iterdir())) == 1
    second.kill()
    second.wait()
    message = workshop.issue_one(flow_of("return 1"))
    assert local.executor.publish([message], identity=workshop.identity) == set()
    assert list(folder.iterdir()) == []


def test_a_socket_that_somebody_tidied_away_is_made_again(workshop: Workshop, local: Hall) -> None:
    local.start_worker()
    shutil.rmtree(local_wire.socket_folder(local.data_dir))
    message = workshop.issue_one(flow_of("return 1"))
    wait_until(
        lambda: local.executor.publish(
            [replace(message, queue=local.queue)], identity=workshop.identity
        ),
        within_s=SOON_S,
    )
    assert local.ended(message).outcome == "success"
    assert stat.S_IMODE(local_wire.socket_folder(local.data_dir).stat().st_mode) == 0o700


def test_nothing_that_a_task_leaves_running_keeps_the_socket_of_a_dead_worker_open(
    workshop: Workshop, local: Hall
) -> None:
    worker = local.start_worker()
    message = workshop.issue_one(
        flow_of(
            "import subprocess; return subprocess.Popen(['sleep', '600'], start_new_session=True).pid"
        )
    )
    local.publish(message)
    left = local.ended(message).result
    assert isinstance(left, int)
    try:
        worker.kill()
        worker.wait()
        assert is_alive(left)
        (path,) = local_wire.socket_folder(local.data_dir).glob("*.sock")
        with socket.socket(socket.AF_UNIX) as client, pytest.raises(ConnectionRefusedError):
            client.connect(str(path))
    finally:
        os.kill(left, signal.SIGKILL)


# -- the executor by itself -----------------------------------------------------------------------


@pytest.fixture
def folder(place: Path) -> Path:
    return local_wire.socket_folder(place)


def test_without_workers_nothing_is_taken_and_nothing_waits(
    workshop: Workshop, folder: Path
) -> None:
    executor = LocalExecutor(folder)
    message = workshop.issue_one(flow_of("return 1"))
    assert executor.publish([], identity="here") == set()
    assert executor.publish([message], identity="here") == set()
    assert executor.queue_depth("default") == 0
    executor.close()


def test_what_was_sent_to_a_worker_that_fell_silent_is_offered_to_nobody_else(
    workshop: Workshop, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_peers, "ANSWER_S", 0.2)
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(folder / "silent.sock"))
        silent.listen()
        executor = LocalExecutor(folder)
        (peer,) = executor._peers.awake()
        peer.load = local_peers.Load(queues=("default",), size=2, running=0, waiting={})
        message = workshop.issue_one(flow_of("return 1"))
        assert executor.publish([message], identity="here") == {message.attempt_id}
        assert executor._peers.awake() == [], "it is left alone for a while"
        assert executor.publish([message], identity="here") == set()
        executor.close()


def test_a_data_folder_deep_down_has_its_sockets_elsewhere(tmp_path: Path) -> None:
    deep = tmp_path.joinpath(*["a-rather-long-name"] * 6)
    folder = local_wire.socket_folder(deep)
    try:
        assert folder.parent == Path("/tmp")
        assert local_wire.socket_folder(deep) == folder
        assert local_wire.socket_folder(deep / "b") != folder
        folder.chmod(0o755)
        with pytest.raises(local_wire.NoFolder, match="mode 0700"):
            local_wire.socket_folder(deep)
    finally:
        shutil.rmtree(folder)
        shutil.rmtree(local_wire.socket_folder(deep / "b"))


def test_a_folder_of_somebody_else_s_is_refused(place: Path) -> None:
    (place / "workers").symlink_to("/tmp")
    with pytest.raises(local_wire.NoFolder, match="kept in"):
        local_wire.socket_folder(place)
