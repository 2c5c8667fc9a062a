from __future__ import annotations

import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from scheduler_app.launch.environment import ROOT
from scheduler_app.management import follow, starter
from scheduler_app.models import Audit, Flow, FlowFile, Run, TaskInstance
from scheduler_app.rules.states import RunState
from tests.factories import at, make_flow, make_run, make_task_instance, make_version
from tests.world import World, chain

if TYPE_CHECKING:
    from tests.integration.commands.conftest import Call

pytestmark = pytest.mark.django_db


# -- list and show ----------------------------------------------------------------------------


def test_the_list_has_what_is_there_and_counts_what_is_not(call: Call) -> None:
    make_flow(flow_id="nightly", next_interval_end=at(7200), path="sub/nightly.py")
    make_flow(flow_id="held", is_paused=True)
    make_flow(flow_id="gone", removed_at=at(5))
    answer = call("flows", "list")
    assert answer.code == 0
    heading, *rows, blank, counts = answer.lines()
    assert heading[:3] == ["FLOW", "STATE", "SCHEDULE"]
    assert {row[0]: row[1] for row in rows} == {"nightly": "active", "held": "paused"}
    (nightly,) = [row for row in rows if row[0] == "nightly"]
    assert " ".join(nightly[2:]) == "0 2 * * * UTC 2026-01-01 02:00:00Z 1 sub/nightly.py"
    assert blank == []
    assert " ".join(counts) == "2 flows, 1 filtered (flow_removed 1); --filtered shows them"


def test_removed_flows_are_listed_when_asked_for(call: Call) -> None:
    make_flow(flow_id="gone", removed_at=at(5))
    answer = call("flows", "list", "--filtered")
    assert answer.lines()[1][:2] == ["gone", "flow_removed"]
    assert answer.out.rstrip().endswith("0 flows, 1 filtered (flow_removed 1)")
    (row,) = call("flows", "list", "--filtered", "--json").json["results"]
    assert (row["flow_id"], row["filter_code"]) == ("gone", "flow_removed")
    assert row["removed_at"] == "2026-01-01T00:00:05Z"
    assert call("flows", "list", "--json").json["results"] == []


def test_the_list_complains_of_faulty_files(call: Call) -> None:
    fault = {"file": "bad.py", "line": 3, "message": "Syntax error.", "remedy": "Correct it."}
    FlowFile.objects.create(folder="/flows", path="bad.py", errors=[fault], loaded_at=at(0))
    answer = call("flows", "list")
    assert answer.code == 0
    assert answer.err == "/flows/bad.py is faulty: Syntax error.\n"


def test_a_flow_is_shown_with_its_tasks_and_faults(call: Call) -> None:
    make_flow(flow_id="nightly", folder="/flows", path="n.py", task_ids=("extract", "load"))
    fault = {"file": "n.py", "line": 3, "message": "Worse now.", "remedy": "Correct it."}
    FlowFile.objects.create(folder="/flows", path="n.py", errors=[fault], loaded_at=at(0))
    answer = call("flows", "show", "nightly")
    assert answer.code == 0
    told = [" ".join(line) for line in answer.lines()]
    assert "schedule every day at 02:00 UTC" in told
    assert "When runs would overlap at 16 active runs a due date waits" in told
    assert [line for line in told if line.startswith("fires ")][4].endswith("02:00:00Z")
    assert [line[:3] for line in answer.lines() if line[:1] == ["load"]] == [
        ["load", "extract", "all_success"]
    ]
    assert answer.out.rstrip().endswith("n.py:3: Worse now. Correct it.")
    shown = call("flows", "show", "nightly", "--json").json
    assert [task["task_id"] for task in shown["definition"]["tasks"]] == ["extract", "load"]
    assert shown["faults"] == [fault]
    assert len(shown["next_fire_times"]) == 5


def test_flows_are_listed_by_state_tag_owner_and_part_of_their_id(call: Call) -> None:
    make_flow(flow_id="nightly", owner="ana", tags=["sales"])
    make_flow(flow_id="weekly", owner="bo", is_paused=True)

    def listed(*words: str) -> list[str]:
        return [row["flow_id"] for row in call("flows", "list", "--json", *words).json["results"]]

    assert listed("--owner", "ana") == ["nightly"]
    assert listed("--tag", "sales") == ["nightly"]
    assert listed("--state", "paused") == ["weekly"]
    assert listed("--q", "ee") == ["weekly"]
    assert listed("--owner", "ana", "--owner", "bo") == ["nightly", "weekly"]
    answer = call("flows", "list", "--state", "asleep")
    assert answer.code == 1
    assert "asleep" in answer.err


def test_runs_are_listed_by_type_version_and_date(call: Call) -> None:
    flow = make_flow(flow_id="nightly")
    make_run(flow=flow, run_key="old", logical_date=at(0))
    make_version(flow)
    make_run(flow=flow, run_key="new", logical_date=at(100), run_type="scheduled")

    def listed(*words: str) -> list[str]:
        return [
            row["run_id"]
            for row in call("flows", "runs", "nightly", "--json", *words).json["results"]
        ]

    assert listed() == ["new", "old"]
    assert listed("--version", "1") == ["old"]
    assert listed("--type", "scheduled") == ["new"]
    assert listed("--until", "2026-01-01T00:00:50Z") == ["old"]
    assert listed("--from", "2026-01-01T00:00:50Z") == ["new"]
    assert call("flows", "runs", "nightly", "--from", "yesterday").code == 2


def test_one_run_tells_the_version_that_it_is_bound_to(call: Call) -> None:
    flow = make_flow(flow_id="nightly")
    run = make_run(flow=flow, run_key="old", conf={"day": 1}, note="by hand")
    make_task_instance(run=run, task_id="first")
    make_version(flow)
    told = [" ".join(line) for line in call("flows", "run", "nightly", "old").lines()]
    assert "version 1; newest 2" in told
    assert "conf day 1" in told
    assert any(line.startswith("first ") for line in told)
    shown = call("flows", "run", "nightly", "old", "--json").json
    assert (shown["run"]["version"], len(shown["task_instances"])) == (1, 1)
    assert call("flows", "run", "nightly", "none").code == 1


# -- next -------------------------------------------------------------------------------------


def test_the_next_times_of_a_flow_are_told(call: Call) -> None:
    make_flow(flow_id="nightly", is_paused=True)
    told = call("flows", "next", "nightly", "--count", "2", "--after", "2026-01-01T00:00:00Z")
    assert told.code == 0
    assert told.out.splitlines() == [
        "nightly: every day at 02:00 UTC (paused: no runs are made)",
        "UTC                   UTC",
        "2026-01-01 02:00:00Z  Thu 2026-01-01 02:00:00 +0000",
        "2026-01-02 02:00:00Z  Fri 2026-01-02 02:00:00 +0000",
    ]
    (row,) = call("flows", "next", "nightly", "--json").json
    assert len(row["next_fire_times"]) == 5
    assert call("flows", "next", "nightly", "--count", "0").code == 2
    assert call("flows", "next", "none").code == 1


def test_the_next_times_of_a_file_show_the_change_of_the_clock(call: Call, tmp_path: Path) -> None:
    file = tmp_path / "two.py"
    file.write_text(
        "from scheduler_app.authoring import flow, task\n"
        "@task\ndef t(): ...\n"
        "@flow(schedule='0 3 * * *', timezone='Europe/Berlin')\ndef early(): t()\n"
        "@flow\ndef by_hand(): t()\n"
        "@flow(schedule='@daily', start_date='2026-05-01', end_date='2026-05-02')\ndef short(): t()\n"
        "@flow(schedule='@daily', end_date='2026-03-01')\ndef over(): t()\n"
    )
    told = call("flows", "next", str(file), "--count", "2", "--after", "2026-03-28T00:00:00Z").out
    assert "2026-03-28 02:00:00Z  Sat 2026-03-28 03:00:00 +0100" in told
    assert "2026-03-29 01:00:00Z  Sun 2026-03-29 03:00:00 +0200" in told
    assert "by_hand: by hand only\nIt does not fire by itself." in told
    assert "over: every day at 00:00 UTC\nIt has no more dates." in told
    short = call("flows", "next", str(file), "--after", "2026-03-28T00:00:00Z", "--json").json[2]
    assert short["next_fire_times"] == ["2026-05-02T00:00:00Z", "2026-05-03T00:00:00Z"]
    file.write_text("from scheduler_app.authoring import flow\n@flow\ndef empty(): ...\n")
    faulty = call("flows", "next", str(file))
    assert faulty.code == 1
    assert "two.py:" in faulty.err


# -- new --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["sales", "shop.daily-x", "class", "json", "café", "1st", "load"])
def test_a_new_file_registers_without_a_fault_and_its_flow_runs(
    call: Call, tmp_path: Path, name: str
) -> None:
    where = tmp_path / "flows"
    made = call("flows", "new", name, "--folder", str(where), "--schedule", "@daily")
    assert made.code == 0, made.err
    (file,) = where.glob("*.py")
    assert str(file) in made.out
    checked = call("flows", "check", str(file), "--json")
    assert (checked.code, checked.json["flows"], checked.json["faults"]) == (0, [name], [])
    assert call("flows", "test", str(file)).code == 0
    again = call("flows", "new", name, "--folder", str(where))
    assert again.code == 1
    assert "is there already" in again.err


def test_a_new_file_is_typed_as_well(tmp_path: Path) -> None:
    pytest.importorskip("mypy", reason="mypy is among the tools of `make setup`")
    made = starter.write("sales", schedule="0 2 * * *", timezone="Europe/Paris", folder=tmp_path)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "mypy", "--config-file=", "--strict"),
            *("--follow-imports=silent", f"--cache-dir={tmp_path}", str(made.file)),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_name_that_is_taken_or_impossible_writes_nothing(call: Call, tmp_path: Path) -> None:
    make_flow(flow_id="nightly", folder="/flows", path="n.py")
    for words, said in (
        (("nightly",), "Flow nightly exists already: /flows/n.py defines it"),
        (("a b",), "is no name of a flow"),
        (("x" * 251,), "is no name of a flow"),
        (("sales", "--schedule", "0 25 * * *"), "wrong at hour"),
        (
            ("sales", "--schedule", "@daily", "--timezone", "Mars/North"),
            "no time zone 'Mars/North'",
        ),
    ):
        answer = call("flows", "new", *words, "--folder", str(tmp_path / "new"))
        assert answer.code == 1
        assert said in answer.err
    assert not (tmp_path / "new").exists()


def test_several_files_are_checked_at_once(call: Call, tmp_path: Path) -> None:
    for name in ("one", "two"):
        starter.write(name, folder=tmp_path)
    files = [str(tmp_path / "one.py"), str(tmp_path / "two.py")]
    checked = call("flows", "check", *files, files[0], "--json").json
    assert checked["flows"] == ["one", "two"]
    assert len(checked["files"]) == 2


@pytest.mark.parametrize(
    "arguments",
    [("show", "nothing"), ("runs", "nothing"), ("trigger", "nothing"), ("pause", "nothing")],
    ids=lambda arguments: str(arguments[0]),
)
def test_a_flow_that_is_not_there_is_one_line_and_an_exit_code(
    call: Call, arguments: tuple[str, ...]
) -> None:
    answer = call("flows", *arguments)
    assert (answer.code, answer.out) == (1, "")
    assert answer.err.count("\n") == 1
    assert "nothing" in answer.err
    assert not Audit.objects.exists()


# -- runs -------------------------------------------------------------------------------------


def test_runs_come_newest_first_with_the_filtered_ones_when_asked_for(call: Call) -> None:
    flow = make_flow(flow_id="nightly")
    make_run(flow=flow, run_key="one", state=RunState.FAILED, note="by hand")
    make_run(flow=flow, run_key="two", filter_code="duplicate_run")
    make_run(flow=flow, run_key="three")
    make_run(run_key="of-another-flow")
    answer = call("flows", "runs", "nightly")
    assert [line[:2] for line in answer.lines()[1:3]] == [["three", "running"], ["one", "failed"]]
    assert answer.lines()[2][-2:] == ["by", "hand"]
    assert "2 runs, 1 filtered (duplicate_run 1); --filtered shows them" in answer.out
    both = call("flows", "runs", "nightly", "--filtered").out
    assert "two    running (duplicate_run)" in both
    failed = call("flows", "runs", "nightly", "--state", "failed", "--json").json["results"]
    assert [run["run_id"] for run in failed] == ["one"]
    assert len(call("flows", "runs", "nightly", "--limit", "1", "--json").json["results"]) == 1


def test_a_state_that_no_run_can_have_is_refused_with_those_that_it_can(call: Call) -> None:
    make_flow(flow_id="nightly")
    answer = call("flows", "runs", "nightly", "--state", "excellent")
    assert answer.code == 1
    assert "excellent" in answer.err
    assert "success" in answer.err


# -- pause ------------------------------------------------------------------------------------


def test_pause_and_unpause_are_audited_with_who_and_why(call: Call) -> None:
    make_flow(flow_id="nightly")
    assert call("flows", "pause", "nightly", "--reason", "deploy").out == "Flow nightly: paused.\n"
    assert Flow.objects.get().is_paused
    assert call("flows", "unpause", "nightly", "--json").json["state"] == "active"
    assert not Flow.objects.get().is_paused
    entries = Audit.objects.order_by("id").values_list("action", "actor", "reason")
    assert [*entries] == [("pause", "ana", "deploy"), ("unpause", "ana", "")]


# -- trigger ----------------------------------------------------------------------------------


def test_a_triggered_run_has_all_that_was_given(call: Call) -> None:
    make_flow(flow_id="nightly")
    answer = call(
        "flows",
        "trigger",
        "nightly",
        *("--conf", '{"day": 1}'),
        *("--run-id", "by-hand"),
        *("--logical-date", "2026-01-31T03:00:00+01:00"),
        *("--note", "again, since Monday's was wrong"),
    )
    assert (answer.code, answer.out) == (0, "Run by-hand is queued.\n")
    run = Run.objects.get()
    assert (run.run_key, run.conf, run.actor) == ("by-hand", {"day": 1}, "ana")
    assert run.logical_date == datetime(2026, 1, 31, 2, tzinfo=UTC)
    assert run.note == "again, since Monday's was wrong"
    assert Audit.objects.get().actor == "ana"


def test_a_triggered_run_can_be_read_by_a_script(call: Call) -> None:
    make_flow(flow_id="nightly")
    run = call("flows", "trigger", "nightly", "--json").json
    assert (run["flow_id"], run["state"]) == ("nightly", "queued")
    assert run["run_id"] == Run.objects.get().run_key


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--run-id", "there already"), "run_id 'there already' is not allowed"),
        (("--run-id", "there"), "has a run 'there' already"),
        (("--note", "n" * 1001), "at most 1000"),
    ],
    ids=["id outside the rule", "id that exists", "long note"],
)
def test_a_run_that_cannot_be_made_is_refused_in_one_line(
    call: Call, options: tuple[str, ...], words: str
) -> None:
    make_run(flow=make_flow(flow_id="nightly"), run_key="there")
    answer = call("flows", "trigger", "nightly", *options)
    assert (answer.code, answer.out) == (1, "")
    assert answer.err.count("\n") == 1
    assert words in answer.err
    assert Run.objects.count() == 1


def test_a_removed_flow_is_not_triggered(call: Call) -> None:
    make_flow(flow_id="gone", removed_at=at(5))
    answer = call("flows", "trigger", "gone")
    assert answer.code == 1
    assert "was removed" in answer.err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--conf", "{day: 1}"), "--conf: not JSON"),
        (("--conf", "[1]"), "--conf: [1] is no JSON object"),
        (("--logical-date", "tomorrow"), "tomorrow is not a time"),
        (("--logical-date", "2026-01-31"), "2026-01-31 has no offset"),
    ],
)
def test_arguments_of_another_kind_are_told_from_refusals(
    call: Call, options: tuple[str, ...], words: str
) -> None:
    make_flow(flow_id="nightly")
    answer = call("flows", "trigger", "nightly", *options)
    assert answer.code == 2
    assert words in answer.err
    assert not Run.objects.exists()


@pytest.mark.parametrize("limit", ["0", "501", "many"])
def test_a_limit_of_no_use_is_refused(call: Call, limit: str) -> None:
    answer = call("flows", "list", "--limit", limit)
    assert answer.code == 2
    assert f"{limit} is not from 1 to 500" in answer.err


# -- follow -----------------------------------------------------------------------------------


@pytest.fixture
def turns(world: World, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Between two looks of a follower: what is here is called, or else nothing happens."""
    world.flow("pair", chain("first", "second"))
    acts: list[Any] = []
    looks = 0

    def sleep(seconds: float) -> None:
        nonlocal looks
        looks += 1
        assert looks < 100, f"it waits for ever, {seconds} s each time"
        for act in acts:
            act(Run.objects.get().pk)

    monkeypatch.setattr(time, "sleep", sleep)
    return acts


def test_a_follower_sees_each_task_move_and_the_good_end(
    call: Call, world: World, turns: list[Any]
) -> None:
    turns += [world.tick, lambda _run: world.serve()]
    answer = call("flows", "trigger", "pair", "--run-id", "r1", "--follow")
    assert answer.code == 0
    told = [line[1:] for line in answer.lines()[1:-1]]
    assert told.index(["first", "success"]) < told.index(["second", "success"])
    assert answer.lines()[0] == ["Run", "r1", "of", "pair", "is", "queued."]
    assert answer.lines()[-1][:4] == ["Run", "r1:", "success", "after"]


def test_a_follower_of_a_run_that_fails_ends_with_an_error_and_says_which_task(
    call: Call, world: World, turns: list[Any]
) -> None:
    turns += [world.tick, lambda _run: world.serve(failing=["first"])]
    answer = call("flows", "trigger", "pair", "--run-id", "r1", "--follow")
    assert answer.code == 1
    assert answer.lines()[-1][:3] == ["Run", "r1:", "failed"]
    assert ["second", "upstream_failed"] in [line[1:] for line in answer.lines()]
    assert answer.err.startswith("first, try 1: failed")


def test_a_script_that_follows_gets_the_ended_run_alone_on_standard_output(
    call: Call, world: World, turns: list[Any]
) -> None:
    turns += [world.tick, lambda _run: world.serve()]
    answer = call("flows", "trigger", "pair", "--follow", "--json")
    assert answer.json["state"] == "success"
    assert "first  success" in answer.err


def test_nobody_ends_a_run_by_looking_away(call: Call, turns: list[Any]) -> None:
    def interrupt(_run: int) -> None:
        raise KeyboardInterrupt

    turns.append(interrupt)
    answer = call("flows", "trigger", "pair", "--run-id", "r1", "--follow")
    assert answer.code == 130
    assert answer.err == "No longer followed; run r1 goes on.\n"
    assert Run.objects.get().is_active


def test_a_follower_is_told_what_a_run_waits_for(
    call: Call, turns: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "SILENCE_S", -1.0)
    looks = iter(range(5))

    def note(run: int) -> None:
        if next(looks, None) is None:
            raise KeyboardInterrupt
        full = {"code": "pool_full", "detail": "pool small is full"}
        TaskInstance.objects.filter(run_id=run, task_id="first").update(wait=full)

    turns.append(note)
    answer = call("flows", "trigger", "pair", "--run-id", "r1", "--follow")
    assert [line.split("  ")[1] for line in answer.out.splitlines()[1:]] == [
        "the run is queued: 2 none",
        "the run is queued: 2 none; first: pool small is full",
    ]


def test_what_cannot_be_written_or_read_is_said_in_one_line(call: Call, tmp_path: Path) -> None:
    note = tmp_path / "note"
    note.write_text("no folder", encoding="utf-8")
    made = call("flows", "new", "f", "--folder", str(note / "below"))
    assert (made.code, made.err.count("\n")) == (1, 1)
    assert "cannot be written" in made.err
    for verb in ("check", "test"):
        answer = call("flows", verb, str(note))
        assert answer.code == 1
        assert "is no Python file" in answer.err
