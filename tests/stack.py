"""A whole Daylight on this machine for a test: real processes, own folder, own ports.

Processes are ended by pid, and only those that this stack started.
"""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from scheduler_app.launch.addresses import Addresses, saved
from tests import auditing, readymade
from tests.asking import Questions

CHECKOUT: Final = Path(__file__).parents[1]
PASSWORD: Final = "a-password-for-tests"
READY: Final = re.compile(r"Daylight is ready at (http://127\.0\.0\.1:\d+)")
READY_WITHIN_S: Final = 300.0  # a quiet machine needs 5
# Short terms, so that faults are seen within seconds; a busy machine may take long to read a file.
QUICK: Final = {"DAYLIGHT_LEASE_TTL": "3", "DAYLIGHT_FLOW_FILE_TIMEOUT_S": "60"}


def free_port() -> int:
    """A loopback port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def wait_for(
    what: str, condition: Callable[[], Any], *, within_s: float = 60.0, every_s: float = 0.1
) -> Any:
    """The first true value of ``condition``; fails with ``what`` when there is none in time."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(every_s)
    message = f"not within {within_s} s: {what}"
    raise AssertionError(message)


class Stack:
    """``manage.py up`` in a folder of its own; flows are written into ``self.flows``."""

    def __init__(
        self,
        folder: Path,
        *,
        flags: Sequence[str] = (),
        environment: dict[str, str] | None = None,
        is_readymade: bool = True,
    ) -> None:
        self.folder = folder
        # Not in pytest's own folder: that is closed to the account that PostgreSQL runs as.
        self.data_dir = Path(tempfile.mkdtemp(prefix="daylight-stack-", dir="/tmp"))
        self.data_dir.chmod(0o711)
        self.flows = folder / "flows"
        self.flows.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.lines: list[str] = []
        self._flags = list(flags)
        self._environment = {**_environment(), **QUICK, **(environment or {})}
        self._is_readymade = is_readymade  # else its first start makes its database
        self._token = ""
        self._questions = Questions()
        self.process: subprocess.Popen[str] | None = None

    # -- life ---------------------------------------------------------------------------------

    def start(self) -> None:
        """The stack is ready, or the test fails with what it printed."""
        if self._is_readymade and not (self.data_dir / "postgres").exists():
            readymade.fill(self.data_dir)
        self.process = subprocess.Popen(
            [
                sys.executable,
                "manage.py",
                "up",
                "--port",
                str(self.port),
                "--data-dir",
                str(self.data_dir),
                "--flows",
                str(self.flows),
                "--admin-password",
                PASSWORD,
                *self._flags,
            ],
            cwd=CHECKOUT,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        threading.Thread(target=self._read, daemon=True).start()
        wait_for("the stack is ready", self._is_ready, within_s=READY_WITHIN_S)

    def _read(self) -> None:
        assert self.process is not None
        assert self.process.stdout is not None
        with self.process.stdout as output:
            for line in output:
                self.lines.append(line.rstrip("\n"))

    def _is_ready(self) -> bool:
        assert self.process is not None
        if self.process.poll() is not None:
            message = "`up` ended:\n" + "\n".join(self.lines[-40:])
            raise AssertionError(message)
        return any(READY.search(line) for line in self.lines)

    def stop(self) -> int:
        """Everything ended; the exit code of ``up``."""
        assert self.process is not None
        self._questions.close()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=60)

    # -- flows and runs -----------------------------------------------------------------------

    def write_flow(self, name: str, source: str) -> None:
        """The file is in the flow folder; its flows are known."""
        (self.flows / name).write_text(textwrap.dedent(source), encoding="utf-8")

    def wait_for_flow(self, flow_id: str, *, version: int = 1) -> None:
        """The catalog has stored this version of the flow."""
        wait_for(
            f"flow {flow_id} version {version}",
            lambda: self.row(
                "SELECT 1 AS one FROM flow f JOIN flow_version v ON v.id = f.current_version_id"
                " WHERE f.flow_id = %s AND v.number >= %s AND f.removed_at IS NULL",
                flow_id,
                version,
            ),
        )

    def trigger(self, flow_id: str, **body: Any) -> dict[str, Any]:
        """A manual run, through the API; all its fields."""
        run: dict[str, Any] = self.api("POST", f"/api/v1/flows/{flow_id}/runs/", body)
        return run

    def wait_for_run(self, run: dict[str, Any], *, within_s: float = 60.0) -> dict[str, Any]:
        """The run once it ended."""
        ended: dict[str, Any] = wait_for(
            f"run {run['run_id']} of {run['flow_id']} ends",
            lambda: self.row("SELECT * FROM run WHERE id = %s AND NOT is_active", run["id"]),
            within_s=within_s,
        )
        return ended

    # -- looking ------------------------------------------------------------------------------

    @property
    def addresses(self) -> Addresses:
        """Where the servers are."""
        found = saved(self.data_dir)
        assert found is not None
        return found

    def rows(self, query: str, *parameters: Any) -> list[dict[str, Any]]:
        """Rows of the product's database."""
        return self._questions.rows(self.addresses.database_url, query, parameters)

    def row(self, query: str, *parameters: Any) -> dict[str, Any] | None:
        """The first row, if any."""
        rows = self.rows(query, *parameters)
        return rows[0] if rows else None

    def attempts(self, run: dict[str, Any]) -> list[dict[str, Any]]:
        """Attempts of the run, oldest first."""
        return self.rows("SELECT * FROM attempt WHERE run_id = %s ORDER BY fence", run["id"])

    def events(self, attempt_id: Any) -> list[dict[str, Any]]:
        """Executor events of the attempt, oldest first."""
        return self.rows(
            "SELECT * FROM executor_event WHERE attempt_id = %s ORDER BY id", attempt_id
        )

    def job_pids(self, kind: str) -> list[int]:
        """Pids of the running jobs of a kind, oldest first."""
        rows = self.rows(
            "SELECT pid FROM job WHERE kind = %s AND ended_at IS NULL AND state = 'running'"
            " ORDER BY started_at",
            kind,
        )
        return [row["pid"] for row in rows if _is_alive(row["pid"])]

    def api(self, method: str, path: str, body: Any = None) -> Any:
        """The answer's JSON. Raises ``urllib.error.HTTPError``."""
        return _call(method, f"{self.url}{path}", body, self.token)

    @property
    def token(self) -> str:
        """The administrator's token of the API."""
        if not self._token:
            login = {"username": "admin", "password": PASSWORD}
            self._token = _call("POST", f"{self.url}/auth/token", login, "")["access_token"]
        return self._token

    def manage(self, *arguments: str, within_s: float = 60.0) -> subprocess.CompletedProcess[str]:
        """A ``manage.py`` command against this stack."""
        return subprocess.run(
            [sys.executable, "manage.py", *arguments],
            cwd=CHECKOUT,
            env={**self._environment, "DAYLIGHT_DATA_DIR": str(self.data_dir)},
            capture_output=True,
            text=True,
            timeout=within_s,
            check=False,
        )

    @contextmanager
    def beside(self, *arguments: str, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
        """One more process of the stack, outside its supervisor; it ends with the block."""
        with (self.folder / f"beside-{arguments[0]}.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "manage.py", *arguments],
                cwd=CHECKOUT,
                env={
                    **self._environment,
                    "DAYLIGHT_DATA_DIR": str(self.data_dir),
                    "DAYLIGHT_FLOWS": str(self.flows),
                    "DAYLIGHT_NO_EXAMPLES": "1",
                    **environment,
                },
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def assert_nothing_hidden(self) -> None:
        """Every row's standing is what the facts give."""
        auditing.assert_nothing_hidden(self.addresses.database_url)


def _environment() -> dict[str, str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("DAYLIGHT_") and not name.endswith("_URL")
    }
    kept.pop("DJANGO_SETTINGS_MODULE", None)
    return kept


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def _call(method: str, url: str, body: Any, token: str) -> Any:
    request = urllib.request.Request(
        url,
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Content-Type": "application/json", "Authorization": f"Bearer {token}"},
    )
    if not token:
        request.remove_header("Authorization")
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            text = answer.read().decode()
    except urllib.error.HTTPError as error:
        # Read whole and closed, so that a test which looks at it leaves no socket behind.
        with error:
            whole = io.BytesIO(error.read())
        raise urllib.error.HTTPError(url, error.code, error.msg, error.headers, whole) from None
    return json.loads(text) if text else None


@contextmanager
def running(folder: Path, **options: Any) -> Iterator[Stack]:
    """A ready stack, ended afterwards."""
    stack = Stack(folder, **options)
    try:
        stack.start()
        yield stack
    finally:
        if stack.process is not None:
            stack.stop()
        shutil.rmtree(stack.data_dir, ignore_errors=True)
