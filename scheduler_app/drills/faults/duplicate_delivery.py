"""The broker delivers the same messages several times: at once, out of order, and late."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import redis

from scheduler_app.drills.checker import TERMINAL
from scheduler_app.drills.ledger import boot_clock_s
from scheduler_app.drills.stage import BUSY_S, HEALED_WITHIN_S, Drill
from scheduler_app.executors.celery import broker_queue

if TYPE_CHECKING:
    from scheduler_app.drills.stage import Stage

SLOTS: Final = 2
BUSY_TASK_S: Final = 3.0
TASKS: Final = 6  # of one fan
COPIES: Final = 3  # beside the original
QUEUE: Final = broker_queue("default")


def play(stage: Stage) -> None:
    """See the module."""
    broker: Any = redis.Redis.from_url(stage.stack.addresses.broker_url)
    for _ in range(SLOTS):
        stage.running(stage.run("drill_long", seconds=BUSY_TASK_S))
    run_id = stage.run("drill_fan")

    def waiting() -> list[bytes]:
        ids = {row["id"] for row in stage.attempts(run_id)}
        found = [raw for raw in broker.lrange(QUEUE, 0, -1) if _attempt_of(raw) in ids]
        return found if len(found) == TASKS else []

    messages = stage.stack.wait_for(
        "the messages of a run wait in the queue", waiting, within_s=HEALED_WITHIN_S
    )
    for _ in range(COPIES):
        for raw in reversed(messages):
            broker.lpush(QUEUE, raw)
    since = boot_clock_s()
    stage.fault(f"{len(messages)} messages were copied {COPIES} times each, in reverse order")
    _expect_refusals(stage, run_id, COPIES * TASKS, "at once", since)
    stage.stack.wait_for(
        "the run has ended",
        lambda: any(
            row["run_id"] == run_id and row["state"] in TERMINAL for row in stage.stack.rows("runs")
        ),
        within_s=HEALED_WITHIN_S,
    )
    stage.note_accepted()
    for raw in messages:
        broker.lpush(QUEUE, raw)
    since = boot_clock_s()
    stage.fault(f"the same {len(messages)} messages came once more after the run had ended")
    _expect_refusals(stage, run_id, (COPIES + 1) * TASKS, "late", since)
    starts = Counter(line.attempt_id for line in stage.starts_of(run_id))
    stage.equal(
        "user code of each attempt started once",
        expected=f"{TASKS} starts of {TASKS} attempts",
        seen=f"{starts.total()} starts of {len(starts)} attempts",
    )


def _expect_refusals(stage: Stage, run_id: str, number: int, when: str, since: float) -> None:
    def refused() -> Counter[str]:
        return Counter(
            row["verdict_code"]
            for row in stage.stack.rows("executor-events", "filtered=1")
            if row["run_id"] == run_id and row["kind"] == "delivery_refused"
        )

    took = stage.measure(
        f"{number} deliveries are refused",
        since,
        lambda: refused().total() >= number,
    )
    stage.within(f"refused {when}", took, BUSY_TASK_S + 2 * BUSY_S)
    stage.equal(
        f"each further delivery {when} is a record with its reason",
        expected=f"duplicate_delivery {number}",
        seen=", ".join(f"{code} {n}" for code, n in refused().items()),
    )


def _attempt_of(raw: bytes) -> str:
    return str(json.loads(raw)["headers"]["id"])


DRILL: Final = Drill(
    name="duplicate-delivery",
    summary="the same messages are delivered several times: at once, out of order, and late",
    play=play,
    flags=("--concurrency", str(SLOTS)),
)
