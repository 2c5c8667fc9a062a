"""From task instances that are named to those of other runs of their flow: the past, the future."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from scheduler_app.models import Run, TaskInstance
from scheduler_app.rules.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from collections.abc import Sequence

NAMED_MAX: Final = 10_000  # task instances that one act may name


def by_run(ti_ids: Sequence[int]) -> dict[int, list[int]]:
    """The task instances that are named, by run, each run once, in the order of their numbers.

    Raises ``NotFound`` for one that does not exist, ``InvalidInput`` for none and for too many.
    """
    wanted = sorted(set(ti_ids))
    if not wanted:
        raise InvalidInput("Name at least one task instance.", field="task_instances")
    if len(wanted) > NAMED_MAX:
        message = f"{len(wanted)} task instances are named; name at most {NAMED_MAX}, or a filter."
        raise InvalidInput(message, field="task_instances")
    found = dict(TaskInstance.objects.filter(pk__in=wanted).values_list("id", "run_id"))
    for ti_id in wanted:
        if ti_id not in found:
            message = f"there is no task instance {ti_id}"
            raise NotFound(message, field="ti")
    runs: dict[int, list[int]] = {}
    for ti_id in wanted:
        runs.setdefault(found[ti_id], []).append(ti_id)
    return dict(sorted(runs.items()))


def with_dates(
    named: dict[int, list[int]], *, past: bool = False, future: bool = False
) -> dict[int, list[int]]:
    """The same tasks and map indexes in earlier and later runs of the flows too, as asked for.

    Earlier and later by logical date; runs that are set aside are left out. Raises ``InvalidInput``
    for a run without a logical date: it has no past and no future.
    """
    if not (past or future):
        return named
    wider = {run_id: list(ti_ids) for run_id, ti_ids in named.items()}
    for run_id, ti_ids in named.items():
        run = Run.objects.get(pk=run_id)
        if run.logical_date is None:
            message = f"Run {run.run_key} has no logical date, so it has no past and no future."
            raise InvalidInput(message, field="include_past" if past else "include_future")
        others = Run.objects.filter(flow_id=run.flow_id, filter_code__isnull=True)
        others = others.exclude(logical_date__isnull=True).exclude(pk=run_id)
        if not future:
            others = others.filter(logical_date__lt=run.logical_date)
        if not past:
            others = others.filter(logical_date__gt=run.logical_date)
        keys = set(TaskInstance.objects.filter(pk__in=ti_ids).values_list("task_id", "map_index"))
        found = TaskInstance.objects.filter(
            run_id__in=others.values("id"), task_id__in={task_id for task_id, _ in keys}
        ).values_list("id", "run_id", "task_id", "map_index")
        for ti_id, other, task_id, map_index in found:
            own = wider.setdefault(other, [])
            if (task_id, map_index) in keys and ti_id not in own:
                own.append(ti_id)
    return {run_id: sorted(ti_ids) for run_id, ti_ids in sorted(wider.items()) if ti_ids}
