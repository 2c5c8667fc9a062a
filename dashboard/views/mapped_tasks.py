"""A mapped task of one run: all its instances by map index, filtered, paged, and acted on together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dashboard import answer, listing
from dashboard.views.runs import of_task_instances
from scheduler_app.queries import runs, task_instances
from scheduler_app.queries.filters import TaskInstanceFilter
from scheduler_app.rules.errors import NotFound

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse

FIELDS: Final = ("state", "map_index", "map_label", "pool", "queue", "started_at_gte")
LIMIT: Final = 100  # instances a page


@answer.page
def mapped_task(request: HttpRequest, run: int, task_id: str) -> HttpResponse:
    """The instances of one task of the run, by index; those of all states are counted above them."""
    reading = answer.begin(request)
    row = runs.one(reading.scope, run)
    fold = task_instances.fold_of(reading.scope, run, task_id)
    if fold is None:
        message = f"Run {row.run_id} has no mapped task {task_id}."
        raise NotFound(message)
    found = listing.read(
        request,
        reading,
        TaskInstanceFilter,
        task_instances.page,
        noun="task instances",
        fields=FIELDS,
        order="map_index",
        limit=LIMIT,
        run=(run,),
        task_id=(task_id,),
    )
    context = {
        "run": row,
        "task_id": task_id,
        "fold": fold,
        "list": found,
        "of": of_task_instances(reading, found.rows),
        "folds": {},
    }
    return answer.answer(
        request, "dashboard/mapped_task.html", reading, context, topics=[f"run:{run}"]
    )
