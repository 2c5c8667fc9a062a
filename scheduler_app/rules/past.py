"""May a task start, seen from itself in the run before?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from scheduler_app.rules.capacity import Wait
from scheduler_app.rules.states import TASK_TERMINAL, TaskState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler_app.rules.definition import FlowDefinition

PAST_UNFINISHED: Final = "past_unfinished"
PAST_FAILED: Final = "past_failed"
_LETS_GO: Final = (TaskState.SUCCESS, TaskState.SKIPPED)


def tasks_with_past(definition: FlowDefinition) -> dict[str, tuple[str, ...]]:
    """The tasks that wait for the run before; with each, the tasks after it that count there too."""
    after: dict[str, list[str]] = {}
    for task in definition.tasks:
        for above in task.upstream:
            after.setdefault(above, []).append(task.task_id)
    return {
        task.task_id: tuple(after.get(task.task_id, ())) if task.wait_for_downstream else ()
        for task in definition.tasks
        if task.depends_on_past or task.wait_for_downstream
    }


def wait_for(*, run_key: str, own: TaskState | None, after: Mapping[str, TaskState]) -> Wait | None:
    """What it waits for, or ``None`` where the run before lets it go.

    ``own`` is its state there, null where that run did not have it; ``after`` are the states of what
    has not succeeded or been skipped of the tasks behind it. A failure outranks what is unfinished.
    """
    states = {"it": own, **after} if own is not None else dict(after)
    blocking = {name: state for name, state in states.items() if state not in _LETS_GO}
    for code, is_over in ((PAST_FAILED, True), (PAST_UNFINISHED, False)):
        for name, state in blocking.items():
            if (state in TASK_TERMINAL) is is_over:
                return Wait(code=code, detail=_told(name, state, run_key))
    return None


def _told(name: str, state: TaskState, run_key: str) -> str:
    who = "it" if name == "it" else f"task {name}, which comes after it,"
    if state in TASK_TERMINAL:
        return (
            f"It waits for the run before, {run_key}: there {who} is {state}. Clear or mark that to let"
            " it go"
        )
    return f"It waits for the run before, {run_key}: there {who} is {state}"
