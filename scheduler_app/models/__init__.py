"""The records: one row per thing that happened or is wanted.

Comes in: writes by ``transitions/`` alone. Goes out: rows, to every room above.
What never happens here: decisions, saves that move state, signals.
"""

from __future__ import annotations

from scheduler_app.models.api_token import ApiToken
from scheduler_app.models.artifact import Artifact
from scheduler_app.models.attempt import Attempt, AttemptLogChunk
from scheduler_app.models.audit import (
    Alert,
    Audit,
    Case,
    Counter,
    Freeze,
    Incident,
    Installation,
)
from scheduler_app.models.backfill import Backfill, BackfillDate
from scheduler_app.models.checkpoint import Checkpoint, CheckpointSave, Progress, PushedValue
from scheduler_app.models.clear import ClearBatch, ClearPlan
from scheduler_app.models.connection import Connection
from scheduler_app.models.exclusive import Exclusive
from scheduler_app.models.executor_event import ExecutorEvent
from scheduler_app.models.flow import Bundle, Flow, FlowFile, FlowVersion
from scheduler_app.models.ghost import Ghost, GhostAudit, Inventory, TaskStats, TaskStatsCursor
from scheduler_app.models.group_attempt import GroupAttempt
from scheduler_app.models.guard import AutomaticAction, Guard, Review
from scheduler_app.models.job import Job
from scheduler_app.models.kept_room import KeptRoom
from scheduler_app.models.key_limit import KeyLimit, LimitedKey
from scheduler_app.models.lease import Inquiry, Lease, LeaseEvent, TakeOver, TakeOverItem
from scheduler_app.models.pool import Pool
from scheduler_app.models.record import Record, Reviewed
from scheduler_app.models.run import Run, RunAttempt
from scheduler_app.models.sign_in import SignIn
from scheduler_app.models.standing import Standing
from scheduler_app.models.task_instance import TaskInstance
from scheduler_app.models.trigger import ExternalEvent, Trigger
from scheduler_app.models.triggered_run import TriggeredRun
from scheduler_app.models.variable import Variable, VariableChange

__all__ = [
    "Alert",
    "ApiToken",
    "Artifact",
    "Attempt",
    "AttemptLogChunk",
    "Audit",
    "AutomaticAction",
    "Backfill",
    "BackfillDate",
    "Bundle",
    "Case",
    "Checkpoint",
    "CheckpointSave",
    "ClearBatch",
    "ClearPlan",
    "Connection",
    "Counter",
    "Exclusive",
    "ExecutorEvent",
    "ExternalEvent",
    "Flow",
    "FlowFile",
    "FlowVersion",
    "Freeze",
    "Ghost",
    "GhostAudit",
    "GroupAttempt",
    "Guard",
    "Incident",
    "Inquiry",
    "Installation",
    "Inventory",
    "Job",
    "KeptRoom",
    "KeyLimit",
    "Lease",
    "LeaseEvent",
    "LimitedKey",
    "Pool",
    "Progress",
    "PushedValue",
    "Record",
    "Review",
    "Reviewed",
    "Run",
    "RunAttempt",
    "SignIn",
    "Standing",
    "TakeOver",
    "TakeOverItem",
    "TaskInstance",
    "TaskStats",
    "TaskStatsCursor",
    "Trigger",
    "TriggeredRun",
    "Variable",
    "VariableChange",
]
