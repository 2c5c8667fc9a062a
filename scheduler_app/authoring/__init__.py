"""Writing flows: the public names.

Comes in: a file of a flow folder that imports these names. Goes out: ``Flow`` objects whose
``definition()`` the catalog stores and whose ``calls`` the worker executes. Runs in the catalog's
loading processes, in worker children and in the author's own shell or tests; needs no database and
no Django. What never happens here: reading rows, knowing the time, deciding what runs when.
"""

from __future__ import annotations

from scheduler_app.authoring.branching import branch, latest_only, short_circuit
from scheduler_app.authoring.child_runs import ChildRun, ChildRunFailed, RunExists
from scheduler_app.authoring.connections import (
    Connection,
    ConnectionsOutOfReach,
    NoSuchConnection,
)
from scheduler_app.authoring.context import Context
from scheduler_app.authoring.decorators import task
from scheduler_app.authoring.deferral import Defer, DeferralTimeout, Reschedule, TriggerFailed
from scheduler_app.authoring.exclusive import Busy
from scheduler_app.authoring.fencing import StaleFence, fenced, fenced_upsert
from scheduler_app.authoring.flow import Flow, flow
from scheduler_app.authoring.groups import Group, GroupRetry, group
from scheduler_app.authoring.limits import Limit
from scheduler_app.authoring.notifiers import (
    AppriseNotifier,
    EmailNotifier,
    Notifier,
    SlackNotifier,
    WebhookNotifier,
)
from scheduler_app.authoring.params import Param
from scheduler_app.authoring.retrying import FailNow, RetryAfter, retry
from scheduler_app.authoring.run_retry import Guards, RunRetry
from scheduler_app.authoring.saving import Superseded
from scheduler_app.authoring.schedules import Schedule
from scheduler_app.authoring.secret import Secret
from scheduler_app.authoring.sensors import (
    Sensor,
    UnwantedEnd,
    WaitForEvent,
    WaitForFile,
    WaitForHttp,
    WaitForRun,
    WaitForSql,
    WaitForTime,
    sensor,
)
from scheduler_app.authoring.skipping import Skip
from scheduler_app.authoring.sources import concat, zip_
from scheduler_app.authoring.task import Task, setup, teardown
from scheduler_app.authoring.template import Template
from scheduler_app.authoring.triggering import TriggerFlow, trigger_flow
from scheduler_app.authoring.triggers import (
    EventTrigger,
    FileTrigger,
    HttpTrigger,
    PollTrigger,
    RunTrigger,
    SqlTrigger,
    TimeTrigger,
    Trigger,
)
from scheduler_app.authoring.typed import TaskResult
from scheduler_app.authoring.variables import NoSuchVariable, Variable, VariablesOutOfReach

__all__ = [
    "AppriseNotifier",
    "Busy",
    "ChildRun",
    "ChildRunFailed",
    "Connection",
    "ConnectionsOutOfReach",
    "Context",
    "Defer",
    "DeferralTimeout",
    "EmailNotifier",
    "EventTrigger",
    "FailNow",
    "FileTrigger",
    "Flow",
    "Group",
    "GroupRetry",
    "Guards",
    "HttpTrigger",
    "Limit",
    "NoSuchConnection",
    "NoSuchVariable",
    "Notifier",
    "Param",
    "PollTrigger",
    "Reschedule",
    "RetryAfter",
    "RunExists",
    "RunRetry",
    "RunTrigger",
    "Schedule",
    "Secret",
    "Sensor",
    "Skip",
    "SlackNotifier",
    "SqlTrigger",
    "StaleFence",
    "Superseded",
    "Task",
    "TaskResult",
    "Template",
    "TimeTrigger",
    "Trigger",
    "TriggerFailed",
    "TriggerFlow",
    "UnwantedEnd",
    "Variable",
    "VariablesOutOfReach",
    "WaitForEvent",
    "WaitForFile",
    "WaitForHttp",
    "WaitForRun",
    "WaitForSql",
    "WaitForTime",
    "WebhookNotifier",
    "branch",
    "concat",
    "fenced",
    "fenced_upsert",
    "flow",
    "group",
    "latest_only",
    "retry",
    "sensor",
    "setup",
    "short_circuit",
    "task",
    "teardown",
    "trigger_flow",
    "zip_",
]
