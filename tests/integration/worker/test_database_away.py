"""The database goes away under a child: nothing is refused, nothing is run twice, nothing is lost."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from scheduler_app.processes import database
from scheduler_app.transitions.attempt import lose
from scheduler_app.worker import folder, leftovers, link
from scheduler_app.worker.guard import ASK
from tests.workshop import Hints, wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.workshop import Workshop

HEAD = "from scheduler_app.authoring import flow, task\n"


class Switch:
    """A file that stands for the database's being there, seen by every process of a test."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def off(self) -> None:
        self.path.touch()

    def on(self) -> None:
        self.path.unlink()

    def check(self) -> None:
        if self.path.exists():
            raise psycopg.OperationalError("the switch is off")


@pytest.fixture
def switch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Switch:
    """Children made from now on lose their database while the switch is off."""
    made = Switch(tmp_path / "database-is-away")
    connect, once = database.connect, link.Link.once

    def guarded_connect(*args: Any, **options: Any) -> Any:
        made.check()
        return connect(*args, **options)

    def guarded_once(self: link.Link, ask: Any) -> Any:
        try:
            made.check()
        except psycopg.OperationalError:
            self.close()
            raise
        return once(self, ask)

    monkeypatch.setattr(database, "connect", guarded_connect)
    monkeypatch.setattr(link.Link, "once", guarded_once)
    return made


def _counting(path: Path, switch: Switch | None = None) -> str:
    """A flow whose task notes that it ran, and may turn the database off before it returns."""
    off = f"open({str(switch.path)!r}, 'w').close()" if switch else "pass"
    return f"""{HEAD}
@task
def t():
    with open({str(path)!r}, "a") as file:
        file.write("ran\\n")
    {off}
    return 42

@flow
def f():
    t()
"""


def test_a_delivery_waits_for_the_database_and_says_so(
    workshop: Workshop, switch: Switch, tmp_path: Path
) -> None:
    message = workshop.issue_one(_counting(tmp_path / "ran"))
    switch.off()
    child = workshop.start(message)
    first = wait_until(lambda: list(workshop.station.notes.read()))
    assert first == [{"pid": child.pid, "waits": True}]
    assert workshop.attempt(message).state == "issued"
    assert workshop.events(message) == []
    switch.on()
    assert child.outcome().outcome == "success"
    assert {"pid": child.pid, "waits": False} in list(workshop.station.notes.read())


def test_a_delivery_that_waits_ends_unclaimed_when_it_is_asked_to_stop(
    workshop: Workshop, switch: Switch, tmp_path: Path
) -> None:
    message = workshop.issue_one(_counting(tmp_path / "ran"))
    switch.off()
    child = workshop.start(message)
    wait_until(lambda: list(workshop.station.notes.read()))
    workshop.folder.write(message.attempt_id, folder.STOP, {"why": "its worker stops"})
    os.kill(child.pid, ASK)
    assert child.outcome().what == "unclaimed"
    assert workshop.attempt(message).state == "issued"
    assert not (tmp_path / "ran").exists()


def test_a_report_waits_on_disk_and_user_code_is_not_run_again(
    workshop: Workshop, switch: Switch, tmp_path: Path
) -> None:
    message = workshop.issue_one(_counting(tmp_path / "ran", switch))
    child = workshop.start(message)
    wait_until(lambda: workshop.folder.attempts(folder.REPORT))
    time.sleep(0.3)
    assert workshop.attempt(message).state == "running"
    switch.on()
    assert child.outcome().outcome == "success"
    assert (tmp_path / "ran").read_text() == "ran\n"
    assert workshop.attempt(message).result == 42
    assert workshop.folder.attempts(folder.REPORT) == []


def _die_with_a_report(workshop: Workshop, switch: Switch, tmp_path: Path) -> Any:
    message = workshop.issue_one(_counting(tmp_path / "ran", switch))
    child = workshop.start(message)
    wait_until(lambda: workshop.folder.attempts(folder.REPORT))
    os.kill(child.pid, signal.SIGKILL)
    child.status()
    switch.on()
    os.close(workshop.folder.lock_fd)  # its worker is gone too
    return message


def _send_leftovers(workshop: Workshop) -> None:
    leftovers.send_all(
        workshop.folder.path.parent,
        job_id=workshop.station.job_id,
        notices=Hints(),
    )


def test_a_report_that_a_dead_worker_left_is_accepted_from_the_next(
    workshop: Workshop, switch: Switch, tmp_path: Path
) -> None:
    message = _die_with_a_report(workshop, switch, tmp_path)
    _send_leftovers(workshop)
    attempt = workshop.attempt(message)
    assert (attempt.outcome, attempt.is_accepted, attempt.result) == ("success", True, 42)
    assert workshop.ti(message).state == "success"
    assert not workshop.folder.path.exists()


def test_a_left_report_of_a_lost_attempt_changes_nothing_and_is_an_event(
    workshop: Workshop, switch: Switch, tmp_path: Path
) -> None:
    message = _die_with_a_report(workshop, switch, tmp_path)
    lose(
        workshop.connection,
        attempt_ids=[message.attempt_id],
        dead_after_s=0.0,
        budget=3,
        source="test",
    )
    _send_leftovers(workshop)
    attempt = workshop.attempt(message)
    assert (attempt.outcome, attempt.is_accepted, attempt.result) == ("lost", False, None)
    late = workshop.events(message)[-1]
    assert (late.kind, late.verdict, late.verdict_code) == (
        "late_report",
        "ignored",
        "late_after_terminal",
    )
    assert late.payload["outcome_reported"] == "success"


def test_leftovers_stay_while_the_database_is_away(
    workshop: Workshop, switch: Switch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    message = _die_with_a_report(workshop, switch, tmp_path)
    with monkeypatch.context() as patch:

        def refuse(*_: Any, **__: Any) -> Any:
            raise psycopg.OperationalError("away")

        patch.setattr(database, "connect", refuse)
        _send_leftovers(workshop)
    assert workshop.folder.attempts(folder.REPORT) == [(str(message.attempt_id), folder.REPORT)]
    _send_leftovers(workshop)
    assert workshop.attempt(message).outcome == "success"
