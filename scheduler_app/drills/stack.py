"""A stack of a drill's own: ``manage.py up`` in a temporary folder, on free ports, seen from outside.

It shares nothing with a stack of the operator: no variable of its environment, no port, no folder.
Processes are signalled by the pid that ``up`` told, and only those of this stack.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from scheduler_app.drills import ledger
from scheduler_app.drills.checker import Counted, Shown
from scheduler_app.launch import children
from scheduler_app.launch.addresses import saved
from scheduler_app.launch.environment import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from scheduler_app.launch.addresses import Addresses

LOAD: Final = Path(__file__).parent / "load"
PASSWORD: Final = "fire-drill"  # noqa: S105 - of a stack that lives for a minute, on loopback
READY: Final = re.compile(r"Daylight is ready at http://")
STARTED: Final = re.compile(r"^(?P<name>[\w-]+) (?:started|runs) \(process (?P<pid>\d+)")
READY_WITHIN_S: Final = 150.0
END_WITHIN_S: Final = 60.0
FLOW_FILE_WITHIN_S: Final = "60"  # how long a busy machine takes to load one is no matter here
POLL_S: Final = 0.1
POLL_S_MAX: Final = 0.5
PATIENCE: Final = 0.05  # of the time waited so far, the pause before the next look
ANSWER_S: Final = 20.0
PAGE_ROWS: Final = 500
# The lists that a drill compares; the last three have no filtered half and add up all the same.
LISTS: Final = (
    "runs",
    "task-instances",
    "attempts",
    "executor-events",
    "leases",
    "lease-events",
    "jobs",
)
VIEWS: Final = {"current": "", "only": "filtered=only&", "all": "filtered=1&"}
READ_AGAIN_MAX: Final = 10
KEPT: Final = frozenset({"DAYLIGHT_PG_BIN", "DAYLIGHT_ENV"})  # where binaries are, not what runs

T = TypeVar("T")


class DrillFailed(RuntimeError):
    """The drill could not be held; the text is one line for a person."""


class Stack:
    """One stack; ``start`` it, and ``end`` it whatever happened."""

    def __init__(self, *, flags: Sequence[str], environment: Mapping[str, str]) -> None:
        # Not below a private folder: the account that PostgreSQL runs as must reach it.
        place = "/tmp" if os.access("/tmp", os.W_OK) else None  # noqa: S108 - see above
        self.folder = Path(tempfile.mkdtemp(prefix="daylight-drill-", dir=place))
        self.folder.chmod(0o711)
        self.data_dir = self.folder / "data"
        self.flows = self.folder / "flows"
        self.once = (
            self.folder / "failpoints"
        )  # a file in it: that point was reached, or is not armed
        self.port = 0
        self.lines: list[str] = []
        self._flags = list(flags)
        self._environment = {
            **{k: v for k, v in os.environ.items() if _is_kept(k)},
            "DRILL_FOLDER": str(self.folder),
            "DAYLIGHT_DATA_DIR": str(self.data_dir),
            "DAYLIGHT_FAILPOINTS_ONCE": str(self.once),
            # As `up` says it to its own: a scheduler beside it watches the same folders, and so
            # none of them takes the flows for removed while another is restarted.
            "DAYLIGHT_FLOWS": str(self.flows),
            "DAYLIGHT_NO_EXAMPLES": "1",
            "DAYLIGHT_FLOW_FILE_TIMEOUT_S": FLOW_FILE_WITHIN_S,
            **environment,
        }
        self._token = ""
        self._up: subprocess.Popen[bytes] | None = None
        self._others: list[subprocess.Popen[bytes]] = []
        self._stopped: set[int] = set()
        self._pids: dict[str, list[int]] = {}

    # -- life ---------------------------------------------------------------------------------

    def start(self, points: Sequence[str] = ()) -> None:
        """The stack is ready and knows the load's flows; these failpoints are there, not armed.

        Raises ``DrillFailed`` with the last lines of the stack.
        """
        self.once.mkdir()
        for point in points:
            (self.once / point).touch()
        self.flows.mkdir()
        ledger.open_bank(self.folder)
        for source in LOAD.glob("*.py"):
            shutil.copy(source, self.flows)
        self.port = _free_port()
        log = (self.folder / "up.log").open("wb")
        with log:
            self._up = children.spawn(
                [
                    *(sys.executable, str(ROOT / "manage.py"), "up", "--no-examples"),
                    *("--port", str(self.port), "--data-dir", str(self.data_dir)),
                    *("--flows", str(self.flows), "--admin-password", PASSWORD),
                    *self._flags,
                ],
                log=log,
                environ=self._environment,
                cwd=ROOT,
                on_parent_death=signal.SIGTERM,
            )
        threading.Thread(target=self._read_for_ever, name="up.log", daemon=True).start()
        self.wait_for("the stack is ready", self._is_ready, within_s=READY_WITHIN_S)

    def end(self, *, keep: bool) -> None:
        """Every process of the stack has ended; its folder is gone unless it is kept."""
        for pid in [*self._stopped]:
            self.signal(pid, signal.SIGCONT)
        for process in self._others:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self._others:
            children.stop(process, signal.SIGTERM, grace_s=END_WITHIN_S)
        if self._up is not None:
            children.stop(self._up, signal.SIGTERM, grace_s=END_WITHIN_S)
        if not keep:
            shutil.rmtree(self.folder, ignore_errors=True)

    def spawn(
        self, name: str, *arguments: str, environment: Mapping[str, str] | None = None
    ) -> int:
        """A further process of the stack, outside its supervisor; its pid."""
        with (self.folder / f"{name}.log").open("ab") as log:
            process = children.spawn(
                [sys.executable, str(ROOT / "manage.py"), *arguments],
                log=log,
                environ={**self._environment, **(environment or {})},
                cwd=ROOT,
            )
        self._others.append(process)
        return process.pid

    def manage(self, *arguments: str, within_s: float = 60.0) -> subprocess.CompletedProcess[str]:
        """A command of the product against this stack."""
        return subprocess.run(
            [sys.executable, str(ROOT / "manage.py"), *arguments],
            cwd=ROOT,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=within_s,
            check=False,
        )

    def _is_ready(self) -> bool:
        assert self._up is not None, "it was started"
        if self._up.poll() is not None:
            last = "; ".join(self.lines[-3:]) or "it said nothing"
            message = f"The stack of the drill did not start: {last}"
            raise DrillFailed(message)
        return any(READY.match(line) for line in self.lines)

    def _read_for_ever(self) -> None:
        """Follows the log of ``up``, for who runs under which pid."""
        with contextlib.suppress(OSError), (self.folder / "up.log").open("rb") as log:
            rest = b""
            while self._up is not None and (self._up.poll() is None or rest):
                data = log.read()
                if not data:
                    time.sleep(POLL_S)
                    continue
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    self._hear(line.decode(errors="replace"))

    def _hear(self, line: str) -> None:
        found = STARTED.match(line)
        if found:
            self._pids.setdefault(found["name"], []).append(int(found["pid"]))
        self.lines.append(line)

    # -- processes ----------------------------------------------------------------------------

    def pid(self, name: str) -> int:
        """The newest process of this name: ``worker``, ``scheduler-1``, ``Valkey``, ``PostgreSQL``."""
        return self._pids[name][-1]

    def pids(self, prefix: str) -> list[int]:
        """The newest process of each name that begins so."""
        return [pids[-1] for name, pids in sorted(self._pids.items()) if name.startswith(prefix)]

    def incarnations(self, name: str) -> int:
        """How many processes of this name there have been."""
        return len(self._pids.get(name, ()))

    def signal(self, pid: int, number: signal.Signals) -> bool:
        """The process got the signal; whether it was there. What was stopped is continued at the end."""
        if number is signal.SIGSTOP:
            self._stopped.add(pid)
        elif number is signal.SIGCONT:
            self._stopped.discard(pid)
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return False
        return True

    def family(self, pid: int) -> list[int]:
        """The process and its children, parents first."""
        found = [pid]
        for parent in found:
            with contextlib.suppress(OSError):
                text = Path(f"/proc/{parent}/task/{parent}/children").read_text(encoding="ascii")
                found += [int(child) for child in text.split()]
        return found

    def parent(self, pid: int) -> int:
        """The parent of a process. Raises ``OSError`` when it is gone."""
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
        return int(text.rpartition(")")[2].split()[1])

    def is_stopped(self, pid: int) -> bool:
        """Whether the process stands still by a signal."""
        return _state_of(pid) == "T"

    def is_alive(self, pid: int) -> bool:
        """Whether the process runs, or stands still."""
        return _state_of(pid) not in {"", "Z", "X"}

    @property
    def addresses(self) -> Addresses:
        """Where the servers are."""
        found = saved(self.data_dir)
        assert found is not None, "the stack runs"
        return found

    # -- looking ------------------------------------------------------------------------------

    def wait_for(
        self, what: str, condition: Callable[[], T], *, within_s: float, every_s: float = POLL_S
    ) -> T:
        """The first true answer. Raises ``DrillFailed`` when there is none in time.

        A database or a server that is away is waited for like everything else. Asked ever more seldom:
        an answer of the API is dear.
        """
        began = time.monotonic()
        why = ""
        while True:
            try:
                value = condition()
            except (OSError, ValueError) as error:  # OSError: also those of urllib
                why = f" ({error})"
            else:
                why = ""
                if value:
                    return value
            waited_s = time.monotonic() - began
            if waited_s > within_s:
                message = f"Not within {within_s:g} s: {what}{why}"
                raise DrillFailed(message)
            time.sleep(max(every_s, min(waited_s * PATIENCE, POLL_S_MAX)))

    def api(self, method: str, path: str, body: Any = None) -> Any:
        """The answer. Raises ``urllib.error.HTTPError`` and other ``OSError``."""
        if not self._token:
            login = {"username": "admin", "password": PASSWORD}
            self._token = self._call("POST", "/auth/token", login)["access_token"]
        return self._call(method, path, body)

    def rows(self, name: str, query: str = "") -> list[dict[str, Any]]:
        """Every row of a list of the API, page after page."""
        return self._list(name, query)[0]

    def shown(self) -> Shown:
        """Everything that the API shows, each list in its three views.

        A list that moves between two views is read again: only what stands still can add up.
        """
        found: dict[str, list[dict[str, Any]]] = {}
        lists: dict[str, Counted] = {}
        for name in LISTS:
            for _ in range(READ_AGAIN_MAX):
                views = {
                    view: self._list(name, f"{query}count=exact") for view, query in VIEWS.items()
                }
                if len({json.dumps(counts) for _, counts in views.values()}) == 1:
                    break
                time.sleep(POLL_S)
            found[name], counts = views["all"]
            lists[name] = Counted(
                shown=counts["shown"],
                filtered=counts["filtered"],
                total=counts["total"],
                rows={view: len(rows) for view, (rows, _) in views.items()},
            )
        return Shown(
            runs=found["runs"],
            task_instances=found["task-instances"],
            attempts=found["attempts"],
            events=found["executor-events"],
            lists=lists,
        )

    def _list(self, name: str, query: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        path: str | None = f"/api/v1/{name}/?limit={PAGE_ROWS}&{query}".rstrip("&")
        counts: dict[str, Any] = {}
        while path:
            answer = self.api("GET", path)
            rows += answer["results"]
            counts = counts or answer["counts"]
            path = answer["next"] and answer["next"].partition("/api/")[2]
            path = path and f"/api/{path}"
        return rows, counts

    def _call(self, method: str, path: str, body: Any = None) -> Any:
        headers = {"Content-Type": "application/json"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers=headers,
        )
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_S) as answer:  # noqa: S310 - as above
                text = answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:  # read and closed: the caller may keep it
                error.msg = f"{error.msg}: {error.read().decode(errors='replace')[:500]}"
            raise
        return json.loads(text) if text else None


def _state_of(pid: int) -> str:
    """The letter that the kernel has for what the process does; empty when there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
    return text.rpartition(")")[2].split()[0]


def _is_kept(name: str) -> bool:
    """Whether a variable of ours may reach the stack: none that names or shapes another stack."""
    if name in KEPT:
        return True
    return not (
        name.startswith("DAYLIGHT_") or name.endswith("_URL") or name == "DJANGO_SETTINGS_MODULE"
    )


def _free_port() -> int:
    """A loopback port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
