"""From task instances that are named to those of other runs of their flow: the past, the future."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from scheduler_app.models import Run, TaskInstance
from scheduler_app.rules.definition import from_dict
from scheduler_app.rules.errors import InvalidInput, NotFound
from scheduler_app.rules.ties import members

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


def of_run(
    run_id: int,
    *,
    tasks: Sequence[tuple[str, int | None]] = (),
    group: str | None = None,
) -> list[int]:
    """The task instances of the run that are named by task, with a map index or all of them, or by group.

    A group takes the groups in it along. Raises ``NotFound`` for what the run does not have.
    """
    run = Run.objects.select_related("version").filter(pk=run_id).first()
    if run is None:
        message = f"there is no run {run_id}"
        raise NotFound(message, field="run")
    wanted = dict.fromkeys(tasks)
    if group is not None:
        definition = from_dict(run.version.definition)
        if group not in {one.group_id for one in definition.groups}:
            message = f"Run {run.run_key} has no group {group!r}."
            raise NotFound(message, field="group")
        wanted |= dict.fromkeys((task_id, None) for task_id in members(definition, group))
    found = list(
        TaskInstance.objects.filter(run_id=run_id, task_id__in={task_id for task_id, _ in wanted})
        .order_by("id")
        .values_list("id", "task_id", "map_index")
    )
    for task_id, index in tasks:
        if not any(index in (None, at) for _, own, at in found if own == task_id):
            which = task_id if index is None else f"{task_id} [{index}]"
            message = f"Run {run.run_key} has no task {which}."
            raise NotFound(message, field="tasks")
    return [ti for ti, own, at in found if (own, None) in wanted or (own, at) in wanted]
