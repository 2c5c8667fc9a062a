"""Which bytes of a log file are new, and where a log is cut."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest

from scheduler_app.worker import folder, logs
from scheduler_app.worker.masks import Masks

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


def _take(
    place: folder.WorkerFolder,
    tail: logs.Tail,
    *,
    masks: Masks | None = None,
    is_ended: bool = True,
) -> list[tuple[int, bytes]]:
    """What a writer would store, batch by batch."""
    taken = []
    while batch := logs._next_batch(place, ATTEMPT, tail, masks or Masks(), is_ended=is_ended):
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
    assert len(logs._next_batch(place, ATTEMPT, logs.Tail(), Masks(), is_ended=True)) == 3
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


SECRET = "correct-horse-battery"


def _masks() -> Masks:
    masks = Masks()
    masks.add(SECRET)
    return masks


def test_a_secret_is_masked_and_keeps_its_length(place: folder.WorkerFolder) -> None:
    _print(place, f"before {SECRET} after\n".encode())
    stars = b"*" * len(SECRET)
    assert _take(place, logs.Tail(), masks=_masks()) == [(0, b"before " + stars + b" after\n")]


@pytest.mark.parametrize("cut", range(1, len(SECRET)))
def test_a_secret_printed_in_two_parts_is_masked_whole(
    place: folder.WorkerFolder, cut: int
) -> None:
    """While the attempt runs, what may be the beginning of a secret waits for what follows."""
    tail, masks = logs.Tail(), _masks()
    _print(place, b"x " + SECRET[:cut].encode())
    taken = _take(place, tail, masks=masks, is_ended=False)
    _print(place, SECRET[cut:].encode() + b" y")
    taken += _take(place, tail, masks=masks, is_ended=False)
    assert b"".join(data for _, data in taken) == b"x " + b"*" * len(SECRET) + b" y"


@pytest.mark.parametrize("batch", range(len(SECRET) + 1, 3 * len(SECRET), 5))
def test_a_secret_across_two_batches_is_masked(
    place: folder.WorkerFolder, monkeypatch: pytest.MonkeyPatch, batch: int
) -> None:
    monkeypatch.setattr(logs, "BATCH_BYTES", batch)
    _print(place, b"-" * 17 + SECRET.encode() * 2 + b"-" * 17)
    data = b"".join(data for _, data in _take(place, logs.Tail(), masks=_masks()))
    assert data == b"-" * 17 + b"*" * len(SECRET) * 2 + b"-" * 17


def test_a_secret_across_the_cap_leaves_no_beginning(place: folder.WorkerFolder) -> None:
    _print(place, b"-" * 990 + SECRET.encode() + b"-" * 100)
    data = b"".join(data for _, data in _take(place, logs.Tail(), masks=_masks()))
    assert data == b"-" * 990 + b"*" * 10 + logs.notice()


def test_what_looks_like_the_beginning_of_a_secret_is_kept_at_the_end(
    place: folder.WorkerFolder,
) -> None:
    tail = logs.Tail()
    _print(place, b"correct")
    assert _take(place, tail, masks=_masks(), is_ended=False) == []
    assert _take(place, tail, masks=_masks()) == [(0, b"correct")]


def test_of_two_secrets_of_one_beginning_the_longer_is_masked(place: folder.WorkerFolder) -> None:
    masks, tail = Masks(), logs.Tail()
    masks.add(["abcabc", "abcabcdef"])
    taken = []
    for part in (b"abca", b"bcd", b"ef abcabc", b" "):
        _print(place, part)
        taken += _take(place, tail, masks=masks, is_ended=False)
    assert b"".join(data for _, data in taken) == b"********* ****** "
