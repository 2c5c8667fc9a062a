"""Which bytes of a log file are new, and where a log is cut."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest

from scheduler_app.worker import folder, logs

ATTEMPT = uuid.uuid4()


@pytest.fixture
def place(tmp_path: Path) -> folder.WorkerFolder:
    return folder.create(tmp_path, job_id=uuid.uuid4())


@pytest.fixture(autouse=True)
def _small_cap(settings: Any) -> None:
    settings.LOG_BYTES_MAX = 1000


def _print(place: folder.WorkerFolder, data: bytes, suffix: str = folder.RUNNING) -> None:
    with open(place.file(ATTEMPT, suffix), "ab") as file:
        file.write(data)


def _take(place: folder.WorkerFolder, tail: logs.Tail) -> list[tuple[int, bytes]]:
    """What a writer would store, batch by batch."""
    taken = []
    while batch := logs._next_batch(place, ATTEMPT, tail):
        taken += [(chunk.start_offset, chunk.data) for chunk in batch]
        tail.offset = batch[-1].start_offset + len(batch[-1].data)
    return taken


def test_only_new_bytes_are_taken_each_at_its_offset(place: folder.WorkerFolder) -> None:
    tail = logs.Tail()
    _print(place, b"one\xff\x00")
    assert _take(place, tail) == [(0, b"one\xff\x00")]
    assert _take(place, tail) == []
    _print(place, b"two")
    assert _take(place, tail) == [(5, b"two")]


def test_an_attempt_without_a_file_has_nothing_new(place: folder.WorkerFolder) -> None:
    assert _take(place, logs.Tail()) == []


def test_a_log_past_its_cap_is_cut_once_with_a_notice(place: folder.WorkerFolder) -> None:
    tail = logs.Tail()
    _print(place, b"x" * 1500)
    data = b"".join(data for _, data in _take(place, tail))
    assert data == b"x" * 1000 + logs.notice()
    assert b"first 1,000 bytes" in data
    _print(place, b"y" * 10)
    assert _take(place, tail) == []


def test_a_log_of_exactly_the_cap_is_not_cut(place: folder.WorkerFolder) -> None:
    tail = logs.Tail()
    _print(place, b"x" * 1000)
    assert _take(place, tail) == [(0, b"x" * 1000)]
    _print(place, b"y")
    assert _take(place, tail) == [(1000, logs.notice())]


def test_a_big_log_is_taken_in_batches(
    place: folder.WorkerFolder, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.LOG_BYTES_MAX = 100_000
    monkeypatch.setattr(logs, "CHUNK_BYTES", 1000)
    monkeypatch.setattr(logs, "BATCH_BYTES", 3000)
    _print(place, bytes(range(256)) * 40)
    assert len(logs._next_batch(place, ATTEMPT, logs.Tail())) == 3
    assert b"".join(data for _, data in _take(place, logs.Tail())) == bytes(range(256)) * 40


@pytest.mark.parametrize("suffix", [folder.PRINTED, folder.KILLED])
def test_the_log_of_an_ended_attempt_is_found(place: folder.WorkerFolder, suffix: str) -> None:
    _print(place, b"last words", suffix)
    assert _take(place, logs.Tail()) == [(0, b"last words")]


def test_the_file_of_a_running_attempt_does_not_fill_the_disk(
    place: folder.WorkerFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "SLACK_BYTES", 100)
    path = Path(place.file(ATTEMPT, folder.RUNNING))
    _print(place, b"x" * 5000)
    logs._shorten(str(path))
    assert path.stat().st_size == 1001
    _print(place, b"y")  # the writer appends: it goes on at the new end
    assert path.stat().st_size == 1002
