from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from scheduler_app.rules import version_diff
from scheduler_app.rules.definition import FlowDefinition, GroupDefinition, TaskDefinition
from scheduler_app.rules.schedule import Schedule

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
