from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from scheduler_app.launch.environment import ROOT
from tests.factories import make_flow

if TYPE_CHECKING:
    from tests.integration.commands.conftest import Call

GOOD = """
    from scheduler_app.authoring import flow, task

    @task
    def a(): ...

    @flow
    def good():
        a()
"""
CYCLE = """
    from scheduler_app.authoring import flow, task

    @task
    def a(): ...

    @task
    def b(x): ...

    @flow
    def round_and_round():
        x = a()
        y = b(x)
        y >> x
"""
POOL = GOOD.replace("@task", '@task(pool="nowhere")')
LOOP = "from scheduler_app.authoring import flow\nwhile True: pass\n"
EXIT = "from scheduler_app.authoring import flow\nimport os\nos._exit(3)\n"


def write(folder: Path, name: str, source: str) -> Path:
    file = folder / name
    file.write_text(textwrap.dedent(source).lstrip("\n"), encoding="utf-8")
    return file


# -- without a stack --------------------------------------------------------------------------


def without_a_stack(
    folder: Path, *arguments: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    """``manage.py`` where no database was ever heard of."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("DAYLIGHT_") and "URL" not in k}
    kept |= {"DAYLIGHT_DATA_DIR": str(folder / "no-stack"), **environment}
    return subprocess.run(
        [sys.executable, "manage.py", *arguments],
        cwd=ROOT,
        env=kept,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_good_file_is_said_to_be_good(tmp_path: Path) -> None:
    file = write(tmp_path, "good.py", GOOD)
    done = without_a_stack(tmp_path, "flows", "validate", str(file))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "good: 1 tasks\n1 files, 1 flows, 0 faults; pools not checked\n"
    assert not (tmp_path / "no-stack").exists()


def test_a_fault_is_told_with_file_line_and_remedy(tmp_path: Path) -> None:
    file = write(tmp_path, "cycle.py", CYCLE)
    done = without_a_stack(tmp_path, "flows", "validate", str(file))
    assert done.returncode == 1
    assert done.stderr.startswith(f"{file}:11: ")
    assert "a -> b -> a" in done.stderr
    assert "Remove one" in done.stderr
    assert "1 faults" in done.stdout


def test_a_flow_is_found_by_its_id_in_the_flow_folders(tmp_path: Path) -> None:
    folder = tmp_path / "flows"
    folder.mkdir()
    write(folder, "good.py", GOOD)
    by_id = without_a_stack(tmp_path, "flows", "validate", "good", DAYLIGHT_FLOWS=str(folder))
    assert (by_id.returncode, by_id.stderr) == (0, "")
    missing = without_a_stack(tmp_path, "flows", "validate", "bad", DAYLIGHT_FLOWS=str(folder))
    assert missing.returncode == 1
    assert missing.stderr.startswith("No file defines flow bad (searched: ")
    assert str(folder) in missing.stderr
    assert missing.stderr.count("\n") == 1


def test_what_needs_a_stack_says_in_one_line_that_there_is_none(tmp_path: Path) -> None:
    done = without_a_stack(tmp_path, "flows", "list")
    assert done.returncode == 1
    assert done.stderr.startswith("No stack runs in ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("command", ["flows", "tasks", "jobs", "pools"])
def test_each_verb_explains_itself(call: Call, command: str) -> None:
    usage = call(command, "--help")
    assert usage.code == 0
    verbs = {
        "flows": [
            *("list", "show", "next", "versions", "diff", "runs", "run"),
            *("new", "validate", "test", "trigger"),
            *("terminate", "clear", "mark", "retry", "cancel-retry"),
            *("freeze", "thaw", "freezes", "pause", "unpause"),
        ],
        "tasks": [
            *("state", "why", "log", "artifacts", "event", "retry", "terminate", "mark"),
            *("freeze", "thaw", "clear", "undo"),
        ],
        "jobs": ["list", "stop", "drain", "undrain"],
        "pools": ["list", "show", "holders", "waiting", "create", "set", "delete"],
    }[command]
    assert re.findall(r"^    ([\w-]+) ", usage.out, re.MULTILINE) == verbs
    for verb in verbs:
        of_verb = call(command, verb, "--help")
        assert of_verb.code == 0
        assert "--json" in of_verb.out


@pytest.mark.parametrize(
    ("command", "states"),
    [("tasks", "'success', 'failed', 'skipped'"), ("flows", "'success', 'failed'")],
)
def test_a_state_that_nothing_can_be_marked_as_is_answered_with_those_that_there_are(
    call: Call, command: str, states: str
) -> None:
    refused = call(command, "mark", "done", "f", "r1", *(["t"] if command == "tasks" else []))
    assert refused.code == 2
    assert f"invalid choice: 'done' (choose from {states})" in refused.err


# -- beside a stack ---------------------------------------------------------------------------


@pytest.mark.django_db
def test_an_unknown_pool_is_a_fault_where_a_database_knows_the_pools(
    call: Call, tmp_path: Path
) -> None:
    file = write(tmp_path, "pool.py", POOL)
    answer = call("flows", "validate", str(file))
    assert answer.code == 1
    assert answer.err == (
        f"{file}:8: Task 'a' of flow 'good' names pool 'nowhere', which does not exist."
        " Create the pool, or use one of: default.\n"
    )
    assert "pools checked" in answer.out


@pytest.mark.django_db
def test_a_script_gets_files_flows_and_faults(call: Call, tmp_path: Path) -> None:
    write(tmp_path, "good.py", GOOD)
    cycle = write(tmp_path, "cycle.py", CYCLE)
    answer = call("flows", "validate", str(tmp_path), "--json")
    assert answer.code == 1
    assert answer.json["flows"] == ["good"]
    assert answer.json["pools"] == "checked"
    (fault,) = answer.json["faults"]
    assert (fault["file"], fault["line"]) == (str(cycle), 11)
    assert fault["remedy"]


@pytest.mark.django_db
def test_two_files_that_define_one_flow_are_both_named(call: Call, tmp_path: Path) -> None:
    first = write(tmp_path, "a.py", GOOD)
    second = write(tmp_path, "b.py", GOOD)
    answer = call("flows", "validate", str(tmp_path))
    assert answer.code == 1
    assert answer.err.startswith(f"{second}:8: Flow 'good' is defined by {first} too. Rename")


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("source", "line", "words"),
    [
        ("from scheduler_app.authoring import flow\ndef f(:\n", 2, "Syntax error"),
        (EXIT, 1, "exit code 3"),
        (LOOP, 1, "took longer than 1 s"),
        ("import nothing_of_this_name  # flow\n", 1, "nothing_of_this_name"),
        ("# flow\nimport sys\nsys.exit(4)\n", 3, "sys.exit(4)"),
    ],
    ids=["syntax", "os._exit", "endless loop", "import", "sys.exit"],
)
def test_a_file_that_cannot_be_loaded_harms_nobody_and_is_told(
    call: Call, tmp_path: Path, settings: Any, source: str, line: int, words: str
) -> None:
    settings.FLOW_FILE_TIMEOUT_S = 1.0 if source == LOOP else 20.0
    file = write(tmp_path, "broken.py", source)
    answer = call("flows", "validate", str(file))
    assert answer.code == 1
    assert answer.err.startswith(f"{file}:{line}: ")
    assert words in answer.err


@pytest.mark.django_db
def test_a_flow_of_the_database_is_checked_where_its_file_is(call: Call, tmp_path: Path) -> None:
    file = write(tmp_path, "good.py", GOOD)
    make_flow(flow_id="good", folder=str(tmp_path), path="good.py")
    assert call("flows", "validate", "good").code == 0
    file.unlink()
    answer = call("flows", "validate", "good")
    assert answer.code == 1
    assert answer.err == f"Flow good was defined by {file}, which is not on this host.\n"


@pytest.mark.django_db
@pytest.mark.parametrize("what", ["missing.py", "flows/missing", "missing"])
def test_what_is_not_there_is_one_line(call: Call, what: str) -> None:
    answer = call("flows", "validate", what)
    assert (answer.code, answer.out) == (1, "")
    assert what in answer.err
    assert answer.err.count("\n") == 1


@pytest.mark.django_db
def test_a_file_without_flows_is_no_success(call: Call, tmp_path: Path) -> None:
    answer = call("flows", "validate", str(write(tmp_path, "empty.py", "x = 1\n")))
    assert answer.code == 1
    assert answer.err == "No flow is defined there.\n"
