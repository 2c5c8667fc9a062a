"""What the same machine does without Daylight: raw Celery tasks and plain commits."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import psycopg
import redis
from celery import Celery

from tests.benchmarks import processes

if TYPE_CHECKING:
    from pathlib import Path

    from tests.stack import Stack

RAW_TASKS: Final = 2000
MARKS: Final = 4  # more than there are children: when all were run, so was what came before them
COMMITS_S: Final = 1.0
WITHIN_S: Final = 120.0
_NOT_FOR_CELERY: Final = frozenset({"DJANGO_SETTINGS_MODULE", "BROKER_URL"})

# Celery's defaults but for what a task does not need: no results, no remote control, no gossip.
_WORKER: Final = """
import os, redis
from celery import Celery
app = Celery("raw", broker=os.environ["RAW_BROKER"], fixups=[])
app.conf.update(task_ignore_result=True, task_default_queue="raw", worker_enable_remote_control=False)
client = redis.Redis.from_url(os.environ["RAW_BROKER"])

@app.task(name="raw.nothing")
def nothing():
    pass

@app.task(name="raw.mark")
def mark(key):
    client.incr(key)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Baselines:
    """What was measured beside a row, in the same run."""

    raw_tasks_s: float  # no-op tasks a second of plain Celery
    raw_cpu_ms: float  # CPU of one of them: its sender, the worker and the broker
    commits_s: float  # one-row updates a second, each committed, one connection


def measure(stack: Stack, folder: Path) -> Baselines:
    """Raw Celery and plain commits on the stack's own broker and database, while it idles."""
    tasks_s, cpu_ms = raw_celery(stack, folder)
    return Baselines(raw_tasks_s=tasks_s, raw_cpu_ms=cpu_ms, commits_s=commits_a_second(stack))


def raw_celery(stack: Stack, folder: Path, *, tasks: int = RAW_TASKS) -> tuple[float, float]:
    """No-op tasks a second of a plain worker with two children, and the CPU ms of one.

    From the first message's sending to the last task's end, as with a run of the product.
    """
    (folder / "raw_tasks.py").write_text(_WORKER)
    broker = stack.addresses.broker_url
    # Celery would set Django up, and prefer the address of the tests' own broker.
    environment = {k: v for k, v in os.environ.items() if k not in _NOT_FOR_CELERY}
    log = folder / "raw.log"
    with log.open("ab") as output:
        worker = subprocess.Popen(
            [
                sys.executable,
                *("-m", "celery", "-A", "raw_tasks", "worker", "-c", "2", "-l", "ERROR"),
                *("--without-gossip", "--without-mingle", "--without-heartbeat"),
            ],
            cwd=folder,
            env={**environment, "RAW_BROKER": broker},
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        app = Celery("raw", broker=broker, fixups=[])
        client = redis.Redis.from_url(broker)
        warm, key = f"raw:{uuid.uuid4()}", f"raw:{uuid.uuid4()}"
        app.send_task("raw.mark", args=[warm], queue="raw", ignore_result=True)
        _until(client, warm, 1, worker, log)
        assert stack.process is not None
        broker_pid = processes.of_name(stack.process.pid, "valkey-server")

        def used() -> float:
            own = resource.getrusage(resource.RUSAGE_SELF)
            others = processes.cpu_s(worker.pid) + processes.cpu_s(broker_pid)
            return own.ru_utime + own.ru_stime + others

        before, began = used(), time.monotonic()
        with app.producer_or_acquire() as producer:
            for _ in range(tasks):
                app.send_task("raw.nothing", queue="raw", producer=producer, ignore_result=True)
            for _ in range(MARKS):
                app.send_task("raw.mark", args=[key], queue="raw", producer=producer)
        _until(client, key, MARKS, worker, log)
        return tasks / (time.monotonic() - began), (used() - before) * 1000 / tasks
    finally:
        worker.send_signal(signal.SIGTERM)
        worker.wait(timeout=60)


def _until(
    client: redis.Redis, key: str, number: int, worker: subprocess.Popen[bytes], log: Path
) -> None:
    deadline = time.monotonic() + WITHIN_S
    while int(client.get(key) or 0) < number:
        if worker.poll() is not None or time.monotonic() > deadline:
            said = log.read_text(errors="replace")[-2000:]
            raise AssertionError(f"the raw worker did not run its tasks:\n{said}")
        time.sleep(0.005)


def commits_a_second(stack: Stack, *, seconds: float = COMMITS_S) -> float:
    """Plain one-row updates a second, each committed, on one connection."""
    with psycopg.connect(stack.addresses.database_url, autocommit=True) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS bench_commits (id int PRIMARY KEY, n int)")
        connection.execute("INSERT INTO bench_commits VALUES (1, 0) ON CONFLICT DO NOTHING")
        began, done = time.monotonic(), 0
        while time.monotonic() - began < seconds:
            connection.execute("UPDATE bench_commits SET n = n + 1 WHERE id = 1")
            done += 1
        rate = done / (time.monotonic() - began)
        connection.execute("DROP TABLE bench_commits")
        return rate
