"""``manage.py flows`` answers people and scripts, and exits by what came of it."""

from __future__ import annotations

import json
import textwrap
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.test import override_settings

from scheduler_app.management import follow
from scheduler_app.models import FlowFile, Run, TaskInstance
from scheduler_app.rules import states
from tests.factories import at, make_attempt, make_flow, make_run, make_task_instance

pytestmark = pytest.mark.django_db

GOOD = """
from scheduler_app.authoring import flow, task

@task(pool="{pool}")
def a():
    return 1

@flow
def good():
    a()
"""


def flows(*arguments: str) -> str:
    out = StringIO()
    call_command("flows", *arguments, stdout=out)
    return out.getvalue()


def refused(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        flows(*arguments)
    assert isinstance(ended.value.code, int)
    return ended.value.code


def test_list_shows_current_flows_and_counts_what_was_set_aside() -> None:
    make_flow(flow_id="here")
    make_flow(flow_id="gone", removed_at=at(1))
    told = flows("list")
    assert "here" in told
    assert "gone" not in told
    assert "1 flows, 1 filtered (flow_removed 1)" in told
    assert "flow_removed" in flows("list", "--filtered")
    assert [row["flow_id"] for row in json.loads(flows("list", "--json"))] == ["here"]


def test_show_tells_the_tasks_and_the_faults_of_its_file() -> None:
    flow = make_flow(flow_id="here", folder="/flows", path="here.py")
    FlowFile.objects.create(
        folder="/flows",
        path="here.py",
        errors=[{"file": "here.py", "line": 7, "message": "It is bad.", "remedy": "Mend it."}],
    )
    told = flows("show", flow.flow_id)
    assert "second" in told
    assert "here.py:7: It is bad. Mend it." in told
    shown = json.loads(flows("show", "here", "--json"))
    assert [task["task_id"] for task in shown["definition"]["tasks"]] == ["first", "second"]
    assert shown["faults"][0]["line"] == 7


def test_an_unknown_flow_is_one_line_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    for verb in ("show", "runs", "trigger"):
        assert refused(verb, "nowhere") == 1
        told = capsys.readouterr().err
        assert "nowhere" in told
        assert told.count("\n") == 1


def test_trigger_makes_a_run_with_what_was_given(capsys: pytest.CaptureFixture[str]) -> None:
    make_flow(flow_id="here")
    given = ["--conf", '{"day": 1}', "--run-id", "mine", "--note", "By hand."]
    told = flows("trigger", "here", *given, "--logical-date", "2026-01-31T02:00:00+01:00")
    assert "mine is queued" in told
    run = Run.objects.get(run_key="mine")
    assert (run.conf, run.note) == ({"day": 1}, "By hand.")
    assert run.logical_date is not None
    assert run.logical_date.isoformat() == "2026-01-31T01:00:00+00:00"
    assert refused("trigger", "here", "--run-id", "mine") == 1
    assert "mine" in capsys.readouterr().err
    assert Run.objects.count() == 1


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--conf", "{"], 2, "not JSON"),
        (["--conf", "[1]"], 2, "no JSON object"),
        (["--logical-date", "soon"], 2, "not a time"),
        (["--logical-date", "2026-01-31"], 1, "offset"),
        (["--run-id", "a b"], 1, "a b"),
    ],
)
def test_trigger_refuses_bad_input_and_makes_nothing(
    capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, words: str
) -> None:
    make_flow(flow_id="here")
    assert refused("trigger", "here", *arguments) == code
    assert words in capsys.readouterr().err
    assert not Run.objects.exists()


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Steps that happen one at a time while a command sleeps; none is left when it ends well."""
    steps: list[Any] = []

    def sleep(_: float) -> None:
        if not steps:
            raise AssertionError("the command waits for something that never happens")
        steps.pop(0)()

    monkeypatch.setattr("scheduler_app.management.follow.time.sleep", sleep)
    return steps


def _end(state: states.RunState) -> None:
    run = Run.objects.get()
    Run.objects.update(
        state=state, is_active=False, started_at=run.created_at, ended_at=run.created_at
    )


def test_follow_shows_each_move_and_succeeds_with_the_run(later: list[Any]) -> None:
    make_flow(flow_id="here", task_ids=("zeta", "alpha"))
    later += [
        lambda: TaskInstance.objects.filter(task_id="zeta").update(state="running"),
        lambda: TaskInstance.objects.update(state="success", is_open=False),
        lambda: _end(states.RunState.SUCCESS),
    ]
    told = flows("trigger", "here", "--follow")
    moves = [line.split()[1:] for line in told.splitlines()[1:-1]]
    assert moves == [["zeta", "running"], ["zeta", "success"], ["alpha", "success"]]
    assert "success" in told.splitlines()[-1]
    assert not later


def test_follow_fails_with_the_run_and_tells_the_error(
    later: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    make_flow(flow_id="here", task_ids=("one",))

    def fail() -> None:
        TaskInstance.objects.update(state="failed", is_open=False)
        make_attempt(
            ti=TaskInstance.objects.get(),
            state=states.AttemptState.ENDED,
            outcome=states.AttemptOutcome.FAILED,
            error={"type": "ValueError", "message": "no\ngood", "traceback": ""},
        )
        _end(states.RunState.FAILED)

    later.append(fail)
    assert refused("trigger", "here", "--follow") == 1
    assert "one, try 1: ValueError: no good" in capsys.readouterr().err


def test_follow_says_what_a_run_waits_for(
    later: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "SILENCE_S", -1.0)
    make_flow(flow_id="here", task_ids=("one",))
    wait = {"code": "pool_full", "detail": "the pool small is full", "since": "now"}
    later += [
        lambda: TaskInstance.objects.update(wait=wait),
        lambda: None,
        lambda: _end(states.RunState.SUCCESS),
    ]
    told = flows("trigger", "here", "--follow")
    assert told.count("one: the pool small is full") == 1, "said once, while it stays so"


def test_runs_are_listed_newest_first_by_state_and_with_what_was_set_aside() -> None:
    flow = make_flow(flow_id="here")
    for key, state in (("old", states.RunState.FAILED), ("new", states.RunState.SUCCESS)):
        make_run(flow=flow, run_key=key, state=state)
    make_run(flow=flow, run_key="twin", filter_code="duplicate_logical_date")
    assert [row["run_id"] for row in json.loads(flows("runs", "here", "--json"))] == ["new", "old"]
    assert [
        row["run_id"] for row in json.loads(flows("runs", "here", "--state", "failed", "--json"))
    ] == ["old"]
    told = flows("runs", "here")
    assert "2 runs, 1 filtered (duplicate_logical_date 1)" in told
    assert "twin" in flows("runs", "here", "--filtered")


def _write(folder: Path, name: str, source: str) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(textwrap.dedent(source), encoding="utf-8")
    return folder / name


def test_validate_tells_flows_faults_and_pools(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = _write(tmp_path, "good.py", GOOD.format(pool="default"))
    assert "good: 1 tasks" in flows("validate", str(good))
    bad = _write(tmp_path, "bad.py", GOOD.format(pool="nowhere"))
    assert refused("validate", str(bad)) == 1
    told = capsys.readouterr().err
    assert told.startswith(f"{bad}:10: ")
    assert "'nowhere'" in told
    assert refused("validate", str(tmp_path)) == 1, "a folder is checked whole"


def test_validate_finds_the_file_of_a_flow_that_the_database_knows(tmp_path: Path) -> None:
    _write(tmp_path, "good.py", GOOD.format(pool="default"))
    make_flow(flow_id="good", folder=str(tmp_path), path="good.py")
    told = json.loads(flows("validate", "good", "--json"))
    assert (told["files"], told["faults"]) == ([str(tmp_path / "good.py")], [])
    assert told["pools"] == "checked"


def test_validate_works_without_a_database(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_database(*_: object) -> None:
        raise AssertionError("the database was asked")

    monkeypatch.setattr("django.db.backends.utils.CursorWrapper.execute", no_database)
    file = _write(tmp_path, "good.py", GOOD.format(pool="nowhere"))
    with override_settings(DATABASE_URL="", FLOW_FOLDERS=[tmp_path]):
        for what in (str(file), "good"):
            assert "pools not checked" in flows("validate", what)
        assert refused("validate", "other") == 1
        assert str(tmp_path) in capsys.readouterr().err
        assert refused("validate", "no/such.py") == 1
        assert "no file no/such.py" in capsys.readouterr().err


def test_validate_fails_where_no_flow_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = _write(tmp_path, "empty.py", "x = 1")
    assert refused("validate", str(file)) == 1
    assert "No flow" in capsys.readouterr().err


def test_a_run_of_many_tasks_is_read_whole() -> None:
    run = make_run()
    for number in range(60):
        make_task_instance(run=run, task_id=f"t{number}", state=states.TaskState.QUEUED)
    seen: dict[str, str] = {}
    assert len(list(follow._moves(run.pk, seen, {}))) == 60
    assert list(follow._moves(run.pk, seen, {})) == []
