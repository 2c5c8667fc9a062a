"""W7: lists over a long history, through the API of both kinds and as pages."""

from __future__ import annotations

import http.client
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

import psycopg

from tests import history
from tests.benchmarks.bench import percentile
from tests.benchmarks.page import Row
from tests.stack import PASSWORD, running

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.stack import Stack

SIZES: Final = (100_000, 1_000_000)  # task instances
P95_MS_MAX: Final = 50.0
ASKED: Final = 40  # times; the first few are not counted
WARM: Final = 5

FLOW: Final = """
    from scheduler_app.authoring import flow, task

    @task
    def nothing():
        pass

    @flow
    def single():
        nothing()
"""

# The lists of 100 task instances that the goal is about, and the other lists that people look at most.
TASK_INSTANCES: Final = {
    "API v1": "/api/v1/task-instances/?limit=100",
    "API v2": "/api/v2/dags/~/dagRuns/~/taskInstances?limit=100",
    "page": "/task-instances/?limit=100",
}
FILTERED: Final = {
    "failed": "/api/v1/task-instances/?limit=100&state=failed",
    "failed, v2": "/api/v2/dags/~/dagRuns/~/taskInstances?limit=100&state=failed",
    "of a flow": "/api/v1/task-instances/?limit=100&flow_id=history_7",
    "of a flow, v2": "/api/v2/dags/history_7/dagRuns/~/taskInstances?limit=100",
    "of a task": "/api/v1/task-instances/?limit=100&task_id=task_3",
    "of nothing": "/api/v1/task-instances/?limit=100&task_id=none_such",
    "of no pool": "/api/v1/task-instances/?limit=100&pool=none_such",
    "of a task, newest start": "/api/v1/task-instances/?limit=100&task_id=task_3&order=-started_at",
    "filtered": "/api/v1/task-instances/?limit=100&filtered=1",
    "newest end": "/api/v1/task-instances/?limit=100&order=-ended_at",
    "newest start": "/api/v1/task-instances/?limit=100&order=-started_at",
    "newest start, v2": "/api/v2/dags/~/dagRuns/~/taskInstances?limit=100&order_by=-start_date",
    "of an hour": "/api/v1/task-instances/?limit=100&started_at_gte={begin}&started_at_lte={end}",
    "of an hour, v2": "/api/v2/dags/~/dagRuns/~/taskInstances?limit=100"
    "&start_date_gte={begin}&start_date_lte={end}",
    "failed of an hour": "/task-instances/?limit=100&state=failed&started_at_gte={begin}"
    "&started_at_lte={end}",
}
OTHERS: Final = {
    "home": "/",
    "flows": "/flows/",
    "a flow": "/flows/history_7/",
    "runs": "/runs/?limit=100",
    "runs, v1": "/api/v1/runs/?limit=100",
    "runs, v2": "/api/v2/dags/~/dagRuns?limit=100",
    "failed runs": "/runs/?limit=100&state=failed",
    "runs of a flow": "/runs/?limit=100&flow_id=history_7",
    "newest ended runs": "/api/v1/runs/?limit=100&order=-ended_at",
    "attempts": "/attempts/?limit=100",
    "attempts of a flow": "/attempts/?limit=100&flow_id=history_7",
    "filtered attempts": "/api/v1/attempts/?limit=100&filtered=only",
    "attempts of a task": "/api/v1/attempts/?limit=100&task_id=task_3",
    "attempts of nothing": "/api/v1/attempts/?limit=100&task_id=none_such",
    "attempts of an hour": "/api/v1/attempts/?limit=100&issued_at_gte={begin}&issued_at_lte={end}",
    "newest fences": "/api/v1/attempts/?limit=100&order=-fence",
    "callbacks": "/api/v1/attempts/?limit=100&kind=callback",
    "newest ended attempts": "/api/v1/attempts/?limit=100&order=-ended_at",
    "events": "/executor-events/?limit=100",
    "newest events": "/api/v1/executor-events/?limit=100&order=-received_at",
    "filtered records": "/filtered/?limit=100",
    "all records": "/filtered/?limit=100&filtered=1",
    "records, v1": "/api/v1/records/?limit=100",
    "filtered records of a flow": "/filtered/?limit=100&flow_id=history_7",
    "runs by date": "/api/v1/runs/?limit=100&order=-logical_date",
    "run attempts by time": "/api/v1/run-attempts/?limit=100&order=-started_at",
    "audit": "/api/v1/audit/?limit=100",
    "audit of a flow": "/api/v1/audit/?limit=100&flow_id=history_7",
    "ghosts": "/api/v1/ghosts/?limit=100",
}


class Reader:
    """Somebody who is logged in and asks over one connection."""

    def __init__(self, stack: Stack) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", stack.port, timeout=60)
        self._headers = {"Authorization": f"Bearer {stack.token}"}
        self._log_in()

    def close(self) -> None:
        """The connection is closed."""
        self._connection.close()

    def get(self, path: str) -> bytes:
        """The answer's body. Fails unless it is a success."""
        self._connection.request("GET", path, headers=self._headers)
        answer = self._connection.getresponse()
        body = answer.read()
        assert answer.status == http.client.OK, f"{path}: {answer.status} {body[:500]!r}"
        return body

    def times_ms(self, path: str) -> list[float]:
        """How long each answer took."""
        times = []
        for _ in range(ASKED):
            began = time.monotonic()
            self.get(path)
            times.append((time.monotonic() - began) * 1000)
        return times[WARM:]

    def _log_in(self) -> None:
        cookies: dict[str, str] = {}
        self._ask("GET", cookies)
        form = {
            "username": "admin",
            "password": PASSWORD,
            "csrfmiddlewaretoken": cookies["csrftoken"],
        }
        self._ask("POST", cookies, urlencode(form))
        self._headers["Cookie"] = f"sessionid={cookies['sessionid']}"

    def _ask(self, method: str, cookies: dict[str, str], body: str = "") -> None:
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        if cookies:
            headers["Cookie"] = "; ".join(f"{name}={value}" for name, value in cookies.items())
        self._connection.request(method, "/login/", body, headers)
        answer = self._connection.getresponse()
        answer.read()
        for one in answer.headers.get_all("Set-Cookie") or []:
            name, _, rest = one.partition("=")
            cookies[name] = rest.partition(";")[0]


@contextmanager
def with_history(folder: Path, instances: int) -> Iterator[Stack]:
    """A stack of its own, in which so many task instances have ended: they would weigh on other benchmarks."""
    environment = {"DAYLIGHT_LEASE_TTL": "15"}
    with running(folder, flags=["--no-examples"], environment=environment) as made:
        made.write_flow("single.py", FLOW)
        made.wait_for_flow("single")
        with psycopg.connect(made.addresses.database_url, autocommit=True) as connection:
            (version,) = connection.execute("SELECT id FROM flow_version").fetchall()
            history.write(connection, version_id=version[0], instances=instances)
        yield made


def test_w7_reads(tmp_path: Path, table: list[Row]) -> None:
    found: dict[int, dict[str, float]] = {}
    for size in SIZES:
        with (
            with_history(tmp_path / str(size), size) as stack,
            psycopg.connect(stack.addresses.database_url, autocommit=True) as connection,
        ):
            found[size] = _measured(stack, connection)
    for names, what in (
        (TASK_INSTANCES, "list of 100 task instances"),
        (FILTERED, "the same, filtered and in other orders"),
        (OTHERS, "other lists and pages"),
    ):
        table.append(_row(what, list(names), found))


def _measured(stack: Stack, connection: psycopg.Connection[Any]) -> dict[str, float]:
    """The 95th percentile of each list in ms."""
    (span,) = connection.execute(
        "SELECT max(started_at) - interval '2 hours', max(started_at) - interval '1 hour' FROM run"
    ).fetchall()
    begin, end = (str(moment).replace("+00:00", "Z").replace(" ", "T") for moment in span)
    reader = Reader(stack)
    try:
        return {
            name: percentile(reader.times_ms(path.format(begin=begin, end=end)), 0.95)
            for name, path in {**TASK_INSTANCES, **FILTERED, **OTHERS}.items()
        }
    finally:
        reader.close()


def _row(what: str, names: list[str], found: dict[int, dict[str, float]]) -> Row:
    told = [f"{name} {' / '.join(f'{found[size][name]:.0f}' for size in found)}" for name in names]
    most = max(found[size][name] for size in found for name in names)
    return Row(
        name="W7",
        what=f"{what}: p95 over {' / '.join(f'{size:,}' for size in found)} rows of history",
        measured=f"{', '.join(told)} ms",
        goal=f"under {P95_MS_MAX:.0f} ms",
        is_met=most < P95_MS_MAX,
    )
