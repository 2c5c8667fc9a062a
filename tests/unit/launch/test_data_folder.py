from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from scheduler_app.launch import data_folder


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_others_may_pass_through_the_folder_and_not_look_into_it(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "data"
    data_folder.make(folder)
    data_folder.make(folder)
    assert mode(folder) == 0o711
    assert mode(data_folder.logs_of(folder)) == 0o700


def test_a_second_stack_is_told_who_is_there(tmp_path: Path) -> None:
    with (
        data_folder.occupy(tmp_path),
        pytest.raises(
            data_folder.InUse, match=rf"in use by another stack \(process {os.getpid()}\)"
        ),
    ):
        data_folder.occupy(tmp_path)
    data_folder.occupy(tmp_path).close()


def test_the_secret_key_stays_the_same_and_private(tmp_path: Path) -> None:
    data_folder.make_secret_key(tmp_path)
    first = (tmp_path / "secret-key").read_text()
    data_folder.make_secret_key(tmp_path)
    assert (tmp_path / "secret-key").read_text() == first
    assert len(first) > 50
    assert mode(tmp_path / "secret-key") == 0o600


def test_the_password_of_the_administrator_is_made_once(tmp_path: Path) -> None:
    path, password, is_new = data_folder.admin_password(tmp_path)
    assert is_new
    assert mode(path) == 0o600
    assert data_folder.admin_password(tmp_path) == (path, password, False)


def test_a_large_log_goes_one_file_back_while_its_writer_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_folder, "LOG_BYTES_MAX", 10)
    path = tmp_path / "web.log"
    with data_folder.open_log(path) as writer:
        writer.write(b"0123456789 old\n")
        writer.flush()
        data_folder.rotate(path)
        writer.write(b"new\n")
    assert path.read_bytes() == b"new\n"
    assert (tmp_path / "web.log.1").read_bytes() == b"0123456789 old\n"
    data_folder.rotate(path)
    assert path.read_bytes() == b"new\n"


@pytest.mark.parametrize(
    ("content", "line"),
    [(b"", ""), (b"one\ntwo\n\n", "two"), (b"x" * 9000 + b"\n\xff!\n", "\ufffd!")],
)
def test_the_last_line_of_a_log_is_found(tmp_path: Path, content: bytes, line: str) -> None:
    (tmp_path / "log").write_bytes(content)
    assert data_folder.last_line(tmp_path / "log") == line


def test_a_log_that_is_not_there_has_no_last_line(tmp_path: Path) -> None:
    assert data_folder.last_line(tmp_path / "log") == ""
    data_folder.rotate(tmp_path / "log")
