"""Schedulers die, twice over, and nothing is lost or doubled."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

from tests.stack import running, wait_for

if TYPE_CHECKING:
    from pathlib import Path

FLOW = """
    from scheduler_app.authoring import flow, task

    @task
    def step(ctx, number, after=None):
        return number

    @flow
    def chain():
        previous = None
        for number in range(5):
            previous = step(number, previous)
"""


def test_a_scheduler_killed_between_commit_and_publish_loses_and_doubles_nothing(
    tmp_path: Path,
) -> None:
    once = tmp_path / "once"
    once.mkdir()
    environment = {
        "DAYLIGHT_FAILPOINTS": "publish.before=kill",
        "DAYLIGHT_FAILPOINTS_ONCE": str(once),
    }
    with running(tmp_path, flags=["--no-examples"], environment=environment) as stack:
        stack.write_flow("chain.py", FLOW)
        stack.wait_for_flow("chain")
        first = stack.job_pids("scheduler")
        run = stack.trigger("chain")
        assert stack.wait_for_run(run, within_s=90)["state"] == "success"
        assert [p.name for p in once.iterdir()] == ["publish.before"]
        assert stack.job_pids("scheduler") != first
        attempts = stack.attempts(run)
        assert len(attempts) == 5, "no attempt was issued twice"
        assert all(a["dispatch_no"] == 1 and a["filter_code"] is None for a in attempts)
        assert stack.rows("SELECT * FROM executor_event WHERE verdict = 'refused'") == []
        stack.assert_nothing_hidden()


def test_two_schedulers_share_the_shards_and_one_takes_over_when_the_other_dies(
    tmp_path: Path,
) -> None:
    with running(tmp_path, flags=["--no-examples", "--schedulers", "2"]) as stack:
        stack.write_flow("chain.py", FLOW)
        stack.wait_for_flow("chain")
        wait_for(
            "both hold shards",
            lambda: (
                len(stack.rows("SELECT DISTINCT holder FROM lease WHERE holder IS NOT NULL")) == 2
            ),
        )
        runs = [stack.trigger("chain") for _ in range(10)]
        holder = stack.row(
            "SELECT j.pid, j.id FROM lease l JOIN job j ON j.id = l.holder JOIN flow f ON f.shard = l.shard"
        )
        assert holder is not None
        os.kill(holder["pid"], signal.SIGSTOP)
        try:
            for run in runs:
                assert stack.wait_for_run(run, within_s=90)["state"] == "success"
                assert len(stack.attempts(run)) == 5
        finally:
            os.kill(holder["pid"], signal.SIGCONT)
        assert stack.rows("SELECT 1 FROM lease_event WHERE kind = 'expired'")
        assert stack.rows("SELECT 1 FROM take_over")
        # The stalled one wakes, and either notices by itself or is refused; it doubles nothing.
        wait_for(
            "its waking is a record",
            lambda: stack.rows(
                "SELECT 1 FROM lease_event WHERE holder = %s AND kind IN ('demoted', 'fenced_write')",
                holder["id"],
            ),
        )
        more = stack.trigger("chain")
        assert stack.wait_for_run(more)["state"] == "success"
        assert len(stack.attempts(more)) == 5
        stack.assert_nothing_hidden()
