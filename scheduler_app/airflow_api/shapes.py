"""Rows as Airflow's objects. Whatever Airflow has no word for stands under ``daylight``."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from scheduler_app.rules.definition import TriggerRule

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from scheduler_app.queries.attempts import AttemptBrief, AttemptRow
    from scheduler_app.queries.audit import AuditRow
    from scheduler_app.queries.connections import ConnectionRow
    from scheduler_app.queries.flow_versions import FlowVersionDetail
    from scheduler_app.queries.flows import FlowRow
    from scheduler_app.queries.pools import PoolRow
    from scheduler_app.queries.runs import RunDates, RunRow
    from scheduler_app.queries.task_instances import TaskInstanceRow
    from scheduler_app.queries.variables import VariableRow
    from scheduler_app.rules.definition import TaskDefinition

Json = dict[str, Any]
TRIGGERED_BY: Final = {"scheduled": "timetable", "backfill": "backfill"}
MASK: Final = "***"


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """What objects of task instances say of their runs and attempts, read once for a page."""

    runs: Mapping[int, RunDates]
    attempts: Mapping[UUID, AttemptBrief]


def instant(at: datetime | None) -> str | None:
    """ISO 8601 in UTC."""
    return None if at is None else at.astimezone(UTC).isoformat().replace("+00:00", "Z")


def dag(row: FlowRow, *, faulty: Collection[str]) -> Json:
    """A flow."""
    return {
        "dag_id": row.flow_id,
        "dag_display_name": row.flow_id,
        "is_paused": row.is_paused,
        "is_stale": row.removed_at is not None,
        "last_parsed_time": instant(row.updated_at),
        "last_parse_duration": None,
        "last_expired": instant(row.removed_at),
        "bundle_name": row.folder or None,
        "bundle_version": None if row.version is None else str(row.version),
        "relative_fileloc": row.path,
        "fileloc": f"{row.folder}/{row.path}",
        "description": row.description or None,
        "timetable_summary": row.schedule,
        "timetable_description": None
        if row.schedule is None
        else f"{row.schedule} ({row.timezone})",
        "timetable_partitioned": False,
        "timetable_periodic": row.schedule is not None,
        "tags": [
            {"name": tag, "dag_id": row.flow_id, "dag_display_name": row.flow_id}
            for tag in row.tags
        ],
        "max_active_tasks": row.max_active_tasks or 0,
        "max_active_runs": row.max_active_runs,
        "max_consecutive_failed_dag_runs": 0,
        "has_task_concurrency_limits": False,
        "has_import_errors": row.flow_id in faulty,
        "next_dagrun_logical_date": instant(row.next_interval_start),
        "next_dagrun_data_interval_start": instant(row.next_interval_start),
        "next_dagrun_data_interval_end": instant(row.next_interval_end),
        "next_dagrun_run_after": instant(row.next_interval_end),
        "allowed_run_types": None,
        "owners": [row.owner] if row.owner else [],
        "is_backfillable": False,
        "file_token": "",
        "daylight": {
            "state": row.state,
            "shard": row.shard,
            "version": row.version,
            "frozen_at": instant(row.frozen_at),
            "timezone": row.timezone,
        },
    }


def dag_details(row: FlowRow, *, faulty: Collection[str]) -> Json:
    """A flow with what its definition says."""
    return {
        **dag(row, faulty=faulty),
        "catchup": bool(row.catchup),
        "concurrency": row.max_active_tasks or 0,
        "render_template_as_native_obj": False,
        "dag_run_timeout": None,
        "doc_md": row.description or None,
        "params": row.defaults,
        "timezone": row.timezone,
        "start_date": None,
        "end_date": None,
        "last_parsed": instant(row.updated_at),
        "template_search_path": None,
        "default_args": None,
        "owner_links": {},
        "latest_dag_version": None,
    }


def run_after(row: RunRow | RunDates) -> datetime:
    """When the run was due: its interval's end, or when somebody asked for it."""
    due = None if row.run_type == "manual" else row.data_interval_end
    return due or row.created_at


def dag_run(row: RunRow) -> Json:
    """A run."""
    return {
        "dag_run_id": row.run_id,
        "dag_id": row.flow_id,
        "dag_display_name": row.flow_id,
        "logical_date": instant(row.logical_date),
        "queued_at": instant(row.queued_at),
        "start_date": instant(row.started_at),
        "end_date": instant(row.ended_at),
        "duration": _seconds(row.started_at, row.ended_at),
        "data_interval_start": instant(row.data_interval_start),
        "data_interval_end": instant(row.data_interval_end),
        "run_after": instant(run_after(row)),
        "last_scheduling_decision": None,
        "run_type": row.run_type,
        "state": row.state_beneath,
        "triggered_by": "operator" if row.triggered_by else TRIGGERED_BY.get(row.run_type),
        "triggering_user_name": row.actor or None,
        "conf": dict(row.conf or {}),
        "note": row.note or None,
        "dag_versions": [],
        "bundle_version": str(row.version),
        "partition_key": None,
        "partition_date": None,
        "daylight": {
            "id": row.id,
            "state": row.state,
            "state_reason": row.state_reason,
            "run_attempt": row.run_attempt,
            "version": row.version,
            "shard": row.shard,
            "frozen_at": instant(row.frozen_at),
            "retry_at": instant(row.retry_at),
        },
    }


def task_instance_id(number: int) -> str:
    """The UUID that stands for the number of a task instance, as clients want one."""
    return str(UUID(int=number))


def task_instance(row: TaskInstanceRow, family: Family) -> Json:
    """A task instance."""
    run = family.runs.get(row.run)
    attempt = None if row.attempt_id is None else family.attempts.get(row.attempt_id)
    return {
        "id": task_instance_id(row.id),
        "task_id": row.task_id,
        "dag_id": row.flow_id,
        "dag_run_id": row.run_id,
        "map_index": row.map_index,
        "logical_date": None if run is None else instant(run.logical_date),
        "run_after": None if run is None else instant(run_after(run)),
        "start_date": instant(row.started_at),
        "end_date": instant(row.ended_at),
        "duration": _seconds(row.started_at, row.ended_at),
        "state": None if row.state_beneath == "none" else row.state_beneath,
        "try_number": row.try_number,
        "max_tries": row.max_tries,
        "task_display_name": row.task_id,
        "dag_display_name": row.flow_id,
        "hostname": None if attempt is None else attempt.hostname,
        "unixname": None,
        "pool": row.pool,
        "pool_slots": row.pool_slots,
        "queue": row.queue,
        "priority_weight": row.priority,
        "operator": None,
        "operator_name": None,
        "queued_when": instant(row.queued_at),
        "scheduled_when": instant(row.ready_at),
        "pid": None if attempt is None else attempt.pid,
        "executor": None,
        "executor_config": "{}",
        "note": getattr(row, "note", None) or None,
        "rendered_map_index": _rendered_index(row),
        "rendered_fields": {},
        "trigger": None,
        "triggerer_job": None,
        "dag_version": None,
        "daylight": {
            "id": row.id,
            "state": row.state,
            "attempt_id": None if row.attempt_id is None else str(row.attempt_id),
            "tries": row.tries,
            "held_by": row.held_by,
            "next_retry_at": instant(row.next_retry_at),
            "wait": row.wait,
        },
    }


def _rendered_index(row: TaskInstanceRow) -> str | None:
    """What people see in place of the index: its label, or else the index; of a mapped one alone."""
    if row.map_index < 0:
        return None
    return row.map_label or str(row.map_index)


def task_instance_try(row: TaskInstanceRow, attempt: AttemptRow) -> Json:
    """A try of a task instance: its newest attempt."""
    state = row.state_beneath if attempt.id == row.attempt_id else attempt.outcome
    known = {"lost": "failed", "terminated": "failed", "rescheduled": "up_for_reschedule"}
    return {
        "task_id": row.task_id,
        "dag_id": row.flow_id,
        "dag_run_id": row.run_id,
        "map_index": row.map_index,
        "start_date": instant(attempt.started_at),
        "end_date": instant(attempt.ended_at),
        "duration": _seconds(attempt.started_at, attempt.ended_at),
        "state": None if state in (None, "none") else known.get(str(state), state),
        "try_number": attempt.try_number,
        "max_tries": row.max_tries,
        "task_display_name": row.task_id,
        "dag_display_name": row.flow_id,
        "hostname": attempt.hostname,
        "unixname": None,
        "pool": attempt.pool,
        "pool_slots": attempt.pool_slots,
        "queue": attempt.queue,
        "priority_weight": row.priority,
        "operator": None,
        "operator_name": None,
        "queued_when": instant(attempt.issued_at),
        "scheduled_when": instant(attempt.issued_at),
        "pid": attempt.pid,
        "executor": None,
        "executor_config": "{}",
        "dag_version": None,
        "daylight": {
            "attempt_id": str(attempt.id),
            "outcome": attempt.outcome,
            "outcome_reason": attempt.outcome_reason,
            "filter_code": attempt.filter_code,
            "filter_reason": attempt.filter_reason,
        },
    }


def task(definition: TaskDefinition, version: FlowVersionDetail) -> Json:
    """A task of a flow's current version."""
    graph = version.graph()
    return {
        "task_id": definition.task_id,
        "task_display_name": definition.task_id,
        "owner": graph.owner or None,
        "start_date": graph.start_date,
        "end_date": graph.end_date,
        "trigger_rule": TriggerRule(definition.trigger_rule).value
        if definition.trigger_rule in list(TriggerRule)
        else str(definition.trigger_rule),
        "depends_on_past": False,
        "wait_for_downstream": False,
        "retries": definition.retries,
        "queue": definition.queue,
        "pool": definition.pool,
        "pool_slots": definition.pool_slots,
        "execution_timeout": _delta(definition.timeout_s),
        "retry_delay": _delta(definition.retry_delay_s),
        "retry_exponential_backoff": float(definition.backoff),
        "priority_weight": definition.priority,
        "weight_rule": "absolute",
        "ui_color": None,
        "ui_fgcolor": None,
        "template_fields": [],
        "downstream_task_ids": sorted(
            one.task_id for one in graph.tasks if definition.task_id in one.upstream
        ),
        "doc_md": definition.doc or None,
        "operator_name": None,
        "params": {},
        "class_ref": None,
        "is_mapped": False,
        "extra_links": [],
        "daylight": {"upstream_task_ids": list(definition.upstream), "line": definition.line},
    }


def pool(row: PoolRow) -> Json:
    """A pool."""
    return {
        "name": row.name,
        "slots": row.slots,
        "description": row.description or None,
        "include_deferred": row.include_deferred,
        "team_name": None,
        "occupied_slots": row.running_slots + row.queued_slots,
        "running_slots": row.running_slots,
        "queued_slots": row.queued_slots,
        "scheduled_slots": 0,
        "open_slots": row.open_slots,
        "deferred_slots": 0,
    }


def connection(row: ConnectionRow) -> Json:
    """A connection; its password and what its extras say are masked."""
    extra = json.dumps(dict.fromkeys(row.extra_keys, MASK), ensure_ascii=False)
    return {
        "connection_id": row.connection_id,
        "conn_type": row.conn_type,
        "description": row.description or None,
        "host": row.host or None,
        "login": row.login or None,
        "schema": row.schema or None,
        "port": row.port,
        "password": MASK if row.has_password else None,
        "extra": extra if row.extra_keys else None,
        "team_name": None,
        "daylight": {
            "version": row.version,
            "updated_at": instant(row.updated_at),
            "updated_by": row.updated_by,
        },
    }


def variable(row: VariableRow) -> Json:
    """A variable, its value as a text; that of a secret is masked."""
    value = row.value if isinstance(row.value, str) else json.dumps(row.value, ensure_ascii=False)
    return {
        "key": row.key,
        "value": MASK if row.is_secret else value,
        "description": row.description or None,
        "is_encrypted": row.is_secret,
        "team_name": None,
        "daylight": {
            "value": MASK if row.is_secret else row.value,  # with its type
            "version": row.version,
            "updated_at": instant(row.updated_at),
            "updated_by": row.updated_by,
        },
    }


def event_log(row: AuditRow, *, extra: str | None) -> Json:
    """An entry of the audit."""
    return {
        "event_log_id": row.id,
        "when": instant(row.at),
        "dag_id": row.flow_id,
        "dag_display_name": row.flow_id,
        "task_id": None,
        "run_id": None,
        "map_index": None,
        "try_number": None,
        "event": row.action,
        "logical_date": None,
        "owner": row.actor,
        "extra": extra,
        "daylight": {
            "object_kind": row.object_kind,
            "object_id": row.object_id,
            "reason": row.reason,
        },
    }


def _seconds(start: datetime | None, end: datetime | None) -> float | None:
    return None if start is None or end is None else max(0.0, (end - start).total_seconds())


def _delta(seconds: float | None) -> Json | None:
    if seconds is None:
        return None
    delta = timedelta(seconds=seconds)
    return {
        "__type": "TimeDelta",
        "days": delta.days,
        "seconds": delta.seconds,
        "microseconds": delta.microseconds,
    }
