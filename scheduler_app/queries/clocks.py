"""Clocks of the hosts, each held against the database's: told of, never decided by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from scheduler_app.models import Job
from scheduler_app.queries import shown

if TYPE_CHECKING:
    from datetime import datetime

    from scheduler_app.queries.scope import Scope

OFF_S: Final = 5.0  # beyond what the measurement may be off by, a clock is wrong


@dataclass(frozen=True, slots=True, kw_only=True)
class HostClock:
    """The clock of one host, as the process there that measured it most closely has it."""

    hostname: str
    processes: int  # that are alive and have measured it
    ahead_s: float  # of the database's clock; negative: behind
    within_s: float  # what the measurement may be off by
    apart_s: float  # between the processes of the host: containers may have clocks of their own
    at: datetime  # of the newest heartbeat

    @property
    def is_off(self) -> bool:
        """Whether it is wrong by more than ``OFF_S``, for certain."""
        return max(abs(self.ahead_s), self.apart_s) - self.within_s > OFF_S


def clocks(scope: Scope) -> tuple[HostClock, ...]:
    """The clocks of every host with a process that is alive, the wrongest first."""
    rows = scope.shared(
        Job.objects.filter(shown.JOB_ALIVE, ended_at__isnull=True).order_by(
            "hostname", "clock_within_s"
        )
    )
    by_host: dict[str, list[tuple[float, float, datetime]]] = {}
    for hostname, ahead_s, within_s, at in rows.values_list(
        "hostname", "clock_ahead_s", "clock_within_s", "heartbeat_at"
    ):
        if ahead_s is None or within_s is None:
            continue  # the process has just started
        by_host.setdefault(hostname, []).append((ahead_s, within_s, at))
    found = [
        HostClock(
            hostname=hostname,
            processes=len(several),
            ahead_s=several[0][0],
            within_s=several[0][1],
            apart_s=max(one[0] for one in several) - min(one[0] for one in several),
            at=max(one[2] for one in several),
        )
        for hostname, several in by_host.items()
    ]
    return tuple(sorted(found, key=lambda one: (-abs(one.ahead_s), one.hostname)))
