"""Random faults over a mixed load, from a schedule that a seed gives again."""

from __future__ import annotations

import json
import random
import signal
import time
import urllib.error
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

import redis

from scheduler_app.drills.ledger import START, boot_clock_s
from scheduler_app.drills.stack import DrillFailed
from scheduler_app.drills.stage import HEALED_WITHIN_S, Drill
from scheduler_app.executors.celery import broker_queue

if TYPE_CHECKING:
    from argparse import ArgumentParser
    from collections.abc import Callable

    from scheduler_app.drills.stage import Stage

T = TypeVar("T")

GAP_S: Final = (2.0, 7.0)  # between two faults
ACCEPTED_EVERY_S: Final = 5.0
HEAL_WITHIN_S: Final = 240.0  # a process that exited often is started again after a pause of 30 s
MINUTES: Final = 10.0
SCHEDULERS: Final = 2
TRIGGERERS: Final = 2
QUEUE: Final = broker_queue("default")
COPIES_MAX: Final = 3
# Points in the product's own code, quiet until the schedule arms them.
POINTS: Final = {
    "tick.before_proof": "stop@*",
    "tick.before_commit": "kill@*",
    "tick.after_commit": "kill@*",
    "create.after_commit": "kill@*",
    "publish.before": "kill@*",
    "publish.after": "kill@*",
    "worker.after_claim": "kill@*",
    "worker.before_finish": "kill@*",
    "worker.after_finish": "kill@*",
    "triggerer.before_fire": "kill@*",
    "triggerer.after_fire": "kill@*",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """One fault of a schedule."""

    at_s: float  # from the start of the load
    kind: str
    pick: float  # from 0 to 1: which of the processes, messages or points


def plan(seed: int, seconds: float) -> list[Planned]:
    """The schedule that this seed gives for so long; the same each time."""
    chance = random.Random(seed)  # noqa: S311 - to be repeated, not to be secret
    kinds, weights = zip(*((kind, weight) for kind, (weight, _) in KINDS.items()), strict=True)
    planned = []
    at_s = chance.uniform(*GAP_S)
    while at_s < seconds:
        (kind,) = chance.choices(kinds, weights)
        planned.append(Planned(at_s=round(at_s, 3), kind=kind, pick=round(chance.random(), 6)))
        at_s += chance.uniform(*GAP_S)
    return planned


class Chaos:
    """One run of the schedule."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.stack = stage.stack
        self.later: list[tuple[float, Callable[[], None]]] = []  # boot clock, what to do then
        self.done: list[tuple[float, str]] = []
        self._beside = 0
        self._kept: list[bytes] = []  # messages seen in the queue, to be delivered late

    def play(self, planned: list[Planned], seconds: float) -> None:
        """Every fault came in its time, and what was stopped goes on."""
        began = boot_clock_s()
        self.start_worker()
        waiting = [*planned]
        next_look = began
        while boot_clock_s() < began + seconds or self.later:
            now = boot_clock_s()
            for due in [entry for entry in self.later if entry[0] <= now]:
                self.later.remove(due)
                due[1]()
            if waiting and began + waiting[0].at_s <= now:
                self.do(waiting.pop(0))
            if now >= next_look:
                next_look = now + ACCEPTED_EVERY_S
                self.look()
            time.sleep(0.05)

    def do(self, one: Planned) -> None:
        """The fault is done, or there was nothing to do it to."""
        what = KINDS[one.kind][1](self, one.pick)
        if what:
            self.done.append((boot_clock_s(), one.kind))
            self.stage.fault(f"{one.kind}: {what}")

    def look(self) -> None:
        """What is accepted now, and messages for later; a server that is away is no matter."""
        try:
            self.stage.note_accepted()
            self._kept += [*self.broker().lrange(QUEUE, 0, COPIES_MAX)]
        except (OSError, urllib.error.HTTPError, redis.RedisError):
            return

    def broker(self) -> Any:
        """A client of the broker."""
        return redis.Redis.from_url(self.stack.addresses.broker_url, socket_timeout=2)

    # -- kinds of faults ----------------------------------------------------------------------

    def start_worker(self) -> None:
        """A worker beside the supervisor's; nobody but us starts it again."""
        self._beside = self.stack.spawn(
            "worker-beside", "worker", "--name", "beside", "--concurrency", "2"
        )

    def workers(self) -> list[int]:
        """Main processes of workers."""
        return [*self.stack.pids("worker"), self._beside]

    def kill(self, pids: list[int], pick: float) -> str:
        """One of them got SIGKILL."""
        pid = _picked(pids, pick)
        if pid is None or not self.stack.signal(pid, signal.SIGKILL):
            return ""
        if pid == self._beside:
            self.start_worker()
        return f"process {pid} got SIGKILL"

    def kill_child(self, pick: float) -> str:
        """A child of a worker got SIGKILL."""
        return self.kill(
            [pid for main in self.workers() for pid in self.stack.family(main)[1:]], pick
        )

    def stop(self, pids: list[int], pick: float, seconds: float, *, whole: bool = False) -> str:
        """One of them stood still for so long."""
        pid = _picked([pid for pid in pids if not self.stack.is_stopped(pid)], pick)
        if pid is None:
            return ""
        stopped = self.stack.family(pid) if whole else [pid]
        for each in stopped:
            self.stack.signal(each, signal.SIGSTOP)

        def go_on() -> None:
            for each in stopped:
                self.stack.signal(each, signal.SIGCONT)
            self.stage.say(f"process {pid} got SIGCONT")

        self.later.append((boot_clock_s() + seconds, go_on))
        return f"process {pid} got SIGSTOP for {seconds:g} s"

    def arm(self, pick: float) -> str:
        """The next process that reaches the point is killed or stopped there."""
        point = _picked(sorted(POINTS), pick)
        assert point is not None, "there are points"
        (self.stack.once / point).unlink(missing_ok=True)
        if POINTS[point].startswith("stop"):
            self.later.append((boot_clock_s() + 2 * self.stage.ttl_s, self.wake_all))
        return f"the next at {point} gets {POINTS[point].partition('@')[0]}"

    def wake_all(self) -> None:
        """No scheduler stands still at a point."""
        for pid in self.stack.pids("scheduler"):
            if self.stack.is_stopped(pid):
                self.stack.signal(pid, signal.SIGCONT)
                self.stage.say(f"process {pid} got SIGCONT")

    def empty(self, pick: float) -> str:
        """The broker lost its messages."""
        del pick
        try:
            self.broker().flushall()
        except redis.RedisError:
            return ""
        return "the broker was emptied"

    def deliver(self, pick: float) -> str:
        """Messages of before, and of now, come again."""
        try:
            broker = self.broker()
            self._kept += broker.lrange(QUEUE, 0, COPIES_MAX)
            again = [
                raw for raw in (_picked(self._kept, (pick * n) % 1) for n in (1, 7, 11)) if raw
            ]
            for raw in again:
                broker.lpush(QUEUE, raw)
        except redis.RedisError:
            return ""
        ids = ", ".join(json.loads(raw)["headers"]["id"] for raw in again)
        return f"attempts {ids}" if again else ""

    def end_database(self, pick: float) -> str:
        """The database ended in one of three ways."""
        how = _picked([signal.SIGKILL, signal.SIGINT, signal.SIGQUIT], pick)
        assert how is not None, "there are three"
        pid = self.stack.pid("PostgreSQL")
        return f"PostgreSQL (process {pid}) got {how.name}" if self.stack.signal(pid, how) else ""

    def kill_schedulers(self, pick: float) -> str:
        """No scheduler is left for a moment."""
        del pick
        pids = [
            pid for pid in self.stack.pids("scheduler") if self.stack.signal(pid, signal.SIGKILL)
        ]
        return f"processes {', '.join(map(str, pids))} got SIGKILL" if pids else ""


# How often each kind comes, and what it does.
KINDS: Final[dict[str, tuple[int, Callable[[Chaos, float], str]]]] = {
    "scheduler killed": (3, lambda c, p: c.kill(c.stack.pids("scheduler"), p)),
    "schedulers killed": (1, Chaos.kill_schedulers),
    "scheduler stopped": (3, lambda c, p: c.stop(c.stack.pids("scheduler"), p, 2 * c.stage.ttl_s)),
    "failpoint armed": (8, Chaos.arm),
    "worker killed": (2, lambda c, p: c.kill(c.workers(), p)),
    "worker stopped": (
        2,
        lambda c, p: c.stop(c.workers(), p, 2 * c.stage.dead_after_s, whole=True),
    ),
    "child killed": (3, Chaos.kill_child),
    "triggerer killed": (1, lambda c, p: c.kill(c.stack.pids("triggerer"), p)),
    "triggerer stopped": (2, lambda c, p: c.stop(c.stack.pids("triggerer"), p, 2 * c.stage.ttl_s)),
    "web killed": (1, lambda c, p: c.kill(c.stack.pids("web"), p)),
    "broker killed": (1, lambda c, p: c.kill(c.stack.pids("Valkey"), p)),
    "broker emptied": (2, Chaos.empty),
    "delivered again": (4, Chaos.deliver),
    "database ended": (2, Chaos.end_database),
}


def play(stage: Stage) -> None:
    """See the module."""
    seconds = 60.0 * float(stage.options["minutes"])
    seed = stage.options["seed"]
    if seed is None:
        seed = random.SystemRandom().randrange(1_000_000)
    planned = plan(seed, seconds)
    stage.report.notes.append(
        f"seed {seed}, {len(planned)} faults planned; again with --seed {seed}"
        f" --minutes {stage.options['minutes']:g}"
    )
    stage.say(stage.report.notes[-1])
    stage.heal_within_s = HEAL_WITHIN_S
    chaos = Chaos(stage)
    with stage.load(
        *("drill_fan", "drill_chain", "drill_wait", "drill_retry", "drill_long"),
        every_s=1.0,
    ):
        stage.stack.wait_for("the load runs", lambda: bool(stage.lines()), within_s=HEALED_WITHIN_S)
        chaos.play(planned, seconds)
    for point in POINTS:  # what was armed and not reached is quiet from now on
        (stage.stack.once / point).touch()
    chaos.wake_all()
    stage.settle()
    _tell_gaps(stage, chaos)
    if len(chaos.done) < len(planned) / 2:
        message = f"Only {len(chaos.done)} of {len(planned)} faults found something to be done to."
        raise DrillFailed(message)


def _tell_gaps(stage: Stage, chaos: Chaos) -> None:
    """For each kind of fault, the longest time until user code started again."""
    starts = sorted(line.at for line in stage.lines() if line.what == START)
    for kind in sorted({kind for _, kind in chaos.done}):
        gaps = [
            next((at for at in starts if at > done_at), done_at) - done_at
            for done_at, done in chaos.done
            if done == kind
        ]
        stage.report.recovered_s[f"{kind} ({len(gaps)} times), longest"] = max(gaps)


def _picked(choices: list[T], pick: float) -> T | None:
    return choices[int(pick * len(choices))] if choices else None


def add_arguments(parser: ArgumentParser) -> None:
    """How long, and which schedule."""
    parser.add_argument(
        "--minutes", type=float, default=MINUTES, help=f"of faults, then it heals ({MINUTES:g})"
    )
    parser.add_argument("--seed", type=int, help="the schedule of faults (chosen and printed)")


DRILL: Final = Drill(
    name="chaos",
    summary="random faults over a mixed load, from a schedule that its seed gives again",
    play=play,
    flags=("--schedulers", str(SCHEDULERS), "--triggerers", str(TRIGGERERS)),
    # Losses are meant here: none of them may use up what a task has.
    environment={"DAYLIGHT_INFRASTRUCTURE_BUDGET": "1000"},
    points=POINTS,
    arguments=add_arguments,
)
