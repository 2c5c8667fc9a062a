"""The broker dies with messages in its queue, and is emptied with messages in its queue."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any, Final

import redis

from scheduler_app.drills.ledger import START, boot_clock_s
from scheduler_app.drills.stage import BUSY_S, HEALED_WITHIN_S, Drill

if TYPE_CHECKING:
    from collections.abc import Callable

    from scheduler_app.drills.stage import Stage

SLOTS: Final = 2
BUSY_TASK_S: Final = 3.0
WAITING_MIN: Final = 6


def play(stage: Stage) -> None:
    """See the module."""

    def kill() -> str:
        pid = stage.stack.pid("Valkey")
        stage.stack.signal(pid, signal.SIGKILL)
        return f"Valkey (process {pid}) got SIGKILL"

    def empty() -> str:
        redis.Redis.from_url(stage.stack.addresses.broker_url).flushall()
        return "Valkey was emptied"

    _lose_messages(stage, "killed", kill)
    _lose_messages(stage, "emptied", empty)


def _lose_messages(stage: Stage, how: str, lose: Callable[[], str]) -> None:
    for _ in range(SLOTS):
        stage.running(stage.run("drill_long", seconds=BUSY_TASK_S))
    runs = [stage.run("drill_fan"), stage.run("drill_chain"), stage.run("drill_fan")]
    waiting = stage.stack.wait_for(
        "messages wait in the queue", lambda: _waiting(stage, runs), within_s=HEALED_WITHIN_S
    )
    stage.note_accepted()
    since = boot_clock_s()
    stage.fault(f"{lose()} with {len(waiting)} messages that nobody had taken")
    took = stage.measure(
        f"every attempt whose message was lost with the {how} broker has started",
        since,
        lambda: waiting <= {line.attempt_id for line in stage.lines() if line.what == START},
    )
    # Two rounds of the queued timeout: one that finds the broker away, one that is heard.
    stage.within(f"published again ({how})", took, 4 * stage.ttl_s + BUSY_TASK_S + 2 * BUSY_S)
    again = [row for run_id in runs for row in stage.attempts(run_id) if row["id"] in waiting]
    stage.equal(
        f"the same attempts were published again ({how})",
        expected=f"{len(waiting)} with dispatch 1",
        seen=f"{sum(row['publish_count'] > 1 and row['dispatch_no'] == 1 for row in again)}"
        " with dispatch 1",
    )


def _waiting(stage: Stage, runs: list[str]) -> set[str]:
    """Attempts whose message waits, once there are enough of them."""
    rows: list[dict[str, Any]] = [row for run_id in runs for row in stage.attempts(run_id)]
    found = {row["id"] for row in rows if row["state"] == "issued" and row["published_at"]}
    return found if len(found) >= WAITING_MIN else set()


DRILL: Final = Drill(
    name="broker-loss",
    summary="the broker is killed, and emptied, with messages in its queue",
    play=play,
    flags=("--concurrency", str(SLOTS)),
)
