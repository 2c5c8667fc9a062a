"""``manage.py up``: everything of one stack under one process, from the first start to the last stop.

Restarts what exits, with a growing pause; never what merely stalls, since a stalled process loses
its leases and attempts by itself. One thread: the kernel ties its promise to end the children to
the thread that started them.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from scheduler_app.launch import addresses, arguments, data_folder
from scheduler_app.launch.assistant import Assistant
from scheduler_app.launch.components import Component, Components
from scheduler_app.launch.embedded import EmbeddedFailed
from scheduler_app.launch.environment import ROOT
from scheduler_app.launch.nursery import Nursery
from scheduler_app.launch.servers import Servers
from scheduler_app.launch.words import UpFailed, say

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

    from scheduler_app.launch.arguments import Options

STOP_GRACE_S: Final = 10.0
READY_WITHIN_S: Final = 120.0  # on a loaded machine; an idle one needs a tenth
TURN_S: Final = 1.0  # signals and exits of children wake the loop at once
READY_POLL_S: Final = 0.1
LOG_CHECK_INTERVAL_S: Final = 30.0
REPEAT_DELIVERY_WITHIN_S: Final = 120.0
EXITS_BEFORE_READY_MAX: Final = 3
EXAMPLES_FOLDER: Final = ROOT / "scheduler_app" / "examples"


class StopAsked(BaseException):
    """A signal asked for the end while the stack was being prepared."""


def main(argv: Sequence[str]) -> int:
    """A stack ran until it was asked to end. The exit code: 0 for an orderly end."""
    options = arguments.parse(argv)
    try:
        Supervisor(options).run()
    except (UpFailed, EmbeddedFailed, data_folder.InUse) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


class Supervisor:
    """One stack. ``run`` returns when it has ended."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._servers = Servers(options.data_dir, os.environ, executor=options.executor)
        self._components = Components(_components(options))
        self._nursery = Nursery()
        self._assistant = Assistant(self._nursery)
        self._is_preparing = True
        self._is_stopping = False
        self._is_ready = False
        self._is_impatient = False  # asked to end a second time
        self._ready_by_s = 0.0
        self._next_log_check_s = 0.0
        self._repeat_delivery_by_s = 0.0
        self._wake_read, self._wake_write = os.pipe()

    def run(self) -> None:
        """The stack ran and ended. Raises ``UpFailed`` and the like when it cannot be had."""
        data_dir = self._options.data_dir
        _check_port(self._options.port)
        try:
            data_folder.make(data_dir)
        except OSError as error:
            raise UpFailed(f"The data folder {data_dir} cannot be used: {error}") from error
        with data_folder.occupy(data_dir):
            self._listen()
            try:
                self._prepare()
                while not self._is_stopping:
                    self._turn()
            except StopAsked:
                pass
            finally:
                self._end()

    # -- signals ------------------------------------------------------------------------------

    def _listen(self) -> None:
        """Signals set flags and wake the loop."""
        for end in (self._wake_read, self._wake_write):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, _note)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:  # `nohup` is obeyed
                signal.signal(number, self._asked_to_stop)

    def _asked_to_stop(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self._is_impatient = self._is_stopping
        self._is_stopping = True
        if self._is_preparing:
            self._is_preparing = False
            raise StopAsked

    def _sleep(self, seconds: float) -> None:
        """Until a signal comes or the time is over."""
        if select.select([self._wake_read], [], [], seconds)[0]:
            os.read(self._wake_read, 4096)

    # -- making ready -------------------------------------------------------------------------

    def _prepare(self) -> None:
        """Servers answer, schema and administrator are there, every process was started."""
        options = self._options
        data_folder.make_secret_key(options.data_dir)
        self._nursery.begin()
        for line in self._servers.start():
            say(line)
        if options.executor == "local":
            say("No broker runs: tasks go to the worker over sockets (--executor local)")
        # Read by Django in every process of the stack.
        os.environ.update(
            DAYLIGHT_DATA_DIR=str(options.data_dir),
            DAYLIGHT_FLOWS=os.pathsep.join(map(str, options.flows)),
            DAYLIGHT_NO_EXAMPLES="0" if options.examples else "1",
            DAYLIGHT_CONCURRENCY=str(options.concurrency),
            DAYLIGHT_EXECUTOR=options.executor,
            DJANGO_SETTINGS_MODULE="scheduler_app.config.settings",
        )
        os.environ.setdefault("DAYLIGHT_BASE_URL", f"http://127.0.0.1:{options.port}")
        os.environ.pop("DAYLIGHT_ADMIN_PASSWORD", None)
        self._publish_addresses()
        self._nursery.load(os.environ)
        self._prepare_database()
        self._is_preparing = False
        self._ready_by_s = time.monotonic() + READY_WITHIN_S
        self._start_due()

    def _publish_addresses(self) -> None:
        """Our environment and the data folder's commands have the addresses of the servers."""
        found = self._servers.addresses()
        os.environ.update(
            DATABASE_URL=found.database_url, BROKER_URL=found.broker_url, CACHE_URL=found.cache_url
        )
        addresses.save(self._options.data_dir, found)

    def _prepare_database(self) -> None:
        self._assistant.ask(
            "prepare",
            data_dir=self._options.data_dir,
            admin_password=self._options.admin_password,
        )

    # -- running ------------------------------------------------------------------------------

    def _turn(self) -> None:
        self._sleep(TURN_S if self._is_ready else READY_POLL_S)
        if self._is_stopping:
            return
        for member in self._components.members:
            text = member.reap()
            if text:
                say(text)
        self._heal_servers()
        self._start_due()
        if not self._is_ready:
            self._look_whether_ready()
        elif time.monotonic() < self._repeat_delivery_by_s:
            self._repeat_delivery()
        else:
            self._assistant.end()  # nothing is left to ask
        if time.monotonic() >= self._next_log_check_s:
            self._next_log_check_s = time.monotonic() + LOG_CHECK_INTERVAL_S
            for log in data_folder.logs_of(self._options.data_dir).glob("*.log"):
                data_folder.rotate(log)

    def _start_due(self) -> None:
        for member in self._components.members:
            if member.is_due():
                pid = member.start(os.environ, Path.cwd(), self._nursery)
                say(f"{member.name} started (process {pid}, log {member.log})")

    def _heal_servers(self) -> None:
        before = self._servers.addresses()
        for line in self._servers.heal():
            say(line)
        if self._servers.addresses() != before:
            self._publish_addresses()
            self._assistant.end()
            self._components.ask_to_end()  # they start again with the new addresses
            self._nursery.end()
            self._nursery.begin()
            self._nursery.load(os.environ)

    def _look_whether_ready(self) -> None:
        missing, is_first = self._assistant.ask(
            "missing",
            pids=self._components.pids(),
            port=self._options.port,
            examples=EXAMPLES_FOLDER if self._options.examples else None,
        )
        if is_first:
            self._repeat_delivery_by_s = time.monotonic() + REPEAT_DELIVERY_WITHIN_S
        if not missing:
            self._is_ready = True
            say(f"Daylight is ready at http://127.0.0.1:{self._options.port}")
            return
        for member in self._components.members:
            if member.exits >= EXITS_BEFORE_READY_MAX:
                raise UpFailed(
                    f"{member.name} does not stay up ({member.log}):"
                    f" {data_folder.last_line(member.log)}"
                )
        if time.monotonic() > self._ready_by_s:
            raise UpFailed(
                f"Not ready within {READY_WITHIN_S:g} s; still missing: {', '.join(missing)}"
                f" (logs in {data_folder.logs_of(self._options.data_dir)})"
            )

    def _repeat_delivery(self) -> None:
        """One delivery of the first runs comes twice, once there is one; a demonstration only."""
        if self._assistant.ask("repeat_a_delivery"):
            self._repeat_delivery_by_s = 0.0

    # -- the end ------------------------------------------------------------------------------

    def _end(self) -> None:
        """Every process of the stack has ended: ours first, then Valkey, then PostgreSQL."""
        self._is_preparing = False
        self._is_impatient = False
        self._assistant.end()
        self._nursery.end()
        self._components.ask_to_end()
        deadline_s = time.monotonic() + STOP_GRACE_S
        while (
            self._components.running() and time.monotonic() < deadline_s and not self._is_impatient
        ):
            self._sleep(READY_POLL_S)
        for name in self._components.kill():
            say(f"{name} did not end in time and was killed")
        addresses.forget(self._options.data_dir)
        self._servers.stop()
        if self._is_stopping:
            say("Everything has ended")


def _components(options: Options) -> list[Component]:
    logs = data_folder.logs_of(options.data_dir)
    manage = [sys.executable, sys.argv[0]]
    counts = {"scheduler": options.schedulers, "triggerer": options.triggerers, "worker": 1}
    members = [
        Component(
            name="web",
            command=[*manage, "web", "--port", str(options.port)],
            log=logs / "web.log",
        )
    ]
    for kind, count in counts.items():
        for number in range(1, count + 1):
            name = kind if count == 1 else f"{kind}-{number}"
            members.append(Component(name=name, command=[*manage, kind], log=logs / f"{name}.log"))
    return members


def _check_port(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise UpFailed(
                f"Port {port} cannot be used ({error.strerror}): choose another with --port."
            ) from error


def _note(number: int, frame: FrameType | None) -> None:
    """A child ended; the loop is woken and looks for itself."""
    del number, frame
