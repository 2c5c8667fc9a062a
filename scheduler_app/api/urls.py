"""The addresses of the API, of health and of metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.http import Http404
from django.urls import URLPattern, URLResolver, include, path, re_path
from drf_spectacular.utils import extend_schema
from drf_spectacular.views import SpectacularAPIView

from scheduler_app.api import (
    attempts,
    audit,
    backfills,
    cases,
    clear,
    connections,
    evidence,
    executor_events,
    flows,
    freezes,
    ghost_audits,
    ghosts,
    guards,
    health,
    incidents,
    jobs,
    key_limits,
    lease_events,
    leases,
    mark,
    metrics,
    pools,
    records,
    reviews,
    run_attempts,
    runs,
    take_overs,
    task_instances,
    tokens,
    triggers,
    variables,
)
from scheduler_app.api.reading import ApiView, NounExport, NounList
from scheduler_app.queries.evidence import Kind
from scheduler_app.rules.freezing import ScopeKind

if TYPE_CHECKING:
    from rest_framework.request import Request
    from rest_framework.response import Response


class ApiDescription(SpectacularAPIView, ApiView):
    """The API in OpenAPI 3; needs a login, as the rest."""

    urlconf = "scheduler_app.api.urls"
    authentication_classes = ApiView.authentication_classes
    permission_classes = ApiView.permission_classes
    renderer_classes = SpectacularAPIView.renderer_classes
    custom_settings = {  # noqa: RUF012 - as drf-spectacular declares it
        "TITLE": "Daylight",
        "VERSION": "1",
        "DESCRIPTION": "A workflow scheduler in which nothing that ran is hidden.",
        "SCHEMA_PATH_PREFIX": "/api/v1",
    }


class UnknownAddress(ApiView):
    """Says that nothing is here, in the shape of every refusal."""

    @extend_schema(exclude=True)
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """404, whatever the method."""
        raise Http404

    post = put = patch = delete = get


def listed(noun: str, listing: type[NounList], one: str, detail: type[ApiView]) -> list[URLPattern]:
    """The addresses of a noun: list, export, one."""
    return [
        path(f"{noun}/", listing.as_view(), name=f"api-{noun}"),
        path(f"{noun}/export/", NounExport.as_view(listing=listing), name=f"api-{noun}-export"),
        path(f"{noun}/{one}/", detail.as_view(), name=f"api-{noun}-one"),
    ]


def frozen(address: str, kind: ScopeKind) -> list[URLPattern]:
    """The addresses that freeze and thaw what ``address`` names."""
    return [
        path(f"{address}freeze/", freezes.Freeze.as_view(kind=kind)),
        path(f"{address}thaw/", freezes.Thaw.as_view(kind=kind)),
    ]


V1: list[URLPattern | URLResolver] = [
    *listed("flows", flows.FlowList, "<str:flow_id>", flows.FlowDetail),
    path("flows/<str:flow_id>/versions/", flows.FlowVersionList.as_view()),
    path("flows/<str:flow_id>/versions/diff/", flows.FlowVersionDiff.as_view()),
    path("flows/<str:flow_id>/versions/<int:number>/", flows.FlowVersionDetail.as_view()),
    path("flows/<str:flow_id>/versions/<int:number>/source/", flows.FlowVersionSource.as_view()),
    path("flows/<str:flow_id>/runs/", runs.RunListOfFlow.as_view()),
    # Not among the runs: any text may be the id of one.
    path("flows/<str:flow_id>/trigger/", runs.RunsOfFlowTrigger.as_view()),
    path("flows/<str:flow_id>/runs/<str:run_id>/", runs.RunDetailByKey.as_view()),
    path("flows/<str:flow_id>/pause/", flows.FlowPause.as_view(is_paused=True)),
    path("flows/<str:flow_id>/unpause/", flows.FlowPause.as_view(is_paused=False)),
    *listed("runs", runs.RunList, "<int:run>", runs.RunDetail),
    path("runs/clear/", clear.RunsClear.as_view()),
    path("runs/<int:run>/clear/", clear.RunClear.as_view()),
    path("clear-batches/<uuid:batch_id>/", clear.ClearBatchDetail.as_view()),
    path("clear-batches/<uuid:batch_id>/go-on/", clear.ClearBatchGoOn.as_view()),
    path("clears/<uuid:plan_id>/undo/", clear.ClearUndo.as_view()),
    path("runs/mark/", mark.RunsMark.as_view()),
    path("runs/<int:run>/mark/", mark.RunMark.as_view()),
    path("runs/<int:run>/retry/", run_attempts.RunRetry.as_view()),
    path("runs/<int:run>/cancel-retry/", run_attempts.RunCancelRetry.as_view()),
    *listed(
        "run-attempts",
        run_attempts.RunAttemptList,
        "<int:run_attempt>",
        run_attempts.RunAttemptDetail,
    ),
    path("runs/<int:run>/groups/", runs.RunGroups.as_view()),
    path("runs/<int:run>/terminate/", runs.RunTerminate.as_view()),
    *listed("freezes", freezes.FreezeList, "<int:freeze>", freezes.FreezeDetail),
    *frozen("runs/<int:scope_id>/", ScopeKind.RUN),
    *frozen("runs/<int:scope_id>/tasks/<str:task_id>/", ScopeKind.TASK),
    *frozen("task-instances/<int:scope_id>/", ScopeKind.TASK_INSTANCE),
    *frozen("flows/<str:scope_id>/", ScopeKind.FLOW),
    *frozen("leases/<int:scope_id>/", ScopeKind.SHARD),
    *frozen("", ScopeKind.ALL),
    *listed(
        "task-instances",
        task_instances.TaskInstanceList,
        "<int:ti>",
        task_instances.TaskInstanceDetail,
    ),
    path("task-instances/clear/", clear.TaskInstancesClear.as_view()),
    path("task-instances/mark/", mark.TaskInstancesMark.as_view()),
    path("task-instances/terminate/", task_instances.TaskInstancesTerminate.as_view()),
    path("task-instances/<int:ti>/clear/", clear.TaskInstanceClear.as_view()),
    path(
        "task-instances/<int:ti>/checkpoints/<int:checkpoint>/",
        task_instances.TaskInstanceCheckpoint.as_view(),
    ),
    path("task-instances/<int:ti>/event/", task_instances.TaskInstanceEvent.as_view()),
    path("task-instances/<int:ti>/mark/", mark.TaskInstanceMark.as_view()),
    path("task-instances/<int:ti>/retry/", task_instances.TaskInstanceRetry.as_view()),
    path("task-instances/<int:ti>/terminate/", task_instances.TaskInstanceTerminate.as_view()),
    *listed("attempts", attempts.AttemptList, "<uuid:attempt_id>", attempts.AttemptDetail),
    path("attempts/<uuid:attempt_id>/log/", attempts.AttemptLog.as_view()),
    *listed(
        "executor-events", executor_events.EventList, "<int:event>", executor_events.EventDetail
    ),
    *listed("leases", leases.LeaseList, "<int:shard>", leases.LeaseDetail),
    path("leases/<int:shard>/release/", leases.LeaseRelease.as_view()),
    *listed(
        "lease-events", lease_events.LeaseEventList, "<int:event>", lease_events.LeaseEventDetail
    ),
    *listed("take-overs", take_overs.TakeOverList, "<int:take_over>", take_overs.TakeOverDetail),
    *listed(
        "take-over-items",
        take_overs.TakeOverItemList,
        "<int:item>",
        take_overs.TakeOverItemDetail,
    ),
    *listed("inquiries", take_overs.InquiryList, "<int:inquiry>", take_overs.InquiryDetail),
    *listed("jobs", jobs.JobList, "<uuid:job_id>", jobs.JobDetail),
    path("jobs/<uuid:job_id>/stop/", jobs.JobStop.as_view()),
    path("jobs/<uuid:job_id>/drain/", jobs.JobDrain.as_view(is_drained=True)),
    path("jobs/<uuid:job_id>/undrain/", jobs.JobDrain.as_view(is_drained=False)),
    *listed("triggers", triggers.TriggerList, "<int:trigger>", triggers.TriggerDetail),
    *listed("pools", pools.PoolList, "<str:name>", pools.PoolDetail),
    path("pools/<str:name>/holders/", pools.PoolHolders.as_view()),
    path("pools/<str:name>/waiting/", pools.PoolWaiters.as_view()),
    path("limits/<path:key>/holders/", key_limits.KeyLimitHolders.as_view()),
    path("limits/<path:key>/waiting/", key_limits.KeyLimitWaiters.as_view()),
    *listed("limits", key_limits.KeyLimitList, "<path:key>", key_limits.KeyLimitDetail),
    path("task-instances/<int:ti>/holders/", task_instances.TaskInstanceHolders.as_view()),
    path("variables/<path:key>/increment/", variables.VariableIncrement.as_view()),
    *listed(
        "connections",
        connections.ConnectionList,
        "<str:connection_id>",
        connections.ConnectionDetail,
    ),
    *listed("variables", variables.VariableList, "<path:key>", variables.VariableDetail),
    *listed(
        "variable-changes",
        variables.VariableChangeList,
        "<int:change>",
        variables.VariableChangeDetail,
    ),
    *listed("cases", cases.CaseList, "<int:case>", cases.CaseDetail),
    *listed("reviews", reviews.ReviewList, "<int:review>", reviews.ReviewDetail),
    path("reviews/<int:review>/approve/", reviews.ReviewApprove.as_view()),
    path("reviews/<int:review>/dismiss/", reviews.ReviewDismiss.as_view()),
    *listed("backfills", backfills.BackfillList, "<int:backfill>", backfills.BackfillDetail),
    path("flows/<str:flow_id>/backfills/", backfills.FlowBackfillList.as_view()),
    *(
        path(f"backfills/<int:backfill>/{act}/", backfills.BackfillAct.as_view(act=act))
        for act in ("pause", "unpause", "cancel", "limit")
    ),
    path("backfills/<str:backfill>/dates/", backfills.BackfillDateList.as_view()),
    *listed(
        "backfill-dates", backfills.BackfillDateList, "<int:date>", backfills.BackfillDateDetail
    ),
    *listed("guards", guards.GuardList, "<int:guard>", guards.GuardDetail),
    path("guards/set/", guards.GuardSet.as_view()),
    path("flows/<str:flow_id>/guards/", guards.FlowGuards.as_view()),
    *listed(
        "automatic-actions",
        guards.AutomaticActionList,
        "<int:action>",
        guards.AutomaticActionDetail,
    ),
    *listed("incidents", incidents.IncidentList, "<int:incident>", incidents.IncidentDetail),
    path("incidents/<int:incident>/acknowledge/", incidents.IncidentAcknowledge.as_view()),
    *listed("alerts", incidents.AlertList, "<int:alert>", incidents.AlertDetail),
    *listed("audit", audit.AuditList, "<int:entry>", audit.AuditDetail),
    *listed("ghosts", ghosts.GhostList, "<int:ghost>", ghosts.GhostDetail),
    path("ghosts/<int:ghost>/stop/", ghosts.GhostStop.as_view()),
    *listed(
        "ghost-audits", ghost_audits.GhostAuditList, "<int:audit>", ghost_audits.GhostAuditDetail
    ),
    path("records/reviewed/", records.RecordsReviewed.as_view(is_reviewed=True)),
    path("records/unreviewed/", records.RecordsReviewed.as_view(is_reviewed=False)),
    *listed("records", records.RecordList, "<str:key>", records.RecordDetail),
    *(
        path(
            f"{address}/evidence/",
            evidence.EvidenceExport.as_view(kind=kind),
            name=f"api-{kind}-evidence",
        )
        for address, kind in (
            ("runs/<int:run>", Kind.RUN),
            ("task-instances/<int:ti>", Kind.TASK_INSTANCE),
            ("attempts/<uuid:attempt_id>", Kind.ATTEMPT),
            ("ghosts/<int:ghost>", Kind.GHOST),
            ("take-overs/<int:take_over>", Kind.TAKE_OVER),
        )
    ),
    path("health/", health.HealthDetail.as_view()),
    path("schema/", ApiDescription.as_view(), name="api-schema"),
    # With a slash at its end alone, so that an address without one is still sent on to the right one.
    re_path(r"^.*/$", UnknownAddress.as_view()),
]

urlpatterns: list[URLPattern | URLResolver] = [
    path("auth/token", tokens.TokenIssue.as_view(), name="api-token"),
    path("auth/token/revoke", tokens.TokenRevoke.as_view()),
    path("auth/token/cli", tokens.TokenIssue.as_view(is_short=True)),
    path("healthz", health.healthz, name="healthz"),
    path("metrics", metrics.exposition, name="metrics"),
    path("api/v1/", include(V1)),
]
