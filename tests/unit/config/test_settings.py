from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from scheduler_app.config import checks
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
    assert not checks.timing_faults(
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
    ("changed", "code"),
    [
        ({"renew_interval_s": 6}, "daylight.E001"),
        ({"deadline_s": 15}, "daylight.E002"),
        ({"heartbeat_interval_s": 11}, "daylight.E003"),
    ],
)
def test_timing_that_contradicts_itself_is_refused(changed: dict[str, float], code: str) -> None:
    assert [fault.id for fault in checks.timing_faults(**{**TIMING, **changed})] == [code]


def test_the_timing_of_the_documents_is_accepted() -> None:
    assert checks.timing_faults(**TIMING) == []
