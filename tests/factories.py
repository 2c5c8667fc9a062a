"""Plain functions that make coherent rows: columns that belong together are derived together.

Each takes overrides by column name; parents that are not given are made. Times step on from one
fixed moment, so that rows have an order without a clock.
"""

from __future__ import annotations

import itertools
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from scheduler_app.models import (
    Alert,
    Attempt,
    AttemptLogChunk,
    Audit,
    AutomaticAction,
    Backfill,
    BackfillDate,
    Bundle,
    Case,
    Connection,
    ExecutorEvent,
    Flow,
    FlowVersion,
    Freeze,
    Ghost,
    GhostAudit,
    Guard,
    Incident,
    Inquiry,
    Job,
    KeyLimit,
    LeaseEvent,
    Review,
    Run,
    RunAttempt,
    TakeOver,
    TakeOverItem,
    TaskInstance,
    Trigger,
    Variable,
    VariableChange,
)
from scheduler_app.rules import definition, states

START: Final = datetime(2026, 1, 1, tzinfo=UTC)
_numbers = itertools.count(1)


def at(seconds: float) -> datetime:
    """So many seconds after the fixed moment."""
    return START + timedelta(seconds=seconds)


def make_definition(
    flow_id: str, task_ids: tuple[str, ...] = ("first", "second")
) -> definition.FlowDefinition:
    """A flow whose tasks run one after the other."""
    chain = [
        definition.TaskDefinition(task_id=task_id, upstream=task_ids[max(0, place - 1) : place])
        for place, task_id in enumerate(task_ids)
    ]
    return definition.FlowDefinition(flow_id=flow_id, tasks=tuple(chain), schedule="0 2 * * *")


def make_flow(*, task_ids: tuple[str, ...] = ("first", "second"), **overrides: Any) -> Flow:
    """A flow with its first version as the current one."""
    number = next(_numbers)
    values = {
        "flow_id": f"flow_{number}",
        "shard": number % 16,
        "created_at": at(number),
        "updated_at": at(number),
        **overrides,
    }
    flow = Flow.objects.create(**values)
    make_version(flow, task_ids=task_ids)
    return flow


def make_version(
    flow: Flow, *, task_ids: tuple[str, ...] = ("first", "second"), **overrides: Any
) -> FlowVersion:
    """One more version of the flow, now the current one."""
    bundle = Bundle.objects.create(
        digest=uuid.uuid4().hex * 2, main_path="flow.py", archive=b"zip", created_at=flow.created_at
    )
    values = {
        "flow": flow,
        "number": flow.versions.count() + 1,
        "digest": uuid.uuid4().hex * 2,
        "definition": definition.to_dict(make_definition(flow.flow_id, task_ids)),
        "bundle": bundle,
        "created_at": flow.created_at,
        **overrides,
    }
    version = FlowVersion.objects.create(**values)
    flow.current_version = version
    flow.save(update_fields=["current_version"])
    return version


def make_run(*, flow: Flow | None = None, **overrides: Any) -> Run:
    """A run with its first run attempt; a terminal state brings its end."""
    number = next(_numbers)
    flow = flow or make_flow()
    state = overrides.get("state", states.RunState.RUNNING)
    is_over = state in states.RUN_TERMINAL
    has_started = state != states.RunState.QUEUED
    values = {
        "flow": flow,
        "run_key": f"manual__{number}",
        "shard": flow.shard,
        "run_type": states.RunType.MANUAL,
        "state": state,
        "is_active": not is_over,
        "logical_date": at(number),
        "data_interval_start": at(number),
        "data_interval_end": at(number),
        "version": flow.current_version,
        "conf": {},
        "actor": "tests",
        "created_at": at(number),
        "queued_at": at(number),
        "started_at": at(number + 1) if has_started else None,
        "ended_at": at(number + 60) if is_over else None,
        **_aside(number, overrides),
    }
    run = Run.objects.create(**values)
    RunAttempt.objects.create(
        run=run,
        number=run.run_attempt,
        cause="created",
        actor=run.actor,
        state=state,
        started_at=run.started_at,
        ended_at=run.ended_at,
    )
    return run


def make_task_instance(*, run: Run | None = None, **overrides: Any) -> TaskInstance:
    """A task instance; its flags and times fit its state. It has no attempt yet."""
    number = next(_numbers)
    run = run or make_run()
    state = overrides.get("state", states.TaskState.NONE)
    is_over = state in states.TASK_TERMINAL
    ran = state in {states.TaskState.RUNNING, states.TaskState.SUCCESS, states.TaskState.FAILED}
    values = {
        "run": run,
        "shard": run.shard,
        "task_id": f"task_{number}",
        "state": state,
        "is_open": not is_over,
        "pool": "default",
        "queue": "default",
        "queued_at": at(number) if ran else None,
        "started_at": at(number + 1) if ran else None,
        "ended_at": at(number + 2) if is_over else None,
        **_aside(number, overrides),
    }
    return TaskInstance.objects.create(**values)


def make_mapped(run: Run, task_id: str, **numbers: int) -> list[TaskInstance]:
    """Instances of a mapped task, by index from 0 on: so many in each state, in this order."""
    wanted = [state for state, number in numbers.items() for _ in range(number)]
    return TaskInstance.objects.bulk_create(
        TaskInstance(
            run=run,
            shard=run.shard,
            task_id=task_id,
            map_index=index,
            state=state,
            is_open=state not in states.TASK_TERMINAL,
            pool="default",
            queue="default",
            started_at=at(index) if state in {"running", "success", "failed"} else None,
            ended_at=at(index + 1) if state in states.TASK_TERMINAL else None,
        )
        for index, state in enumerate(wanted)
    )


def make_attempt(*, ti: TaskInstance | None = None, **overrides: Any) -> Attempt:
    """An attempt. Current unless set aside, and then it is its task instance's own attempt."""
    number = next(_numbers)
    ti = ti or make_task_instance(state=states.TaskState.RUNNING)
    state = overrides.get("state", states.AttemptState.RUNNING)
    is_over = state == states.AttemptState.ENDED
    outcome = overrides.get("outcome", states.AttemptOutcome.SUCCESS if is_over else None)
    is_claimed = state != states.AttemptState.ISSUED
    values = {
        "id": uuid7(number),
        "ti": ti,
        "run_id": ti.run_id,
        "task_id": ti.task_id,
        "map_index": ti.map_index,
        "shard": ti.shard,
        "try_number": max(1, ti.try_number),
        "resume_index": 0,
        "dispatch_no": 0,
        "run_attempt": 1,
        "lease_token": 1,
        "fence": number,
        "state": state,
        "is_live": not is_over,
        "outcome": outcome,
        "is_accepted": outcome in states.REPORTED_OUTCOMES,
        "hostname": "worker-1" if is_claimed else None,
        "pid": 4000 + number if is_claimed else None,
        "nonce": uuid7(number) if is_claimed else None,
        "issued_at": at(number),
        "published_at": at(number),
        "publish_count": 1,
        "started_at": at(number + 1) if is_claimed else None,
        "heartbeat_at": at(number + 2) if is_claimed else None,
        "ended_at": at(number + 3) if is_over else None,
        **_aside(number, overrides),
    }
    attempt = Attempt.objects.create(**values)
    if attempt.filter_code is None and attempt.kind == states.AttemptKind.TASK:
        ti.attempt_id = attempt.id
        ti.try_number = attempt.try_number or 0
        ti.save(update_fields=["attempt_id", "try_number"])
    return attempt


def make_ghost_attempt(**overrides: Any) -> Attempt:
    """An execution that no live record acknowledges: no parents, set aside at birth."""
    number = next(_numbers)
    values = {
        "id": uuid7(number),
        "state": states.AttemptState.ENDED,
        "is_live": False,
        "outcome": states.AttemptOutcome.LOST,
        "ended_at": at(number),
        **_aside(number, {"filter_code": "ghost_no_record", **overrides}),
    }
    return Attempt.objects.create(**values)


def make_event(*, attempt: Attempt | None = None, **overrides: Any) -> ExecutorEvent:
    """An executor event about an attempt, confirmed unless another verdict is given."""
    number = next(_numbers)
    attempt = attempt or make_attempt()
    verdict = overrides.get("verdict", "confirmed")
    values = {
        "attempt_id": attempt.id,
        "ti_id": attempt.ti_id,
        "run_id": attempt.run_id,
        "task_id": attempt.task_id,
        "map_index": attempt.map_index,
        "try_number": attempt.try_number,
        "shard": attempt.shard,
        "kind": "exit_success",
        "source": "worker-1",
        "payload": {},
        "received_at": at(number),
        "verdict": verdict,
        "judged_at": None if verdict == "pending" else at(number + 1),
        **_aside(number, overrides),
    }
    return ExecutorEvent.objects.create(**values)


def make_job(**overrides: Any) -> Job:
    """A process that runs; ``ended_at`` ends it."""
    number = next(_numbers)
    is_over = overrides.get("ended_at") is not None
    values = {
        "id": uuid7(number),
        "kind": states.JobKind.WORKER,
        "hostname": "host-1",
        "pid": 1000 + number,
        "state": "ended" if is_over else "running",
        "started_at": at(number),
        "heartbeat_at": at(number + 1),
        "progress_at": at(number + 1),
        **overrides,
    }
    return Job.objects.create(**values)


def make_log(attempt: Attempt, *pieces: bytes) -> None:
    """What the attempt printed, in these pieces."""
    offset = 0
    for piece in pieces:
        AttemptLogChunk.objects.create(
            attempt_id=attempt.id, start_offset=offset, data=piece, at=at(offset)
        )
        offset += len(piece)


def make_take_over(*, attempt: Attempt, at_s: float = 0, **overrides: Any) -> TakeOver:
    """A fail-over of the attempt's shard that adopted it, its worker asked; with its lease events."""
    number = next(_numbers)
    old, new = overrides.get("new_token", 2) - 1, overrides.get("new_token", 2)
    ask_id = uuid7(number + 2)
    made = TakeOver.objects.create(
        **{
            "shard": attempt.shard,
            "holder": uuid7(number),
            "old_token": old,
            "new_token": new,
            "cause": "expired",
            "old_holder": uuid7(number + 1),
            "old_renewed_at": at(at_s - 17),
            "old_expires_at": at(at_s - 2),
            "acquired_at": at(at_s),
            "ask_id": ask_id,
            "started_at": at(at_s + 0.1),
            "ended_at": at(at_s + 3),
            "counts": {"adopted": 1},
            **overrides,
        }
    )
    TakeOverItem.objects.create(
        take_over=made,
        attempt_id=attempt.id,
        found="running",
        decision="adopted",
        reason="worker-1:4001 was asked and answered at 00:00:02 UTC that it runs it.",
        hostname=attempt.hostname,
        pid=attempt.pid,
        decided_at=at(at_s + 2),
    )
    Inquiry.objects.create(
        ask_id=ask_id,
        asked_by=made.holder,
        why="take_over",
        worker_job_id=uuid7(number + 3),
        hostname="worker-1",
        pid=4000,
        asked_at=at(at_s + 0.1),
        answered_at=at(at_s + 2),
        holdings=[{"attempt_id": str(attempt.id), "pid": 4001, "is_alive": True, "for_s": 5.0}],
    )
    gone = {"expires_at": at(at_s - 2).isoformat(), "renewed_at": at(at_s - 17).isoformat()}
    LeaseEvent.objects.create(
        shard=made.shard,
        kind="expired",
        holder=made.old_holder,
        token=old,
        at=at(at_s),
        detail=gone,
    )
    LeaseEvent.objects.create(
        shard=made.shard,
        kind="acquired",
        holder=made.holder,
        token=new,
        at=at(at_s),
        detail={
            "cause": made.cause,
            "from": str(made.old_holder),
            "old_token": old,
            "old_renewed_at": at(at_s - 17).isoformat(),
            "gap_s": 2.0,
        },
    )
    return made


def make_ghost(**overrides: Any) -> Ghost:
    """A sighting that haunts; ``ended_at`` brings the reason of its end."""
    number = next(_numbers)
    values = {
        "kind": "execution_without_record",
        "subject": f"attempt {number}",
        "seen_by": "audit",
        "attempt_id": uuid7(number),
        "hostname": "worker-1",
        "pid": 4000 + number,
        "detail": {"hostname": "worker-1", "pid": 4000 + number},
        "first_seen_at": at(number),
        "last_seen_at": at(number + 1),
        "policy": "stop",
        "end_reason": "its process ended" if overrides.get("ended_at") else None,
        **overrides,
    }
    return Ghost.objects.create(**values)


def make_rest() -> None:
    """One row of each kind that nothing above makes."""
    moment = at(next(_numbers))
    make_ghost()
    make_ghost(ended_at=moment)
    GhostAudit.objects.create(
        holder=uuid7(1),
        hour=moment,
        first_at=moment,
        last_at=moment,
        compared=12,
        last={"workers": 1},
    )
    ti = make_task_instance(state=states.TaskState.DEFERRED)
    Trigger.objects.create(
        ti_id=ti.id,
        run_id=ti.run_id,
        shard=ti.shard,
        try_number=1,
        resume_index=0,
        classpath="flows.triggers.File",
        kwargs={"path": "/a"},
        created_at=moment,
    )
    LeaseEvent.objects.create(shard=3, kind="acquired", token=1, at=moment, detail={"ttl_s": 15})
    found = Attempt(id=uuid7(1), shard=3, hostname="worker-1", pid=4001)  # nobody issued it
    make_take_over(attempt=found, at_s=(moment - START).total_seconds())
    KeyLimit.objects.create(key="customer:*", slots=2, description="what their gateway bears")
    Variable.objects.create(key="limit", value=[1, 2], updated_at=moment, updated_by="ana")
    Connection.objects.create(
        connection_id="warehouse", conn_type="postgres", extra_keys=["role"], updated_at=moment
    )
    VariableChange.objects.create(
        key="limit", version=1, at=moment, actor="ana", action="created", after=[1, 2]
    )
    Case.objects.create(title="Twice?", opened_by="ana", opened_at=moment)
    Review.objects.create(
        guard="cooldown",
        action="clear",
        object_kind="run",
        object_id=str(ti.run_id),
        flow_id=ti.run.flow_id,
        request={"task_instances": None, "options": {}, "note": None},
        summary="The last one on this flow was 3.0 s before; 60 s must lie between.",
        asked_by="robot",
        reason="alert 7",
        created_at=moment,
    )
    Guard.objects.create(
        flow_id=ti.run.flow_id,
        kind="clear",
        actions_max=5,
        reason="It is slow.",
        actor="ana",
        updated_at=moment,
    )
    AutomaticAction.objects.create(
        at=moment,
        flow_id=ti.run.flow_id,
        kind="clear",
        run_id=ti.run_id,
        task_instance_count=2,
        actor="robot",
        reason="alert 6",
    )
    Freeze.objects.create(
        scope_kind="flow",
        scope_id=ti.run.flow_id,
        actor="ana",
        reason="The source is wrong.",
        created_at=moment,
    )
    incident = Incident.objects.create(
        kind="nobody_listens",
        subject="wide",
        message="Nobody takes from queue wide.",
        raised_at=moment,
        flow_id=ti.run.flow_id,
    )
    Alert.objects.create(
        incident=incident,
        about="opened",
        number=0,
        notifier_key="0" * 64,
        notifier={"kind": "webhook", "options": {}},
        due_at=moment,
        created_at=moment,
    )
    backfill = Backfill.objects.create(
        flow=ti.run.flow,
        shard=ti.shard,
        version=ti.run.version,
        from_date=moment,
        to_date=moment,
        reprocess="none",
        max_active_runs=10,
        actor="ana",
        reason="The source was late.",
        created_at=moment,
    )
    BackfillDate.objects.create(
        backfill=backfill,
        position=0,
        logical_date=moment,
        data_interval_start=moment,
        data_interval_end=moment,
        state="waiting",
    )
    Audit.objects.create(
        at=moment, actor="ana", action="pause", object_kind="flow", object_id="f", after={"a": 1}
    )


def uuid7(number: int) -> uuid.UUID:
    """A UUID of version 7 whose time is so many milliseconds after the fixed moment."""
    milliseconds = int(START.timestamp() * 1000) + number
    random = uuid.uuid4().int & ((1 << 62) - 1)
    return uuid.UUID(int=(milliseconds << 80) | (7 << 76) | (2 << 62) | random)


def _aside(number: int, overrides: dict[str, Any]) -> dict[str, Any]:
    """The overrides; a filter code brings its time and its detail."""
    if overrides.get("filter_code") is None:
        return overrides
    return {"filtered_at": at(number + 5), "filter_detail": {}, **overrides}
