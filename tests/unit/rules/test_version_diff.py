from __future__ import annotations

from dataclasses import replace
from datetime import date, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_app.rules import version_diff
from scheduler_app.rules.definition import FlowDefinition, GroupDefinition, TaskDefinition
from scheduler_app.rules.schedule import Schedule
from scheduler_app.rules.schedule_words import DIFFERENCES_TOLD_MAX

OLD = FlowDefinition(
    flow_id="nightly",
    tasks=(
        TaskDefinition(task_id="extract", retries=1, line=4),
        TaskDefinition(task_id="load", upstream=("extract",), line=9),
        TaskDefinition(task_id="tell", upstream=("load",), line=12),
    ),
    schedule="0 2 * * *",
    params={"day": 1, "region": "north"},
)


def test_a_version_does_not_differ_from_itself() -> None:
    same = version_diff.diff(OLD, OLD, old_sources={"a.py": b"x"}, new_sources={"a.py": b"x"})
    assert not same
    assert same.told == "nothing differs"


def test_tasks_edges_and_each_option_are_told_apart() -> None:
    new = replace(
        OLD,
        tasks=(
            TaskDefinition(task_id="extract", retries=3, timeout_s=60.0, line=40),
            TaskDefinition(task_id="check", upstream=("extract",)),
            TaskDefinition(task_id="load", upstream=("check",)),
        ),
    )
    found = version_diff.diff(OLD, new)
    assert (found.tasks.added, found.tasks.removed) == (("check",), ("tell",))
    (changed,) = found.tasks.changed
    assert changed.name == "extract"
    assert [change.told for change in changed.changes] == ["retries: 1 → 3", "timeout_s: none → 60"]
    assert found.edges_added == (("check", "load"), ("extract", "check"))
    assert found.edges_removed == (("extract", "load"), ("load", "tell"))
    assert (
        found.told == "1 task added, 1 task removed, 1 task changed, 2 edges added, 2 edges removed"
    )


def test_a_line_that_moved_is_no_change_of_a_task() -> None:
    moved = replace(OLD, tasks=tuple(replace(task, line=99) for task in OLD.tasks))
    assert not version_diff.diff(OLD, moved)


def test_schedule_parameters_options_and_groups_have_parts_of_their_own() -> None:
    new = replace(
        OLD,
        schedule="2 schedules",
        timetable=Schedule(crons=("0 2 * * *", "0 14 * * *")),
        timezone="Europe/Paris",
        params={"day": 2, "limit": 10},
        max_active_runs=1,
        groups=(GroupDefinition(group_id="g", doc="one"),),
    )
    found = version_diff.diff(replace(OLD, groups=(GroupDefinition(group_id="g"),)), new)
    assert [change.name for change in found.schedule] == ["schedule", "timetable", "timezone"]
    assert [(one.name, one.old, one.new) for one in found.params] == [
        ("day, default", 1, 2),
        ("region, default", "north", None),
        ("limit, default", None, 10),
    ]
    assert [change.told for change in found.options] == ["max_active_runs: 16 → 1"]
    assert [one.name for one in found.groups.changed] == ["g"]
    assert found.told == "1 group changed, schedule, parameters, options"


def in_paris(**said: Any) -> FlowDefinition:
    return replace(OLD, schedule="long", timetable=Schedule(**said), timezone="Europe/Paris")


CHRISTMAS, BOXING_DAY = "2026-12-25", "2026-12-26"
MARCH, JUNE = "2026-03-01T00:00:00+01:00", "2026-06-01T09:00:30+02:00"


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (OLD, OLD, []),
        (
            OLD,
            replace(OLD, schedule=None),
            ["~ schedule: every day at 02:00 UTC → only by hand"],
        ),
        (
            OLD,
            in_paris(crons=("0 2 * * *", "30 14 * * 1-5")),
            [
                "~ schedule: every day at 02:00 UTC → every day at 02:00,"
                " and every Monday to Friday at 14:30 Europe/Paris",
                "~ timezone: UTC → Europe/Paris",
            ],
        ),
        (
            in_paris(crons=("0 2 * * *", "30 14 * * 1-5")),
            in_paris(crons=("0 2 * * *", "0 4 1 * *")),
            [
                "+ on day 1 of every month at 04:00 Europe/Paris",
                "- every Monday to Friday at 14:30 Europe/Paris",
            ],
        ),
        (
            in_paris(crons=("0 9 * * 1-5",), exclude=(CHRISTMAS,)),
            in_paris(crons=("0 9 * * 1-5",), exclude=(BOXING_DAY,)),
            ["+ except 26 December 2026", "- except 25 December 2026"],
        ),
        (
            in_paris(dates=(MARCH,), planner="trigger"),
            in_paris(dates=(MARCH, JUNE), planner="trigger"),
            ["+ 1 June 2026 at 09:00:30+02:00"],
        ),
        (
            in_paris(every_s=3600.0),
            replace(in_paris(every_s=7200.0), catchup=True, start_date="2026-01-01"),
            [
                "~ schedule: every hour → every 2 hours",
                "~ missed dates: of those that nobody scheduled in time, the newest gets its run →"
                " each gets its run, oldest first",
                "~ first date: none → 2026-01-01",
            ],
        ),
        (
            in_paris(crons=("0 2 * * *",), planner="trigger", run_immediately=600.0),
            in_paris(crons=("0 2 * * *",), repeated_times="both"),
            [
                "~ a run is about: its date; it is due then →"
                " the time from one date to the next; it is due at its end",
                "~ when the clock changes: a skipped time comes at the jump, a repeated one once, the"
                " first time → a skipped time comes at the jump, a repeated one both times",
                "~ the date before a flow's first sight: gets its run if it was no longer than"
                " 10 minutes ago → gets none",
            ],
        ),
        (
            replace(OLD, schedule="@daily"),
            replace(OLD, schedule="0 0 * * *"),
            ["~ schedule: @daily → 0 0 * * *, which means the same"],
        ),
    ],
)
def test_a_schedule_is_told_as_its_author_reads_it(
    old: FlowDefinition, new: FlowDefinition, told: list[str]
) -> None:
    assert [" ".join(line) for line in version_diff.diff(old, new).schedule_told] == told


def test_of_long_lists_the_first_are_named() -> None:
    days = [str(date(2026, 1, 1) + timedelta(days=number)) for number in range(50)]
    told = version_diff.diff(
        in_paris(crons=("@daily",)), in_paris(crons=("@daily",), exclude=tuple(days))
    ).schedule_told
    assert told[0] == ("+", "except 1 January 2026")
    assert told[-1] == ("+", "and 30 more")
    assert len(told) == DIFFERENCES_TOLD_MAX + 1


@st.composite
def definitions(draw: st.DrawFn) -> FlowDefinition:
    kind = draw(st.sampled_from(["none", "simple", "crons", "every", "dates"]))
    zone = draw(st.sampled_from(["UTC", "Europe/Paris"]))
    some = st.lists(
        st.sampled_from(["@daily", "0 0 * * *", "0 2 * * 1", "*/5 8-9 * * *"]), min_size=1
    )
    long: dict[str, Any] = {
        "exclude": tuple(draw(st.lists(st.sampled_from([CHRISTMAS, BOXING_DAY]), unique=True))),
        "planner": draw(st.sampled_from(["data_interval", "trigger"])),
        "interval_s": draw(st.sampled_from([0.0, 60.0])),
        "run_immediately": draw(st.sampled_from([False, True, 60.0])),
    }
    timetable = {
        "none": None,
        "simple": None,
        "crons": Schedule(crons=tuple(draw(some)), **long),
        "every": Schedule(every_s=draw(st.sampled_from([60.0, 3600.0])), **long),
        "dates": Schedule(dates=tuple(draw(st.permutations([MARCH, JUNE]))), **long),
    }[kind]
    simple = draw(st.sampled_from(["@daily", "0 0 * * *", "0 3 * * *"]))
    return replace(
        OLD,
        schedule=None if kind == "none" else timetable.text if timetable else simple,
        timetable=timetable,
        timezone=zone,
        catchup=draw(st.booleans()),
        overlap=draw(st.sampled_from(["queue", "skip"])),
        end_date=draw(st.sampled_from([None, "2027-01-01"])),
    )


@given(definitions(), definitions())
def test_every_difference_of_schedules_is_told(old: FlowDefinition, new: FlowDefinition) -> None:
    found = version_diff.diff(old, new)
    assert bool(found.schedule_told) == bool(found.schedule)
    assert not any("{" in words or "[" in words for _, words in found.schedule_told)


def test_code_is_compared_file_by_file() -> None:
    found = version_diff.diff(
        OLD,
        OLD,
        old_sources={"flow.py": b"a\nb\nc\n", "gone.py": b"x\n", "data.bin": b"\xff"},
        new_sources={"flow.py": b"a\nB\nc\n", "new.py": b"y\n", "data.bin": b"\xfe"},
    )
    files = {file.path: file for file in found.files}
    assert files["flow.py"].lines == ("@@ -1,3 +1,3 @@", " a", "-b", "+B", " c")
    assert (files["flow.py"].added_count, files["flow.py"].removed_count) == (1, 1)
    assert (files["gone.py"].state, files["gone.py"].lines[1:]) == ("removed", ("-x",))
    assert (files["new.py"].state, files["new.py"].lines[1:]) == ("added", ("+y",))
    assert files["data.bin"].note == "Not text; 1 and 1 bytes."


def test_ends_of_lines_and_huge_files_are_said_and_not_drawn() -> None:
    many = b"".join(b"%d\n" % number for number in range(version_diff.LINES_COMPARED_MAX))
    other = b"".join(b"x%d\n" % number for number in range(version_diff.LINES_COMPARED_MAX))
    found = version_diff.diff(
        OLD,
        OLD,
        old_sources={"a.py": b"x\r\n", "b.py": many, "c.py": many},
        new_sources={"a.py": b"x\n", "b.py": other, "c.py": many + b"one more\n"},
    )
    notes = {file.path: (file.note, file.lines[-1:]) for file in found.files}
    assert notes["a.py"] == ("Only the ends of lines, or the end of the file, differ.", ())
    assert notes["b.py"] == ("Too long to compare line by line: 6,000 and 6,000 lines.", ())
    assert notes["c.py"] == ("", ("+one more",))


TASK_IDS = st.sets(st.sampled_from("abcdef"), min_size=1)


@given(TASK_IDS, TASK_IDS, st.integers(0, 3), st.integers(0, 3))
def test_one_way_is_the_other_way_turned_round(
    left: set[str], right: set[str], few: int, many: int
) -> None:
    def made(ids: set[str], retries: int) -> FlowDefinition:
        ordered = sorted(ids)
        return FlowDefinition(
            flow_id="f",
            tasks=tuple(
                TaskDefinition(
                    task_id=one, retries=retries, upstream=tuple(ordered[max(0, n - 1) : n])
                )
                for n, one in enumerate(ordered)
            ),
        )

    there = version_diff.diff(made(left, few), made(right, many))
    back = version_diff.diff(made(right, many), made(left, few))
    assert (there.tasks.added, there.tasks.removed) == (back.tasks.removed, back.tasks.added)
    assert (there.edges_added, there.edges_removed) == (back.edges_removed, back.edges_added)
    assert [one.name for one in there.tasks.changed] == [one.name for one in back.tasks.changed]
    assert bool(there) == (left != right or few != many)
