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
from scheduler_app.worker.masks import Masks
from tests.together import together
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
    assert log_of(message) == bytes(range(256))  # whole as soon as the attempt has ended
    wait_until(lambda: _no_files(workshop))
    assert log_of(message) == bytes(range(256))


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
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    message = _issue(workshop, "return 1")
    path = workshop.folder.file(message.attempt_id, folder.RUNNING)
    append = append_log_chunks

    def cut(connection: Any, *, chunks: Any) -> None:
        append(connection, chunks=chunks)
        raise psycopg.OperationalError("the answer was lost")

    tail = logs.Tail()
    with open(path, "ab", buffering=0) as file:
        file.write(b"some")
        with monkeypatch.context() as patch:
            patch.setattr("scheduler_app.worker.logs.append_log_chunks", cut)
            with pytest.raises(psycopg.OperationalError):
                logs.store_new(
                    workshop.connection, workshop.folder, message.attempt_id, tail, masks=Masks()
                )
        file.write(b" and more")
    assert logs.store_new(
        workshop.connection, workshop.folder, message.attempt_id, tail, masks=Masks()
    )
    assert log_of(message) == b"some and more"


def test_two_writers_of_one_log_at_once_leave_no_gap_and_no_overlap(workshop: Workshop) -> None:
    """The main process ships a running attempt's log; its child stores the rest at the end."""
    message = _issue(workshop, "return 1")
    path = workshop.folder.file(message.attempt_id, folder.RUNNING)
    whole = b"".join(b"%06d\n" % number for number in range(3000))

    def store(connection: Any) -> None:
        tail = logs.Tail()
        deadline = time.monotonic() + 10
        while tail.offset < len(whole) and time.monotonic() < deadline:
            logs.store_new(connection, workshop.folder, message.attempt_id, tail, masks=Masks())

    def write(connection: Any) -> None:
        del connection
        with open(path, "ab", buffering=0) as file:
            for start in range(0, len(whole), 700):
                file.write(whole[start : start + 700])
                time.sleep(0.001)

    together([write, store, store, store])
    assert log_of(message) == whole


def test_a_log_is_shipped_by_the_main_process_if_the_child_could_not_store_it(
    workshop: Workshop, main: Main, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise psycopg.OperationalError("away")

    message = _issue(workshop, "print('kept')")
    with monkeypatch.context() as patch:
        patch.setattr("scheduler_app.worker.logs.append_log_chunks", refuse)
        child = workshop.start(message)
    main.witness.accepted(child.pid, str(message.attempt_id))
    outcome = child.outcome()
    assert (outcome.outcome, outcome.printed, outcome.log_stored) == ("success", True, 0)
    main.witness.returned(child.pid, str(message.attempt_id), outcome)
    wait_until(lambda: log_of(message) == b"kept\n")
    wait_until(lambda: _no_files(workshop))
    wait_until(lambda: {"topics": [f"log:{message.attempt_id}"]} in main.notices.sent)


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
