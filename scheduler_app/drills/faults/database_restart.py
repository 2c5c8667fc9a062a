"""The database dies three ways under load: killed, shut down at once, and without flushing."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Final

from scheduler_app.drills.ledger import START, boot_clock_s
from scheduler_app.drills.stage import BUSY_S, HEALED_WITHIN_S, Drill

if TYPE_CHECKING:
    from scheduler_app.drills.stage import Stage

NAME: Final = "PostgreSQL"
RESTART_S: Final = 10.0  # the supervisor's, with crash recovery
BREAK_S: Final = 5.0  # the longest pause of a process that waits for the database
LONG_S: Final = 8.0  # an execution that outlives the database
WAYS: Final = (
    (signal.SIGKILL, "got SIGKILL"),
    (signal.SIGINT, "was shut down (SIGINT, the fast way)"),
    (signal.SIGQUIT, "was ended at once (SIGQUIT, the immediate way)"),
)


def play(stage: Stage) -> None:
    """See the module."""
    stack = stage.stack
    with stage.load("drill_fan", "drill_chain", "drill_wait", "drill_retry"):
        stack.wait_for("the load runs", lambda: len(stage.lines()) > 10, within_s=HEALED_WITHIN_S)
        for number, told in WAYS:
            stage.running(stage.run("drill_long", seconds=LONG_S))
            stage.note_accepted()
            pid, before = stack.pid(NAME), stack.incarnations(NAME)
            since = boot_clock_s()
            stack.signal(pid, number)
            stage.fault(f"PostgreSQL (process {pid}) {told}, while a task of {LONG_S:g} s runs")
            stack.wait_for(
                "the supervisor brings it back",
                lambda before=before: stack.incarnations(NAME) > before,  # type: ignore[misc]
                within_s=HEALED_WITHIN_S,
            )
            back = boot_clock_s()
            stage.say(f"the supervisor brought it back, {back - since:.1f} s after the fault")
            took = stage.measure(
                f"user code starts again after {number.name}",
                since,
                lambda back=back: any(  # type: ignore[misc]
                    line.what == START and line.at > back for line in stage.lines()
                ),
            )
            stage.within(f"back after {number.name}", took, RESTART_S + BREAK_S + 2 * BUSY_S)
    stage.settle()
    lost = [
        row["id"]
        for row in stack.rows("attempts", "filtered=1")
        if row["outcome"] in {"lost", "terminated"}
    ]
    stage.expect(
        "no execution was given up because the database was away",
        expected="0 attempts lost or terminated",
        seen=f"{len(lost)} attempts",
        holds=not lost,
        named=tuple(lost[:5]),
    )


DRILL: Final = Drill(
    name="database-restart",
    summary="the database is killed, shut down and ended at once under load, and comes back",
    play=play,
)
