"""Tasks whose results say which tasks after them go on: branch, short circuit, latest only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, Unpack, overload

from scheduler_app.authoring.building import current
from scheduler_app.authoring.task import TaskFunction, special, task
from scheduler_app.rules import timetable
from scheduler_app.rules.roles import Picks
from scheduler_app.rules.states import RunType

if TYPE_CHECKING:
    from collections.abc import Callable

    from scheduler_app.authoring.context import Context
    from scheduler_app.authoring.typed import (
        MakesTask,
        PlainTaskOptions,
        TakesContext,
        TaskOptions,
        TaskResult,
    )

P = ParamSpec("P")
R = TypeVar("R")


@overload
def branch(function: TaskFunction[P, R], /) -> TaskFunction[P, R]: ...


@overload
def branch(function: TakesContext[P, R], /) -> TaskFunction[P, R]: ...


@overload
def branch(function: Callable[P, R], /) -> TaskFunction[P, R]: ...


@overload
def branch(**options: Unpack[TaskOptions]) -> MakesTask: ...


def branch(function: Callable[..., Any] | None = None, /, **options: Unpack[TaskOptions]) -> Any:
    """A task that returns which of the tasks right after it go on; the others are skipped.

    It returns the id of a task or group downstream of it, a list of such ids, or None for none of
    them. What comes after a chosen task too is not skipped. Options as of ``@task``.
    """
    return special("branch", function, options, picks=Picks.BRANCH)


@overload
def short_circuit(function: TaskFunction[P, R], /) -> TaskFunction[P, R]: ...


@overload
def short_circuit(function: TakesContext[P, R], /) -> TaskFunction[P, R]: ...


@overload
def short_circuit(function: Callable[P, R], /) -> TaskFunction[P, R]: ...


@overload
def short_circuit(
    *, ignore_downstream_trigger_rules: bool = True, **options: Unpack[TaskOptions]
) -> MakesTask: ...


def short_circuit(
    function: Callable[..., Any] | None = None,
    /,
    *,
    ignore_downstream_trigger_rules: bool = True,
    **options: Unpack[TaskOptions],
) -> Any:
    """A task after which everything is skipped, teardowns aside, unless its result is true.

    With ``ignore_downstream_trigger_rules=False`` only the tasks right after it are skipped, and
    what follows is decided by its own trigger rule. Options as of ``@task``.
    """
    picks = Picks.GATE_ALL if ignore_downstream_trigger_rules else Picks.GATE
    return special("short_circuit", function, options, picks=picks)


def latest_only(
    task_id: str = "latest_only", **options: Unpack[PlainTaskOptions]
) -> TaskResult[bool]:
    """A task of the flow that is being built: what is right after it runs in the newest run alone.

    A scheduled run, or one of a backfill, is the newest until the next one of the schedule is due. A
    run that was triggered by hand always counts. Options as of ``@task``.
    """
    target = current("latest_only() is called", "it makes a task there.")

    def is_latest(ctx: Context) -> bool:
        """Whether no run of the schedule has come due since this one was."""
        end = ctx.data_interval_end
        if ctx.run_type == RunType.MANUAL or end is None or target.schedule is None:
            return True
        later = timetable.coming_due(
            target.schedule,
            target.timezone,
            end,
            1,
            start_date=target.start_date,
            end_date=target.end_date,
        )
        return not later or ctx.services.now() < later[0]

    gate = task(task_id=task_id, **options)(is_latest)
    return gate.being(picks=Picks.GATE)()
