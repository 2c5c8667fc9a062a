"""A task's process is killed, a whole worker is killed, and a worker is stopped for too long."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING, Final

from scheduler_app.drills import ledger
from scheduler_app.drills.ledger import boot_clock_s
from scheduler_app.drills.stage import BUSY_S, HEALED_WITHIN_S, Drill

if TYPE_CHECKING:
    from scheduler_app.drills.stage import Stage

LONG_S: Final = 300.0  # never reached: its process is killed
LATE_S: Final = 3.0  # how long a woken execution may take to say its last word


def play(stage: Stage) -> None:
    """See the module."""
    _start_beside(stage)
    stage.stack.wait_for(
        "two workers take deliveries",
        lambda: len(_workers(stage)) > 1,
        within_s=HEALED_WITHIN_S,
    )
    stage.say("two workers take deliveries")
    with stage.load("drill_fan", "drill_chain", "drill_wait", "drill_retry"):
        _kill_child(stage)
        _kill_worker(stage)
        _stop_worker(stage)


def _start_beside(stage: Stage) -> None:
    """A worker beside the supervisor's; nobody but us starts it again."""
    stage.stack.spawn("worker-beside", "worker", "--name", "beside", "--concurrency", "2")


def _kill_child(stage: Stage) -> None:
    run_id = stage.run("drill_long", seconds=LONG_S)
    line = stage.running(run_id)
    since = boot_clock_s()
    stage.stack.signal(line.pid, signal.SIGKILL)
    stage.fault(f"the process of a task ({line.pid}) got SIGKILL")
    took = _measure_next_start(stage, "the task of the killed process starts again", since, run_id)
    stage.within("another try", took, stage.ttl_s + BUSY_S)
    first = stage.attempts(run_id)[0]
    stage.equal(
        "the killed execution used one of its retries",
        expected=("terminated", "superseded_by_retry"),
        seen=(first["outcome"], first["filter_code"]),
    )


def _kill_worker(stage: Stage) -> None:
    run_id = stage.run("drill_long", seconds=LONG_S)
    worker = stage.stack.parent(stage.running(run_id).pid)
    since = boot_clock_s()
    stage.stack.signal(worker, signal.SIGKILL)
    stage.fault(f"a worker (process {worker}) got SIGKILL, and its children die with it")
    if worker not in stage.stack.pids("worker"):
        _start_beside(stage)
    took = _measure_next_start(stage, "the task of the killed worker starts again", since, run_id)
    stage.within("another dispatch", took, stage.dead_after_s + stage.ttl_s + BUSY_S)
    first, second = stage.attempts(run_id)[:2]
    stage.equal(
        "the lost execution used none of its retries",
        expected=("lost", "lost_worker", 1, 2),
        seen=(
            first["outcome"],
            first["filter_code"],
            second["try_number"],
            second["dispatch_no"],
        ),
    )


def _stop_worker(stage: Stage) -> None:
    stage.stack.wait_for(
        "two workers take deliveries again",
        lambda: len(_workers(stage)) > 1,
        within_s=HEALED_WITHIN_S,
    )
    stop_s = 2 * stage.dead_after_s
    run_id = stage.run("drill_long", seconds=stop_s / 2)
    line = stage.running(run_id)
    worker = stage.stack.parent(line.pid)
    family = stage.stack.family(worker)
    since = boot_clock_s()
    for pid in family:
        stage.stack.signal(pid, signal.SIGSTOP)
    stage.fault(f"a worker (process {worker}) and its {len(family) - 1} children got SIGSTOP")
    took = _measure_next_start(stage, "the task of the stopped worker starts again", since, run_id)
    stage.within("another dispatch", took, stage.dead_after_s + stage.ttl_s + BUSY_S)
    time.sleep(max(0.0, since + stop_s - boot_clock_s()))
    for pid in family:
        stage.stack.signal(pid, signal.SIGCONT)
    stage.fault(f"they got SIGCONT {boot_clock_s() - since:.1f} s later")
    stage.stack.wait_for(
        "the woken execution comes to its end",
        lambda: _is_over(stage, line.attempt_id, since + stop_s),
        within_s=HEALED_WITHIN_S,
    )
    (first,) = (row for row in stage.attempts(run_id) if row["id"] == line.attempt_id)
    stage.equal(
        "the stopped execution is set aside, and its result with it",
        expected=("lost", "lost_worker", False),
        seen=(first["outcome"], first["filter_code"], first["is_accepted"]),
    )
    spoke = any(x.what == ledger.END for x in stage.lines() if x.attempt_id == line.attempt_id)
    refused = [
        w for w in ledger.read_bank(stage.stack.folder).refused if w.attempt_id == line.attempt_id
    ]
    stage.equal(
        "what the woken execution still wrote was refused by its fence",
        expected=f"{int(spoke)} of {int(spoke)}",
        seen=f"{len(refused)} of {int(spoke)}",
    )


def _is_over(stage: Stage, attempt_id: str, woken_at: float) -> bool:
    """Whether the execution said its last word or had the time to, and who asks for it was told."""
    if any(x.what == ledger.END for x in stage.lines() if x.attempt_id == attempt_id):
        return bool(
            [
                row
                for row in stage.stack.rows("executor-events", "filtered=1")
                if row["attempt_id"] == attempt_id and row["kind"] == "late_report"
            ]
        )
    return boot_clock_s() > woken_at + 3 * LATE_S + stage.dead_after_s


def _measure_next_start(stage: Stage, what: str, since: float, run_id: str) -> float:
    before = len(stage.starts_of(run_id))
    return stage.measure(what, since, lambda: len(stage.starts_of(run_id)) > before)


def _workers(stage: Stage) -> list[str]:
    return [
        row["id"]
        for row in stage.stack.rows("jobs")
        if row["kind"] == "worker"
        and stage.stack.is_alive(row["pid"])
        and row["progress_at"] > row["started_at"]
    ]


DRILL: Final = Drill(
    name="worker-loss",
    summary="a task's process is killed, a worker is killed, a worker is stopped for too long",
    play=play,
)
