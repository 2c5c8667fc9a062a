"""The load of a drill: a fan, a chain, a wait, a retry and a long task.

Each reads ``seconds`` from the conf of its run: how long an execution takes.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from drill_ledger import execution, is_first  # type: ignore[import-not-found]  # found beside this file

from scheduler_app.authoring import Context, Defer, TimeTrigger, flow, task

WIDTH = 6
LENGTH = 4
# Processes of tasks are killed on purpose: that must not use up what a task has.
RETRIES = 100
OFTEN: Any = {"retries": RETRIES, "retry_delay": timedelta(0)}
AT_ONCE = 1000  # runs and tasks: the load is limited by who makes it


def seconds_of(ctx: Context, default: float) -> float:
    """How long an execution of this run takes."""
    return float(ctx.conf.get("seconds", default))


@task(**OFTEN)
def part(ctx: Context, number: int, after: int | None = None) -> int:
    """One of many."""
    with execution(ctx, seconds=seconds_of(ctx, 0.1)):
        return number


@flow(max_active_runs=AT_ONCE, max_active_tasks=AT_ONCE)
def drill_fan() -> None:
    """Tasks that need nothing of each other."""
    for number in range(WIDTH):
        part(number)


@flow(max_active_runs=AT_ONCE, max_active_tasks=AT_ONCE)
def drill_chain() -> None:
    """Tasks that need each the one before."""
    previous = None
    for number in range(LENGTH):
        previous = part(number, previous)


@task(**OFTEN)
def wait(ctx: Context) -> None:
    """Hands over to a timer."""
    with execution(ctx, seconds=seconds_of(ctx, 0.1)):
        pass
    raise Defer(TimeTrigger(after=timedelta(seconds=0.5)), method="woken")


@wait.method
def woken(ctx: Context, event: object) -> str:
    """Goes on when the timer has fired."""
    with execution(ctx, seconds=seconds_of(ctx, 0.1)):
        return "woken"


@flow(max_active_runs=AT_ONCE, max_active_tasks=AT_ONCE)
def drill_wait() -> None:
    """A task that defers, and one after it."""
    wait() >> part(0)


@task(retries=RETRIES, retry_delay=timedelta(seconds=0.5))
def fails_once(ctx: Context) -> None:
    """Fails in its first try."""
    with execution(ctx, seconds=seconds_of(ctx, 0.1)):
        pass
    if ctx.try_number == 1:
        raise RuntimeError("the first try fails, as it should")


@flow(max_active_runs=AT_ONCE, max_active_tasks=AT_ONCE)
def drill_retry() -> None:
    """A task that fails once, and one after it."""
    fails_once() >> part(0)


@task(**OFTEN)
def long(ctx: Context) -> None:
    """Long in the first execution, so that it can be disturbed; short in those that follow it."""
    with execution(ctx, seconds=seconds_of(ctx, 5.0) if is_first(ctx) else 0.1):
        pass


@flow(max_active_runs=AT_ONCE, max_active_tasks=AT_ONCE)
def drill_long() -> None:
    """One long task."""
    long()


@task(queue="apart", **OFTEN)
def beside(ctx: Context, number: int, after: object = None) -> int:
    """Carried to workers that a drill starts itself."""
    with execution(ctx, seconds=seconds_of(ctx, 0.1)):
        return number


@task(queue="apart", retries=RETRIES, retry_delay=timedelta(seconds=0.5))
def fails_once_beside(ctx: Context) -> None:
    """Fails in its first try."""
    with execution(ctx):
        pass
    if ctx.try_number == 1:
        raise RuntimeError("the first try fails, as it should")


@task(queue="apart", **OFTEN)
def wait_beside(ctx: Context) -> None:
    """Hands over to a timer."""
    with execution(ctx):
        pass
    raise Defer(TimeTrigger(after=timedelta(seconds=0.5)), method="woken_beside")


@wait_beside.method
def woken_beside(ctx: Context, event: object) -> str:
    """Goes on when the timer has fired."""
    with execution(ctx):
        return "woken"


@flow(max_active_runs=AT_ONCE, max_active_tasks=AT_ONCE)
def drill_apart() -> None:
    """A fan, a retry and a wait, all in a queue of their own."""
    for number in range(4):
        beside(number)
    fails_once_beside() >> wait_beside()
