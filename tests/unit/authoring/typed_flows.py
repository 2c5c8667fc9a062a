"""What a type checker says of authors' code; checked with the product, and by test_typed.py alone.

Each line that is wrong on purpose names the error that it must be: one that is missing is an error too.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, timedelta
from typing import assert_type

from scheduler_app.authoring import (
    Context,
    Flow,
    GroupRetry,
    Param,
    Schedule,
    TaskResult,
    branch,
    flow,
    group,
    latest_only,
    retry,
    setup,
    short_circuit,
    task,
    teardown,
)


@task
def fetch(ctx: Context, source: str, *, limit: int = 10) -> list[int]:
    return [ctx.try_number, len(source), limit]


@task(retries=3, retry_delay=timedelta(minutes=1), retry_policies={OSError: retry(retries=5)})
def total(rows: Sequence[int]) -> int:
    return sum(rows)


@task
def joined(parts: Sequence[int], name: str = "all") -> str:
    return f"{name}: {parts}"


@branch
def choose(ctx: Context) -> str:
    return "total" if ctx.logical_date else "joined"


@short_circuit(ignore_downstream_trigger_rules=False)
def is_open() -> bool:
    return True


@setup
def made() -> str:
    return "cluster"


@teardown(fails_run=True)
def gone(cluster: str) -> None:
    del cluster


@task
def undo(ctx: Context) -> None:
    ctx.log.info("undone")


@group(retry=GroupRetry(3), compensate=undo)
def both(source: str) -> TaskResult[int]:
    return total(fetch(source))


@flow(
    schedule=Schedule("0 9 * * 1-5", exclude=[date(2026, 12, 25)]),
    timezone="Europe/Paris",
    catchup=timedelta(days=3),
    overlap="skip",
    params={"limit": Param(10, type="integer", minimum=1)},
    default_args={"retries": 2},
    tags=["typed"],
)
def typed() -> None:
    rows = fetch("shop", limit=3)
    assert_type(rows, TaskResult[list[int]])
    assert_type(total(rows), TaskResult[int])
    words = joined.override(task_id="words", retries=1)([total(rows), total(fetch("web"))])
    assert_type(words, TaskResult[str])
    which = choose()
    which >> [total(rows), words] >> joined(rows, name="after")
    latest_only() >> is_open() >> both("left")
    cluster = made()
    with gone(cluster).as_teardown(setups=cluster):
        total([1, 2])
    with group("more", prefix=False) as more:
        total([3])
    more >> words


assert_type(typed, Flow)


def _wrong() -> None:
    fetch(3)  # type: ignore[arg-type]
    fetch("shop", limits=3)  # type: ignore[call-arg]
    fetch()  # type: ignore[call-arg]
    total(["a"])  # type: ignore[list-item]
    both(7)  # type: ignore[arg-type]
    fetch.override(retires=3)  # type: ignore[call-arg]
    with group("g") as inside:
        inside >> joined  # type: ignore[type-var]
    task(retries="three")  # type: ignore[call-overload]
    task(trigger_rule="all_succeeded")  # type: ignore[call-overload]
    flow(shedule="@daily")  # type: ignore[call-overload]
    flow(overlap="drop")  # type: ignore[call-overload]
    group("g", retry=3)  # type: ignore[call-overload]
    retry(times=3)  # type: ignore[call-arg]
