"""Workers whose wall clock is off by five minutes, one fast and one slow."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from scheduler_app.drills import ledger
from scheduler_app.drills.checker import TERMINAL
from scheduler_app.drills.stage import HEALED_WITHIN_S, Drill

if TYPE_CHECKING:
    from scheduler_app.drills.stage import Stage

OFF_S: Final = 300.0
EXACT_S: Final = 5.0  # how well a clock's being off is told from a line of the ledger
SKEW: Final = Path(__file__).parents[1] / "skew"
RUNS: Final = 4


def play(stage: Stage) -> None:
    """See the module."""
    stage.report.notes.append(
        "The clock is off for Python code (time.time, datetime.now and their kin), user code"
        " included; libraries in C that ask the kernel see the true time."
    )
    for name, off_s in (("fast", OFF_S), ("slow", -OFF_S)):
        stage.stack.spawn(
            f"worker-{name}",
            *("worker", "--queues", "apart", "--name", name, "--concurrency", "2"),
            environment={"PYTHONPATH": str(SKEW), "DRILL_CLOCK_OFF_S": f"{off_s:g}"},
        )
        stage.fault(f"a worker {name!r} was started whose clock is off by {off_s:+g} s")
    # Longer than a silent worker is believed to be alive: its beats must count.
    long_s = stage.dead_after_s * 1.5
    runs = [stage.run("drill_apart", seconds=long_s)]
    runs += [stage.run("drill_apart") for _ in range(RUNS)]
    stage.stack.wait_for(
        "every run has ended",
        lambda: (
            set(runs)
            <= {row["run_id"] for row in stage.stack.rows("runs") if row["state"] in TERMINAL}
        ),
        within_s=HEALED_WITHIN_S,
    )
    true_off_s = time.time() - ledger.boot_clock_s()
    offs = [line.wall - line.at - true_off_s for line in stage.lines() if line.what == ledger.START]
    fast = sum(abs(off - OFF_S) < EXACT_S for off in offs)
    slow = sum(abs(off + OFF_S) < EXACT_S for off in offs)
    stage.expect(
        "user code saw a clock that is off",
        expected=f"{len(offs)} of {len(offs)}, on both workers",
        seen=f"{fast} fast and {slow} slow of {len(offs)}",
        holds=bool(fast and slow) and fast + slow == len(offs),
    )
    attempts = [row for run_id in runs for row in stage.attempts(run_id)]
    given_up = [row["id"] for row in attempts if row["outcome"] in {"lost", "terminated"}]
    stage.equal("no execution was given up", expected=0, seen=len(given_up))
    now = time.time()
    odd = [row["id"] for row in attempts if not _is_sane(row, now)]
    stage.expect(
        "every time that is shown is the database's",
        expected=f"0 of {len(attempts)} out of order",
        seen=f"{len(odd)} of {len(attempts)}",
        holds=not odd,
        named=tuple(odd[:5]),
    )


def _is_sane(row: dict[str, str], now: float) -> bool:
    """Issued, started and ended in this order, and none of it minutes away from now."""
    times = [ledger.seconds_of(row[name]) for name in ("issued_at", "started_at", "ended_at")]
    return times == sorted(times) and now - 2 * HEALED_WITHIN_S < times[0] and times[-1] < now + 1


DRILL: Final = Drill(
    name="clock-skew",
    summary="the clocks of two workers are off by five minutes, one fast and one slow",
    play=play,
)
