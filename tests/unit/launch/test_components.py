from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from scheduler_app.launch import components
from scheduler_app.launch.components import Component, Components, ending
from scheduler_app.launch.environment import ROOT


def component(tmp_path: Path, code: str, name: str = "web") -> Component:
    return Component(name=name, command=[sys.executable, "-c", code], log=tmp_path / f"{name}.log")


def wait_for_exit(member: Component) -> None:
    assert member.process is not None
    deadline = time.monotonic_ns() + 10**10
    while member.process.poll() is None:
        assert time.monotonic_ns() < deadline
        time.sleep(0.01)


def test_what_exits_starts_again_after_a_pause_that_grows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    member = component(tmp_path, "raise SystemExit(3)")
    lines = []
    for pause_s in (1, 2, 4, 8, 16, 30, 30):
        assert member.is_due()
        member.start(os.environ, tmp_path)
        wait_for_exit(member)
        lines.append(member.reap())
        assert not member.is_due()
        now[0] += pause_s
    assert lines[0] == "web ended (exit code 3); it starts again in 1 s"
    assert lines[-1] == "web ended (exit code 3); it starts again in 30 s"
    assert member.exits == 7


def test_what_ran_for_long_starts_again_as_if_for_the_first_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    member = component(tmp_path, "")
    for _ in range(4):
        member.start(os.environ, tmp_path)
        wait_for_exit(member)
        member.reap()
    member.start(os.environ, tmp_path)
    wait_for_exit(member)
    now[0] += components.STEADY_AFTER_S
    assert member.reap().endswith("in 1 s")


def test_what_stalls_is_left_alone(tmp_path: Path) -> None:
    member = component(tmp_path, "import time; time.sleep(60)")
    member.start(os.environ, tmp_path)
    assert member.process is not None
    member.process.send_signal(signal.SIGSTOP)
    assert member.reap() == ""
    assert not member.is_due()
    assert Components([member]).kill() == ["web"]


def test_those_that_ignore_the_polite_signal_are_killed(tmp_path: Path) -> None:
    stubborn = component(
        tmp_path,
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True);"
        "time.sleep(60)",
        "stubborn",
    )
    polite = component(tmp_path, "import time; print('up', flush=True); time.sleep(60)", "polite")
    both = Components([stubborn, polite])
    for member in both.members:
        member.start(os.environ, tmp_path)
        _wait_for_text(member.log)
    both.ask_to_end()
    wait_for_exit(polite)
    assert both.running() == [stubborn]
    assert both.kill() == ["stubborn"]
    assert both.running() == []
    assert both.kill() == []


def test_output_of_a_process_is_in_its_log(tmp_path: Path) -> None:
    member = component(tmp_path, "import sys; print('out'); print('err', file=sys.stderr)")
    member.start(os.environ, tmp_path)
    wait_for_exit(member)
    assert sorted(member.log.read_text().split()) == ["err", "out"]


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's promise exists on Linux only")
def test_a_child_ends_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path; from scheduler_app.launch import children;"
        "log = open(sys.argv[1], 'ab');"
        "child = children.spawn([sys.executable, '-c', 'import time; time.sleep(60)'], log=log,"
        " environ=os.environ, cwd=Path('/'));"
        "print(child.pid, flush=True); import time; time.sleep(60)"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "log")],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    os.kill(child, 0)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + 10
    while _is_running(child):
        assert time.monotonic() < deadline, "the child outlived its parent"
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("code", "words"), [(0, "exit code 0"), (-9, "signal SIGKILL"), (-200, "signal 200")]
)
def test_an_ending_is_put_in_words(code: int, words: str) -> None:
    assert ending(code) == words


def _wait_for_text(log: Path) -> None:
    deadline = time.monotonic() + 10
    while not log.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
