"""A RabbitMQ of a test's own, where the machine has one: its own folder, ports and processes."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Final, Self

from scheduler_app.launch import children

PLACES: Final = ("/usr/lib/rabbitmq/lib", "/opt/rabbitmq", "/usr/local/lib/rabbitmq/lib")
START_WITHIN_S: Final = 120.0  # it takes 4 s on an idle machine
STARTED: Final = "Server startup complete"


class NoRabbitMq(RuntimeError):
    """None can be had here; the text says why."""


class RabbitMq:
    """A node that answers on loopback; nothing of it is left after the block. Raises ``NoRabbitMq``."""

    def __init__(self) -> None:
        self._script = _script()
        # Its helpers go into the background by themselves; in a process namespace they end with it.
        if os.geteuid() != 0:
            raise NoRabbitMq("only root can give RabbitMQ a process namespace of its own")
        self._folder = Path(tempfile.mkdtemp(prefix="daylight-rabbitmq-", dir="/tmp"))
        self._password = secrets.token_hex(16)
        self._ports = _free_ports(3)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Its address, as BROKER_URL wants it."""
        return f"amqp://daylight:{self._password}@127.0.0.1:{self._ports[0]}//"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def start(self) -> None:
        """It answers; what it kept on disk is there again."""
        port, distribution, mapper = self._ports
        (self._folder / "rabbitmq.conf").write_text(
            f"listeners.tcp.1 = 127.0.0.1:{port}\n"
            "default_user = daylight\n"
            f"default_pass = {self._password}\n"
            "log.console = true\n"
            "log.file = false\n",
            encoding="utf-8",
        )
        log = self._folder / "log"
        with log.open("wb") as output:
            self._process = children.spawn(
                ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", str(self._script)],
                log=output,
                environ={
                    "PATH": os.environ.get("PATH", os.defpath),
                    "HOME": str(self._folder),
                    "LANG": "C.UTF-8",
                    "RABBITMQ_NODENAME": f"daylight{port}@localhost",
                    "RABBITMQ_MNESIA_BASE": str(self._folder / "mnesia"),
                    "RABBITMQ_LOG_BASE": str(self._folder),
                    "RABBITMQ_ENABLED_PLUGINS_FILE": str(self._folder / "plugins"),
                    "RABBITMQ_CONFIG_FILE": str(self._folder / "rabbitmq"),
                    "RABBITMQ_CONF_ENV_FILE": os.devnull,
                    "RABBITMQ_DIST_PORT": str(distribution),
                    "ERL_EPMD_PORT": str(mapper),
                    "ERL_EPMD_ADDRESS": "127.0.0.1",
                },
                cwd=self._folder,
            )
        deadline = time.monotonic() + START_WITHIN_S
        while STARTED not in log.read_text(encoding="utf-8", errors="replace"):
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise AssertionError(log.read_text(encoding="utf-8", errors="replace")[-2000:])
            time.sleep(0.05)

    def stop(self) -> None:
        """It was killed, with everything that it has started."""
        if self._process is not None:
            children.stop(self._process, signal.SIGKILL, grace_s=10)


def _script() -> Path:
    """The server's own script: the one in the search path changes the user first."""
    found = [
        path
        for place in PLACES
        for path in Path(place).glob("rabbitmq_server-*/sbin/rabbitmq-server")
    ]
    if not found:
        raise NoRabbitMq("there is no RabbitMQ on this machine: install rabbitmq-server to test it")
    return found[-1]


def _free_ports(number: int) -> list[int]:
    probes = [socket.socket() for _ in range(number)]
    try:
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]
    finally:
        for probe in probes:
            probe.close()
