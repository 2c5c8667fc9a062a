"""What a drill plays on: its stack, its load, its findings and the clock of its progress lines."""

from __future__ import annotations

import threading
import time
import urllib.error
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from scheduler_app.drills import checker, ledger
from scheduler_app.drills.checker import Finding
from scheduler_app.drills.report import Report
from scheduler_app.drills.stack import DrillFailed, Stack

if TYPE_CHECKING:
    from argparse import ArgumentParser
    from collections.abc import Callable, Iterator, Mapping

    from scheduler_app.drills.ledger import Line

HEALED_WITHIN_S: Final = 90.0  # after the last fault; a busy machine needs most of it
BUSY_S: Final = 10.0  # what a busy machine may add to a bound
QUIET_S: Final = 1.5  # without a line in the ledger
CONFLICT: Final = 409
PAUSE_S: Final = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Drill:
    """One kind of damage: what it is called, how its stack is set up, and how it is played."""

    name: str
    summary: str  # a sentence without its end
    play: Callable[[Stage], None]
    flags: tuple[str, ...] = ()  # of `up`
    environment: Mapping[str, str] = field(default_factory=dict)
    points: Mapping[str, str] = field(
        default_factory=dict
    )  # failpoints and what they do once armed
    ttl_s: float = 3.0  # of leases; every other term follows from it
    arguments: Callable[[ArgumentParser], None] | None = None  # of its own, read from stage.options


class Stage:
    """One drill under way."""

    def __init__(
        self,
        drill: Drill,
        stack: Stack,
        *,
        ttl_s: float,
        options: Mapping[str, Any],
        say: Callable[[str], None],
    ) -> None:
        self.stack = stack
        self.options = options
        self.heal_within_s = HEALED_WITHIN_S
        self.ttl_s = ttl_s
        self.dead_after_s = ttl_s * 4 / 3  # the product's own derivation, as its documents say
        self.report = Report(drill=drill.name, summary=drill.summary, ttl_s=ttl_s)
        self.started: list[tuple[str, str]] = []  # runs that were asked for
        self._say = say
        self._began = time.monotonic()
        self._accepted: dict[str, str] = {}
        self._number = 0
        self._lock = threading.Lock()

    # -- telling ------------------------------------------------------------------------------

    def say(self, text: str) -> None:
        """A line of progress."""
        self._say(f"[{time.monotonic() - self._began:5.1f} s] {text}")

    def fault(self, text: str) -> None:
        """This damage is done now."""
        self.say(text)
        self.report.faults.append(text)

    def expect(
        self, what: str, *, expected: object, seen: object, holds: bool, named: tuple[str, ...] = ()
    ) -> None:
        """A finding of this drill alone."""
        self.report.findings.append(
            Finding(what=what, expected=str(expected), seen=str(seen), holds=holds, named=named)
        )

    def equal(self, what: str, *, expected: object, seen: object) -> None:
        """A finding that holds if both are the same."""
        self.expect(what, expected=expected, seen=seen, holds=expected == seen)

    # -- load ---------------------------------------------------------------------------------

    def run(self, flow_id: str, *, seconds: float | None = None) -> str:
        """A run of this flow was asked for; its run id. Bears answers that are lost."""
        with self._lock:
            self._number += 1
            run_id = f"drill-{self._number}"
        body: dict[str, Any] = {"run_id": run_id, "note": "made by a fire drill"}
        if seconds is not None:
            body["conf"] = {"seconds": seconds}

        def ask() -> bool:
            try:
                self.stack.api("POST", f"/api/v1/flows/{flow_id}/runs/", body)
            except urllib.error.HTTPError as error:
                if error.code != CONFLICT:  # else the answer of an earlier try was lost
                    raise
            return True

        self.stack.wait_for(
            f"run {run_id} of {flow_id} is taken", ask, within_s=HEALED_WITHIN_S, every_s=PAUSE_S
        )
        self.started.append((flow_id, run_id))
        return run_id

    @contextmanager
    def load(self, *flow_ids: str, every_s: float = 1.0) -> Iterator[None]:
        """Runs of these flows are asked for, one after the other, as long as the block lasts."""
        stopping = threading.Event()

        def ask_for_ever() -> None:
            turn = 0
            while not stopping.is_set():
                try:
                    self.run(flow_ids[turn % len(flow_ids)])
                except DrillFailed as error:
                    self.say(str(error))
                turn += 1
                stopping.wait(every_s)

        thread = threading.Thread(target=ask_for_ever, name="load", daemon=True)
        thread.start()
        try:
            yield
        finally:
            stopping.set()
            thread.join(HEALED_WITHIN_S)

    # -- looking ------------------------------------------------------------------------------

    def lines(self) -> tuple[Line, ...]:
        """The ledger as it is now."""
        return ledger.read(self.stack.folder)

    def starts_of(self, run_id: str) -> list[Line]:
        """Executions of this run that have begun."""
        return [x for x in self.lines() if x.run_id == run_id and x.what == ledger.START]

    def running(self, run_id: str) -> Line:
        """The newest execution of this run, once there is one."""
        return self.stack.wait_for(
            f"an execution of {run_id}",
            lambda: self.starts_of(run_id)[-1:],
            within_s=HEALED_WITHIN_S,
        )[0]

    def attempts(self, run_id: str) -> list[dict[str, Any]]:
        """Attempts of this run, filtered ones too, oldest first."""
        rows = [row for row in self.stack.rows("attempts", "filtered=1") if row["run_id"] == run_id]
        return sorted(rows, key=lambda row: row["fence"])

    def note_accepted(self) -> None:
        """What is accepted now must be accepted in the end."""
        for row in self.stack.rows("attempts", "filtered=1"):
            if row["is_accepted"]:
                self._accepted[row["id"]] = row["outcome"]

    def measure(self, what: str, since: float, condition: Callable[[], Any]) -> float:
        """Seconds from ``since`` (boot clock) until the condition holds; kept in the report."""
        self.stack.wait_for(what, condition, within_s=HEALED_WITHIN_S)
        took = ledger.boot_clock_s() - since
        self.report.recovered_s[what] = took
        self.say(f"{what}, {took:.1f} s after the fault")
        return took

    def within(self, what: str, took: float, at_most_s: float) -> None:
        """A finding on a time that was measured."""
        self.expect(
            f"{what} in time",
            expected=f"at most {at_most_s:.0f} s",
            seen=f"{took:.1f} s",
            holds=took <= at_most_s,
        )

    # -- the end ------------------------------------------------------------------------------

    def settle(self) -> None:
        """Every run that was asked for has ended and every event is judged, or time is over."""
        self.say(f"waiting for {len(self.started)} runs to end")
        try:
            self.stack.wait_for("every run has ended", self.is_settled, within_s=self.heal_within_s)
        except DrillFailed as error:
            self.say(str(error))  # the findings name the runs

    def is_settled(self) -> bool:
        """Whether every run that was asked for has ended, every event is judged, nobody writes."""
        ended = {
            (row["flow_id"], row["run_id"])
            for row in self.stack.rows("runs")
            if row["state"] in checker.TERMINAL
        }
        if not ended.issuperset(self.started):
            return False
        pending = self.stack.api("GET", "/api/v1/executor-events/?verdict=pending&limit=1")
        return not pending["counts"]["shown"] and self._is_quiet()

    def _is_quiet(self) -> bool:
        """Whether nobody writes any more: what was stopped went on and said its last word."""
        lines = self.lines()
        newest = max((line.at for line in lines), default=0.0)
        stopped = any(self.stack.is_stopped(pid) for pid in {line.pid for line in lines})
        return not stopped and ledger.boot_clock_s() - newest > QUIET_S

    def check(self) -> list[Finding]:
        """What every drill checks, now; the numbers are in the report."""
        lines, bank = self.lines(), ledger.read_bank(self.stack.folder)
        shown = self.stack.shown()
        self.report.numbers = {
            "started": sum(line.what == ledger.START for line in lines),
            "accepted": sum(bool(row["is_accepted"]) for row in shown.attempts),
            "refused": sum(row["verdict"] in {"refused", "ignored"} for row in shown.events),
            "written": len(bank.written),
            "not taken": len(bank.refused),
            "shown": sum(counted.shown for counted in shown.lists.values()),
            "filtered": sum(counted.filtered for counted in shown.lists.values()),
        }
        return checker.check(
            lines, shown, bank, started=self.started, accepted_before=self._accepted
        )

    def judge(self) -> None:
        """The findings that every drill shares are in the report, and the numbers."""
        self.say("comparing the ledger, the bank and what the API shows")
        self.report.findings += self.check()
        audit = self.stack.manage("audit", "visibility")
        said = (audit.stdout.strip() or audit.stderr.strip()).splitlines()
        self.expect(
            "every standing follows from the facts",
            expected="0 differences",
            seen=said[-1].rpartition(": ")[2].rstrip(".") if said else "no answer",
            holds=audit.returncode == 0,
            named=() if audit.returncode == 0 else tuple(said[:-1][: checker.NAMED_MAX]),
        )
        self.report.seconds = time.monotonic() - self._began
