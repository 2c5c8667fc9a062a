"""Many sweepers at one silent attempt: one transition, one event, one loss, whoever comes first.

One leader looks at a shard. These sweepers all prove the same lease, as copies of one process would,
so that nothing but the statements themselves keeps them apart.
"""

from __future__ import annotations

import os
import pickle
import signal
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from scheduler_app.models import Attempt, Counter, ExecutorEvent, TaskInstance
from scheduler_app.processes import database
from scheduler_app.queries.audit_visibility import compare
from scheduler_app.scheduler import judge, sweep
from scheduler_app.transitions.executor_event import NewEvent, record_events
from tests.together import together
from tests.world import World, chain

if TYPE_CHECKING:
    from scheduler_app.scheduler.leases import Leases

SWEEPERS = 6
RUNS = 5
Act = Callable[["psycopg.Connection[Any]"], Any]


def in_processes(acts: Sequence[Act], *, within_s: float = 60.0) -> list[Any]:
    """What each act returned; each ran in a process of its own, all let go at the same moment."""
    gate_read, gate_write = os.pipe()
    children: list[tuple[int, int]] = []
    for act in acts:
        read_fd, write_fd = os.pipe()
        pid = os.fork()
        if not pid:
            _in_child(act, gate=gate_read, others=gate_write, write_fd=write_fd)
        os.close(write_fd)
        children.append((pid, read_fd))
    os.close(gate_read)
    ready = [os.read(read_fd, 1) for _, read_fd in children]  # each is connected
    os.close(gate_write)
    answers = []
    deadline = time.monotonic() + within_s
    for pid, read_fd in children:
        with os.fdopen(read_fd, "rb") as pipe:
            answer = pipe.read()
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        assert status == 0, f"a sweeper ended with {status}"
        answers.append(pickle.loads(answer))
    assert ready == [b"r"] * len(acts)
    return answers


def _in_child(act: Act, *, gate: int, others: int, write_fd: int) -> None:
    code = 1
    try:
        os.close(others)
        with database.connect("scheduler") as connection:
            connection.execute("SELECT 1")
            os.write(write_fd, b"r")
            os.read(gate, 1)  # ends when the parent closes it
            answer = pickle.dumps(act(connection))
        with os.fdopen(write_fd, "wb") as pipe:
            pipe.write(answer)
        code = 0
    finally:
        os._exit(code)


RUNNERS = pytest.mark.parametrize("at_once", [together, in_processes], ids=["threads", "processes"])


@pytest.fixture
def silent(world: World, settings: Any) -> list[int]:
    """Runs whose task is claimed by a worker that nobody hears of any more."""
    settings.HEARTBEAT_DEAD_AFTER_S = 0.0
    settings.EXIT_GRACE_S = 0.0
    runs = [world.run(world.flow(f"f{n}", chain("a", retries=1))) for n in range(RUNS)]
    world.tick(*runs)
    for message in world.messages:
        assert world.claim(message) is not None
    return runs


def count(name: str) -> int:
    return Counter.objects.get(name=name).value


@RUNNERS
def test_a_silent_attempt_is_lost_once_however_many_sweepers_look(
    world: World, leases: Leases, silent: list[int], at_once: Callable[..., list[Any]]
) -> None:
    terms = leases.terms()
    found = at_once(
        [lambda connection: sweep.lose_silent(connection, leases=leases, terms=terms)] * SWEEPERS
    )
    assert sorted(run for one in found for run in one) == silent, "each by exactly one"
    assert ExecutorEvent.objects.filter(kind="worker_lost").count() == RUNS
    assert count("scheduler_attempts_lost_total") == RUNS
    assert set(TaskInstance.objects.values_list("state", "infra_losses")) == {("scheduled", 1)}
    world.messages.clear()
    world.ticker.forget(silent)
    world.tick(*silent)
    assert len(world.messages) == RUNS, "one next dispatch each"
    assert [d for one in compare() for d in one.differences] == []


@RUNNERS
def test_past_the_budget_of_losses_a_task_fails_once(
    world: World,
    leases: Leases,
    silent: list[int],
    settings: Any,
    at_once: Callable[..., list[Any]],
) -> None:
    TaskInstance.objects.update(infra_losses=settings.INFRASTRUCTURE_BUDGET)
    terms = leases.terms()
    found = at_once(
        [lambda connection: sweep.lose_silent(connection, leases=leases, terms=terms)] * SWEEPERS
    )
    assert sorted(run for one in found for run in one) == silent
    assert set(TaskInstance.objects.values_list("state", flat=True)) == {"failed"}
    assert ExecutorEvent.objects.count() == RUNS
    assert world.states(silent[0]) == {"a": "failed"}


@RUNNERS
def test_an_event_is_judged_once_and_a_kill_uses_one_retry_however_many_judge(
    world: World,
    raw: psycopg.Connection[Any],
    leases: Leases,
    silent: list[int],
    at_once: Callable[..., list[Any]],
) -> None:
    """Half of the events name the attempt, half the try; sweepers lose the same attempts meanwhile."""
    for number, message in enumerate(world.messages):
        about: dict[str, Any] = (
            {"attempt_id": message.attempt_id}
            if number % 2
            else {"attempt_id": None, "ti_id": message.ti_id, "try_number": 1}
        )
        record_events(raw, events=[NewEvent(kind="exit_killed", source="executor: x", **about)])
    terms = leases.terms()

    def judge_all(connection: psycopg.Connection[Any]) -> set[int]:
        return judge.judge_pending(connection, leases=leases, terms=terms)[0]

    def lose_all(connection: psycopg.Connection[Any]) -> set[int]:
        return sweep.lose_silent(connection, leases=leases, terms=terms)

    found = at_once([judge_all, lose_all] * (SWEEPERS // 2))
    judge_all(raw)  # what was locked then
    moved = [run for one in found for run in one]
    assert len(moved) == len(set(moved)), "no run moved twice"
    ended = Attempt.objects.filter(state="ended")
    assert ended.count() == RUNS
    killed = count("scheduler_tasks_killed_externally_total")
    assert killed == ended.filter(outcome="terminated").count()
    assert count("scheduler_attempts_lost_total") == ended.filter(outcome="lost").count()
    assert not ExecutorEvent.objects.filter(verdict="pending").exists()
    states = set(TaskInstance.objects.values_list("state", "try_number"))
    assert states <= {("up_for_retry", 1), ("scheduled", 1)}
    assert world.states(silent[0])["a"] in ("up_for_retry", "scheduled")
