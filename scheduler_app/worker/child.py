"""What one child of the pool sets up once and keeps from delivery to delivery."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import logging
import os
import re
import signal
import sys
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final

import psycopg
from django.conf import settings

from scheduler_app.hints.notices import Notices
from scheduler_app.worker.capture import Capture
from scheduler_app.worker.folder import SPARE
from scheduler_app.worker.guard import Guard, release_forks
from scheduler_app.worker.link import Link
from scheduler_app.worker.masks import Masks
from scheduler_app.worker.station import Station, station

if TYPE_CHECKING:
    from scheduler_app.transitions.attempt import Claim, Near

PR_SET_PDEATHSIG: Final = 1
NEEDS_MAX: Final = 16  # tasks; they are sent along with claims
# What the environment of ``up`` holds and user code has no business with.
_KEPT_BACK: Final = re.compile(
    r".*_URL|PG[A-Z]+|DAYLIGHT_.*(SECRET|PASSWORD|TOKEN|KEY).*", re.IGNORECASE
)

logger = logging.getLogger(__name__)


class Needs:
    """Which results the tasks of one flow needed when they ran here; of the flow that ran last."""

    def __init__(self) -> None:
        self._flow_id = ""
        self._by_task: OrderedDict[str, tuple[str, ...]] = OrderedDict()

    def note(self, flow_id: str, task_id: str, needed: tuple[str, ...]) -> None:
        """The task needed these, which may be none."""
        if flow_id != self._flow_id:
            self._flow_id = flow_id
            self._by_task.clear()
        if not needed:
            self._by_task.pop(task_id, None)
            return
        self._by_task[task_id] = needed
        self._by_task.move_to_end(task_id)
        if len(self._by_task) > NEEDS_MAX:
            self._by_task.popitem(last=False)

    def known(self) -> dict[str, tuple[str, ...]]:
        """By task, those that needed some."""
        return {**self._by_task}


class Child:
    """One pool child: its link to the database, its capture, its guard."""

    def __init__(self, at: Station) -> None:
        self.at = at
        self.pid = os.getpid()
        self.link = Link(on_wait=lambda waits: at.notes.write(pid=self.pid, waits=waits))
        self.notices = Notices(settings.CACHE_URL, lend=self.link.once)
        self.capture = Capture(at.folder.file(str(self.pid), SPARE))
        self.masks = Masks()
        self.guard = Guard(at.folder)
        self.loaded: set[str] = set()  # digests of bundles whose code has run here
        self.needed: Near | None = None  # by what ran last
        self.near: Near | None = None  # what the next one is expected to need
        self.needs = Needs()
        self._environment = {**_raw(os.environ)}  # as the system has it
        self._folder = os.getcwd()

    def purge(self) -> None:
        """What the last task may have changed in this process is as it was."""
        if _raw(os.environ) != self._environment:
            os.environ.clear()
            os.environ.update(
                {os.fsdecode(name): os.fsdecode(value) for name, value in self._environment.items()}
            )
        with contextlib.suppress(OSError):  # a folder that is gone
            os.chdir(self._folder)
        self.guard.install()

    def hidden(self, text: str) -> str:
        """The text without secrets; while the database is away, without those known so far."""
        try:
            self.link.once(self.masks.refresh)
        except psycopg.Error as error:
            logger.warning("secrets are not looked up", extra={"error": str(error).strip()})
        return self.masks.hide_text(text)

    def tell_limit(self, attempt_id: str, limit_s: float | None) -> None:
        """The main process kills this child if it minds neither the limit nor the signal at its end."""
        self.at.notes.write(pid=self.pid, attempt=attempt_id, limit_s=limit_s)

    def tell_claimed(self, attempt_id: str, claimed: Claim, token: int) -> None:
        """The main process knows what the attempt belongs to, even if the database forgets it."""
        date, created_at = claimed.logical_date, claimed.run_created_at
        self.at.notes.write(
            pid=self.pid,
            attempt=attempt_id,
            claimed={
                "flow_id": claimed.flow_id,
                "run": claimed.run_id,
                "run_id": claimed.run_key,
                "run_type": claimed.run_type,
                "run_created_at": created_at.isoformat() if created_at else None,
                "logical_date": date.isoformat() if date else None,
                "task_id": claimed.task_id,
                "map_index": claimed.map_index,
                "try_number": claimed.try_number,
                "lease_token": token,
            },
        )


def _raw(environment: Any) -> dict[bytes, bytes]:
    """What is in it, undecoded: it is compared before every delivery."""
    raw: dict[bytes, bytes] = getattr(environment, "_data", {})
    return raw


_child: Child | None = None


def start_child() -> None:
    """This process is a pool child: it dies with its worker and leads a process group of its own.

    Runs right after the fork, before any delivery.
    """
    at = station()
    _die_with_parent(at.main_pid)
    os.setpgid(0, 0)
    # The main process alone holds the folder's lock: it must end with that process.
    os.close(at.folder.lock_fd)
    os.close(at.notes.read_fd)
    # A supervisor's signal to all is the main process's to answer; the guard listens later.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for name in filter(is_kept_back, list(os.environ)):
        del os.environ[name]
    release_forks()
    _keep_own_log()
    gc.freeze()


def is_kept_back(name: str) -> bool:
    """Whether user code must not see this variable: an address with a password, or a secret."""
    return _KEPT_BACK.fullmatch(name) is not None


def child() -> Child:
    """This process's own; made at its first delivery."""
    global _child  # noqa: PLW0603 - one a process
    if _child is None:
        _child = Child(station())
    return _child


def end_child() -> None:
    """The connection to the database is closed in order, and no file is kept; the process is about to end by itself."""
    if _child is not None:
        _child.link.close()
        _child.at.folder.drop(str(_child.pid), SPARE)


def _die_with_parent(main_pid: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != main_pid:
        os._exit(1)


def _keep_own_log() -> None:
    """The product's own lines go on to the worker's log while attempts print elsewhere."""
    stream = os.fdopen(os.dup(2), "w", buffering=1, encoding="utf-8", errors="backslashreplace")
    handler = logging.StreamHandler(stream)
    root = logging.getLogger()
    if root.handlers:
        handler.setFormatter(root.handlers[0].formatter)
    own = logging.getLogger("scheduler_app")
    own.handlers[:] = [handler]
    own.propagate = False
