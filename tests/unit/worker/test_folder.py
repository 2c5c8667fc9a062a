"""The folder of a worker: whose it is, and what of it survives."""

from __future__ import annotations

import os
import uuid
from typing import TYPE_CHECKING

from scheduler_app.worker import folder

if TYPE_CHECKING:
    from pathlib import Path

ATTEMPT = "01a2281b-0094-7720-8d01-77ca65ee54a7"


def test_a_folder_whose_worker_lives_is_not_taken(tmp_path: Path) -> None:
    folder.create(tmp_path, job_id=uuid.uuid4())
    assert list(folder.abandoned(tmp_path)) == []


def test_a_folder_whose_worker_is_gone_is_taken_by_exactly_one(tmp_path: Path) -> None:
    mine = folder.create(tmp_path, job_id=uuid.uuid4())
    os.close(mine.lock_fd)  # as the kernel does when its process ends
    first = list(folder.abandoned(tmp_path))
    assert [left.path for left in first] == [mine.path]
    assert list(folder.abandoned(tmp_path)) == []


def test_a_folder_that_is_being_made_is_not_taken(tmp_path: Path) -> None:
    (tmp_path / f"{folder.HIDDEN}x").mkdir()
    (tmp_path / f"{folder.HIDDEN}x" / folder.OWNER).touch()
    assert list(folder.abandoned(tmp_path)) == []


def test_what_was_written_is_read_and_only_whole_files_have_a_name(tmp_path: Path) -> None:
    mine = folder.create(tmp_path, job_id=uuid.uuid4())
    mine.write(ATTEMPT, folder.REPORT, {"outcome": "success", "result": "ä"})
    assert mine.read(ATTEMPT, folder.REPORT) == {"outcome": "success", "result": "ä"}
    assert mine.read(ATTEMPT, folder.STOP) is None
    assert mine.attempts(folder.REPORT, folder.STOP) == [(ATTEMPT, folder.REPORT)]


def test_dropping_says_who_removed_the_file(tmp_path: Path) -> None:
    mine = folder.create(tmp_path, job_id=uuid.uuid4())
    mine.write(ATTEMPT, folder.STOP, {})
    assert mine.drop(ATTEMPT, folder.STOP)
    assert not mine.drop(ATTEMPT, folder.STOP)


def test_a_removed_folder_leaves_nothing(tmp_path: Path) -> None:
    mine = folder.create(tmp_path, job_id=uuid.uuid4())
    mine.write(ATTEMPT, folder.STOP, {})
    mine.remove()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_with_a_report_stays_for_the_next_worker(tmp_path: Path) -> None:
    mine = folder.create(tmp_path, job_id=uuid.uuid4())
    mine.write(ATTEMPT, folder.REPORT, {"outcome": "success"})
    mine.remove()
    (left,) = folder.abandoned(tmp_path)
    assert left.read(ATTEMPT, folder.REPORT) == {"outcome": "success"}
