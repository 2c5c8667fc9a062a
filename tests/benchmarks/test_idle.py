"""W6: what a whole stack costs that has nothing to do."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.benchmarks import processes
from tests.benchmarks.page import Row

if TYPE_CHECKING:
    from tests.benchmarks.bench import Bench

SECONDS: Final = 60.0
CALM_S: Final = 15.0  # after which nothing of what went before is left to do
CPU_PERCENT_MAX: Final = 3.0
PSS_MIB_MAX: Final = 400.0


def test_w6_idle(bench: Bench, table: list[Row]) -> None:
    time.sleep(CALM_S)
    parts = _parts(bench.pid)
    before = {name: sum(map(processes.own_cpu_s, pids)) for name, pids in parts.items()}
    whole = bench.cpu_s()
    time.sleep(SECONDS)
    share = 100 * (bench.cpu_s() - whole) / SECONDS
    pss = processes.pss_mib(bench.pid)
    told = []
    for name, pids in parts.items():
        used = 100 * (sum(map(processes.own_cpu_s, pids)) - before[name]) / SECONDS
        told.append(f"{name} {used:.1f} % {sum(map(processes.own_pss_mib, pids)):.0f} MiB")
    table.append(
        Row(
            name="W6",
            what=f"idle for {SECONDS:.0f} s, all processes ({'; '.join(told)})",
            measured=f"{share:.1f} % of a core, {pss:.0f} MiB PSS",
            goal=f"under {CPU_PERCENT_MAX:.0f} % and {PSS_MIB_MAX:.0f} MiB",
            is_met=share < CPU_PERCENT_MAX and pss < PSS_MIB_MAX,
        )
    )


def _parts(root: int) -> dict[str, list[int]]:
    """The processes of the stack by what they are."""
    found: dict[str, list[int]] = {}
    for pid in processes.tree(root):
        found.setdefault(_part(pid), []).append(pid)
    return dict(sorted(found.items()))


def _part(pid: int) -> str:
    name = processes.name_of(pid)
    if name in ("postgres", "valkey-server"):
        return name.partition("-")[0]
    words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
    return next(
        (words[at + 1] for at, word in enumerate(words) if word.endswith("manage.py")), name
    )
