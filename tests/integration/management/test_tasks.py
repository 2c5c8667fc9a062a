"""``manage.py tasks`` shows states and logs, any bytes of them."""

from __future__ import annotations

import json
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command

from scheduler_app.models import Attempt, AttemptLogChunk, Run, TaskInstance
from scheduler_app.rules import states
from tests.factories import at, make_attempt, make_flow, make_run, make_task_instance

pytestmark = pytest.mark.django_db


def tasks(*arguments: str) -> str:
    out = StringIO()
    call_command("tasks", *arguments, stdout=out)
    return out.getvalue()


def refused(capsys: pytest.CaptureFixture[Any], *arguments: str) -> str:
    with pytest.raises(SystemExit) as ended:
        tasks(*arguments)
    assert ended.value.code == 1
    told = capsys.readouterr().err
    return told.decode() if isinstance(told, bytes) else str(told)


@pytest.fixture
def run() -> Run:
    return make_run(flow=make_flow(flow_id="here"), run_key="mine")


@pytest.fixture
def ti(run: Run) -> TaskInstance:
    return make_task_instance(run=run, task_id="one", state=states.TaskState.RUNNING, max_tries=2)


def _tried(ti: TaskInstance, number: int, log: bytes, **overrides: Any) -> Attempt:
    attempt = make_attempt(ti=ti, try_number=number, state=states.AttemptState.ENDED, **overrides)
    AttemptLogChunk.objects.create(attempt_id=attempt.id, start_offset=0, data=log, at=at(1))
    return attempt


def test_state_of_one_task_is_a_word_for_scripts_and_of_all_a_table(ti: TaskInstance) -> None:
    make_task_instance(
        run=ti.run, task_id="two", wait={"code": "pool_full", "detail": "it is full"}
    )
    assert tasks("state", "here", "mine", "one") == "running\n"
    told = tasks("state", "here", "mine")
    assert "it is full" in told
    assert "2 task instances, none filtered" in told
    rows = json.loads(tasks("state", "here", "mine", "--json"))
    assert [row["task_id"] for row in rows] == ["one", "two"]


def test_a_run_with_many_tasks_is_told_whole(run: Run) -> None:
    TaskInstance.objects.bulk_create(
        TaskInstance(
            run=run, shard=run.shard, task_id=f"t{number}", pool="default", queue="default"
        )
        for number in range(620)
    )
    assert len(json.loads(tasks("state", "here", "mine", "--json"))) == 620


def test_log_is_of_the_newest_attempt_unless_another_is_asked_for(
    ti: TaskInstance, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    aside = {"filter_code": "superseded_by_retry", "outcome": states.AttemptOutcome.FAILED}
    first = _tried(ti, 1, b"first \xff\x00", **aside)
    second = _tried(ti, 2, b"second")
    for arguments, said in (
        ([], b"second"),
        (["--try", "1"], b"first \xff\x00"),
        (["--attempt", str(first.id)], b"first \xff\x00"),
    ):
        tasks("log", "here", "mine", "one", *arguments)
        assert capsysbinary.readouterr().out == said
    tasks("log", "here", "mine", "one", "--all")
    told = capsysbinary.readouterr().out
    assert told.index(b"first") < told.index(str(second.id).encode()) < told.index(b"second")


def test_follow_goes_on_until_the_attempt_has_ended(
    ti: TaskInstance, capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = make_attempt(ti=ti)
    chunks = [b"one\n", b"two\n"]

    def sleep(_: float) -> None:
        if chunks:
            size = sum(map(len, AttemptLogChunk.objects.values_list("data", flat=True)))
            AttemptLogChunk.objects.create(
                attempt_id=attempt.id, start_offset=size, data=chunks.pop(0), at=at(1)
            )
        else:
            Attempt.objects.update(state="ended", is_live=False, outcome="success", ended_at=at(9))

    monkeypatch.setattr("scheduler_app.management.commands.tasks.time.sleep", sleep)
    tasks("log", "here", "mine", "one", "--follow")
    assert capsysbinary.readouterr().out == b"one\ntwo\n"


def test_what_is_not_there_is_told_in_one_line(
    ti: TaskInstance, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "run other" in refused(capsys, "state", "here", "other")
    assert "no task nowhere" in refused(capsys, "state", "here", "mine", "nowhere")
    assert "no task nowhere" in refused(capsys, "log", "here", "mine", "nowhere")
    assert "is running and has no such attempt" in refused(capsys, "log", "here", "mine", "one")
