"""Processes are killed at each step of their work, and nothing is lost, doubled or hidden.

A failpoint is in the product's own code; it is quiet until the test arms it, and then the next process
that comes by kills itself with SIGKILL. One stack serves all.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from scheduler_app.drills.ledger import END, boot_clock_s
from tests.ground import Ground, ground

# Where a scheduler is killed, and what is left behind at that moment.
OF_TICK = {
    "tick.before_proof": "nothing",
    "tick.before_commit": "nothing: the transaction is rolled back",
    "tick.after_commit": "attempts that nobody published",
    "publish.before": "attempts that nobody published",
    "publish.after": "messages whose attempts are not noted as published",
}
OF_JUDGING = ("judge.before_commit", "judge.after_commit")
OF_LOSING = ("lose.before_commit", "lose.after_commit")
OF_REPUBLISHING = ("republish.before_commit", "republish.after_commit")
OF_CREATING = ("create.before_commit", "create.after_commit")
OF_TAKING_OVER = ("take_over.before_commit", "take_over.after_commit")
OF_WORKER = ("worker.after_claim", "worker.before_finish", "worker.after_finish")
POINTS = [
    *OF_TICK,
    *OF_JUDGING,
    *OF_LOSING,
    *OF_REPUBLISHING,
    *OF_CREATING,
    *OF_TAKING_OVER,
    *OF_WORKER,
]
SCHEDULED = """
from datetime import datetime, timezone
from drill_ledger import execution
from scheduler_app.authoring import flow, task

@task
def step(ctx):
    with execution(ctx):
        pass

@flow(schedule="0 0 * * *", catchup=True, start_date=datetime(2020, 1, 1, tzinfo=timezone.utc),
      end_date=datetime(2020, 1, {days}, tzinfo=timezone.utc), max_active_runs=100)
def drill_scheduled_{days}():
    step()
"""


@pytest.fixture(scope="module")
def stage() -> Iterator[Ground]:
    with ground(
        flags=("--concurrency", "3"),
        environment={"DAYLIGHT_QUEUED_TIMEOUT_S": "2"},
        points=dict.fromkeys(POINTS, "kill@*"),
    ) as made:
        made.stand_by()
        yield made


def _kill_at(stage: Ground, point: str) -> float:
    """The point is armed; when that was."""
    stage.stand_by()
    stage.arm(point)
    return boot_clock_s()


@pytest.mark.parametrize("point", OF_TICK)
def test_a_scheduler_killed_in_its_tick_costs_time_alone(stage: Ground, point: str) -> None:
    since = _kill_at(stage, point)
    runs = [stage.run("drill_chain"), stage.run("drill_fan")]
    stage.recovered(f"scheduler killed at {point}", since, lambda: stage.ended(*runs))
    assert stage.is_reached(point)
    stage.all_holds()
    attempts = [row for run_id in runs for row in stage.attempts(run_id)]
    assert len(attempts) == 10, "no attempt was issued twice"
    assert {row["dispatch_no"] for row in attempts} == {1}


@pytest.mark.parametrize("point", OF_JUDGING)
def test_a_scheduler_killed_while_it_judges_gives_each_event_one_verdict(
    stage: Ground, point: str
) -> None:
    run_id = stage.run("drill_long", seconds=300)
    line = stage.running(run_id)
    since = _kill_at(stage, point)
    stage.stack.signal(line.pid, signal.SIGKILL)
    stage.recovered(f"scheduler killed at {point}", since, lambda: stage.ended(run_id))
    assert stage.is_reached(point)
    stage.all_holds()
    first, second = stage.attempts(run_id)
    assert (first["outcome"], second["try_number"]) == ("terminated", 2), "one retry was used"


@pytest.mark.parametrize("point", OF_LOSING)
def test_a_scheduler_killed_while_it_gives_up_a_silent_attempt(stage: Ground, point: str) -> None:
    stage.stack.spawn(f"worker-{point}", "worker", "--queues", "apart", "--concurrency", "4")
    run_id = stage.run("drill_apart", seconds=1)
    worker = stage.stack.parent(stage.running(run_id).pid)
    since = _kill_at(stage, point)
    stage.stack.signal(worker, signal.SIGKILL)
    stage.stack.spawn(f"next-{point}", "worker", "--queues", "apart", "--concurrency", "4")
    stage.recovered(f"scheduler killed at {point}", since, lambda: stage.ended(run_id))
    assert stage.is_reached(point)
    stage.all_holds()
    lost = [row for row in stage.attempts(run_id) if row["outcome"] == "lost"]
    assert lost
    assert {row["filter_code"] for row in lost} == {"lost_worker"}


@pytest.mark.parametrize("point", OF_REPUBLISHING)
def test_a_scheduler_killed_while_it_publishes_again(stage: Ground, point: str) -> None:
    busy = [stage.run("drill_long", seconds=3) for _ in range(3)]
    for run_id in busy:
        stage.running(run_id)
    runs = [stage.run("drill_fan"), stage.run("drill_fan")]
    stage.stack.wait_for(
        "messages wait",
        lambda: any(row["published_at"] for run_id in runs for row in stage.attempts(run_id)),
        within_s=60,
    )
    since = _kill_at(stage, point)
    stage.broker().flushall()
    stage.recovered(f"scheduler killed at {point}", since, lambda: stage.ended(*busy, *runs))
    assert stage.is_reached(point)
    stage.all_holds()
    attempts = [row for run_id in runs for row in stage.attempts(run_id)]
    assert len(attempts) == 12, "the same attempts were published again"


@pytest.mark.parametrize(("point", "days"), [*zip(OF_CREATING, (3, 4), strict=True)])
def test_a_scheduler_killed_while_it_creates_runs_creates_each_once(
    stage: Ground, point: str, days: int
) -> None:
    since = _kill_at(stage, point)
    flow_id = f"drill_scheduled_{days}"
    (stage.stack.flows / f"{flow_id}.py").write_text(SCHEDULED.format(days=days), encoding="utf-8")

    def runs() -> list[str]:
        rows = stage.stack.rows("runs", f"flow_id={flow_id}&filtered=1")
        return [row["logical_date"] for row in rows if row["state"] == "success"]

    stage.recovered(f"scheduler killed at {point}", since, lambda: len(runs()) >= days - 1)
    assert stage.is_reached(point)
    stage.all_holds()
    dates = runs()
    assert len(dates) == len(set(dates)), "one run for each date"


@pytest.mark.parametrize("point", OF_TAKING_OVER)
def test_a_scheduler_killed_while_it_takes_over_leaves_that_to_the_next(
    stage: Ground, point: str
) -> None:
    run_id = stage.run("drill_long", seconds=4)
    stage.running(run_id)
    holders = {row["holder_pid"] for row in stage.stack.rows("leases") if row["holder_pid"]}
    since = _kill_at(stage, point)
    for pid in holders:
        stage.stack.signal(pid, signal.SIGKILL)
    stage.stand_by()
    after = stage.run("drill_chain")
    stage.recovered(f"scheduler killed at {point}", since, lambda: stage.ended(run_id, after))
    assert stage.is_reached(point)
    stage.all_holds()
    assert len(stage.attempts(run_id)) == 1, "the running execution was adopted"


@pytest.mark.parametrize("point", OF_WORKER)
def test_a_child_killed_around_its_claim_and_its_finish(stage: Ground, point: str) -> None:
    since = boot_clock_s()
    stage.arm(point)
    run_id = stage.run("drill_chain")
    stage.recovered(f"worker's child killed at {point}", since, lambda: stage.ended(run_id))
    assert stage.is_reached(point)
    stage.all_holds()
    outcomes = [row["outcome"] for row in stage.attempts(run_id)]
    if point == "worker.after_finish":
        assert outcomes == ["success"] * 4, "what was accepted stays accepted"
    else:
        assert sorted(outcomes) == ["success"] * 4 + ["terminated"], "one retry was used"
    ends = {x.attempt_id for x in stage.lines() if x.run_id == run_id and x.what == END}
    assert len(ends) == (5 if point == "worker.before_finish" else 4)


def test_all_schedulers_dead_for_a_while_restart_nothing(stage: Ground) -> None:
    run_id = stage.run("drill_long", seconds=2)
    stage.running(run_id)
    after = stage.run("drill_chain")
    holders = [row["pid"] for row in stage.stack.rows("jobs") if row["kind"] == "scheduler"]
    since = boot_clock_s()
    for pid in holders:
        stage.stack.signal(pid, signal.SIGKILL)
    stage.stack.wait_for(
        "the worker's report is accepted without any scheduler",
        lambda: stage.attempts(run_id)[0]["is_accepted"],
        within_s=60,
    )
    stage.stand_by()
    stage.recovered("all schedulers killed together", since, lambda: stage.ended(run_id, after))
    stage.all_holds()
    assert len(stage.attempts(run_id)) == 1
    assert len(stage.attempts(after)) == 4


def test_a_triggerer_that_stands_still_for_two_ttls_fires_nothing_twice(stage: Ground) -> None:
    (pid,) = stage.stack.pids("triggerer")
    stage.stack.signal(pid, signal.SIGSTOP)
    since = boot_clock_s()
    stage.stack.spawn("triggerer-beside", "triggerer", "--name", "beside")
    runs = [stage.run("drill_wait") for _ in range(3)]
    try:
        stage.recovered("triggerer stopped for two ttls", since, lambda: stage.ended(*runs))
        stage.stack.wait_for(
            "two ttls are over", lambda: boot_clock_s() > since + 2 * stage.ttl_s, within_s=60
        )
    finally:
        stage.stack.signal(pid, signal.SIGCONT)
    later = stage.run("drill_wait")
    stage.stack.wait_for("it goes on", lambda: stage.ended(later), within_s=60)
    stage.all_holds()
    for run_id in (*runs, later):
        resumes = [
            row["resume_index"] for row in stage.attempts(run_id) if row["task_id"] == "wait"
        ]
        assert resumes == [0, 1], "each fired once"


def test_two_workers_of_one_name_are_two_workers(stage: Ground) -> None:
    since = boot_clock_s()
    for number in (1, 2):
        stage.stack.spawn(
            f"twin-{number}", "worker", "--queues", "apart", "--name", "twin", "--concurrency", "2"
        )
    stage.stack.wait_for("both are there", lambda: len(_twins(stage)) == 2, within_s=60)
    stage.stack.wait_for(
        "a warning that two carry one name",
        lambda: stage.rows(
            "SELECT 1 FROM incident WHERE kind = 'same_name' AND subject = 'worker twin'"
        ),
        within_s=60,
    )
    runs = [stage.run("drill_apart", seconds=0.5) for _ in range(4)]
    stage.recovered("two workers of one name", since, lambda: stage.ended(*runs))
    stage.all_holds()
    jobs = {row["worker_job_id"] for run_id in runs for row in stage.attempts(run_id)}
    assert _twins(stage) <= jobs, "both worked, each under its own id"


def _twins(stage: Ground) -> set[str]:
    """Jobs of that name whose loop got on."""
    return {
        row["id"]
        for row in stage.stack.rows("jobs")
        if row["name"] == "twin" and row["progress_at"] > row["started_at"]
    }
