from __future__ import annotations

import json
import time
from datetime import timedelta
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from django.utils import timezone

from scheduler_app.management.commands import tasks
from scheduler_app.models import AttemptLogChunk, Run, TaskInstance
from scheduler_app.rules.definition import FlowDefinition, TaskDefinition, to_dict
from scheduler_app.rules.states import AttemptOutcome, AttemptState, TaskState
from tests.factories import (
    at,
    make_attempt,
    make_flow,
    make_log,
    make_mapped,
    make_run,
    make_task_instance,
)

if TYPE_CHECKING:
    from scheduler_app.models import Attempt
    from tests.integration.commands.conftest import Call

pytestmark = pytest.mark.django_db
WHERE = ("nightly", "r1")


@pytest.fixture
def run() -> Run:
    return make_run(flow=make_flow(flow_id="nightly"), run_key="r1")


@pytest.fixture
def tried(run: Run) -> tuple[Attempt, Attempt]:
    """Task ``load`` was tried twice: it failed, and was replaced by a success."""
    ti = make_task_instance(run=run, task_id="load", state=TaskState.SUCCESS, max_tries=2)
    first = make_attempt(
        ti=ti,
        try_number=1,
        state=AttemptState.ENDED,
        outcome=AttemptOutcome.FAILED,
        filter_code="superseded_by_retry",
        filter_detail={"try_number": 1, "max_tries": 2},
    )
    second = make_attempt(ti=ti, try_number=2, state=AttemptState.ENDED)
    make_log(first, b"no answer\n")
    make_log(second, b"10 ", b"rows\n")
    return first, second


# -- state ------------------------------------------------------------------------------------


def test_the_tasks_of_a_run_are_listed_with_their_states(
    call: Call, run: Run, tried: tuple[Attempt, Attempt]
) -> None:
    make_task_instance(
        run=run, task_id="tell", wait={"code": "pool_full", "detail": "pool small is full"}
    )
    answer = call("tasks", "state", *WHERE)
    assert answer.code == 0
    heading, load, tell = answer.lines()[:3]
    assert heading[:3] == ["TASK", "STATE", "TRY"]
    assert load[:5] == ["load", "success", "2", "of", "3"]
    assert " ".join(tell) == "tell none - - - - - pool small is full"
    assert str(tried[1].id) not in answer.out
    assert answer.out.endswith(
        "2 task instances, none filtered\n"
        "1 attempts, 1 filtered (superseded_by_retry 1); --filtered shows them\n"
    )


def test_one_task_is_shown_with_its_current_attempt(
    call: Call, run: Run, tried: tuple[Attempt, Attempt]
) -> None:
    make_task_instance(run=run, task_id="tell")
    answer = call("tasks", "state", *WHERE, "load")
    assert "tell" not in answer.out
    first, second = tried
    assert str(first.id) not in answer.out
    (line,) = [line for line in answer.lines() if line[:1] == [str(second.id)]]
    assert line[1:7] == [
        "load",
        "2",
        "success",
        f"{second.hostname}:{second.pid}",
        str(second.fence),
        str(second.lease_token),
    ]


def test_attempts_that_were_replaced_are_shown_when_asked_for_with_the_reason(
    call: Call, tried: tuple[Attempt, Attempt]
) -> None:
    first, second = tried
    answer = call("tasks", "state", *WHERE, "--filtered")
    places = {line[0]: place for place, line in enumerate(answer.lines()) if line}
    assert places[str(first.id)] < places[str(second.id)]
    (line,) = [line for line in answer.out.splitlines() if line.startswith(str(first.id))]
    assert "try 1" in line.lower()
    assert answer.out.endswith("1 attempts, 1 filtered (superseded_by_retry 1)\n")


def test_states_can_be_read_by_a_script(call: Call, tried: tuple[Attempt, Attempt]) -> None:
    first, second = tried
    answer = call("tasks", "state", *WHERE, "load", "--json").json
    assert [ti["state"] for ti in answer["task_instances"]] == ["success"]
    assert [attempt["id"] for attempt in answer["attempts"]] == [str(second.id)]
    both = call("tasks", "state", *WHERE, "load", "--json", "--filtered").json["attempts"]
    assert [(one["id"], one["filter_code"]) for one in both] == [
        (str(first.id), "superseded_by_retry"),
        (str(second.id), None),
    ]


def test_a_run_of_more_tasks_than_a_page_is_listed_whole(
    call: Call, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "LIMIT_MAX", 2)
    for number in range(5):
        make_task_instance(run=run, task_id=f"part_{number}")
    answer = call("tasks", "state", *WHERE, "--json").json
    assert [ti["task_id"] for ti in answer["task_instances"]] == [f"part_{n}" for n in range(5)]


def test_one_of_a_mapped_task_is_named_by_its_index(call: Call, run: Run) -> None:
    for index in range(3):
        make_task_instance(run=run, task_id="part", map_index=index)
    answer = call("tasks", "state", *WHERE, "part", "--map-index", "1")
    assert answer.lines()[1][0] == "part[1]"
    assert "1 task instances" in answer.out


@pytest.mark.parametrize("verb", ["state", "log"])
@pytest.mark.parametrize(
    ("where", "words"),
    [
        (("nightly", "r2", "load"), "run r2 of flow nightly"),
        (("weekly", "r1", "load"), "run r1 of flow weekly"),
        (("nightly", "r1", "lood"), "Run r1 has no task lood."),
    ],
    ids=["run", "flow", "task"],
)
def test_what_is_not_there_is_one_line_and_an_exit_code(
    call: Call, run: Run, verb: str, where: tuple[str, ...], words: str
) -> None:
    make_task_instance(run=run, task_id="load")
    answer = call("tasks", verb, *where)
    assert (answer.code, answer.out) == (1, "")
    assert answer.err.count("\n") == 1
    assert words in answer.err


# -- log --------------------------------------------------------------------------------------


def test_the_log_is_what_the_newest_attempt_printed_and_nothing_else(
    call: Call, tried: tuple[Attempt, Attempt]
) -> None:
    answer = call("tasks", "log", *WHERE, "load")
    assert (answer.code, answer.out, answer.err) == (0, "10 rows\n", "")


def test_the_log_of_a_replaced_attempt_is_there_by_try_and_by_id(
    call: Call, tried: tuple[Attempt, Attempt]
) -> None:
    assert call("tasks", "log", *WHERE, "load", "--try", "1").out == "no answer\n"
    by_id = ("--attempt", str(tried[0].id))
    assert call("tasks", "log", *WHERE, "load", *by_id).out == "no answer\n"


def test_all_logs_come_oldest_first_under_the_name_of_their_attempt(
    call: Call, tried: tuple[Attempt, Attempt]
) -> None:
    first, second = tried
    assert call("tasks", "log", *WHERE, "load", "--all").out == (
        f"== attempt {first.id}: try 1, failed ==\nno answer\n"
        f"\n== attempt {second.id}: try 2, success ==\n10 rows\n"
    )


def test_a_script_gets_the_log_with_its_attempt(call: Call, tried: tuple[Attempt, Attempt]) -> None:
    (log,) = call("tasks", "log", *WHERE, "load", "--json").json
    assert (log["attempt_id"], log["text"], log["bytes"]) == (str(tried[1].id), "10 rows\n", 8)


def test_any_bytes_come_out_as_they_went_in(
    run: Run, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    ti = make_task_instance(run=run, task_id="load", state=TaskState.RUNNING)
    make_log(make_attempt(ti=ti), b"\x00\xff\x1b[1m\n")
    tasks._write(b"".join(tasks._pieces(ti.attempt_id or uuid4(), follow=False)))
    assert capfdbinary.readouterr().out == b"\x00\xff\x1b[1m\n"


def test_a_followed_log_goes_on_until_the_attempt_has_ended(
    call: Call, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    ti = make_task_instance(run=run, task_id="load", state=TaskState.RUNNING)
    attempt = make_attempt(ti=ti)
    make_log(attempt, b"one\n")
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 2:
            AttemptLogChunk.objects.create(
                attempt_id=attempt.id, start_offset=4, data=b"two\n", at=at(4)
            )
            attempt.state, attempt.outcome = AttemptState.ENDED, AttemptOutcome.SUCCESS
            attempt.is_live, attempt.ended_at, attempt.is_accepted = False, at(5), True
            attempt.save()

    monkeypatch.setattr(time, "sleep", pause)
    answer = call("tasks", "log", *WHERE, "load", "--follow")
    assert (answer.code, answer.out) == (0, "one\ntwo\n")
    assert len(pauses) == 2


def test_looking_away_from_a_log_is_said_and_ends_nothing(
    call: Call, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = make_attempt(ti=make_task_instance(run=run, task_id="load", state=TaskState.RUNNING))

    def interrupt(_seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", interrupt)
    answer = call("tasks", "log", *WHERE, "load", "--follow")
    assert answer.code == 130
    assert answer.err == f"No longer followed; attempt {attempt.id} goes on.\n"


def test_a_task_without_an_attempt_says_what_it_waits_for(call: Call, run: Run) -> None:
    make_task_instance(
        run=run,
        task_id="load",
        state=TaskState.SCHEDULED,
        wait={"code": "pool_full", "detail": "pool small is full"},
    )
    answer = call("tasks", "log", *WHERE, "load")
    assert answer.code == 1
    expected = "Task load is scheduled and has no such attempt: pool small is full.\n"
    assert answer.err == expected


def test_a_try_that_was_not_made_is_refused(call: Call, tried: tuple[Attempt, Attempt]) -> None:
    answer = call("tasks", "log", *WHERE, "load", "--try", "7")
    assert answer.code == 1
    assert answer.err == "Task load is success and has no such attempt.\n"


# -- terminate --------------------------------------------------------------------------------


def test_a_task_is_terminated_with_a_reason(call: Call, run: Run) -> None:
    ti = make_task_instance(run=run, task_id="load")
    preview = call("tasks", "terminate", *WHERE, "load", "--dry-run")
    assert preview.code == 0
    assert "1 task instances would be terminated" in preview.out
    without = call("tasks", "terminate", *WHERE, "load")
    assert (without.code, without.err) == (1, "Say why: the reason is empty.\n")
    ti.refresh_from_db()
    assert ti.state == "none"
    answer = call("tasks", "terminate", *WHERE, "load", "--reason", "bad data", "--json")
    assert (answer.code, answer.json["included"][0]["state"]) == (0, "none")
    ti.refresh_from_db()
    assert (ti.state, ti.stop_reason) == ("failed", "ana terminated it: bad data")
    assert call("tasks", "terminate", *WHERE, "load", "--reason", "again").code == 1


def test_the_next_try_is_moved_and_begun_now(call: Call, run: Run) -> None:
    ti = make_task_instance(run=run, task_id="load", state="queued")
    where = ("tasks", "retry", *WHERE, "load")
    assert "it does not wait for a next try" in call(*where, "--reason", "r").err
    TaskInstance.objects.filter(pk=ti.pk).update(
        state="up_for_retry",
        next_retry_at=timezone.now() + timedelta(hours=1),
        next_retry_why={"position": 1, "of": 3, "error": "OSError", "delay_s": 3600.0},
    )
    assert call(*where, "--dry-run").out.strip() == "The next try begins now."
    assert call(*where).code == 1, "it needs a reason"
    later = call(*where, "--after", "10m", "--reason", "later", "--json")
    assert json.loads(later.out)["effect"] == "The next try begins 600 s from now."
    told = call("tasks", "why", *WHERE, "load").out
    assert "Retry in 60 min; " in told
    assert "moved it at" in told
    assert call(*where, "--after", "10 parsecs", "--reason", "r").code == 2
    assert call(*where, "--reason", "hurry").code == 0
    ti.refresh_from_db()
    assert ti.next_retry_at is not None
    assert ti.next_retry_at <= timezone.now()


def test_a_run_is_terminated_as_a_whole(call: Call, run: Run) -> None:
    for task_id in ("load", "tell"):
        make_task_instance(run=run, task_id=task_id)
    answer = call("flows", "terminate", *WHERE, "--reason", "wrong day")
    assert answer.code == 0
    assert answer.lines()[1][:3] == ["load", "none", "It"]
    assert "2 task instances terminated, 0 left alone" in answer.out
    assert call("flows", "terminate", "nightly", "nope", "--reason", "r").code == 1


# -- clear ------------------------------------------------------------------------------------


@pytest.fixture
def failed(run: Run) -> Run:
    """``load`` failed, and ``tell`` behind it could not run; with its definition."""
    definition = FlowDefinition(
        flow_id=run.flow_id,
        tasks=(
            TaskDefinition(task_id="load", retries=2),
            TaskDefinition(task_id="tell", upstream=("load",)),
        ),
    )
    run.version.definition = to_dict(definition)
    run.version.save()
    make_attempt(
        ti=make_task_instance(run=run, task_id="load", state="failed"),
        state=AttemptState.ENDED,
        outcome=AttemptOutcome.FAILED,
    )
    make_task_instance(run=run, task_id="tell", state="upstream_failed")
    return run


def test_tasks_are_cleared_as_they_were_previewed(call: Call, failed: Run) -> None:
    preview = call("tasks", "clear", *WHERE, "load", "--downstream", "--dry-run")
    assert preview.code == 0
    assert "2 task instances would be cleared, 0 left alone; at most 4 executions" in preview.out
    (plan,) = [line[1] for line in preview.lines() if line and line[0] == "Plan"]
    without = call("tasks", "clear", *WHERE, "load", "--plan", plan)
    assert (without.code, without.err) == (1, "Say why: the reason is empty.\n")
    done = call("tasks", "clear", *WHERE, "load", "--plan", plan, "--reason", "late", "--json")
    assert (done.code, done.json["plan_id"], len(done.json["included"])) == (0, plan, 2)
    assert set(failed.tis.values_list("state", flat=True)) == {"none"}
    again = call("tasks", "clear", *WHERE, "load", "--plan", plan, "--reason", "late")
    assert (again.code, "carried out before" in again.err) == (1, True)


def test_a_whole_run_is_cleared_as_a_new_run_attempt(call: Call, failed: Run) -> None:
    answer = call("tasks", "clear", *WHERE, "--only-failed", "--note", "n", "--reason", "late")
    assert answer.code == 0
    assert "as run attempt 2" in answer.out
    failed.refresh_from_db()
    assert (failed.run_attempt, failed.note) == (2, "n")


def test_a_clear_that_cannot_be_is_told(call: Call, failed: Run) -> None:
    del failed
    for given, told in (
        (["nope"], "has no task nope"),
        (["--only-failed", "--only-running"], "exclude each other"),
        (["--upstream"], "name one"),
    ):
        answer = call("tasks", "clear", *WHERE, *given, "--reason", "r")
        assert (answer.code, told in answer.err) == (1, True)


# -- callbacks --------------------------------------------------------------------------------


@pytest.fixture
def called(tried: tuple[Attempt, Attempt]) -> Attempt:
    """A callback about the second try, newer than it."""
    _, second = tried
    row = make_attempt(
        ti=second.ti,
        kind="callback",
        try_number=2,
        dispatch_no=1,
        state=AttemptState.ENDED,
        outcome=AttemptOutcome.FAILED,
        outcome_reason="OSError: nobody answers",
        fence=(second.fence or 0) + 1,
        callback={"on": "on_success", "index": 0, "name": "tell", "of": str(second.id)},
        callback_key=f"{second.id}:on_success:0",
    )
    make_log(row, b"telling\n")
    return row


def test_the_callbacks_of_a_task_are_a_table_of_their_own(
    call: Call, tried: tuple[Attempt, Attempt], called: Attempt
) -> None:
    answer = call("tasks", "state", *WHERE, "load")
    (line,) = [line for line in answer.lines() if line[:1] == [str(called.id)]]
    assert line[1:9] == [
        "load",
        "on_success",
        "tell",
        "1",
        "failed",
        "OSError:",
        "nobody",
        "answers",
    ]
    assert "1 attempts, 1 filtered (superseded_by_retry 1)" in answer.out
    assert "1 callbacks, none filtered" in answer.out
    assert str(called.id) not in call("tasks", "state", *WHERE).out, "of a whole run, its number"


def test_the_newest_log_of_a_task_is_not_that_of_its_callback(
    call: Call, tried: tuple[Attempt, Attempt], called: Attempt
) -> None:
    assert call("tasks", "log", *WHERE, "load").out == "10 rows\n"
    assert call("tasks", "log", *WHERE, "load", "--attempt", str(called.id)).out == "telling\n"


# -- why --------------------------------------------------------------------------------------


def test_why_says_in_a_sentence_what_happened_and_by_which_rule(
    call: Call, run: Run, tried: tuple[Attempt, Attempt]
) -> None:
    del tried
    answer = call("tasks", "why", *WHERE, "load")
    assert answer.code == 0
    assert answer.out.startswith("load is success. Process worker-1:")
    assert "(rule: success)" in answer.out
    told = call("tasks", "why", *WHERE, "load", "--json").json
    assert (told["task_id"], told["state"], told["rule"]) == ("load", "success", "success")
    assert told["sentence"] in answer.out
    assert call("tasks", "why", *WHERE, "nothing").code == 1
    del run


# -- mark -------------------------------------------------------------------------------------


def test_tasks_and_runs_are_marked_by_hand(call: Call, failed: Run) -> None:
    preview = call("tasks", "mark", "success", *WHERE, "load", "--dry-run")
    assert preview.code == 0
    assert "2 task instances would be marked, 0 left alone" in preview.out
    assert TaskInstance.objects.get(task_id="load").state == "failed"
    assert call("tasks", "mark", "success", *WHERE, "load").code == 1, "it needs a reason"
    done = call("tasks", "mark", "success", *WHERE, "load", "--reason", "by phone", "--json")
    assert [one["becomes"] for one in done.json["included"]] == ["success", "none"]
    assert call("tasks", "mark", "running", *WHERE, "load", "--reason", "r").code == 2
    whole = call("flows", "mark", "failed", *WHERE, "--reason", "enough", "--note", "n")
    assert whole.code == 0
    assert "It ends as failed now." in whole.out
    run = Run.objects.get(pk=failed.pk)
    assert (run.state, run.note) == ("failed", "n")
    assert call("flows", "mark", "failed", "nightly", "nope", "--reason", "r").code == 1


# -- clears of several runs, and undo ---------------------------------------------------------


def test_many_runs_are_cleared_as_they_were_previewed(call: Call, failed: Run) -> None:
    preview = call("flows", "clear", "nightly", "--state", "failed", "--only-failed", "--dry-run")
    assert preview.code == 1, "no such run: this one has not ended"
    assert "nothing would be cleared" in preview.err
    Run.objects.filter(pk=failed.pk).update(
        state="failed", is_active=False, ended_at="2026-01-01T00:00Z"
    )
    preview = call("flows", "clear", "nightly", "--state", "failed", "--only-failed", "--dry-run")
    assert "2 task instances in 1 runs, at most 4 executions; 1 planned" in preview.out
    plan = preview.out.split("Plan ")[1].split()[0]
    assert call("flows", "clear", "--plan", plan).code == 1, "it needs a reason"
    done = call("flows", "clear", "--plan", plan, "--reason", "late", "--json")
    assert (done.json["state"], done.json["parts"][0]["state"]) == ("ended", "done")
    assert Run.objects.get(pk=failed.pk).run_attempt == 2
    assert call("flows", "clear", "--go-on", plan).code == 0
    undo = done.json["parts"][0]["plan_id"]
    assert call("tasks", "undo", undo, "--dry-run").out.startswith("2 task instances would be")
    assert call("tasks", "undo", undo, "--reason", "wrong flow").code == 0
    assert Run.objects.get(pk=failed.pk).run_attempt == 1
    assert call("tasks", "undo", undo, "--reason", "wrong flow").code == 1
    assert call("flows", "clear", "--dry-run").code == 1
    assert call("flows", "clear", "nope", "--dry-run").code == 1


def test_a_task_is_cleared_for_other_dates_too(call: Call, failed: Run) -> None:
    answer = call("tasks", "clear", *WHERE, "load", "--past", "--future", "--dry-run", "--json")
    assert answer.code == 0
    assert [part["run_id"] for part in answer.json["parts"]] == [failed.pk]
    assert call("tasks", "clear", *WHERE, "--past", "--dry-run").code == 1
    assert call("tasks", "clear", *WHERE, "--group", "nope", "--dry-run").code == 1


# -- mapped tasks -----------------------------------------------------------------------------


def test_a_mapped_task_is_one_line_of_its_run(call: Call, run: Run) -> None:
    make_task_instance(run=run, task_id="first", state="success")
    make_mapped(run, "part", success=40, failed=2, none=18)
    told = call("tasks", "state", *WHERE)
    (line,) = [one for one in told.out.splitlines() if one.startswith("part")]
    assert "part[0-59]" in line
    assert "40 of 60 success, 18 not ready, 2 failed" in line
    assert "61 task instances" in told.out
    assert len(call("tasks", "state", *WHERE, "--json").json["task_instances"]) == 61


def test_instances_are_named_by_index_range_label_and_state(call: Call, run: Run) -> None:
    parts = make_mapped(run, "part", failed=30)
    TaskInstance.objects.filter(pk=parts[7].pk).update(map_label="customer 17")
    mark = ("tasks", "mark", "success", *WHERE, "part", "--dry-run")
    assert "30 x part [0–29]" in call(*mark).out
    some = call(*mark, "--map-index", "3", "--map-index", "5-6")
    assert "3 task instances would be marked" in some.out
    assert "part [6]" in some.out
    assert "1 task instances would be marked" in call(*mark, "--map-label", "customer").out
    assert "No instance" in call(*mark, "--state", "running").err
    assert "has no part [30–32]" in call(*mark, "--map-index", "28-32").err
    assert call(*mark, "--map-index", "6-5").code == 2


def test_open_instances_are_terminated_together(call: Call, run: Run) -> None:
    make_mapped(run, "part", success=1, queued=15)
    done = call("tasks", "terminate", *WHERE, "part", "--reason", "enough")
    assert "15 task instances terminated, 1 left alone" in done.out
    assert TaskInstance.objects.filter(task_id="part", state="failed").count() == 15
