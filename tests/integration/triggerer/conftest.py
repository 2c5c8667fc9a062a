"""Whole triggerer processes against the test's database, and tasks that wait for their triggers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
from django.conf import settings
from django.db import connections

from scheduler_app.models import Job, Trigger
from tests.workshop import Workshop, wait_until

if TYPE_CHECKING:
    from pathlib import Path

    import psycopg

    from scheduler_app.transitions.attempt import Message
    from tests.nurseries import Nurseries, Process

TTL_S = 3.0  # heartbeats each second, dead after four
SOON_S = 60.0  # on a loaded machine; a tenth of it on an idle one

HEAD = """
    import asyncio, os, sys, time
    from dataclasses import dataclass
    from datetime import datetime, timedelta, timezone
    from scheduler_app.authoring import *

    # Ground truth outside the product: one line at the start and one at the end.
    def note(path, *what):
        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(fd, (" ".join(map(str, what)) + "\\n").encode())
        os.close(fd)

    @dataclass(frozen=True)
    class Gate(Trigger):
        name: str
        folder: str

        async def run(self):
            note(f"{self.folder}/log", "start", self.name, os.getpid())
            while not os.path.exists(f"{self.folder}/{self.name}"):
                await asyncio.sleep(0.05)
            note(f"{self.folder}/log", "end", self.name, os.getpid())
            return self.name
"""


def flow_that_waits(body: str, trigger: str, *, timeout: str = "None") -> str:
    """A flow whose task ``t`` waits for the trigger and returns the event."""
    return f"""{HEAD}{body}
    @task
    def t(ctx, folder=None):
        raise Defer({trigger}, method="came", timeout={timeout})

    @t.method
    def came(event):
        return event

    @flow
    def f():
        t()
"""


class Post:
    """Triggerer processes of one test, ended with it."""

    def __init__(self, workshop: Workshop, folder: Path, place: Path, nurseries: Nurseries) -> None:
        self.workshop = workshop
        self.folder = folder
        self.place = place  # the data folder of its processes
        self.nurseries = nurseries
        self.log = folder / "triggerer.log"
        self.processes: list[Process] = []

    def start(self, *arguments: str, **environment: str) -> Process:
        """A triggerer runs: its job row is there."""
        server = settings.DATABASES["default"]
        environ = {
            **os.environ,
            "DATABASE_URL": (
                f"postgresql://{quote(server['USER'])}:{quote(server['PASSWORD'])}@/{server['NAME']}"
                f"?host={quote(server['HOST'], safe='/')}&port={server['PORT']}"
            ),
            "DAYLIGHT_DATA_DIR": str(self.place),
            "DAYLIGHT_LEASE_TTL": str(TTL_S),
            **environment,
        }
        environ.pop("DJANGO_SETTINGS_MODULE", None)
        process = self.nurseries.start("triggerer", *arguments, environ=environ, log=self.log)
        self.processes.append(process)
        wait_until(lambda: Job.objects.filter(kind="triggerer", pid=process.pid), within_s=SOON_S)
        return process

    def end(self) -> None:
        """Nothing runs any more; what was said is shown with a failed test."""
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.terminate()
        for process in self.processes:
            try:
                process.wait(timeout=SOON_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if self.log.exists():
            sys.stderr.write(self.log.read_text())

    # -- tasks that wait ----------------------------------------------------------------------

    def wait_for(self, source: str) -> Message:
        """The task of a new run of this flow waits for its trigger."""
        message = self.workshop.issue_one(source)
        assert self.workshop.deliver(message).outcome == "deferred", self.workshop.attempt(
            message
        ).error
        return message

    def gates(self, *names: str) -> dict[str, Message]:
        """Tasks that each wait for their gate to be opened."""
        return {
            name: self.wait_for(
                flow_that_waits("", f"Gate({name!r}, {str(self.folder)!r})").replace(
                    "def f():", f"def f_{name}():"
                )
            )
            for name in names
        }

    def open(self, *names: str) -> None:
        """The gates are open."""
        for name in names:
            (self.folder / name).touch()

    def noted(self) -> list[list[str]]:
        """What the triggers' code noted."""
        log = self.folder / "log"
        return [line.split() for line in log.read_text().splitlines()] if log.exists() else []

    def fired(self, message: Message, *, within_s: float = SOON_S) -> Trigger:
        """The trigger of this task once it no longer waits."""

        def look() -> Trigger | None:
            return Trigger.objects.filter(ti_id=message.ti_id, is_waiting=False).last()

        trigger: Trigger = wait_until(look, within_s=within_s)
        return trigger

    def watched_by(self, process: Process) -> int:
        """How many triggers this triggerer watches, by the database."""
        job = Job.objects.get(kind="triggerer", pid=process.pid)
        return Trigger.objects.filter(triggerer_job_id=job.id, is_waiting=True).count()


@pytest.fixture
def post(
    raw: psycopg.Connection[Any], tmp_path: Path, place: Path, nurseries: Nurseries
) -> Iterator[Post]:
    """Triggerers by hand."""
    made = Post(Workshop(raw, place), tmp_path, place, nurseries)
    yield made
    made.end()
    connections.close_all()
