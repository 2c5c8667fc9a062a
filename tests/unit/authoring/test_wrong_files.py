"""A file that cannot be loaded at all is one fault: what, in which file, on which line, what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from scheduler_app.catalog import discover, load_file
from scheduler_app.processes import bundles

if TYPE_CHECKING:
    from pathlib import Path

IMPORT = b"from scheduler_app.authoring import flow, task\n"

# what is in flows.py -> its line, words of the message, words of the remedy
WRONG = {
    "bytes that are no UTF-8": (b'# flow\nx = "\xff\xfe"\n', 2, "can't decode byte 0xff", "UTF-8"),
    "an encoding that there is not": (b"# -*- coding: nosuch -*-\n", 1, "unknown encoding", ""),
    "UTF-16": ("# flow".encode("utf-16"), 1, "null bytes", ""),
    "NUL": (IMPORT + b"\0\n", 1, "null bytes", ""),
    "tabs among spaces": (b"def f():\n\tx = 1\n        y = 2\n", 3, "tabs and spaces", ""),
    "a wrong indent": (b"# flow\n  x = 1\n", 2, "unexpected indent", "Correct the line"),
    "no syntax": (IMPORT + b"@flow\ndef f(:\n", 3, "invalid syntax", "Correct the line"),
    "a bracket that is left open": (b"# flow\nx = (1,\n", 2, "never closed", ""),
    "another Python": (b'# flow\nprint "x"\n', 2, "Did you mean print(...)?", ""),
    "brackets without end": (b"# flow\nx = " + b"(" * 300, 2, "too many nested", ""),
    "a number without end": (b"# flow\nx = " + b"9" * 10_000, 2, "4300 digits", ""),
    "a late __future__": (b"x = 1\nfrom __future__ import annotations\n", 2, "beginning", ""),
    "a return": (b"# flow\nreturn 1\n", 2, "'return' outside function", ""),
    "an await": (b"# flow\nawait x\n", 2, "'await' outside function", ""),
    "what cannot be seen": ("# flow\nx\u200b = 1\n".encode(), 2, "U+200B", ""),
    "quotes of a word processor": ("# flow\nx = \u201ca\u201d\n".encode(), 2, "U+201C", ""),
    "a relative import": (IMPORT + b"from . import x\n", 2, "relative import", "import helpers"),
    "a module that there is not": (b"# flow\nimport nosuch\n", 2, "'nosuch'", "Install nosuch"),
    "a name that there is not": (b"# flow\nx = y\n", 2, "NameError", ""),
    "an exception that cannot be told": (
        b"# flow\nclass E(Exception):\n    def __str__(self): raise ValueError('no')\nraise E()\n",
        4,
        "E",
        "importable",
    ),
    "an exception without end": (b"# flow\nraise ValueError('x' * 10**7)\n", 2, "ValueError", ""),
    "an exception of odd characters": (
        b"# flow\nraise ValueError('a\\0b\\udc80')\n",
        2,
        "a\\x00b\\udc80",
        "",
    ),
    "an exit": (b"# flow\nimport sys\nsys.exit(3)\n", 3, "sys.exit(3)", "into a task"),
    "an interrupt": (b"# flow\nraise KeyboardInterrupt\n", 2, "KeyboardInterrupt", ""),
    "a recursion": (b"# flow\ndef r(): r()\nr()\n", 2, "RecursionError", ""),
    "a lack of memory": (b"# flow\nraise MemoryError\n", 2, "MemoryError", "so much memory"),
}


def answer(folder: Path, path: str = "flows.py") -> dict[str, Any]:
    try:
        return load_file._answer(folder, path)
    finally:
        bundles._shelf.clear()


@pytest.mark.parametrize(("source", "line", "message", "remedy"), WRONG.values(), ids=WRONG.keys())
def test_a_file_that_cannot_be_loaded_is_one_fault(
    tmp_path: Path, source: bytes, line: int, message: str, remedy: str
) -> None:
    (tmp_path / "flows.py").write_bytes(source)
    (told,) = answer(tmp_path)["faults"]
    assert (told["file"], told["line"]) == ("flows.py", line)
    assert message in told["message"]
    assert remedy in told["remedy"]
    assert told["remedy"]
    assert len(told["message"]) <= load_file.MESSAGE_CHARACTERS_MAX


def test_what_fails_in_an_imported_file_is_told_with_that_file(tmp_path: Path) -> None:
    (tmp_path / "flows.py").write_bytes(IMPORT + b"import helpers\n")
    (tmp_path / "helpers.py").write_bytes(b"\n\n1 / 0\n")
    (told,) = answer(tmp_path)["faults"]
    assert (told["file"], told["line"]) == ("helpers.py", 3)
    assert "ZeroDivisionError" in told["message"]


def test_files_that_import_each_other_are_told_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "flows.py").write_bytes(IMPORT + b"from helpers import Y\nX = 1\n")
    (tmp_path / "helpers.py").write_bytes(b"from flows import X\nY = 1\n")
    (told,) = answer(tmp_path)["faults"]
    assert (told["file"], told["line"]) == ("helpers.py", 1)
    assert "cannot import name 'X'" in told["message"]
    assert "into a third" in told["remedy"]


@pytest.mark.parametrize("name", ["strange name & more.py", "ünï.py", "new\nline.py", "flow.py"])
def test_a_file_of_any_name_is_told(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(IMPORT + b"1 / 0\n")
    assert list(discover.python_files(tmp_path)) == [name]
    (told,) = answer(tmp_path, name)["faults"]
    assert (told["file"], told["line"]) == (name, 2)


def test_what_is_no_file_to_read_harms_nothing(tmp_path: Path) -> None:
    (tmp_path / "folder.py").mkdir()
    (tmp_path / "dangling.py").symlink_to(tmp_path / "nowhere.py")
    (tmp_path / "loop.py").symlink_to("loop.py")
    assert discover.python_files(tmp_path) == {}
