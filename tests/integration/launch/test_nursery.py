"""Processes divided off the nursery: what they are, whose they are, and what they outlive."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from scheduler_app.launch.environment import ROOT

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere there is none")

# A process that has a nursery, as the supervisor has; it does what it is told, a line at a time.
SUPERVISOR = """
import json, os, signal, sys, threading, time
# Whoever runs the tests in the background ignores these, and that is inherited.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)
from pathlib import Path
from scheduler_app.launch import children, preload
from scheduler_app.launch.assistant import Assistant, Errands
from scheduler_app.launch.components import Component
from scheduler_app.launch.nursery import Nursery
from scheduler_app.launch.script import Script

lock = open(sys.argv[1], "w")
nursery = Nursery()
names = {**globals(), "born": []}
for line in sys.stdin:
    try:
        answer = eval(line, names) if not line.startswith("!") else exec(json.loads(line[1:]), names)
    except BaseException as error:
        answer = f"{type(error).__name__}: {error}"
    print(json.dumps(answer, default=str), flush=True)
"""
# What a process can tell of itself.
PROBE = """
import atexit, gc, json, os, signal, sys, threading, time
from pathlib import Path

def later():
    time.sleep(0.3)
    print("the thread was waited for", flush=True)

atexit.register(print, "and then the end")
threading.Thread(target=later).start()
print(json.dumps({
    "pid": os.getpid(), "parent": os.getppid(), "group": os.getpgid(0), "argv": sys.argv,
    "name": __name__, "mark": os.environ.get("MARK"), "role": os.environ.get("DAYLIGHT_PROCESS"),
    "listed": Path("/proc/self/cmdline").read_text().split(chr(0))[:-1],
    "surroundings": "MARK=kept" in Path("/proc/self/environ").read_text().split(chr(0)),
    "files": sorted(int(name) for name in os.listdir("/proc/self/fd"))[:-1],
    "stdin": sys.stdin.read(), "collects": gc.isenabled(), "loaded": "celery" in sys.modules,
    "signals": [str(signal.getsignal(n)) for n in (signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD)],
    "interrupts": signal.getsignal(signal.SIGINT) is signal.default_int_handler,
    "blocked": list(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
    "foreign": len(os.listdir("/proc/self/task")),
}), flush=True)
print("to the log as well", file=sys.stderr)
sys.exit(3)
"""


class Supervisor:
    """The other end of ``SUPERVISOR``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # What other tests made of this process, and whoever started it, is not to be inherited.
        environ = {k: v for k, v in os.environ.items() if k != "DAYLIGHT_PROCESS"}
        environ = {k: v for k, v in environ.items() if not k.startswith("COV")}
        self.process = subprocess.Popen(
            [sys.executable, "-c", SUPERVISOR, str(folder / "lock")],
            cwd=ROOT,
            env={**environ, "DJANGO_SETTINGS_MODULE": "scheduler_app.config.settings"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, expression: str) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(expression + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def do(self, code: str) -> None:
        answer = self.ask("!" + json.dumps(textwrap.dedent(code)))
        assert answer is None, answer

    def begin(self) -> None:
        self.do("nursery.begin(); nursery.load({**os.environ, 'MARK': 'kept'})")

    def start(self, script: str, *arguments: str) -> int:
        """The pid of a process that runs this script, divided off; 0 where that cannot be."""
        path = self.folder / "script.py"
        path.write_text(script)
        self.do(
            f"""
            command = ({sys.executable!r}, {str(path)!r}, *{arguments!r})
            divided = nursery.divide(Script(command=command, log=Path({str(self.log)!r})))
            if divided: born.append(divided[0]); divided[1].close()
            """
        )
        return int(self.ask("divided[0].pid if divided else 0"))

    @property
    def log(self) -> Path:
        return self.folder / "log"

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            stream.close()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Supervisor]:
    """One with a nursery that has loaded everything."""
    made = Supervisor(tmp_path_factory.mktemp("supervisor"))
    made.begin()
    yield made
    made.end()


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[Supervisor]:
    made = Supervisor(tmp_path)
    yield made
    made.end()


@pytest.fixture
def quick(supervisor: Supervisor) -> Supervisor:
    """One whose nursery loads nothing: what is loaded does not matter here."""
    supervisor.do("preload.libraries = preload.product = lambda: None")
    supervisor.begin()
    return supervisor


def wait_for(condition: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + 20
    while not (value := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return value


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def nursery_pid(supervisor: Supervisor) -> int:
    return int(supervisor.ask("nursery._pid"))


def test_what_is_divided_off_is_as_if_its_own_command_had_started_it(shared: Supervisor) -> None:
    shared.log.unlink(missing_ok=True)
    pid = shared.start(PROBE, "--port", "8000")
    assert wait_for(lambda: shared.ask("born[-1].poll()")) == 3
    lines = shared.log.read_text().splitlines()
    script = str(shared.folder / "script.py")
    assert json.loads(lines[0]) == {
        "pid": pid,
        "parent": shared.process.pid,
        "group": pid,
        "argv": [script, "--port", "8000"],
        "name": "__main__",
        "mark": "kept",
        "role": None,  # what is loaded for the web process is not what others are
        "listed": [sys.executable, script, "--port", "8000"],
        "surroundings": True,
        "files": [0, 1, 2],  # not the supervisor's lock, nor a pipe
        "stdin": "",
        "collects": True,
        "loaded": True,
        "signals": [str(signal.SIG_DFL)] * 3,
        "interrupts": True,
        "blocked": [],
        "foreign": 2,  # its own two threads
    }
    assert lines[1:] == ["to the log as well", "the thread was waited for", "and then the end"]


def test_how_it_ended_is_told_as_an_interpreter_tells_it(shared: Supervisor) -> None:
    for script, code, words in (
        ("raise SystemExit", 0, ""),
        ("raise SystemExit('this is why')", 1, "this is why\n"),
        ("1/0", 1, "ZeroDivisionError"),
        ("import os; os.kill(os.getpid(), 9)", -9, ""),
        ("import os; os._exit(7)", 7, ""),
    ):
        shared.log.unlink(missing_ok=True)
        shared.start(script)
        assert wait_for(lambda: [shared.ask("born[-1].poll()")] != [None] or None)
        assert shared.ask("born[-1].poll()") == code
        assert words in shared.log.read_text()


def test_the_nursery_loads_all_and_has_no_thread_and_no_file_of_its_own(shared: Supervisor) -> None:
    pid = nursery_pid(shared)
    shared.start("pass")  # it has loaded by then
    assert wait_for(lambda: shared.ask("born[-1].poll()") == 0)
    assert Path(f"/proc/{pid}/cmdline").read_text().split("\0")[-2:] == ["nursery", ""]
    assert len(list(Path(f"/proc/{pid}/task").iterdir())) == 1
    own = [path for path in Path(f"/proc/{pid}/fd").iterdir() if int(path.name) > 2]
    assert [os.readlink(path).partition(":")[0] for path in own] == ["socket"], (
        "its supervisor's line"
    )
    status = Path(f"/proc/{pid}/status").read_text()
    resident_kb = int(status.partition("VmRSS:")[2].split()[0])
    assert resident_kb > 70_000, "it has not loaded what a stack needs"


def test_what_is_divided_off_shares_what_was_loaded(shared: Supervisor) -> None:
    pid = shared.start("import time; print('up', flush=True); time.sleep(60)")
    wait_for(lambda: shared.log.exists() and "up" in shared.log.read_text())
    kilobytes = {
        line.split(":")[0]: int(line.split()[1])
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    }
    os.kill(pid, signal.SIGKILL)
    assert kilobytes["Private_Dirty"] < kilobytes["Rss"] / 5, kilobytes


def test_errands_are_run_in_one_as_well(shared: Supervisor) -> None:
    shared.do("assistant = Assistant(nursery)")
    missing = shared.ask("assistant.ask('missing', pids={}, port=1, examples=None)")
    assert missing == [["the first scan of the flow folders"], False]  # of the tests' own database
    pid = int(shared.ask("assistant._pid"))
    assert Path(f"/proc/{pid}/cmdline").read_text().split("\0")[-2] == "assistant"
    shared.do("assistant.end()")
    assert not is_running(pid)


def test_all_end_with_the_supervisor(quick: Supervisor) -> None:
    pid, nursery = quick.start("import time; time.sleep(60)"), nursery_pid(quick)
    assert is_running(pid)
    assert is_running(nursery)
    quick.process.kill()
    wait_for(lambda: not is_running(pid) and not is_running(nursery))


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_the_end_of_the_nursery_ends_nothing_else(quick: Supervisor, how: signal.Signals) -> None:
    pid, nursery = quick.start("import time; time.sleep(60)"), nursery_pid(quick)
    os.kill(nursery, how)
    wait_for(lambda: not is_running(nursery))
    time.sleep(0.2)
    assert is_running(pid)
    # What starts from then on is started by its own command.
    quick.do(
        f"""
        member = Component(name="web", command=[{sys.executable!r}, "-c", "import time; time.sleep(60)"],
                           log=Path({str(quick.log)!r}))
        member.start(os.environ, Path("/"), nursery)
        """
    )
    assert quick.ask("nursery.is_open") is False
    own = int(quick.ask("member.process.pid"))
    wait_for(lambda: Path(f"/proc/{own}/cmdline").read_text().split("\0")[1] == "-c")
    assert quick.ask("member.process.poll()") is None
    # And a nursery may be begun again.
    quick.begin()
    assert quick.start("import time; time.sleep(60)")


def test_one_that_loads_for_ever_is_given_up(
    supervisor: Supervisor,
) -> None:
    supervisor.do(
        """
        from scheduler_app.launch import nursery as module
        module.LOADED_WITHIN_S = 0.5
        preload.product = lambda: time.sleep(60)
        """
    )
    supervisor.begin()
    pid = nursery_pid(supervisor)
    assert supervisor.start("pass") == 0
    assert not is_running(pid)


def test_one_that_cannot_load_is_given_up_and_the_errand_says_why(supervisor: Supervisor) -> None:
    supervisor.do("os.environ['DAYLIGHT_LEASE_TTL'] = 'soon'")
    supervisor.begin()
    assert supervisor.start("pass") == 0
    supervisor.do("assistant = Assistant(nursery)")
    said = supervisor.ask("assistant.ask('prepare', data_dir=Path('/x'), admin_password='x')")
    assert said.startswith("UpFailed: Wrong settings: DAYLIGHT_LEASE_TTL")


def test_one_with_a_thread_refuses_to_be_divided(supervisor: Supervisor) -> None:
    supervisor.do(
        """
        def begin_thread():
            threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
        preload.product = begin_thread
        """
    )
    supervisor.begin()
    assert supervisor.start("pass") == 0


def test_where_processes_cannot_be_adopted_there_is_none(supervisor: Supervisor) -> None:
    supervisor.do("children.can_adopt = lambda: False")
    supervisor.begin()
    assert supervisor.ask("nursery.is_open") is False
    assert supervisor.start("pass") == 0


def test_where_the_kernel_names_nothing_anew_there_is_none(supervisor: Supervisor) -> None:
    supervisor.do("from scheduler_app.launch import title; title.go_by = lambda *_: False")
    supervisor.begin()
    assert supervisor.start("pass") == 0


def test_nobody_is_adopted_but_what_was_divided_off(quick: Supervisor) -> None:
    """An orphan of one of its processes is the system's, as ever."""
    orphan = (
        "import os, subprocess, sys\nprint(subprocess.Popen(['sleep', '60']).pid, flush=True)\n"
    )
    quick.start(orphan)
    assert wait_for(lambda: quick.ask("born[-1].poll()") == 0)
    pid = int(quick.log.read_text())
    parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(pid, signal.SIGKILL)
    assert parent != quick.process.pid
