"""The leader stalls in mid-decision, a standby takes over, the leader wakes and goes on from memory."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING, Any, Final

from scheduler_app.drills.ledger import START, boot_clock_s
from scheduler_app.drills.stage import BUSY_S, HEALED_WITHIN_S, Drill

if TYPE_CHECKING:
    from scheduler_app.drills.stage import Stage

POINT: Final = "tick.before_proof"
SCHEDULERS: Final = 2
TICK_S: Final = 2.0  # until a standby looks for leases that ran out
TRANSACTION_S: Final = 4.0  # an open transaction of the stalled one is ended by then


def play(stage: Stage) -> None:
    """See the module."""
    stack = stage.stack
    stack.wait_for(
        "both schedulers hold shards",
        lambda: len(set(_holders(stage).values())) == SCHEDULERS,
        within_s=HEALED_WITHIN_S,
    )
    stage.say("two schedulers share the shards")
    with stage.load("drill_fan", "drill_chain", "drill_wait", "drill_retry"):
        stack.wait_for("the load runs", lambda: len(stage.lines()) > 20, within_s=HEALED_WITHIN_S)
        stage.note_accepted()
        (
            stack.once / POINT
        ).unlink()  # armed: whoever decides next stops itself just before its write
        stalled = stack.wait_for(
            "a leader stands still",
            lambda: [pid for pid in stack.pids("scheduler") if stack.is_stopped(pid)],
            within_s=HEALED_WITHIN_S,
        )[0]
        since = boot_clock_s()
        before = {
            row["shard"]: row["token"]
            for row in stack.rows("leases")
            if row["holder_pid"] == stalled
        }
        stage.fault(
            f"scheduler (process {stalled}) got SIGSTOP after it had decided and before it wrote;"
            f" it holds {len(before)} of {len(_holders(stage))} shards"
        )
        took = stage.measure(
            "another holds every shard of the stalled leader",
            since,
            lambda: not set(before) & {s for s, pid in _holders(stage).items() if pid == stalled},
        )
        stage.within("take-over", took, stage.ttl_s + TICK_S + TRANSACTION_S + BUSY_S)
        taken = {row["shard"]: row["token"] for row in stack.rows("leases")}
        stage.equal(
            "each of its shards has a greater token",
            expected=len(before),
            seen=sum(taken[shard] > token for shard, token in before.items()),
        )
        took = stage.measure(
            "user code starts again in those shards",
            since,
            lambda: _starts_under(stage, before),
        )
        time.sleep(max(0.0, since + 2 * stage.ttl_s - boot_clock_s()))
        stage.fault(f"it got SIGCONT {boot_clock_s() - since:.1f} s later, and goes on from memory")
        stack.signal(stalled, signal.SIGCONT)
        refused = stack.wait_for(
            "its write is refused",
            lambda: _refused(stage, before),
            within_s=HEALED_WITHIN_S,
        )
    one = refused[0]["detail"]
    stage.expect(
        "the first write of the old leader is refused and recorded",
        expected="fenced_write, token presented < token current",
        seen=f"{len(refused)} recorded, {one['token_presented']} < {one['token_current']}",
        holds=all(
            row["detail"]["token_presented"] < row["detail"]["token_current"] for row in refused
        ),
    )


def _holders(stage: Stage) -> dict[int, int]:
    """The pid that holds each shard."""
    return {
        row["shard"]: row["holder_pid"] for row in stage.stack.rows("leases") if row["holder_pid"]
    }


def _starts_under(stage: Stage, before: dict[int, int]) -> bool:
    """Whether an attempt of a new term of these shards began."""
    started = {line.attempt_id for line in stage.lines() if line.what == START}
    return any(
        row["id"] in started and row["lease_token"] > before[row["shard"]]
        for row in stage.stack.rows("attempts", "filtered=1")
        if row["shard"] in before
    )


def _refused(stage: Stage, before: dict[int, int]) -> list[dict[str, Any]]:
    return [
        row
        for row in stage.stack.rows("lease-events")
        if row["kind"] == "fenced_write" and before.get(row["shard"]) == row["token"]
    ]


DRILL: Final = Drill(
    name="failover",
    summary="a leader stalls in mid-decision for two ttls, a standby takes over, the leader wakes",
    play=play,
    flags=("--schedulers", str(SCHEDULERS)),
    points={POINT: "stop@*"},
    ttl_s=5.0,
)
