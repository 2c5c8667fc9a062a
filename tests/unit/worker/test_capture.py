"""What an attempt prints is in its file, whatever it did to print it; what comes after is not."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest

from scheduler_app.worker.capture import Capture

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def _in_child(body: Callable[[Capture], None]) -> None:
    """``body`` ran in a process of its own, since it redirects the descriptors of its process."""
    pid = os.fork()
    if pid == 0:
        try:
            body(Capture())
        except BaseException:  # noqa: BLE001 - told by the exit code
            os._exit(1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def _again(capture: Capture, path: Path, act: Callable[[], object]) -> str | None:
    """The inode of one attempt's file that serves the next one, as ends of attempts keep it; else ``None``."""
    with capture.to(str(path)):
        act()
    if capture.spare is None:
        path.unlink()
        return None
    path.rename(capture.spare)
    return str(os.stat(capture.spare).st_ino)


def _with_spare(tmp_path: Path, body: Callable[[Capture], None]) -> None:
    _in_child(lambda _: body(Capture(str(tmp_path / "1.spare"))))


def test_a_file_to_which_nothing_was_printed_serves_the_next_attempt(tmp_path: Path) -> None:
    def body(capture: Capture) -> None:
        first = _again(capture, tmp_path / "one", lambda: None)
        assert first is not None
        assert _again(capture, tmp_path / "two", lambda: None) == first
        with capture.to(str(tmp_path / "three")):
            print("of the third")
            os.write(2, b"and more\n")
        assert capture.spare is None
        assert (tmp_path / "three").read_text() == "of the third\nand more\n"
        assert _again(capture, tmp_path / "four", lambda: None) is not None

    _with_spare(tmp_path, body)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["1.spare", "three"]


@pytest.mark.parametrize(
    "leave",
    [
        lambda: subprocess.Popen(["sleep", "5"]),
        lambda: subprocess.run(["true"], check=True),
        lambda: os.system("sleep 5 &"),
        lambda: os.fork() or os._exit(0),
        lambda: os.dup(1),
        lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN),
        lambda: print("something"),
    ],
    ids=[
        "a program",
        "a program that ended",
        "a daemon",
        "a fork",
        "a descriptor",
        "no sign",
        "text",
    ],
)
def test_a_file_that_somebody_else_may_have_serves_no_other_attempt(
    tmp_path: Path, leave: Callable[[], object]
) -> None:
    def body(capture: Capture) -> None:
        assert _again(capture, tmp_path / "one", lambda: None) is not None
        assert _again(capture, tmp_path / "two", leave) is None

    _with_spare(tmp_path, body)


def test_a_spare_file_that_is_gone_is_made_anew(tmp_path: Path) -> None:
    def body(capture: Capture) -> None:
        assert _again(capture, tmp_path / "one", lambda: None) is not None
        os.unlink(str(capture.spare))
        with capture.to(str(tmp_path / "two")):
            print("there")
        assert (tmp_path / "two").read_text() == "there\n"

    _with_spare(tmp_path, body)


def test_what_a_program_left_running_prints_later_is_in_no_other_attempts_file(
    tmp_path: Path,
) -> None:
    def body(capture: Capture) -> None:
        with capture.to(str(tmp_path / "one")):
            os.system("(sleep 0.3; echo late) &")
        assert capture.spare is None
        with capture.to(str(tmp_path / "two")):
            time.sleep(0.6)
        assert (tmp_path / "one").read_text() == "late\n"
        assert (tmp_path / "two").read_text() == ""

    _with_spare(tmp_path, body)


def test_every_way_of_printing_is_captured(tmp_path: Path) -> None:
    path = tmp_path / "log"

    def body(capture: Capture) -> None:
        with capture.to(str(path)):
            print("by print")
            print("by print to stderr", file=sys.stderr)
            os.write(1, b"by descriptor \xff\x00\n")
            subprocess.run(["sh", "-c", "echo by a program; echo and its stderr >&2"], check=True)
            logging.getLogger("daylight.task").info("by %s", "logging")
            logging.getLogger("someone.else").warning("by a library")
            sys.stdout.write("no newline")

    _in_child(body)
    text = path.read_bytes()
    for part in (
        b"by print\n",
        b"by print to stderr\n",
        b"by descriptor \xff\x00\n",
        b"by a program\n",
        b"and its stderr\n",
        b"INFO daylight.task: by logging\n",
        b"WARNING someone.else: by a library\n",
    ):
        assert part in text
    assert text.endswith(b"no newline")


def test_each_attempt_has_its_own_lines(tmp_path: Path) -> None:
    def body(capture: Capture) -> None:
        for name in ("one", "two"):
            with capture.to(str(tmp_path / name)):
                sys.stdout.write(f"in {name}")

    _in_child(body)
    assert (tmp_path / "one").read_text() == "in one"
    assert (tmp_path / "two").read_text() == "in two"


def test_a_task_that_breaks_its_streams_does_not_break_the_next(tmp_path: Path) -> None:
    def body(capture: Capture) -> None:
        with capture.to(str(tmp_path / "one")):
            print("lost with its stream", end="")
            sys.stdout.close()
            sys.stderr = None
            os.close(1)
            logging.getLogger().handlers.clear()
        with capture.to(str(tmp_path / "two")):
            print("printed")
            logging.getLogger("daylight.task").info("logged")

    _in_child(body)
    text = (tmp_path / "two").read_text()
    assert text.startswith("printed\n")
    assert "logged" in text
    assert "lost" not in text


def test_what_could_not_be_written_does_not_turn_up_in_the_next_log(tmp_path: Path) -> None:
    def body(capture: Capture) -> None:
        with capture.to(str(tmp_path / "one")):
            os.close(1)
            sys.stdout.write("to a closed descriptor")
        with capture.to(str(tmp_path / "two")):
            print("printed")

    _in_child(body)
    assert (tmp_path / "two").read_text() == "printed\n"


def test_it_says_whether_anything_was_printed(tmp_path: Path) -> None:
    def body(capture: Capture) -> None:
        with capture.to(str(tmp_path / "one")):
            assert not capture.has_printed()
            sys.stdout.write("x")
            assert capture.has_printed()
        with capture.to(str(tmp_path / "two")):
            assert not capture.has_printed()

    _in_child(body)


def test_its_own_words_reach_the_file_without_the_streams(tmp_path: Path) -> None:
    def body(capture: Capture) -> None:
        with capture.to(str(tmp_path / "one")):
            print("before")
            sys.stdout = sys.stderr = None
            capture.say("Traceback \udcff")

    _in_child(body)
    assert (tmp_path / "one").read_bytes() == b"before\nTraceback \\udcff\n"


def test_a_file_that_cannot_be_made_costs_the_log_and_not_the_task(tmp_path: Path) -> None:
    def body(capture: Capture) -> None:
        with capture.to(str(tmp_path / "no such folder" / "one")):
            print("nowhere")
            assert not capture.has_printed()

    _in_child(body)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no full device")
def test_a_full_disk_costs_lines_and_fails_no_task(tmp_path: Path) -> None:
    said = tmp_path / "said"

    def body(capture: Capture) -> None:
        logging.getLogger("scheduler_app").addHandler(logging.FileHandler(said))
        with capture.to("/dev/full"):
            for number in range(3):
                print(f"line {number}", "x" * 100_000)
            logging.getLogger("daylight.task").info("by logging")
            sys.stdout.flush()
        with capture.to(str(tmp_path / "next")):
            print("there is room again")

    _in_child(body)
    assert (tmp_path / "next").read_text() == "there is room again\n"
    assert said.read_text().count("no room on the disk") == 1, "the worker's log says so"


def test_a_thread_that_an_attempt_left_running_prints_into_the_workers_log(tmp_path: Path) -> None:
    first, second, log = tmp_path / "first", tmp_path / "second", tmp_path / "log"

    def body(capture: Capture) -> None:
        del capture
        os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT), 2)
        own = Capture()
        go, said = threading.Event(), threading.Event()

        def chatter() -> None:
            print("in its own time")
            said.set()
            assert go.wait(30)
            print("after", "its time")
            sys.stderr.write("unfinished")
            logging.getLogger("library").warning("and logged")

        thread = threading.Thread(target=chatter, name="chatter")
        with own.to(str(first)):
            thread.start()
            assert said.wait(30)
        with own.to(str(second)):
            go.set()
            thread.join()
            new = threading.Thread(target=lambda: print("by a thread of its own"))
            new.start()
            new.join()
            print("by itself")

    _in_child(body)
    assert first.read_text() == "in its own time\n"
    assert second.read_text() == "by a thread of its own\nby itself\n"
    said = "Thread chatter, left running by an earlier attempt: "
    told = log.read_text()
    assert f"{said}after its time\n" in told
    assert "WARNING library: and logged\n" in told
