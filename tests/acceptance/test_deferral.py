"""The defer race with real processes, forced into each order; triggerers die, and nothing runs twice."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from scheduler_app.transitions.executor_event import NewEvent, record_events
from tests.stack import Stack, running, wait_for

if TYPE_CHECKING:
    from uuid import UUID

FLOWS = """
    import asyncio, os, time
    from dataclasses import dataclass
    from datetime import timedelta
    from scheduler_app.authoring import *

    FOLDER = {folder!r}

    # Ground truth outside the product: one line for each execution of each part.
    def note(ctx, what):
        fd = os.open(f"{{FOLDER}}/sink", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(fd, f"{{ctx.run_id}} {{ctx.task_id}} {{what}} {{ctx.attempt_id}}\\n".encode())
        os.close(fd)

    def wait_for_gate(name):
        while not os.path.exists(f"{{FOLDER}}/{{name}}"):
            time.sleep(0.05)

    @dataclass(frozen=True)
    class Gate(Trigger):
        name: str

        async def run(self):
            while not os.path.exists(f"{{FOLDER}}/{{self.name}}"):
                await asyncio.sleep(0.05)
            return self.name

    @task(pool="one", retries=1)
    def subject(ctx):
        note(ctx, "part 1")
        ctx.defer(Gate(ctx.conf["fire"]), method="on", timeout=timedelta(minutes=5))

    @subject.method
    def on(ctx, event):
        note(ctx, "part 2")
        if "go" in ctx.conf:
            wait_for_gate(ctx.conf["go"])
        return [event, ctx.try_number, ctx.resume_index]

    @flow
    def defers():
        subject()

    @task(pool="one")
    def hold(ctx):
        note(ctx, "holds")
        wait_for_gate(ctx.conf["until"])

    @flow
    def holds():
        hold()

    @task
    def block(ctx):
        note(ctx, "blocks")
        wait_for_gate(ctx.conf["until"])

    @flow
    def blocks():
        block()

    @task
    def nothing(ctx, number):
        raise Defer(TimeTrigger(after=timedelta(seconds=number % 3 / 10)), method="nothing_more")

    @nothing.method
    def nothing_more(event):
        return None

    @flow(max_active_tasks=1000)
    def crowd():
        for number in range(200):
            nothing(number)

    @task
    def approve(ctx):
        ctx.defer(EventTrigger("approval"), method="approved")

    @approve.method
    def approved(event):
        return event

    @flow
    def approval():
        approve() >> WaitForTime(after=timedelta(seconds=0))
"""


def _prepare(stack: Stack) -> None:
    stack.rows(
        "INSERT INTO pool (name, slots, description, include_deferred)"
        " VALUES ('one', 1, '', false) RETURNING name"
    )
    stack.write_flow("deferral.py", FLOWS.format(folder=str(stack.folder)))
    for flow_id in ("defers", "holds", "blocks", "crowd", "approval"):
        stack.wait_for_flow(flow_id)


@pytest.fixture(scope="module", params=[1, 2], ids=["one scheduler", "two schedulers"])
def stack(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Stack]:
    """A ready stack with these flows."""
    flags = ["--no-examples", "--concurrency", "2", "--schedulers", str(request.param)]
    with running(tmp_path_factory.mktemp("stack"), flags=flags) as made:
        _prepare(made)
        if request.param > 1:
            wait_for(
                "both hold shards",
                lambda: len(made.rows("SELECT DISTINCT holder FROM lease")) == request.param,
            )
        yield made


def _parts(stack: Stack, run: dict[str, Any]) -> list[str]:
    sink = stack.folder / "sink"
    lines = sink.read_text().splitlines() if sink.exists() else []
    return [
        line.split(" ", 2)[2].rpartition(" ")[0] for line in lines if line.startswith(run["run_id"])
    ]


def _state(stack: Stack, run: dict[str, Any]) -> str:
    row = stack.row("SELECT state FROM task_instance WHERE run_id = %s", run["id"])
    assert row is not None
    return str(row["state"])


def _is_sent(stack: Stack, run: dict[str, Any]) -> bool:
    """Whether a message of the run was given to the broker."""
    return any(attempt["published_at"] for attempt in stack.attempts(run))


def _wait_for_state(stack: Stack, run: dict[str, Any], state: str) -> None:
    wait_for(f"the task is {state}", lambda: _state(stack, run) == state, within_s=30)


def _tell_again(stack: Stack, attempt_id: UUID, key: str) -> None:
    """The exit of the attempt is told now, once more, to whoever judges; it has been judged."""
    with psycopg.connect(stack.addresses.database_url, autocommit=True) as connection:
        told = record_events(
            connection,
            events=[
                NewEvent(
                    attempt_id=attempt_id,
                    kind="exit_success",
                    source="test",
                    dedupe_key=f"told again:{attempt_id}:{key}",
                )
            ],
        )
    assert told == 1
    wait_for(
        f"the exit told while {key} is judged",
        lambda: stack.row(
            "SELECT 1 AS one FROM executor_event WHERE dedupe_key = %s AND verdict <> 'pending'",
            f"told again:{attempt_id}:{key}",
        ),
    )


def test_the_exit_of_a_deferring_attempt_is_stale_in_every_order(stack: Stack) -> None:
    gates = {name: f"order-{name}" for name in ("fire", "go", "hold", "block")}
    run = stack.trigger("defers", conf={"fire": gates["fire"], "go": gates["go"]})
    _wait_for_state(stack, run, "deferred")
    (first,) = stack.attempts(run)
    wait_for("the worker's own witness spoke", lambda: stack.events(first["id"]))
    _tell_again(stack, first["id"], "deferred")

    # Scheduled and no further: another task has the only slot of its pool.
    holder = stack.trigger("holds", conf={"until": gates["hold"]})
    wait_for("the holder holds", lambda: _parts(stack, holder))
    (stack.folder / gates["fire"]).touch()
    _wait_for_state(stack, run, "scheduled")
    _tell_again(stack, first["id"], "scheduled")

    # Queued and no further: every child of the worker is busy, or will be.
    blockers = [stack.trigger("blocks", conf={"until": gates["block"]}) for _ in range(2)]
    wait_for("one blocks", lambda: sum(len(_parts(stack, one)) for one in blockers) == 1)
    # Before the task itself may be sent, or it takes the child that is to be busy.
    wait_for("both are sent", lambda: all(_is_sent(stack, one) for one in blockers))
    (stack.folder / gates["hold"]).touch()
    wait_for("both block", lambda: sum(len(_parts(stack, one)) for one in blockers) == 2)
    _wait_for_state(stack, run, "queued")
    _tell_again(stack, first["id"], "queued")

    (stack.folder / gates["block"]).touch()
    _wait_for_state(stack, run, "running")
    wait_for("the second part runs", lambda: "part 2" in _parts(stack, run))
    _tell_again(stack, first["id"], "running after the resume")

    (stack.folder / gates["go"]).touch()
    assert stack.wait_for_run(run)["state"] == "success"
    _tell_again(stack, first["id"], "success")

    assert _parts(stack, run) == ["part 1", "part 2"], "each part was executed once"
    first, second = stack.attempts(run)
    assert (first["outcome"], first["filter_code"]) == ("deferred", "superseded_by_resume")
    assert (second["outcome"], second["filter_code"]) == ("success", None)
    assert second["result"] == [gates["fire"], 1, 1], "the same try, one resume"
    events = stack.events(first["id"])
    assert len(events) == 6
    assert {(e["verdict"], e["filter_code"]) for e in events} == {("ignored", "stale_after_defer")}
    shown = stack.api("GET", f"/api/v1/executor-events/?run={run['id']}&filtered=only")
    reasons = {row["filter_code"]: row["filter_reason"] for row in shown["results"]}
    assert list(reasons) == ["stale_after_defer"]
    assert "defer" in reasons["stale_after_defer"]
    for other in (holder, *blockers):
        assert stack.wait_for_run(other)["state"] == "success"
    stack.assert_nothing_hidden()


def test_two_hundred_tasks_that_defer_at_once_all_succeed(stack: Stack) -> None:
    run = stack.trigger("crowd")
    assert stack.wait_for_run(run, within_s=180)["state"] == "success"
    attempts = stack.attempts(run)
    assert Counter(a["outcome"] for a in attempts) == {"deferred": 200, "success": 200}
    assert {a["try_number"] for a in attempts} == {1}

    def judged() -> list[dict[str, Any]] | None:
        rows = stack.rows(
            "SELECT e.verdict, e.verdict_code, p.outcome FROM executor_event e"
            " JOIN attempt p ON p.id = e.attempt_id WHERE e.run_id = %s AND e.kind = 'exit_success'"
            " AND e.verdict <> 'pending'",
            run["id"],
        )
        return rows if len(rows) == 400 else None

    rows = wait_for("every exit is judged", judged)
    assert Counter((r["outcome"], r["verdict"], r["verdict_code"]) for r in rows) == {
        ("deferred", "ignored", "stale_after_defer"): 200,
        ("success", "confirmed", None): 200,
    }
    (killed,) = stack.rows(
        "SELECT value FROM counter WHERE name = 'scheduler_tasks_killed_externally_total'"
    )
    assert killed["value"] == 0
    stack.assert_nothing_hidden()


def test_an_event_that_comes_before_its_task_waits_is_taken_when_it_does(stack: Stack) -> None:
    blockers = [stack.trigger("blocks", conf={"until": "early"}) for _ in range(2)]
    wait_for("both block", lambda: sum(len(_parts(stack, one)) for one in blockers) == 2)
    run = stack.trigger("approval")
    told = stack.manage(
        "tasks",
        "event",
        "approval",
        run["run_id"],
        "approve",
        "--key",
        "approval",
        "--payload",
        "7",
    )
    assert told.returncode == 0, told.stderr
    assert "is kept" in told.stdout
    (stack.folder / "early").touch()
    assert stack.wait_for_run(run)["state"] == "success"
    results = stack.rows(
        "SELECT result FROM attempt WHERE run_id = %s AND task_id = 'approve'"
        " AND outcome = 'success'",
        run["id"],
    )
    assert [row["result"] for row in results] == [7]


def test_an_event_from_outside_wakes_the_task_that_waits_for_it(stack: Stack) -> None:
    run = stack.trigger("approval")
    wait_for(
        "it waits",
        lambda: stack.row(
            "SELECT id FROM task_instance WHERE run_id = %s AND state = 'deferred'", run["id"]
        ),
    )
    ti = stack.row(
        "SELECT id FROM task_instance WHERE run_id = %s AND task_id = 'approve'", run["id"]
    )
    assert ti is not None
    sent = stack.api(
        "POST",
        f"/api/v1/task-instances/{ti['id']}/event/",
        {"key": "approval", "payload": {"by": "anna"}},
    )
    assert sent["trigger_id"] is not None
    assert stack.wait_for_run(run)["state"] == "success"
    (result,) = stack.rows(
        "SELECT result FROM attempt WHERE ti_id = %s AND outcome = 'success'", ti["id"]
    )
    assert result["result"] == {"by": "anna"}


@pytest.mark.parametrize("schedulers", [1, 2])
def test_triggerers_killed_before_and_after_a_fire_lose_and_double_nothing(
    tmp_path: Path, schedulers: int
) -> None:
    """One dies with the fire in its hands, its successor between the fire and the resume."""
    once = tmp_path / "once"
    once.mkdir()
    points = {"triggerer.before_fire", "triggerer.after_fire"}
    environment = {
        "DAYLIGHT_FAILPOINTS": ";".join(f"{point}=kill" for point in sorted(points)),
        "DAYLIGHT_FAILPOINTS_ONCE": str(once),
        # Else, on a busy machine, it is taken for one that blocks, and fires in a process of its own.
        "DAYLIGHT_TRIGGER_BLOCK_S": "60",
    }
    flags = ["--no-examples", "--schedulers", str(schedulers)]
    with running(tmp_path, flags=flags, environment=environment) as stack:
        _prepare(stack)
        before = stack.job_pids("triggerer")
        run = stack.trigger("defers", conf={"fire": "fire"})
        _wait_for_state(stack, run, "deferred")
        (tmp_path / "fire").touch()
        assert stack.wait_for_run(run, within_s=90)["state"] == "success"
        assert {p.name for p in once.iterdir()} == points, "the second fire was killed again"
        assert not set(stack.job_pids("triggerer")) & set(before)
        assert _parts(stack, run) == ["part 1", "part 2"]
        first, second = stack.attempts(run)
        assert (first["outcome"], second["outcome"]) == ("deferred", "success")
        assert (first["try_number"], second["try_number"]) == (1, 1), "no retry was used"
        wait_for("the exit of the first was told", lambda: stack.events(first["id"]))
        _tell_again(stack, first["id"], "after all of it")
        shown = stack.api("GET", f"/api/v1/executor-events/?run={run['id']}&filtered=only")
        assert {row["filter_code"] for row in shown["results"]} == {"stale_after_defer"}
        assert all(row["filter_reason"] for row in shown["results"])
        stack.assert_nothing_hidden()


def test_a_killed_worker_of_a_resumed_attempt_costs_no_try(stack: Stack) -> None:
    run = stack.trigger("defers", conf={"fire": "killed-fire", "go": "killed-go"})
    (stack.folder / "killed-fire").touch()
    wait_for("the second part runs", lambda: "part 2" in _parts(stack, run))
    (worker,) = stack.job_pids("worker")
    os.kill(worker, signal.SIGKILL)
    # Its child is told to end when it is gone, and must not hear of what comes next before.
    wait_for("the worker is gone", lambda: not Path(f"/proc/{worker}").exists())
    (stack.folder / "killed-go").touch()
    assert stack.wait_for_run(run, within_s=90)["state"] == "success"
    attempts = stack.attempts(run)
    assert [a["outcome"] for a in attempts] == ["deferred", "lost", "success"]
    assert [(a["try_number"], a["resume_index"], a["dispatch_no"]) for a in attempts] == [
        (1, 0, 1),
        (1, 1, 1),
        (1, 1, 2),
    ]
    assert attempts[-1]["result"] == ["killed-fire", 1, 1], "it resumed with the same event"
    assert _parts(stack, run) == ["part 1", "part 2", "part 2"]
    stack.assert_nothing_hidden()
