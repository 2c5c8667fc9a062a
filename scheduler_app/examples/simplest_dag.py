"""The least that a flow can be; its name is the one that Airflow's own client triggers in its tests."""

from __future__ import annotations

from scheduler_app.authoring import flow, task


@task
def my_task() -> None:
    """Nothing happens."""


@flow(tags=["example"], owner="examples")
def example_simplest_dag() -> None:
    """One task that does nothing."""
    my_task()
