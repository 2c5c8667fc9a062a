"""Backfills: lists, one, asking for one, and pausing or cancelling it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from django.db.models import Q
from rest_framework.response import Response

from scheduler_app.airflow_api import bodies, parameters
from scheduler_app.airflow_api.bodies import Field
from scheduler_app.airflow_api.dags import dag_of
from scheduler_app.airflow_api.shapes import instant
from scheduler_app.airflow_api.views import REASON, AirflowView
from scheduler_app.operations import backfill as operations
from scheduler_app.queries import backfills, by_offset
from scheduler_app.rules.backfill import ACTIVE_RUNS_DEFAULT, DateState, Reprocess
from scheduler_app.rules.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from rest_framework.request import Request

    from scheduler_app.operations.backfill import BackfillPlan
    from scheduler_app.queries.backfills import BackfillRow

ORDERS: Final = {
    "id": "id",
    "dag_id": "flow_id",
    "from_date": "from_date",
    "to_date": "to_date",
    "created_at": "created_at",
    "completed_at": "ended_at",
}
REPROCESS: Final = {  # Airflow's words for which runs begin again
    "none": Reprocess.NONE,
    "failed": Reprocess.FAILED,
    "completed": Reprocess.ALL,
}
BACKFILL: Final = {
    "dag_id": Field(bodies.text),
    "from_date": Field(bodies.moment),
    "to_date": Field(bodies.moment),
    "run_backwards": Field(bodies.boolean, False),
    "dag_run_conf": Field(bodies.optional(bodies.mapping), None),
    "reprocess_behavior": Field(bodies.choice(*REPROCESS), "none"),
    "max_active_runs": Field(bodies.integer, ACTIVE_RUNS_DEFAULT),
    "run_on_latest_version": Field(bodies.optional(bodies.boolean), None),
}


class _Asking(AirflowView):
    """A view that a backfill is asked of."""

    def planned(self, request: Request, *, dry_run: bool) -> BackfillPlan:
        """What is asked for, made or only looked at. Raises as Airflow answers."""
        body = bodies.read(request, BACKFILL)
        dag_of(self.scope, body["dag_id"])
        if body["run_on_latest_version"] is False:
            message = "A backfill executes the version that the flow has when it is asked for."
            raise InvalidInput(message, field="run_on_latest_version")
        return operations.create_backfill(
            flow_id=body["dag_id"],
            from_date=body["from_date"],
            to_date=body["to_date"],
            actor=self.actor,
            reason=REASON,
            run_backwards=body["run_backwards"],
            reprocess=REPROCESS[body["reprocess_behavior"]],
            max_active_runs=body["max_active_runs"],
            conf=body["dag_run_conf"],
            dry_run=dry_run,
        )


class BackfillList(_Asking):
    """Backfills; a POST asks for one."""

    def get(self, request: Request) -> Response:
        """Backfills, page by page."""
        window = parameters.window(request, ORDERS, default="id")
        where = parameters.among(request, "dag_id", "flow_id")
        active = parameters.flag(request, "active")
        if active is not None:
            where &= Q(ended_at__isnull=active)
        page = by_offset.page(
            backfills.NOUN,
            self.scope,
            where=where,
            order=window.order,
            limit=window.limit,
            offset=window.offset,
        )
        return Response(
            {"backfills": [_backfill(row) for row in page.rows], "total_entries": page.total}
        )

    def post(self, request: Request) -> Response:
        """Its dates wait for their runs."""
        plan = self.planned(request, dry_run=False)
        assert plan.id is not None, "it was made"
        return Response(_backfill(backfills.one(self.scope, plan.id)))


class BackfillDryRun(_Asking):
    """What a backfill would do."""

    def post(self, request: Request) -> Response:
        """The dates that would get a run, in the order of their turn; nothing changes."""
        plan = self.planned(request, dry_run=True)
        dates = [one for one in plan.dates if one.state is not DateState.SKIPPED]
        return Response(
            {
                "backfills": [
                    {
                        "logical_date": instant(one.logical_date),
                        "partition_key": None,
                        "partition_date": None,
                    }
                    for one in dates
                ],
                "total_entries": len(dates),
                "daylight": {"counts": plan.counts},
            }
        )


class BackfillDetail(AirflowView):
    """One backfill."""

    def get(self, request: Request, backfill_id: int) -> Response:
        """Its fields."""
        del request
        return Response(_backfill(_one(self, backfill_id)))


class BackfillAct(AirflowView):
    """Pausing a backfill, going on with it, or cancelling it."""

    verb = ""

    def put(self, request: Request, backfill_id: int) -> Response:
        """It is so; 409 for one that is over."""
        del request
        _one(self, backfill_id)
        if self.verb == "cancel":
            operations.cancel_backfill(backfill_id=backfill_id, actor=self.actor, reason=REASON)
        else:
            operations.pause_backfill(
                backfill_id=backfill_id,
                is_paused=self.verb == "pause",
                actor=self.actor,
                reason=REASON,
            )
        return Response(_backfill(_one(self, backfill_id)))


def _one(view: AirflowView, backfill_id: int) -> BackfillRow:
    try:
        return backfills.one(view.scope, backfill_id)
    except NotFound:
        message = f"Could not find backfill with id {backfill_id}"
        raise NotFound(message) from None


def _backfill(row: BackfillRow) -> dict[str, Any]:
    moments = (row.created_at, row.paused_at, row.cancelled_at, row.ended_at)
    return {
        "id": row.id,
        "dag_id": row.flow_id,
        "dag_display_name": row.flow_id,
        "from_date": instant(row.from_date),
        "to_date": instant(row.to_date),
        "dag_run_conf": row.conf,
        "is_paused": row.paused_at is not None,
        "reprocess_behavior": next(word for word, own in REPROCESS.items() if own == row.reprocess),
        "max_active_runs": row.max_active_runs,
        "created_at": instant(row.created_at),
        "completed_at": instant(row.ended_at),
        "updated_at": instant(max(at for at in moments if at is not None)),
        "daylight": {
            "state": row.state,
            "is_backwards": row.is_backwards,
            "actor": row.actor,
            "dates": row.dates,
            "waiting": row.waiting,
            "skipped": row.skipped,
            "active_runs": row.active_runs,
            "failed_runs": row.failed_runs,
        },
    }
