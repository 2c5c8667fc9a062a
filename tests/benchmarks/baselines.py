"""What the same machine does without Daylight: raw Celery tasks, plain commits, the processes' clock."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import redis
from celery import Celery

if TYPE_CHECKING:
    from tests.stack import Stack

TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")

_WORKER = """
import os, redis
from celery import Celery
app = Celery("raw", broker=os.environ["RAW_BROKER"])
app.conf.update(task_ignore_result=True, worker_prefetch_multiplier=1, task_default_queue="raw")
client = redis.Redis.from_url(os.environ["RAW_BROKER"])

@app.task(name="raw.nothing")
def nothing(key):
    client.incr(key)
"""


def raw_celery_tasks_a_second(stack: Stack, folder: Path, *, tasks: int) -> float:
    """No-op tasks a second of a plain Celery worker with two children on the same broker."""
    (folder / "raw_tasks.py").write_text(_WORKER)
    broker = stack.addresses.broker_url
    worker = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "celery",
            "-A",
            "raw_tasks",
            "worker",
            "-c",
            "2",
            "-l",
            "ERROR",
            "--without-gossip",
            "--without-mingle",
        ],
        cwd=folder,
        env={**os.environ, "RAW_BROKER": broker},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        app = Celery("raw", broker=broker)
        client = redis.Redis.from_url(broker)
        warm, key = f"raw:{uuid.uuid4()}", f"raw:{uuid.uuid4()}"
        app.send_task("raw.nothing", args=[warm], queue="raw")
        _until(client, warm, 1)
        began = time.monotonic()
        with app.producer_or_acquire() as producer:
            for _ in range(tasks):
                app.send_task("raw.nothing", args=[key], queue="raw", producer=producer)
        _until(client, key, tasks)
        return tasks / (time.monotonic() - began)
    finally:
        worker.send_signal(signal.SIGTERM)
        worker.wait(timeout=30)


def _until(client: redis.Redis, key: str, number: int) -> None:
    deadline = time.monotonic() + 60
    while int(client.get(key) or 0) < number:
        if time.monotonic() > deadline:
            raise AssertionError(f"the raw worker did not run {number} tasks in time")
        time.sleep(0.005)


def commits_a_second(stack: Stack, *, seconds: float = 2.0) -> float:
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


def cpu_seconds(root: int) -> float:
    """CPU seconds that the process and all its descendants have used so far."""
    children: dict[int, list[int]] = {}
    used: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue  # it ended meanwhile
        pid = int(entry.name)
        children.setdefault(int(fields[1]), []).append(pid)
        used[pid] = int(fields[11]) + int(fields[12])
    total, todo = 0, [root]
    while todo:
        pid = todo.pop()
        total += used.get(pid, 0)
        todo += children.get(pid, [])
    return total / TICKS_A_SECOND
