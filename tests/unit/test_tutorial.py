"""Every block of the tutorial is what it says: flows without a fault that run, tests that pass, typed."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from scheduler_app.authoring.registry import collecting
from tests.tutorial import PAGE, blocks

EVENTS: dict[str, dict[str, Any]] = {
    "waits": {"arrived": "/sales/2026-01-01.csv"},
    "month": {"south": "success"},
}
RESULTS: dict[str, tuple[str, object]] = {
    "shop": ("total", 49),
    "regions": ("compare", "north"),
    "by_day": ("count", "3 from /sales/2026-01-01/north.csv"),
    "careful": ("ask", 42),
    "nightly": ("extract", 1),
    "waits": ("count", 21),
    "each": ("total", 14),
    "polite": ("write", 60),
    "month": ("close", "2 regions"),
}
FILES = {block.file: block.text for block in blocks() if block.file}
FLOWS = sorted(file for file in FILES if file.startswith("flows/"))
TESTS = sorted(file for file in FILES if file.startswith("tests/"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The files as a reader has them."""
    for name, text in FILES.items():
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return tmp_path


def test_each_file_is_written_once() -> None:
    assert len(FILES) == len([block for block in blocks() if block.file])
    assert {Path(file).stem for file in FLOWS} == RESULTS.keys()
    assert TESTS


@pytest.mark.parametrize("file", FLOWS)
def test_each_flow_is_without_a_fault_and_runs(file: str) -> None:
    with collecting() as registry:
        exec(compile(FILES[file], file, "exec"), {"__name__": Path(file).stem})
    assert [fault for one in registry.registrations for fault in one.faults] == []
    (one,) = registry.registrations
    assert one.flow.flow_id == Path(file).stem
    done = one.flow.test(events=EVENTS.get(one.flow.flow_id))
    assert done.state == "success", done.reason
    task_id, result = RESULTS[one.flow.flow_id]
    assert done.results[task_id] == result


@pytest.mark.parametrize("file", TESTS)
def test_each_test_passes(file: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(folder / "flows"))
    names: dict[str, Any] = {"__name__": "tutorial"}
    with collecting():
        exec(compile(FILES[file], file, "exec"), names)
    tests = [value for name, value in names.items() if name.startswith("test_")]
    assert tests
    for test in tests:
        assert inspect.isfunction(test)
        test()
    for name in RESULTS:
        sys.modules.pop(name, None)


def test_mypy_finds_every_file_right(folder: Path) -> None:
    assert _mypy(folder, *FILES, "--strict") == ""


def test_mypy_finds_the_chapters_behind_the_numbered_ones_right(folder: Path) -> None:
    page = PAGE.read_text(encoding="utf-8").split("\n## Trigger rules\n", 1)[1]
    parts = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (folder / "chapters.py").write_text("\n\n".join(parts), encoding="utf-8")
    assert _mypy(folder, "chapters.py", "--check-untyped-defs") == ""


def _mypy(folder: Path, *arguments: str) -> str:
    """What mypy has to say, if anything."""
    pytest.importorskip("mypy", reason="mypy is among the tools of `make setup`")
    checkout = PAGE.parents[1]
    path = os.pathsep.join([str(checkout), str(folder / "flows")])
    done = subprocess.run(
        [
            *(sys.executable, "-m", "mypy", "--config-file="),
            *("--follow-imports=silent", f"--cache-dir={folder.parent / 'mypy'}"),
            *arguments,
        ],
        cwd=folder,
        env={**os.environ, "MYPYPATH": path},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return "" if done.returncode == 0 else done.stdout + done.stderr
