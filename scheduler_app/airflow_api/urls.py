"""The addresses below ``/api/v2/``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.urls import URLPattern, URLResolver, path, re_path, register_converter

from scheduler_app.airflow_api import (
    backfills,
    clearing,
    connections,
    dag_runs,
    dags,
    event_logs,
    logs,
    marking,
    monitor,
    more,
    pools,
    task_instances,
    variables,
    xcoms,
)
from scheduler_app.airflow_api.views import UnknownAddress

if TYPE_CHECKING:
    from rest_framework.views import APIView


class MapIndex:
    """A map index: -1 for a task that is not mapped."""

    regex = r"-1|[0-9]{1,9}"

    def to_python(self, value: str) -> int:
        """The number."""
        return int(value)

    def to_url(self, value: int) -> str:
        """The text."""
        return str(value)


register_converter(MapIndex, "map_index")

RUN = "dags/<str:dag_id>/dagRuns/<str:run_id>"
TASK = f"{RUN}/taskInstances/<str:task_id>"
MAPPED = f"{TASK}/<map_index:map_index>"


def _of_task(ending: str, view: type[APIView]) -> list[URLPattern]:
    """The address of a task instance and its mapped twin."""
    return [path(f"{TASK}{ending}", view.as_view()), path(f"{MAPPED}{ending}", view.as_view())]


urlpatterns: list[URLPattern | URLResolver] = [
    path("version", monitor.Version.as_view()),
    path("monitor/health", monitor.Health.as_view()),
    path("config", monitor.Config.as_view()),
    path("config/section/<str:section>/option/<str:option>", monitor.Config.as_view()),
    path("dags", dags.DagList.as_view()),
    path("dags/<str:dag_id>", dags.DagDetail.as_view()),
    path("dags/<str:dag_id>/details", dags.DagDetails.as_view()),
    path("dags/<str:dag_id>/tasks", dags.TaskList.as_view()),
    path("dags/<str:dag_id>/tasks/<str:task_id>", dags.TaskDetail.as_view()),
    path("dags/<str:dag_id>/clearTaskInstances", clearing.TaskInstancesClear.as_view()),
    path("dags/<str:dag_id>/clearDagRuns", clearing.DagRunsClear.as_view()),
    path("dags/~/dagRuns/list", dag_runs.DagRunBatch.as_view()),
    path("dags/~/dagRuns/~/taskInstances/list", task_instances.TaskInstanceBatch.as_view()),
    path("dags/<str:dag_id>/dagRuns", dag_runs.DagRunList.as_view()),
    path(RUN, marking.MarkedDagRun.as_view()),
    path("dags/<str:dag_id>/dagVersions", more.DagVersions.as_view()),
    path("dags/<str:dag_id>/dagVersions/<int:number>", more.DagVersions.as_view()),
    path("dagSources/<str:dag_id>", more.DagSources.as_view()),
    path("dagStats", more.DagStats.as_view()),
    path("dagTags", more.DagTags.as_view()),
    path("importErrors", more.ImportErrors.as_view()),
    path("importErrors/<int:number>", more.ImportError_.as_view()),
    path(f"{RUN}/wait", more.Wait.as_view()),
    path(f"{RUN}/clear", clearing.DagRunClear.as_view()),
    path(f"{RUN}/taskInstances", task_instances.TaskInstanceList.as_view()),
    *_of_task("", marking.MarkedTaskInstance),
    path(f"{TASK}/dry_run", marking.MarkedTaskInstance.as_view(is_dry_run=True)),
    path(f"{MAPPED}/dry_run", marking.MarkedTaskInstance.as_view(is_dry_run=True)),
    path(f"{TASK}/listMapped", task_instances.MappedList.as_view()),
    *_of_task("/tries", task_instances.Tries),
    *_of_task("/tries/<int:number>", task_instances.Tries),
    *_of_task("/dependencies", task_instances.Dependencies),
    *_of_task("/logs/<int:number>", logs.Log),
    *_of_task("/externalLogUrl/<int:number>", more.ExternalLogUrl),
    *_of_task("/links", more.Links),
    path(f"{TASK}/xcomEntries", xcoms.XComList.as_view()),
    path(f"{TASK}/xcomEntries/<path:key>", xcoms.XComDetail.as_view()),
    path("backfills", backfills.BackfillList.as_view()),
    path("backfills/dry_run", backfills.BackfillDryRun.as_view()),
    path("backfills/<int:backfill_id>", backfills.BackfillDetail.as_view()),
    *(
        path(f"backfills/<int:backfill_id>/{verb}", backfills.BackfillAct.as_view(verb=verb))
        for verb in ("pause", "unpause", "cancel")
    ),
    path("variables", variables.VariableList.as_view()),
    path("variables/<path:key>", variables.VariableDetail.as_view()),
    path("connections", connections.ConnectionList.as_view()),
    path("connections/test", connections.ConnectionTest.as_view()),
    path("connections/<str:connection_id>", connections.ConnectionDetail.as_view()),
    path("pools", pools.PoolList.as_view()),
    path("pools/<path:name>", pools.PoolDetail.as_view()),
    path("eventLogs", event_logs.EventLogList.as_view()),
    path("eventLogs/<int:entry>", event_logs.EventLogDetail.as_view()),
    re_path(r"^.*$", UnknownAddress.as_view()),
]
