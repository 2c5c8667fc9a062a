"""The audit, as event logs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from django.db.models import Q
from rest_framework.response import Response

from scheduler_app.airflow_api import bodies, parameters, shapes
from scheduler_app.airflow_api.views import AirflowView
from scheduler_app.queries import audit, by_offset
from scheduler_app.rules.errors import NotFound

if TYPE_CHECKING:
    from rest_framework.request import Request

    from scheduler_app.queries.audit import AuditRow

ORDERS: Final = {
    "id": "id",
    "event_log_id": "id",
    "dttm": "at",
    "when": "at",
    "dag_id": "flow_id",
    "event": "action",
    "owner": "actor",
}
UNSUPPORTED: Final = ("task_id", "run_id", "map_index", "try_number", "logical_date")


class EventLogList(AirflowView):
    """Entries of the audit."""

    def get(self, request: Request) -> Response:
        """Entries, page by page."""
        parameters.refuse_unsupported(request, UNSUPPORTED)
        window = parameters.window(request, ORDERS, default="id")
        where = parameters.among(request, "dag_id", "flow_id")
        where &= parameters.among(request, "owner", "actor")
        where &= parameters.among(request, "event", "action")
        where &= parameters.among(request, "included_events", "action")
        left_out = parameters.texts(request, "excluded_events")
        if left_out:
            where &= ~Q(action__in=left_out)
        for name, lookup in (("before", "at__lt"), ("after", "at__gt")):
            given = request.query_params.get(name)
            if given is not None:
                at = parameters.read(["query", name], bodies.moment, given.replace(" ", "+"))
                where &= Q(**{lookup: at})
        where &= parameters.pattern(request, "dag_id", "flow_id")
        where &= parameters.pattern(request, "owner", "actor")
        where &= parameters.pattern(request, "event", "action")
        page = by_offset.page(
            audit.NOUN,
            self.scope,
            where=where,
            order=window.order,
            limit=window.limit,
            offset=window.offset,
        )
        return Response(
            {"event_logs": [_told(row) for row in page.rows], "total_entries": page.total}
        )


class EventLogDetail(AirflowView):
    """One entry."""

    def get(self, request: Request, entry: int) -> Response:
        """Its fields."""
        del request
        try:
            row = audit.one(self.scope, entry)
        except NotFound:
            message = f"The Event Log with id: `{entry}` not found"
            raise NotFound(message) from None
        return Response(_told(row))


def _told(row: AuditRow) -> dict[str, object]:
    changes = {"reason": row.reason, "before": row.before, "after": row.after}
    return shapes.event_log(row, extra=json.dumps(changes, ensure_ascii=False))
