"""One task instance with its attempts, put into any state that a vector gives."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any, Final

import psycopg
from django.utils import timezone

from scheduler_app.models import Attempt, FlowVersion, TaskInstance
from scheduler_app.rules.definition import TaskDefinition
from scheduler_app.rules.states import REPORTED_OUTCOMES, TASK_TERMINAL, AttemptOutcome, TaskState
from scheduler_app.transitions.job import start_job
from tests.factories import make_attempt
from tests.world import World

if TYPE_CHECKING:
    from scheduler_app.scheduler.leases import Leases

# What came of the last attempt of a task that is in this state; live ones are left out.
OUTCOMES: Final = {
    "none": "terminated",
    "scheduled": "deferred",
    "deferred": "deferred",
    "up_for_retry": "failed",
    "up_for_reschedule": "rescheduled",
    "success": "success",
    "failed": "failed",
    "removed": "failed",
}
NEVER_EXECUTED: Final = frozenset({"skipped", "upstream_failed"})
LIVE_WITH_A_WORKER: Final = frozenset({"running", "restarting"})
HOST, PID = "h", 4711


class Stage:
    """A run of one task ``t``, whose rows were dispatched and then put into the wanted state."""

    def __init__(
        self,
        raw: psycopg.Connection[Any],
        leases: Leases,
        *,
        flow_id: str = "f",
        retries: int = 2,
        **task: Any,
    ) -> None:
        self.raw = raw
        self.world = World(raw, leases)
        if flow_id == "f":
            start_job(
                raw,
                job_id=self.world.worker,
                kind="worker",
                name="",
                hostname=HOST,
                pid=1,
                detail={},
            )
        flow = self.world.flow(
            flow_id, [TaskDefinition(task_id="t", retries=retries, retry_delay_s=0, **task)]
        )
        run_id = self.world.run(flow)
        self.world.tick(run_id)
        (self.message,) = self.world.messages
        self.row = TaskInstance.objects.get(run_id=run_id)
        self.current = self.message.attempt_id

    def predecessor(self, number: int, outcome: str, code: str) -> uuid.UUID:
        """An attempt of try ``number`` that was set aside."""
        made = make_attempt(
            ti=self.row,
            state="ended",
            outcome=AttemptOutcome(outcome),
            try_number=number,
            filter_code=code,
            is_accepted=outcome in ("failed", "deferred"),
            lease_token=1,
        )
        return uuid.UUID(str(made.id))

    def put(
        self,
        state: str,
        *,
        is_given_up: bool = False,
        resume_index: int = 0,
        **columns: Any,
    ) -> None:
        """The task is in the state, its current attempt as that asks; given up: lost in any case."""
        outcome = "lost" if is_given_up else OUTCOMES.get(state)
        values: dict[str, Any] = {
            "try_number": columns.get("try_number", 1),
            "resume_index": resume_index,
        }
        if outcome is not None:
            values |= {
                "state": "ended",
                "is_live": False,
                "outcome": outcome,
                "is_accepted": outcome in REPORTED_OUTCOMES,
                "ended_at": timezone.now(),
            }
        elif state in LIVE_WITH_A_WORKER:
            values |= {
                "state": "running",
                "nonce": uuid.UUID(int=self.current.int),
                "worker_job_id": self.world.worker,
                "hostname": HOST,
                "pid": PID,
            }
        Attempt.objects.filter(pk=self.current).update(**values)
        self.raw.execute(
            "UPDATE attempt SET issued_at = clock_timestamp() - interval '2 hours',"
            " published_at = clock_timestamp() - interval '2 hours',"
            " started_at = CASE WHEN state <> 'issued' THEN clock_timestamp() END WHERE id = %s",
            [self.current],
        )
        task = {"state": state, "is_open": TaskState(state) not in TASK_TERMINAL, **columns}
        if state in NEVER_EXECUTED:
            task["attempt_id"] = None
        if state in LIVE_WITH_A_WORKER:
            task["claim_nonce"] = uuid.UUID(int=self.current.int)
        TaskInstance.objects.filter(pk=self.row.pk).update(**task)
        if state in NEVER_EXECUTED:
            Attempt.objects.filter(pk=self.current).delete()

    def lose_definition(self) -> None:
        """Nothing can be read from the run's version any more."""
        FlowVersion.objects.update(definition={"format": 1, "flow_id": "f", "tasks": []})

    def ti(self) -> TaskInstance:
        """The task instance as it is now."""
        return TaskInstance.objects.get(pk=self.row.pk)

    def attempt(self) -> Attempt:
        """The attempt that the stage began with, as it is now."""
        return Attempt.objects.get(pk=self.current)
