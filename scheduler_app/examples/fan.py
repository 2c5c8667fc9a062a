"""Two hundred tasks that do nothing: what a task costs when it costs nothing itself."""

from __future__ import annotations

from scheduler_app.authoring import flow, task

WIDTH = 200


@task
def noop() -> None:
    """Nothing happens."""


@flow(max_active_tasks=WIDTH, tags=["example", "speed"], owner="examples")
def example_fan() -> None:
    """A fan of tasks without dependencies, started by hand."""
    for _ in range(WIDTH):
        noop()
