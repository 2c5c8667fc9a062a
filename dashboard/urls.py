"""Addresses of the pages; each is called as its view and its template."""

from __future__ import annotations

from django.contrib.auth.views import LogoutView
from django.urls import URLPattern, path, register_converter

from dashboard.converters import FlowId, RunKey
from dashboard.views import (
    attempts,
    backfills,
    clear,
    clear_batch,
    connections,
    executor_events,
    filtered,
    flows,
    freezes,
    guards,
    home,
    incidents,
    jobs,
    key_limits,
    leases,
    mapped_tasks,
    mark,
    pools,
    preferences,
    reviews,
    runs,
    task_instances,
    variables,
)
from dashboard.views.sign_in import SignInView
from scheduler_app.rules.freezing import ScopeKind

app_name = "dashboard"

register_converter(FlowId, "flow_id")
register_converter(RunKey, "run_key")


def _frozen(address: str, kind: ScopeKind) -> list[URLPattern]:
    """The sheets that freeze and thaw what ``address`` names."""
    return [
        path(f"{address}freeze/", freezes.freeze_sheet, {"kind": kind}, name=f"{kind}_freeze"),
        path(f"{address}thaw/", freezes.thaw_sheet, {"kind": kind}, name=f"{kind}_thaw"),
    ]


urlpatterns = [
    path("", home.home, name="home"),
    path("login/", SignInView.as_view(), name="login"),
    path("logout/", LogoutView.as_view(), name="logout"),
    path("preferences/look/", preferences.set_look, name="set_look"),
    path("flows/", flows.flow_list, name="flow_list"),
    path("flows/<flow_id:flow_id>/", flows.flow_detail, name="flow_detail"),
    path("flows/<flow_id:flow_id>/trigger/", flows.flow_trigger, name="flow_trigger"),
    path("flows/<flow_id:flow_id>/backfill/", backfills.flow_backfill, name="flow_backfill"),
    path("flows/<flow_id:flow_id>/pause/", flows.flow_pause, name="flow_pause"),
    path("flows/<flow_id:flow_id>/unpause/", flows.flow_unpause, name="flow_unpause"),
    path("flows/<flow_id:flow_id>/runs/<run_key:run_id>/", runs.run_by_key, name="run_by_key"),
    path("runs/", runs.run_list, name="run_list"),
    path("runs/<int:run>/", runs.run_detail, name="run_detail"),
    path(
        "runs/<int:run>/mapped/<flow_id:task_id>/",
        mapped_tasks.mapped_task,
        name="mapped_task",
    ),
    path("runs/<int:run>/clear/", clear.run_clear, name="run_clear"),
    path("runs/clear/", clear_batch.runs_clear, name="runs_clear"),
    path("runs/freeze/", freezes.runs_freeze, name="runs_freeze"),
    path("clear-batches/<uuid:batch_id>/", clear_batch.clear_batch, name="clear_batch"),
    path("clears/<uuid:plan>/undo/", clear_batch.clear_undo, name="clear_undo"),
    path("runs/mark/", mark.runs_mark, name="runs_mark"),
    path("runs/<int:run>/mark/", mark.run_mark, name="run_mark"),
    path("runs/<int:run>/retry/", runs.run_retry, name="run_retry"),
    path("runs/<int:run>/cancel-retry/", runs.run_cancel_retry, name="run_cancel_retry"),
    path("runs/<int:run>/terminate/", runs.run_terminate, name="run_terminate"),
    *_frozen("runs/<int:scope_id>/", ScopeKind.RUN),
    *_frozen("mapped/<path:scope_id>/", ScopeKind.TASK),
    *_frozen("task-instances/<int:scope_id>/", ScopeKind.TASK_INSTANCE),
    *_frozen("flows/<flow_id:scope_id>/", ScopeKind.FLOW),
    *_frozen("leases/<int:scope_id>/", ScopeKind.SHARD),
    *_frozen("", ScopeKind.ALL),
    path("task-instances/", task_instances.task_instance_list, name="task_instance_list"),
    path(
        "task-instances/<int:ti>/",
        task_instances.task_instance_detail,
        name="task_instance_detail",
    ),
    path(
        "task-instances/<int:ti>/clear/",
        clear.task_instance_clear,
        name="task_instance_clear",
    ),
    path("task-instances/clear/", clear_batch.task_instances_clear, name="task_instances_clear"),
    path("task-instances/freeze/", freezes.task_instances_freeze, name="task_instances_freeze"),
    path(
        "task-instances/terminate/",
        task_instances.task_instances_terminate,
        name="task_instances_terminate",
    ),
    path("task-instances/mark/", mark.task_instances_mark, name="task_instances_mark"),
    path("task-instances/<int:ti>/mark/", mark.task_instance_mark, name="task_instance_mark"),
    path(
        "task-instances/<int:ti>/retry/",
        task_instances.task_instance_retry,
        name="task_instance_retry",
    ),
    path(
        "task-instances/<int:ti>/terminate/",
        task_instances.task_instance_terminate,
        name="task_instance_terminate",
    ),
    path("attempts/", attempts.attempt_list, name="attempt_list"),
    path("attempts/<uuid:attempt_id>/", attempts.attempt_detail, name="attempt_detail"),
    path("attempts/<uuid:attempt_id>/log/", attempts.attempt_log, name="attempt_log"),
    path("executor-events/", executor_events.executor_event_list, name="executor_event_list"),
    path(
        "executor-events/<int:event>/",
        executor_events.executor_event_detail,
        name="executor_event_detail",
    ),
    path("filtered/", filtered.record_list, name="record_list"),
    path(
        "filtered/reviewed/",
        filtered.reviewed,
        {"is_reviewed": True},
        name="record_reviewed",
    ),
    path(
        "filtered/unreviewed/",
        filtered.reviewed,
        {"is_reviewed": False},
        name="record_unreviewed",
    ),
    path("ghosts/", filtered.ghost_list, name="ghost_list"),
    path("ghosts/audits/", filtered.ghost_audit_list, name="ghost_audit_list"),
    path("ghosts/<int:ghost>/", filtered.ghost_detail, name="ghost_detail"),
    path("ghosts/<int:ghost>/stop/", filtered.ghost_stop, name="ghost_stop"),
    path("backfills/", backfills.backfill_list, name="backfill_list"),
    path("backfills/<int:backfill>/", backfills.backfill_detail, name="backfill_detail"),
    path("backfills/<int:backfill>/limit/", backfills.backfill_limit, name="backfill_limit"),
    *(
        path(
            f"backfills/<int:backfill>/{verb}/",
            backfills.backfill_act,
            {"verb": verb},
            name=f"backfill_{verb}",
        )
        for verb in ("pause", "unpause", "cancel")
    ),
    path("incidents/", incidents.incident_list, name="incident_list"),
    path("incidents/<int:incident>/", incidents.incident_detail, name="incident_detail"),
    path(
        "incidents/<int:incident>/acknowledge/",
        incidents.incident_acknowledge,
        name="incident_acknowledge",
    ),
    path("leases/", leases.lease_list, name="lease_list"),
    path("leases/<int:shard>/release/", leases.lease_release, name="lease_release"),
    path("leases/take-overs/<int:take_over>/", leases.take_over_detail, name="take_over_detail"),
    path("jobs/", jobs.job_list, name="job_list"),
    path("jobs/<uuid:job_id>/stop/", jobs.job_stop, name="job_stop"),
    path("jobs/<uuid:job_id>/drain/", jobs.job_drain, {"is_drained": True}, name="job_drain"),
    path("jobs/<uuid:job_id>/undrain/", jobs.job_drain, {"is_drained": False}, name="job_undrain"),
    path("pools/", pools.pool_list, name="pool_list"),
    path("pools/new/", pools.pool_new, name="pool_new"),
    path("pools/edit/<path:name>/", pools.pool_edit, name="pool_edit"),
    path("pools/delete/<path:name>/", pools.pool_delete, name="pool_delete"),
    path("pools/of/<path:name>/", pools.pool_detail, name="pool_detail"),
    path("limits/", key_limits.limit_list, name="limit_list"),
    path("limits/new/", key_limits.limit_new, name="limit_new"),
    path("limits/edit/<path:key>/", key_limits.limit_edit, name="limit_edit"),
    path("limits/remove/<path:key>/", key_limits.limit_remove, name="limit_remove"),
    path("limits/of/<path:key>/", key_limits.limit_detail, name="limit_detail"),
    path("connections/", connections.connection_list, name="connection_list"),
    path("connections/new/", connections.connection_new, name="connection_new"),
    path(
        "connections/edit/<str:connection_id>/", connections.connection_edit, name="connection_edit"
    ),
    path(
        "connections/delete/<str:connection_id>/",
        connections.connection_delete,
        name="connection_delete",
    ),
    path(
        "connections/of/<str:connection_id>/",
        connections.connection_detail,
        name="connection_detail",
    ),
    path("variables/", variables.variable_list, name="variable_list"),
    path("variables/new/", variables.variable_new, name="variable_new"),
    path("variables/<path:key>/edit/", variables.variable_edit, name="variable_edit"),
    path("variables/<path:key>/delete/", variables.variable_delete, name="variable_delete"),
    path("variables/<path:key>/", variables.variable_detail, name="variable_detail"),
    path("reviews/", reviews.review_list, name="review_list"),
    path("reviews/<int:review>/", reviews.review_detail, name="review_detail"),
    path(
        "reviews/<int:review>/approve/",
        reviews.review_decide,
        {"is_approved": True},
        name="review_approve",
    ),
    path(
        "reviews/<int:review>/dismiss/",
        reviews.review_decide,
        {"is_approved": False},
        name="review_dismiss",
    ),
    path("guards/", guards.guard_list, name="guard_list"),
    path("guards/set/", guards.guard_set, name="guard_set"),
    path("guards/stop/", guards.guard_switch, {"is_stopped": True}, name="guard_stop"),
    path("guards/start/", guards.guard_switch, {"is_stopped": False}, name="guard_start"),
]
