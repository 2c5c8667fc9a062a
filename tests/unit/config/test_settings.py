from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from scheduler_app.config import timing
from scheduler_app.launch.environment import ROOT

TIMING: dict[str, float] = {
    "ttl_s": 15,
    "renew_interval_s": 3,
    "deadline_s": 10,
    "heartbeat_interval_s": 5,
    "dead_after_s": 20,
}


def read(*names: str, **environ: str) -> Any:
    """Settings as a process with this environment sees them."""
    code = (
        "import json, sys; from scheduler_app.config import settings;"
        "print(json.dumps([getattr(settings, name) for name in sys.argv[1:]], default=str))"
    )
    clean = {
        k: v
        for k, v in os.environ.items()
        if not k.startswith("DAYLIGHT_") and not k.endswith("_URL")
    }
    done = subprocess.run(
        [sys.executable, "-c", code, *names],
        cwd=ROOT,
        env={**clean, "DAYLIGHT_DATA_DIR": "/nonexistent/daylight", **environ},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


DERIVED = (
    "LEASE_TTL_S",
    "LEASE_RENEW_INTERVAL_S",
    "LEASE_DEADLINE_S",
    "HEARTBEAT_INTERVAL_S",
    "HEARTBEAT_DEAD_AFTER_S",
    "QUEUED_TIMEOUT_S",
)


def test_the_defaults_are_those_of_the_documents() -> None:
    assert read(*DERIVED) == [15, 3, 10, 5, 20, 30]
    assert read("SHARD_COUNT", "REPUBLISH_MAX", "INFRASTRUCTURE_BUDGET", "FLOW_FILE_TIMEOUT_S") == [
        16,
        5,
        3,
        10,
    ]
    assert read("RESULT_BYTES_MAX", "LOG_BYTES_MAX", "DEFAULT_POOL_SLOTS") == [
        1 << 20,
        10 << 20,
        128,
    ]
    assert read("JOB_ALIVE_S") == [10.5]
    assert read("MAX_ACTIVE_RUNS", "MAX_ACTIVE_TASKS") == [16, 64]


@pytest.mark.parametrize("ttl", ["5", "0.5", "3600"])
def test_the_lease_term_alone_moves_the_whole_timing_and_makes_sense(ttl: str) -> None:
    ttl_s, renew_s, deadline_s, beat_s, dead_s, _ = read(*DERIVED, DAYLIGHT_LEASE_TTL=ttl)
    assert ttl_s == float(ttl)
    assert not timing.contradictions(
        ttl_s=ttl_s,
        renew_interval_s=renew_s,
        deadline_s=deadline_s,
        heartbeat_interval_s=beat_s,
        dead_after_s=dead_s,
    )


def test_only_the_web_process_has_a_connection_pool() -> None:
    url = "postgresql://u@h/d"
    (databases,) = read("DATABASES", DATABASE_URL=url)
    assert "pool" not in databases["default"]["OPTIONS"]
    (databases,) = read("DATABASES", DATABASE_URL=url, DAYLIGHT_PROCESS="web")
    assert databases["default"]["OPTIONS"]["pool"]["max_size"] == 16


def test_without_a_stack_the_database_is_one_that_nobody_can_reach_by_accident() -> None:
    (databases,) = read("DATABASES", PGHOST="real.example")
    assert databases["default"]["HOST"] == "/nonexistent/daylight/no-stack-runs-here"


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"renew_interval_s": 6}, "no second chance"),
        ({"renew_interval_s": 20}, "RENEW_INTERVAL_S=20 and the margin of 5 s"),
        ({"deadline_s": 15}, "a holder must stop before another may start"),
        ({"heartbeat_interval_s": 11}, "one late beat is not a death"),
    ],
)
def test_timing_that_contradicts_itself_is_refused(changed: dict[str, float], words: str) -> None:
    (line,) = timing.contradictions(**{**TIMING, **changed})
    assert words in line
    assert "\n" not in line
    assert "DAYLIGHT_LEASE_TTL" in line, "the remedy names the one setting that is enough"


def test_the_timing_of_the_documents_is_accepted() -> None:
    assert timing.contradictions(**TIMING) == []


def test_a_process_with_timing_that_cannot_be_safe_ends_with_one_clear_line() -> None:
    ended = subprocess.run(
        [sys.executable, "manage.py", "scheduler"],
        cwd=ROOT,
        env={**os.environ, "DAYLIGHT_LEASE_RENEW_INTERVAL_S": "20"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode != 0
    (line,) = ended.stderr.strip().splitlines()
    assert line.startswith("Wrong settings: DAYLIGHT_LEASE_RENEW_INTERVAL_S=20 and the margin")
