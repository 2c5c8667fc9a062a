"""Fails twice, then succeeds: the tries that were replaced stay, each with its error and log.

Each failure calls ``told``, by an attempt of its own with a log of its own.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import penguins  # type: ignore[import-not-found]  # found beside this file

from scheduler_app.authoring import Context, flow, task

GOOD_TRY = 3


def told(context: dict[str, Any]) -> None:
    """Who is to know hears of it, as often as it happens."""
    print(f"try {context['try_number']} of {context['ti'].task_id}: {context['exception']}")


@task(retries=3, retry_delay=timedelta(seconds=1), on_retry_callback=told)
def fetch(ctx: Context) -> int:
    """How many penguins there are, from a source that answers at the third try."""
    print(f"try {ctx.try_number}, fence {ctx.fence}")
    if ctx.try_number < GOOD_TRY:
        raise ConnectionError(f"the source did not answer at try {ctx.try_number}")
    return sum(len(page) for page in penguins.pages())


@task
def tell(number: int) -> None:
    """The number is in the log."""
    print(f"{number} penguins, at last")


@flow(tags=["example", "retries"], owner="examples")
def example_fails_twice() -> None:
    """Fails twice, then succeeds."""
    tell(fetch())
