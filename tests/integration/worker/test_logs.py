"""Logs on their way from files to the database, while attempts run and after their worker died."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from uuid import UUID

import psycopg
import pytest

from scheduler_app.models import AttemptLogChunk
from scheduler_app.transitions.attempt_log import LogChunk, append_log_chunks
from scheduler_app.worker import folder, leftovers, logs, witness
from tests.workshop import Hints, log_of, wait_until

if TYPE_CHECKING:
    from scheduler_app.transitions.attempt import Message
    from tests.workshop import Workshop

SOURCE = """
import os, sys, time
from scheduler_app.authoring import flow, task

@task
def t():
    BODY

@flow
def f():
    t()
"""


class Main:
    """The threads of a main process that matter here."""

    def __init__(self, workshop: Workshop) -> None:
        self.notices = Hints()
        self.witness = witness.Witness(workshop.station, notices=self.notices)
        self.logs = logs.Logs(workshop.station, self.witness, notices=self.notices)
        self.witness.on_printed = self.logs.ended


@pytest.fixture
def main(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> Iterator[Main]:
    monkeypatch.setattr(logs, "SHIP_INTERVAL_S", 0.1)
    monkeypatch.setattr(logs, "RETRY_S", 0.1)
    made = Main(workshop)
    made.witness.start()
    made.logs.start()
    yield made
    made.witness.stop(5)
    made.logs.stop(5)


def _issue(workshop: Workshop, body: str) -> Message:
    return workshop.issue_one(SOURCE.replace("BODY", body))


def _run(workshop: Workshop, main: Main, body: str) -> Message:
    message = _issue(workshop, body)
    child = workshop.start(message)
    main.witness.accepted(child.pid, str(message.attempt_id))
    main.witness.returned(child.pid, str(message.attempt_id), child.outcome())
    return message


def _no_files(workshop: Workshop) -> bool:
    return not workshop.folder.attempts(folder.RUNNING, folder.PRINTED, folder.KILLED)


def test_what_an_attempt_printed_is_stored_and_its_file_is_gone(
    workshop: Workshop, main: Main
) -> None:
    message = _run(workshop, main, "os.write(1, bytes(range(256)))")
    wait_until(lambda: log_of(message) == bytes(range(256)))
    wait_until(lambda: _no_files(workshop))
    assert main.notices.sent == [{"topics": [f"log:{message.attempt_id}"]}]


def test_an_attempt_that_prints_nothing_has_no_row(workshop: Workshop, main: Main) -> None:
    _run(workshop, main, "return 1")
    time.sleep(0.3)
    assert not AttemptLogChunk.objects.exists()
    assert _no_files(workshop)


def test_a_log_is_seen_while_its_task_runs(workshop: Workshop, main: Main) -> None:
    go = workshop.folder.path / "go"
    body = (
        f"print('first'); [time.sleep(0.05) for _ in iter(lambda: os.path.exists({str(go)!r}), True)];"
        " print('second')"
    )
    message = _issue(workshop, body)
    child = workshop.start(message)
    main.witness.accepted(child.pid, str(message.attempt_id))
    wait_until(lambda: log_of(message) == b"first\n")
    assert workshop.attempt(message).state == "running"
    go.touch()
    main.witness.returned(child.pid, str(message.attempt_id), child.outcome())
    wait_until(lambda: log_of(message) == b"first\nsecond\n")


def test_a_flood_is_cut_with_a_notice_and_harms_nothing(
    workshop: Workshop, main: Main, settings: Any
) -> None:
    settings.LOG_BYTES_MAX = 50_000
    message = _run(workshop, main, "[os.write(1, b'x' * 1_000_000) for _ in range(100)]")
    wait_until(lambda: _no_files(workshop))
    assert log_of(message) == b"x" * 50_000 + logs.notice()
    assert workshop.attempt(message).outcome == "success"


def test_an_insert_whose_answer_was_lost_doubles_and_loses_nothing(
    workshop: Workshop, main: Main, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = append_log_chunks
    calls: list[int] = []

    def cut(connection: Any, *, chunks: Any) -> None:
        append(connection, chunks=chunks)
        calls.append(1)
        if len(calls) == 1:
            with open(workshop.folder.file(message.attempt_id, folder.PRINTED), "ab") as file:
                file.write(b" and more")
            raise psycopg.OperationalError("the answer was lost")

    message = _issue(workshop, "sys.stdout.write('some')")
    monkeypatch.setattr("scheduler_app.worker.logs.append_log_chunks", cut)
    child = workshop.start(message)
    main.witness.accepted(child.pid, str(message.attempt_id))
    main.witness.returned(child.pid, str(message.attempt_id), child.outcome())
    wait_until(lambda: len(calls) > 1)
    wait_until(lambda: log_of(message) == b"some and more")


def test_the_rest_of_a_log_that_a_dead_worker_left_is_shipped_once(workshop: Workshop) -> None:
    message = _issue(workshop, "return 1")
    for suffix, attempt_id in ((folder.RUNNING, message.attempt_id), (folder.KILLED, UUID(int=1))):
        with open(workshop.folder.file(attempt_id, suffix), "wb") as file:
            file.write(b"stored before; left behind")
    append_log_chunks(
        workshop.connection,
        chunks=[LogChunk(attempt_id=message.attempt_id, start_offset=0, data=b"stored before; ")],
    )
    os.close(workshop.folder.lock_fd)
    notices = Hints()
    leftovers.send_all(workshop.folder.path.parent, job_id=workshop.station.job_id, notices=notices)
    assert log_of(message) == b"stored before; left behind"
    stored = AttemptLogChunk.objects.filter(attempt_id=UUID(int=1)).get()
    assert bytes(stored.data) == b"stored before; left behind"
    assert not workshop.folder.path.exists()
