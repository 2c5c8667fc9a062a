"""Deadlocks between schedulers, and processes that open ever more connections."""

from __future__ import annotations

import threading
import urllib.request
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from scheduler_app.models import Attempt, Run
from scheduler_app.scheduler import service, sweep
from scheduler_app.scheduler.judge import judge_pending
from scheduler_app.scheduler.service import Scheduler
from scheduler_app.transitions.executor_event import NewEvent, record_events
from tests.replays import saying
from tests.stack import wait_for
from tests.together import together
from tests.world import World, chain

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler_app.scheduler.leases import Leases
    from tests.stack import Stack

TASKS = 250
SCHEDULERS = 2
WORKERS = 3
REQUESTS = 200
CALLERS = 40

WEB_POOL = 16  # DAYLIGHT_WEB_CONNECTIONS_MAX
CHILDREN = 2
# What the processes of this stack, one of each kind, may have open at once: docs/clusters.md.
BUDGET = {
    "daylight scheduler": 1,
    "daylight scheduler catalog": 1,
    "daylight scheduler teller": 2,  # of the scheduler and of the triggerer
    "daylight lease renewal": 1,
    "daylight lease scheduler": 1,
    "daylight triggerer": 2,
    "daylight lease triggerer": 1,
    "daylight lease watchdog": 1,
    "daylight worker beats": 1,
    "daylight worker logs": 1,
    "daylight worker witness": 1,
    "daylight worker child": 2 * CHILDREN,  # one to report, and one while a task saves
    "daylight worker give-back": 1,
    "daylight worker leftovers": 1,
    "daylight lease worker": 1,
    "daylight lease web": 1,
    "daylight web": WEB_POOL,
}


def test_b265_schedulers_and_workers_at_the_same_rows_never_deadlock(
    world: World, raw: psycopg.Connection[Any], leases: Leases
) -> None:
    """Two deciders and three workers at 250 tasks of one run, one transaction a task and step.

    Rows are locked in one order, so there is nothing to retry. A turn that the database refuses all
    the same is begun anew, and counted: the next test.
    """
    flow = world.flow(
        "f", [t for n in range(TASKS) for t in chain(f"t{n}")], max_active_tasks=TASKS
    )
    run_id = world.run(flow)
    world.queue_slots = {"default": TASKS}
    raw.execute("UPDATE pool SET slots = 1000")
    ended, lock, messages = threading.Event(), threading.Lock(), world.messages

    def decide(connection: psycopg.Connection[Any]) -> int:
        mine = World(connection, leases)
        mine.queue_slots, mine.messages = world.queue_slots, []
        turns = 0
        while not ended.is_set():
            turns += 1
            mine.tick(run_id)
            with lock:
                messages.extend(mine.messages)
            mine.messages = []
            judge_pending(connection, leases=leases, terms=leases.terms())
            sweep.lose_silent(connection, leases=leases, terms=leases.terms())
            (is_active,) = connection.execute(
                "SELECT is_active FROM run WHERE id = %s", [run_id]
            ).fetchall()[0]
            if not is_active:
                ended.set()
        return turns

    def work(connection: psycopg.Connection[Any]) -> int:
        mine = World(connection, leases)
        done = 0
        while not ended.is_set():
            with lock:
                message = messages.pop(0) if messages else None
            if message is None:
                ended.wait(0.01)
                continue
            assert mine.claim(message) is not None
            mine.finish(message)
            event = NewEvent(
                attempt_id=message.attempt_id, kind="exit_success", source="w", payload={}
            )
            record_events(connection, events=[event])
            done += 1
        return done

    answers = together([decide] * SCHEDULERS + [work] * WORKERS)
    assert sum(answers[SCHEDULERS:]) == TASKS
    assert Run.objects.get(pk=run_id).state == "success"
    assert Attempt.objects.filter(is_accepted=True).count() == TASKS


def test_b265_a_turn_that_the_database_refuses_is_begun_anew_and_counted(
    raw: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A deadlock in the middle of a turn: nothing of it stands, the loop goes on, a counter grows."""
    scheduler = Scheduler(executor=saying.Carrier(), watch_flows=lambda told, stop: None)
    monkeypatch.setattr(service, "ERROR_PAUSE_S", 0.0)

    def deadlocks() -> None:
        raise psycopg.errors.DeadlockDetected("deadlock detected")

    scheduler._guarded(deadlocks)
    scheduler._guarded(lambda: scheduler._watch(raw))
    row = raw.execute(
        "SELECT value FROM counter WHERE name = 'scheduler_turns_refused_total'"
    ).fetchone()
    assert row is not None
    assert row[0] == 1


def test_b267_a_web_process_under_load_keeps_to_its_pool(stack: Stack) -> None:
    """Pages, API, exports and logs at once, from more callers than it may have connections."""
    stack.wait_for_run(stack.trigger("quickly"))
    paths = ("/healthz", "/metrics", "/api/v1/runs/", "/api/v1/runs/export/?format=csv", "/login/")
    token = stack.api("GET", "/api/v1/runs/?limit=1") and stack._token
    most: Counter[str] = Counter()
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.05):
            for name, number in _open(stack).items():
                most[name] = max(most[name], number)

    def ask(number: int) -> int:
        request = urllib.request.Request(
            f"{stack.url}{paths[number % len(paths)]}", headers={"Authorization": f"Bearer {token}"}
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            answer.read()
            return int(answer.status)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        with ThreadPoolExecutor(CALLERS) as callers:
            codes = Counter(callers.map(ask, range(REQUESTS)))
    finally:
        over.set()
        watcher.join()
    assert codes == {200: REQUESTS}
    assert 0 < most["daylight web"] <= WEB_POOL
    assert _beyond_budget(most) == {}


def test_b269_each_process_keeps_to_its_budget_of_connections(stack: Stack) -> None:
    """Counted while runs go on, and again later: what is idle does not grow."""
    for _ in range(2):
        for run in [stack.trigger("quickly") for _ in range(6)]:
            stack.wait_for_run(run)
        found = _open(stack)
        assert found["daylight scheduler"] == 1
        assert _beyond_budget(found) == {}
    wait_for(
        "nobody leaves a transaction open",
        lambda: (
            not stack.rows(
                "SELECT 1 FROM pg_stat_activity WHERE datname = current_database()"
                " AND state LIKE 'idle in transaction%%'"
                " AND state_change < clock_timestamp() - interval '1 second'"
            )
        ),
    )


def _open(stack: Stack) -> dict[str, int]:
    """Open connections by what they say that they are for, less those of this test."""
    rows = stack.rows(
        "SELECT application_name AS name, count(*) AS n FROM pg_stat_activity"
        " WHERE datname = current_database() AND application_name LIKE 'daylight %%' GROUP BY 1"
    )
    return {row["name"]: row["n"] for row in rows}


def _beyond_budget(found: Mapping[str, int]) -> dict[str, int]:
    """Connections of which there are too many, or that nobody has told of."""
    return {name: n for name, n in found.items() if n > BUDGET.get(name, 0)}
