"""What each execution writes down outside the product, and the bank that it writes to.

Copied into the flow folder of a drill's stack. The ledger is a file of JSON lines, each appended with
one write and synced. In the bank a target keeps the greatest fence that wrote to it, so that an
execution which was replaced while it stalled cannot overwrite its successor. Each target is a database
file of its own: who is stopped in the middle of a write holds up nobody but its own successor.
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scheduler_app.authoring import Context

BUSY_S = 120.0  # a stopped process may hold the bank's lock for a while
SLICE_S = 0.05

SCHEMA = (
    "CREATE TABLE IF NOT EXISTS effect ("
    " target TEXT PRIMARY KEY, fence INTEGER NOT NULL, attempt_id TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS asked ("
    " number INTEGER PRIMARY KEY, fence INTEGER NOT NULL, attempt_id TEXT NOT NULL,"
    " is_taken INTEGER NOT NULL)",
)
# The guard: a write with a smaller fence than the last one's changes no row.
GUARDED = """
INSERT INTO effect (target, fence, attempt_id) VALUES (:target, :fence, :attempt_id)
    ON CONFLICT (target) DO UPDATE SET fence = excluded.fence, attempt_id = excluded.attempt_id
 WHERE excluded.fence > effect.fence
"""


def folder() -> str:
    """Where the ledger and the bank are: beside the flow folder of this stack."""
    return os.environ["DRILL_FOLDER"]


def boot_clock_s() -> float:
    """Seconds since boot: the same in every process of this machine, whatever its wall clock says."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@contextmanager
def execution(ctx: Context, *, seconds: float = 0.0) -> Iterator[None]:
    """One execution: its start and its end are in the ledger, its effect in the bank.

    The end is written only where the block ended as it should, after the effect.
    """
    note(ctx, "start")
    print(f"fence {ctx.fence} has begun")  # its log is part of the load
    sleep(seconds)
    yield
    write_effect(ctx)
    note(ctx, "end")


def sleep(seconds: float) -> None:
    """So long, by the boot clock: a process that was stopped meanwhile goes on at once."""
    until = boot_clock_s() + seconds
    while boot_clock_s() < until:
        time.sleep(SLICE_S)


def is_first(ctx: Context) -> bool:
    """Whether no execution of this task of this run asked before."""
    name = f"first-{ctx.flow_id}-{ctx.run_id}-{ctx.task_id}-{ctx.map_index}"
    try:
        os.close(os.open(f"{folder()}/{name}", os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def note(ctx: Context, what: str) -> None:
    """A line of the ledger is on disk."""
    line = {
        "what": what,
        "at": boot_clock_s(),
        "wall": time.time(),
        "attempt_id": ctx.attempt_id,
        "fence": ctx.fence,
        "pid": os.getpid(),
        "flow_id": ctx.flow_id,
        "run_id": ctx.run_id,
        "task_id": ctx.task_id,
        "map_index": ctx.map_index,
        "try_number": ctx.try_number,
        "resume_index": ctx.resume_index,
    }
    descriptor = os.open(f"{folder()}/ledger", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, json.dumps(line).encode() + b"\n")
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_effect(ctx: Context) -> bool:
    """Whether the bank took the write; either way it keeps a record of it."""
    target = f"{ctx.flow_id}/{ctx.run_id}/{ctx.task_id}/{ctx.map_index}"
    values = {"target": target, "fence": ctx.fence, "attempt_id": ctx.attempt_id}
    file = f"{folder()}/bank/{quote(target, safe='')}"
    with closing(sqlite3.connect(file, timeout=BUSY_S, isolation_level=None)) as bank:
        bank.execute("BEGIN IMMEDIATE")
        for table in SCHEMA:
            bank.execute(table)
        taken = bank.execute(GUARDED, values).rowcount == 1
        bank.execute(
            "INSERT INTO asked (fence, attempt_id, is_taken) VALUES (:fence, :attempt_id, :taken)",
            {**values, "taken": taken},
        )
        bank.execute("COMMIT")
    return taken
