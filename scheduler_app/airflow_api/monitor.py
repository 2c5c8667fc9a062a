"""Health, version, and what the configuration does not tell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db import Error
from rest_framework.permissions import AllowAny
from rest_framework.response import Response

import scheduler_app
from scheduler_app.airflow_api import shapes
from scheduler_app.airflow_api.views import AirflowView, refusal
from scheduler_app.queries import health
from scheduler_app.queries.scope import EVERYTHING
from scheduler_app.rules.states import JobKind

if TYPE_CHECKING:
    from rest_framework.request import Request


class Health(AirflowView):
    """How the parts do; needs no login and always answers 200."""

    authentication_classes = ()
    permission_classes = (AllowAny,)

    def get(self, request: Request) -> Response:
        """The scheduler's progress stands for its heartbeat: it beats only while it gets on."""
        del request
        try:
            _, found = health.components(EVERYTHING)
        except Error:
            nothing: dict[str, Any] = {"status": None}
            return Response(
                {
                    "metadatabase": {"status": "unhealthy"},
                    "scheduler": {**nothing, "latest_scheduler_heartbeat": None},
                    "triggerer": {**nothing, "latest_triggerer_heartbeat": None},
                    "dag_processor": {**nothing, "latest_dag_processor_heartbeat": None},
                }
            )
        by_kind = {one.kind: one for one in found}
        told: dict[str, Any] = {"metadatabase": {"status": "healthy"}}
        # Schedulers read the flow files, too.
        for name, kind in (
            ("scheduler", JobKind.SCHEDULER),
            ("triggerer", JobKind.TRIGGERER),
            ("dag_processor", JobKind.SCHEDULER),
        ):
            one = by_kind[kind]
            told[name] = {
                "status": "healthy" if one.is_healthy else "unhealthy" if one.alive else None,
                f"latest_{name}_heartbeat": shapes.instant(one.progress_at),
            }
        return Response(told)


class Version(AirflowView):
    """Which version this is; needs no login."""

    authentication_classes = ()
    permission_classes = (AllowAny,)

    def get(self, request: Request) -> Response:
        """Daylight's own version: none of Airflow's."""
        del request
        return Response({"version": scheduler_app.__version__, "git_version": None})


class Config(AirflowView):
    """The configuration, which is told to nobody."""

    def get(self, request: Request, **rest: str) -> Response:
        """Refused, in the words that clients look for."""
        del request, rest
        return refusal(
            403,
            "Your Airflow administrator chose not to expose the configuration, most likely for"
            " security reasons.",
        )
