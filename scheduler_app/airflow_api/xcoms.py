"""What tasks handed out: their results and what they pushed, as XCom entries."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from django.db.models import Q
from rest_framework.response import Response

from scheduler_app.airflow_api import parameters, shapes
from scheduler_app.airflow_api.dag_runs import run_of
from scheduler_app.airflow_api.task_instances import instance_of
from scheduler_app.airflow_api.views import AirflowView
from scheduler_app.queries import attempts, by_offset, runs, saving, task_instances
from scheduler_app.rules.errors import NotFound

if TYPE_CHECKING:
    from datetime import datetime

    from rest_framework.request import Request

    from scheduler_app.queries.runs import RunRow
    from scheduler_app.queries.task_instances import TaskInstanceRow

RETURN_VALUE: Final = "return_value"
TASKS_MAX: Final = 1000  # of one list


class XComList(AirflowView):
    """The entries of a task instance; of any task of the run, for ``~``."""

    def get(self, request: Request, dag_id: str, run_id: str, task_id: str) -> Response:
        """Entries without their values, page by page."""
        if parameters.ANYTHING not in (dag_id, run_id):
            run_of(self.scope, dag_id, run_id)
        window = parameters.window(request, {"key": "key"}, default="key")
        where = parameters.named("run__flow_id", dag_id)
        where &= parameters.named("run__run_key", run_id)
        where &= parameters.named("task_id", task_id)
        where &= parameters.numbers(request, "map_index", "map_index")
        found = by_offset.page(
            task_instances.NOUN,
            self.scope,
            where=where & Q(attempt_id__isnull=False),
            order=(("run_id", False), ("task_id", False)),
            limit=TASKS_MAX,
        )
        wanted = request.query_params.get("xcom_key")
        entries = []
        for row in found.rows:
            run = runs.one(self.scope, row.run)
            for key, (_, at) in _handed_out(self, row).items():
                if wanted in (None, key):
                    entries.append(_entry(row, run, key, at))
        part = entries[window.offset : window.offset + window.limit]
        return Response({"xcom_entries": part, "total_entries": len(entries)})


class XComDetail(AirflowView):
    """One entry with its value. What was handed out is a fact: it cannot be changed."""

    def get(self, request: Request, dag_id: str, run_id: str, task_id: str, key: str) -> Response:
        """The value as JSON; as a text of JSON, with ``stringify``."""
        run = run_of(self.scope, dag_id, run_id)
        row = instance_of(self.scope, request, dag_id, run_id, task_id, None)
        handed = _handed_out(self, row)
        if key not in handed:
            message = f"XCom entry with key: `{key}` not found"
            raise NotFound(message)
        value, at = handed[key]
        if parameters.flag(request, "stringify", False):
            value = json.dumps(value, ensure_ascii=False)
        return Response({**_entry(row, run, key, at), "value": value})


def _handed_out(view: AirflowView, row: TaskInstanceRow) -> dict[str, tuple[Any, datetime]]:
    """Values by key, each with its time: of the current attempt."""
    if row.attempt_id is None:
        return {}
    attempt = attempts.one(view.scope, row.attempt_id)
    handed = {pushed.key: (pushed.value, pushed.at) for pushed in saving.pushed_by(attempt.id)}
    if attempt.outcome == "success" and attempt.result is not None and attempt.ended_at:
        handed[RETURN_VALUE] = (attempt.result, attempt.ended_at)
    return dict(sorted(handed.items()))


def _entry(row: TaskInstanceRow, run: RunRow, key: str, at: datetime) -> dict[str, Any]:
    return {
        "key": key,
        "timestamp": shapes.instant(at),
        "logical_date": shapes.instant(run.logical_date),
        "map_index": row.map_index,
        "task_id": row.task_id,
        "dag_id": row.flow_id,
        "run_id": row.run_id,
        "dag_display_name": row.flow_id,
        "task_display_name": row.task_id,
        "run_after": shapes.instant(shapes.run_after(run)),
    }
