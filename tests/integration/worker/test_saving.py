"""What a task saves while it runs: who may, how often, what outlives what, and what is told."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from scheduler_app.models import (
    Checkpoint,
    CheckpointSave,
    ExecutorEvent,
    Progress,
    PushedValue,
    TaskInstance,
)
from scheduler_app.transitions.attempt import lose
from scheduler_app.worker import folder
from tests.workshop import wait_until

if TYPE_CHECKING:
    from scheduler_app.transitions.attempt import Message
    from tests.workshop import Workshop

HEAD = """
import os, time
from datetime import timedelta
from pathlib import Path
from scheduler_app.authoring import (
    Defer, Superseded, TimeTrigger, flow, task
)

def wait_for(path):
    while not Path(path).exists():
        time.sleep(0.01)

"""
FLOW = """

@flow
def f():
    t()
"""


def flow_of(body: str, options: str = "retries=9, retry_delay=0") -> str:
    """A flow whose task t has this body."""
    lines = "\n".join(f"    {line}" for line in body.strip().splitlines())
    return f"{HEAD}@task({options})\ndef t(ctx):\n{lines}\n{FLOW}"


def result_of(workshop: Workshop, message: Message) -> Any:
    assert workshop.attempt(message).outcome == "success", workshop.attempt(message).error
    return workshop.attempt(message).result


def again(workshop: Workshop, message: Message) -> Message:
    """The next attempt of the task."""
    return workshop.issue(workshop.ti(message).run_id)


def lose_it(workshop: Workshop, message: Message) -> None:
    lose(
        workshop.connection,
        attempt_ids=[message.attempt_id],
        dead_after_s=0.0,
        budget=3,
        source="test",
    )


def test_a_checkpoint_is_what_the_next_try_finds(workshop: Workshop) -> None:
    source = flow_of(
        """
page = ctx.checkpoint.get("page", 0)
if page < 3:
    ctx.checkpoint.set("page", page + 1)
    assert ctx.checkpoint.get("page") == page + 1
    raise OSError(f"page {page}")
return page
"""
    )
    message = workshop.issue_one(source)
    workshop.deliver(message)
    for _ in range(3):
        message = again(workshop, message)
        workshop.deliver(message)
    assert result_of(workshop, message) == 3
    row = Checkpoint.objects.get()
    assert (row.scope, row.owner, row.key, row.value, row.version) == (
        "task",
        str(message.ti_id),
        "page",
        3,
        3,
    )
    told = CheckpointSave.objects.order_by("version").values_list("version", "value", "try_number")
    assert list(told) == [(1, 1, 1), (2, 2, 2), (3, 3, 3)]


def test_types_come_back_as_they_were_and_values_are_taken_when_they_are_set(
    workshop: Workshop,
) -> None:
    source = flow_of(
        """
from datetime import datetime, timezone
from decimal import Decimal
seen = {"at": datetime(2026, 1, 2, tzinfo=timezone.utc), "sum": Decimal("1.10"), "ids": (1, 2)}
if ctx.try_number == 1:
    ctx.checkpoint.set("seen", seen)
    seen["ids"] = "changed later"
    raise OSError
assert ctx.checkpoint.get("seen") == seen
assert ctx.checkpoint.get("absent") is None
return "same"
"""
    )
    message = workshop.issue_one(source)
    workshop.deliver(message)
    message = again(workshop, message)
    workshop.deliver(message)
    assert result_of(workshop, message) == "same"


def test_only_so_many_writes_reach_the_database_and_the_last_does(workshop: Workshop) -> None:
    source = flow_of(
        """
began = time.monotonic()
for number in range(20_000):
    ctx.checkpoint.set("number", number)
    ctx.progress.update(number + 1, 20_000)
return time.monotonic() - began
"""
    )
    message = workshop.issue_one(source)
    workshop.deliver(message)
    took_s = result_of(workshop, message)
    row = Checkpoint.objects.get()
    assert row.value == 19_999
    assert row.version <= took_s / 0.5 + 3  # the first, one an interval, and the last
    assert Progress.objects.get(pk=message.attempt_id).done == 20_000


def test_what_waits_is_written_while_the_task_is_busy_with_something_else(
    workshop: Workshop, tmp_path: Path
) -> None:
    source = flow_of(
        f"""
ctx.checkpoint.set("n", 1)
ctx.checkpoint.set("n", 2)
wait_for("{tmp_path}/go")
"""
    )
    message = workshop.issue_one(source)
    running = workshop.start(message)
    wait_until(lambda: Checkpoint.objects.filter(value=2).exists(), within_s=60)
    os.kill(running.pid, signal.SIGKILL)
    assert running.status() == -signal.SIGKILL
    lose_it(workshop, message)
    assert Checkpoint.objects.get().value == 2


def test_a_flush_is_in_the_database_before_a_kill(workshop: Workshop) -> None:
    source = flow_of(
        """
number = ctx.checkpoint.get("number", 0)
if number >= 300:
    return number
for number in range(number + 1, number + 101):
    ctx.checkpoint.set("number", number)
    ctx.checkpoint.flush()
os.kill(os.getpid(), 9)
"""
    )
    message = workshop.issue_one(source)
    for _ in range(3):
        assert workshop.start(message).status() == -signal.SIGKILL
        lose_it(workshop, message)
        message = again(workshop, message)
    workshop.deliver(message)
    assert result_of(workshop, message) == 300
    assert CheckpointSave.objects.count() == 100  # of 300
    assert CheckpointSave.objects.order_by("version")[0].version == 201


def test_a_superseded_attempt_cannot_save_and_what_it_tried_is_an_event(
    workshop: Workshop, tmp_path: Path
) -> None:
    source = flow_of(
        f"""
if ctx.checkpoint.get("n") is None:
    ctx.checkpoint.set("n", "first")
    Path("{tmp_path}/saved").touch()
    wait_for("{tmp_path}/go")
    try:
        ctx.checkpoint.set("n", "zombie")
        ctx.checkpoint.flush()
    except Superseded as error:
        Path("{tmp_path}/told").write_text(str(error))
        raise
    return "zombie"
ctx.checkpoint.set("n", "second")
return "second"
"""
    )
    message = workshop.issue_one(source)
    zombie = workshop.start(message)
    wait_until((tmp_path / "saved").exists, within_s=60)
    lose_it(workshop, message)
    second = again(workshop, message)
    workshop.deliver(second)
    (tmp_path / "go").touch()
    zombie.outcome(within_s=60)
    assert result_of(workshop, second) == "second"
    assert Checkpoint.objects.get().value == "second"
    assert "another attempt of this task has taken its place" in (tmp_path / "told").read_text()
    late = ExecutorEvent.objects.get(kind="late_write")
    assert (late.attempt_id, late.verdict, late.verdict_code) == (
        message.attempt_id,
        "ignored",
        "stale_superseded",
    )
    assert late.payload["what"] == "checkpoints: task n"
    assert late.verdict_detail is not None
    assert late.verdict_detail["current_attempt_id"] == str(second.attempt_id)
    assert [event.kind for event in workshop.events(message)][-2:] == ["late_write", "late_report"]


def test_a_deferral_keeps_checkpoints(workshop: Workshop) -> None:
    source = f"""{HEAD}
@task
def t(ctx):
    ctx.checkpoint.update({{"page": 4}}, rows=200)
    raise Defer(TimeTrigger(after=timedelta(0)), method="resumed")

@t.method
def resumed(ctx):
    return [ctx.checkpoint.get("page"), ctx.checkpoint.get("rows")]
{FLOW}"""
    message = workshop.issue_one(source)
    workshop.deliver(message)
    assert workshop.attempt(message).outcome == "deferred"
    assert set(Checkpoint.objects.values_list("key", "value")) == {("page", 4), ("rows", 200)}
    TaskInstance.objects.filter(pk=message.ti_id).update(state="scheduled", resume_index=1)
    resumed = again(workshop, message)
    workshop.deliver(resumed)
    assert result_of(workshop, resumed) == [4, 200]


def test_scopes_are_apart_and_reach_as_far_as_they_say(workshop: Workshop) -> None:
    source = flow_of(
        """
found = [ctx.checkpoint.get("k"), ctx.checkpoint("flow").get("k"), ctx.checkpoint("shared").get("k")]
ctx.checkpoint.set("k", "of the task")
ctx.checkpoint(scope="flow").set("k", "of the flow")
ctx.checkpoint(scope="shared").set("k", "of the name")
return found
"""
    )
    version = workshop.flow(source)
    first, second = (workshop.issue(workshop.run(version)) for _ in range(2))
    workshop.deliver(first)
    workshop.deliver(second)
    assert result_of(workshop, first) == [None, None, None]
    assert result_of(workshop, second) == [None, "of the flow", "of the name"]
    assert set(Checkpoint.objects.values_list("scope", "owner", "version")) == {
        ("task", str(first.ti_id), 1),
        ("task", str(second.ti_id), 1),
        ("flow", "f", 2),
        ("name", "shared", 2),
    }


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ('ctx.checkpoint.set("k", "x" * 70_000)', "Checkpoint 'k' cannot be saved. The checkpoint"),
        ('ctx.checkpoint.set("k", object())', "is of type object, which cannot be stored"),
        ('ctx.checkpoint.set("", 1)', "is no key"),
        ('ctx.checkpoint.get("a" * 251)', "is no key"),
        ('ctx.checkpoint("")', "is no scope"),
        ("ctx.checkpoint.update(3)", "takes a dict, not int"),
        ("ctx.progress.update(-1)", "done=-1 is no whole number from 0 on"),
        ("ctx.progress.update(1, 2.5)", "total=2.5 is no whole number from 0 on"),
        ('ctx.push("k", object())', "is of type object, which cannot be stored"),
    ],
)
def test_what_cannot_be_saved_is_said_to_the_task(
    workshop: Workshop, call: str, words: str
) -> None:
    message = workshop.issue_one(flow_of(call))
    workshop.deliver(message)
    attempt = workshop.attempt(message)
    assert attempt.outcome == "failed"
    assert words in (attempt.error or {})["message"]
    assert not Checkpoint.objects.exists()


def test_progress_counts_what_is_through(workshop: Workshop, tmp_path: Path) -> None:
    source = flow_of(
        f"""
for page in ctx.progress(range(7, 10), done=7):
    if page == 9:
        wait_for("{tmp_path}/go")
ctx.progress.update(10, 10, note="all pages read")
"""
    )
    message = workshop.issue_one(source)
    running = workshop.start(message)
    wait_until(lambda: Progress.objects.filter(done=9, total=10).exists(), within_s=60)
    (tmp_path / "go").touch()
    running.outcome(within_s=60)
    row = Progress.objects.get(pk=message.attempt_id)
    assert (row.done, row.total, row.note) == (10, 10, "all pages read")


def test_a_task_finds_what_its_earlier_tries_pushed_if_it_asks_for_it(workshop: Workshop) -> None:
    source = flow_of(
        """
known = [ctx.pull(key="page"), ctx.pull("t", "page", include_prior_tries=True)]
page = known[1] or 0
ctx.push("page", page + 1)
assert ctx.pull(key="page") == page + 1
if ctx.try_number < 3:
    raise OSError
return known
"""
    )
    message = workshop.issue_one(source)
    workshop.deliver(message)
    for _ in range(2):
        message = again(workshop, message)
        workshop.deliver(message)
    assert result_of(workshop, message) == [None, 2]
    assert list(PushedValue.objects.order_by("fence").values_list("try_number", "value")) == [
        (1, 1),
        (2, 2),
        (3, 3),
    ]


def test_a_task_pulls_what_another_pushed_and_returned(workshop: Workshop) -> None:
    source = f"""{HEAD}
@task
def first(ctx):
    ctx.push("rows", [1, 2])
    return "result"

@task
def t(ctx):
    return [ctx.pull("first", "rows"), ctx.pull("first"), ctx.pull("first", "no", default=7)]

@flow
def f():
    first() >> t()
"""
    run_id = workshop.run(workshop.flow(source))
    workshop.deliver(workshop.issue(run_id, "first"))
    message = workshop.issue(run_id)
    workshop.deliver(message)
    assert result_of(workshop, message) == [[1, 2], "result", 7]


def test_a_superseded_attempt_cannot_push(workshop: Workshop, tmp_path: Path) -> None:
    message = workshop.issue_one(
        flow_of(
            f"""
Path("{tmp_path}/runs").touch()
wait_for("{tmp_path}/go")
ctx.push("k", 1)
"""
        )
    )
    running = workshop.start(message)
    wait_until((tmp_path / "runs").exists, within_s=60)
    lose_it(workshop, message)
    (tmp_path / "go").touch()
    running.outcome(within_s=60)
    assert not PushedValue.objects.exists()
    assert ExecutorEvent.objects.get(kind="late_write").payload["what"] == "pushed value: k"


def test_a_process_that_the_task_forks_is_told_that_it_cannot_save(workshop: Workshop) -> None:
    message = workshop.issue_one(
        flow_of(
            """
ctx.checkpoint.set("n", 1)
ctx.checkpoint.set("n", 2)
pid = os.fork()
if pid == 0:
    try:
        ctx.checkpoint.set("n", 3)
    except Exception as error:
        os._exit(7 if "from the process of the task alone" in str(error) else 1)
    os._exit(0)
return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
"""
        )
    )
    workshop.deliver(message)
    assert result_of(workshop, message) == 7
    assert Checkpoint.objects.get().value == 2


def test_what_is_told_to_end_saves_what_waits(workshop: Workshop, tmp_path: Path) -> None:
    """It swallows the exception that it is stopped with; SIGTERM ends it, within an interval."""
    message = workshop.issue_one(
        flow_of(
            f"""
ctx.checkpoint.set("n", 1)
try:
    Path("{tmp_path}/runs").touch()
    wait_for("{tmp_path}/never")
except BaseException:
    ctx.checkpoint.set("n", "once more")  # may be written at once; then the next one waits
    ctx.checkpoint.set("n", "last word")
    Path("{tmp_path}/swallowed").touch()
    wait_for("{tmp_path}/never")
"""
        )
    )
    running = workshop.start(message)
    wait_until((tmp_path / "runs").exists, within_s=60)
    asked = {"why": "a test wants it", "stage": "exception"}
    workshop.folder.write(str(message.attempt_id), folder.STOP, asked)
    os.kill(running.pid, signal.SIGURG)
    wait_until((tmp_path / "swallowed").exists, within_s=60)
    workshop.folder.write(str(message.attempt_id), folder.STOP, {**asked, "stage": "signal"})
    os.kill(running.pid, signal.SIGTERM)
    assert running.status(within_s=60) == -signal.SIGTERM
    assert Checkpoint.objects.get().value == "last word"
