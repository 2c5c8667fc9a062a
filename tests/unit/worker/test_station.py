"""Notes from children to the main process."""

from __future__ import annotations

import os

from scheduler_app.worker.station import NotePipe


def test_notes_arrive_in_order_and_once() -> None:
    notes = NotePipe.open()
    notes.write(pid=1, waits=True)
    notes.write(pid=2, attempt="a", limit_s=1.5)
    assert list(notes.read()) == [
        {"pid": 1, "waits": True},
        {"pid": 2, "attempt": "a", "limit_s": 1.5},
    ]
    assert list(notes.read()) == []


def test_half_a_note_waits_for_its_other_half() -> None:
    notes = NotePipe.open()
    os.write(notes.write_fd, b' {"pid": 1, ')
    assert list(notes.read()) == []
    os.write(notes.write_fd, b'"waits": false}\n')
    assert list(notes.read()) == [{"pid": 1, "waits": False}]


def test_a_full_pipe_never_blocks_a_child() -> None:
    notes = NotePipe.open()
    for number in range(5000):
        notes.write(pid=number, waits=True)
    read = list(notes.read())
    assert 0 < len(read) < 5000
    assert read[0] == {"pid": 0, "waits": True}


def test_notes_of_past_attempts_are_left_out() -> None:
    notes = NotePipe.open()
    for attempt in ("a", "b"):
        notes.write(pid=1, attempt=attempt, limit_s=1.5)
    notes.write(pid=1, waits=False)
    assert list(notes.read(is_past=lambda attempt: attempt == "a")) == [
        {"pid": 1, "attempt": "b", "limit_s": 1.5},
        {"pid": 1, "waits": False},
    ]
