"""The flow of docs/checkpoints.md over 10,000 rows, its processes killed at random points, by both executors."""

from __future__ import annotations

import os
import random
import re
import signal
import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.stack import Stack, running, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

DOCUMENT = Path(__file__).parents[2] / "docs" / "checkpoints.md"
ROWS, BATCH, KILLS = 10_000, 100, 5
WITHIN_S = 180.0


@pytest.fixture(scope="module", params=["celery", "local"])
def stack(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stack]:
    folder = tmp_path_factory.mktemp("copies")
    flags = ["--executor", request.param, "--no-examples", "--concurrency", "2"]
    environment = {"COPY_TARGET": str(folder / "copied.sqlite3")}
    (source,) = re.findall(r"^```python\n(.*?)^```", DOCUMENT.read_text("utf-8"), re.M | re.S)
    with running(folder, flags=flags, environment=environment) as made:
        made.write_flow("copies_rows.py", source)
        made.wait_for_flow("copies_rows")
        yield made


def read(stack: Stack, query: str) -> list[tuple[Any, ...]]:
    """Rows of what the flow wrote; none as long as there is no such table."""
    with closing(sqlite3.connect(stack.folder / "copied.sqlite3", timeout=30)) as target:
        try:
            return target.execute(query).fetchall()
        except sqlite3.OperationalError:
            return []


def forget(stack: Stack) -> None:
    with closing(sqlite3.connect(stack.folder / "copied.sqlite3", timeout=30)) as target:
        target.executescript("DROP TABLE penguin; DROP TABLE read;")


def running_attempt(stack: Stack, run: dict[str, Any], past: int) -> dict[str, Any] | None:
    """The running attempt, once it has read so many batches itself or the run has got so far."""
    row = stack.row(
        "SELECT a.id, a.pid FROM attempt a WHERE a.run_id = %s AND a.state = 'running'", run["id"]
    )
    mine = row and read(stack, f"SELECT count(*) FROM read WHERE attempt_id = '{row['id']}'")
    return row if mine and mine[0][0] >= past else None


def has_ended(stack: Stack, attempt_id: Any) -> bool:
    return bool(stack.rows("SELECT 1 FROM attempt WHERE id = %s AND state = 'ended'", attempt_id))


def test_whatever_is_killed_the_copy_is_the_same_and_a_kill_costs_one_batch(stack: Stack) -> None:
    undisturbed = stack.trigger("copies_rows")
    assert stack.wait_for_run(undisturbed, within_s=WITHIN_S)["state"] == "success"
    wanted = read(stack, "SELECT * FROM penguin ORDER BY number")
    assert len(wanted) == ROWS
    assert len(read(stack, "SELECT * FROM read")) == ROWS // BATCH
    forget(stack)

    seed = random.randrange(2**32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    run = stack.trigger("copies_rows")
    for number in range(KILLS):
        victim = wait_for(
            f"victim {number}",
            partial(running_attempt, stack, run, dice.randint(1, 12)),
            within_s=WITHIN_S,
        )
        os.kill(victim["pid"], signal.SIGKILL)
        wait_for(
            "its end is known",
            partial(has_ended, stack, victim["id"]),
            within_s=WITHIN_S,
        )
    assert stack.wait_for_run(run, within_s=WITHIN_S)["state"] == "success"

    assert read(stack, "SELECT * FROM penguin ORDER BY number") == wanted
    tried = stack.attempts(run)
    assert [one["outcome"] for one in tried] == ["terminated"] * KILLS + ["success"]
    assert tried[-1]["result"] == {"rows": ROWS}
    reads = read(stack, "SELECT first, count(*) FROM read GROUP BY first")
    assert len(reads) == ROWS // BATCH  # no batch was left out
    again = sum(count - 1 for _, count in reads)
    print(f"{again} batches were read again after {KILLS} kills")
    assert again <= KILLS
    # Each attempt began with the batch that the one before was killed in, or the next.
    for one, before in zip(tried[1:], tried, strict=False):
        ((first,),) = read(stack, f"SELECT min(first) FROM read WHERE attempt_id = '{one['id']}'")
        ((last,),) = read(stack, f"SELECT max(first) FROM read WHERE attempt_id = '{before['id']}'")
        assert first - last in (0, BATCH)

    (ti,) = stack.rows("SELECT id FROM task_instance WHERE run_id = %s", run["id"])
    told = stack.api("GET", f"/api/v1/task-instances/{ti['id']}/")
    assert (told["progress"]["done"], told["progress"]["total"]) == (ROWS, ROWS)
    ((key, value, version),) = [(c["key"], c["value"], c["version"]) for c in told["checkpoints"]]
    assert (key, value) == ("row", ROWS)
    assert version >= ROWS // BATCH
    shown = stack.manage("tasks", "state", "copies_rows", run["run_id"])
    assert "10,000 of 10,000 (100 %), batch 100" in shown.stdout
