"""``@task``, and what stands behind a dot of it: ``@task.sensor``, ``@task.branch``, ..."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar, Unpack, overload

from scheduler_app.authoring import branching, sensors
from scheduler_app.authoring import task as tasks

if TYPE_CHECKING:
    from collections.abc import Callable

    from scheduler_app.authoring.task import TaskFunction
    from scheduler_app.authoring.typed import MakesTask, TakesContext, TaskOptions

P = ParamSpec("P")
R = TypeVar("R")


class TaskDecorator:
    """Makes a function a task: see ``task`` in ``authoring/task.py`` for its options."""

    def __init__(self) -> None:
        self.sensor = sensors.sensor
        self.branch = branching.branch
        self.short_circuit = branching.short_circuit
        self.setup = tasks.setup
        self.teardown = tasks.teardown

    @overload
    def __call__(self, function: TaskFunction[P, R], /) -> TaskFunction[P, R]: ...

    @overload
    def __call__(self, function: TakesContext[P, R], /) -> TaskFunction[P, R]: ...

    @overload
    def __call__(self, function: Callable[P, R], /) -> TaskFunction[P, R]: ...

    @overload
    def __call__(self, **options: Unpack[TaskOptions]) -> MakesTask: ...

    def __call__(self, *function: Any, **options: Any) -> Any:
        """The function as a task, with or without options: ``@task`` or ``@task(retries=3)``."""
        return tasks.task(*function, **options)

    def __repr__(self) -> str:
        return "<@task>"


task: Final = TaskDecorator()
task.__doc__ = tasks.task.__doc__
