"""Many flow files: what loading needs is loaded once, and no file sees anything of another."""

from __future__ import annotations

import os
import subprocess
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

from scheduler_app.catalog import load
from scheduler_app.catalog.load import Loaded, load_each
from tests.benchmarks.processes import tree

GOOD = """
    from scheduler_app.authoring import flow, task

    @task
    def a(): ...

    @flow
    def {name}():
        a()
"""


def loaded(folder: Path, files: dict[str, str], *, limit_s: float = 60) -> dict[str, Loaded]:
    for name, source in files.items():
        (folder / name).write_text(textwrap.dedent(source), encoding="utf-8")
    found = load_each([(folder, name) for name in files], limit_s=limit_s)
    return {one.path: one for one in found}


def flows(found: Loaded) -> list[str]:
    return [flow.flow_id for flow in found.flows]


@pytest.fixture
def one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every file meets what the one before it left behind."""
    monkeypatch.setattr(load, "PARALLEL", 1)


def test_forty_files_begin_no_more_interpreters_than_run_side_by_side(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = []

    class Counted(subprocess.Popen[bytes]):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            begun.append(arguments)
            super().__init__(*arguments, **options)

    monkeypatch.setattr(subprocess, "Popen", Counted)
    files = {f"f{n}.py": GOOD.format(name=f"f{n}") for n in range(40)}
    found = loaded(tmp_path, files)
    assert {name: flows(one) for name, one in found.items()} == {
        name: [name.removesuffix(".py")] for name in files
    }
    assert 1 <= len(begun) <= load.PARALLEL


@pytest.mark.usefixtures("one_at_a_time")
def test_nothing_that_a_file_does_reaches_the_next_one(tmp_path: Path) -> None:
    spoils = """
        import builtins, os, signal, sys
        from scheduler_app import authoring
        from scheduler_app.authoring import flow, task
        builtins.len = None
        authoring.flow = None
        os.environ["SPOILT"] = "yes"
        os.chdir("/")
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        sys.modules["helper"] = sys
        open("/dev/stdout").close()
    """
    (tmp_path / "helper.py").write_text("NAME = 'mine'")
    asks = """
        import os
        from helper import NAME
        from scheduler_app.authoring import flow, task
        assert len("abc") == 3
        assert "SPOILT" not in os.environ
        assert NAME == "mine"

        @task
        def a(): ...

        @flow
        def asks():
            a()
    """
    found = loaded(tmp_path, {"a.py": spoils, "b.py": asks, "c.py": GOOD.format(name="c")})
    assert flows(found["b.py"]) == ["asks"], found["b.py"].faults
    assert found["b.py"].sources.keys() == {"b.py", "helper.py"}
    assert flows(found["c.py"]) == ["c"]


@pytest.mark.usefixtures("one_at_a_time")
@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("import os; os._exit(3)", "exit code 3"),
        ("import os; os.kill(os.getpid(), 9)", "ended by SIGKILL"),
        ("import os; os.close(0); os.closerange(3, 99); os._exit(0)", "exit code 0"),
        ("import os; os.kill(os.getppid(), 9); os._exit(4)", "ended its process"),
        ("import time; time.sleep(60)", "took longer than 3 s"),
        ("import sys; sys.exit(2)", "sys.exit(2)"),
    ],
)
def test_a_file_that_ends_its_process_or_that_of_all_ends_no_other(
    tmp_path: Path, source: str, words: str
) -> None:
    files = {"a.py": GOOD.format(name="a"), "b.py": source, "c.py": GOOD.format(name="c")}
    found = loaded(tmp_path, files, limit_s=3)
    assert [flows(found["a.py"]), flows(found["c.py"])] == [["a"], ["c"]]
    (fault,) = found["b.py"].faults
    assert words in fault["message"]


@pytest.mark.usefixtures("one_at_a_time")
def test_a_file_that_ends_the_process_of_all_after_its_own_work_is_loaded(tmp_path: Path) -> None:
    ends = GOOD.format(name="b") + "\n    import os\n    os.kill(os.getppid(), 9)\n"
    found = loaded(tmp_path, {"b.py": ends, "c.py": GOOD.format(name="c")})
    assert [flows(found["b.py"]), flows(found["c.py"])] == [["b"], ["c"]]


def test_what_a_file_starts_ends_with_it(tmp_path: Path) -> None:
    starts = """
        import os, subprocess, sys
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        open(os.path.join(os.path.dirname(__file__), "pid"), "w").write(str(child.pid))
    """
    loaded(tmp_path, {"a.py": starts})
    status = Path(f"/proc/{(tmp_path / 'pid').read_text()}/status")
    deadline = time.monotonic() + 10
    while status.exists() and "zombie" not in status.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_nothing_is_left_when_all_are_loaded(tmp_path: Path) -> None:
    files, processes = len(os.listdir("/proc/self/fd")), set(tree(os.getpid()))
    found = loaded(tmp_path, {f"f{n}.py": GOOD.format(name=f"f{n}") for n in range(4)})
    assert len(found) == 4
    assert len(os.listdir("/proc/self/fd")) == files
    assert set(tree(os.getpid())) <= processes
