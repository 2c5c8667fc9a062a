"""What is a ghost, and of which kind: executions, messages and runs that no live record acknowledges.

Comes in: what workers say that they execute, what the database says of those attempts, what waits
in the broker. Goes out: sightings, each with the values that were compared. A suspect is not a
ghost: its record is current, it only takes longer than its own history explains.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from scheduler_app.rules import visibility
from scheduler_app.rules.states import RUN_TERMINAL, AttemptKind, AttemptState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime, timedelta
    from uuid import UUID


class Policy(StrEnum):
    """What becomes of an execution that no record acknowledges."""

    STOP = "stop"  # its worker ends it: politely, then by signal
    LEAVE = "leave"  # it goes on, watched; nothing that it reports is accepted
    HUMAN = "human"  # it goes on until somebody asks for its end


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of ghost or suspect: how it is called, put into a sentence, and handled."""

    code: str
    chip: str
    title: str
    template: str  # its {names} are keys of the sighting's detail
    remedy: str  # what a person does about it
    is_suspect: bool = False


NO_RECORD: Final = "execution_without_record"
SUPERSEDED: Final = "execution_superseded"
CLOSED: Final = "execution_of_closed_record"
TERMINAL_RUN: Final = "execution_of_ended_run"
TWO_LIVE: Final = "two_live_executions"
OTHER_DATABASE: Final = "other_database"
MESSAGE: Final = "message_without_record"
RUN_TWICE: Final = "run_exists_twice"
SUSPECT_RUNNING: Final = "runs_too_long"
SUSPECT_QUEUED: Final = "queued_too_long"

_ALL: Final = (
    Kind(
        code=NO_RECORD,
        chip="GHOST",
        title="Execution without a record",
        template="{hostname}:{pid} executes attempt {attempt_id}, which this database never issued"
        " (flow {flow_id}, run {run_id}, task {task_id}).",
        remedy="The database is older than the execution: it was restored or replaced. What the"
        " execution reports is not accepted. Check what it wrote before its task runs again.",
    ),
    Kind(
        code=SUPERSEDED,
        chip="SUPERSEDED",
        title="Execution of a replaced attempt",
        template="{hostname}:{pid} still executes attempt {attempt_id} of {task_id}, which is set"
        " aside as {filter_code}; the current one is {current_attempt_id}.",
        remedy="Its worker stops it at its next heartbeat. Its result is refused; what it wrote"
        " outside may overlap with the current attempt unless the target checks the fence.",
    ),
    Kind(
        code=CLOSED,
        chip="GHOST",
        title="Execution of a closed record",
        template="{hostname}:{pid} still executes attempt {attempt_id} of {task_id}, which ended as"
        " {outcome} at {record_ended_at}.",
        remedy="Its worker stops it at its next heartbeat. The record was closed without it: by a"
        " loss, a kill or a person.",
    ),
    Kind(
        code=TERMINAL_RUN,
        chip="GHOST",
        title="Live process of an ended run",
        template="{hostname}:{pid} still executes attempt {attempt_id} of {task_id}, although its"
        " run {run_id} ended as {run_state}.",
        remedy="Its worker stops it at its next heartbeat. The run's result stands.",
    ),
    Kind(
        code=TWO_LIVE,
        chip="DUPLICATE",
        title="Two live executions of one task instance",
        template="Task {task_id} of run {run_id} is executed {executions} times at once: {where}.",
        remedy="Only the current attempt's result is accepted. Check the task's target for writes of"
        " both, unless it compares the fence.",
    ),
    Kind(
        code=OTHER_DATABASE,
        chip="FENCED",
        title="A worker or message of another database",
        template="{where} carries attempt {attempt_id} of database {identity_presented}; this is"
        " {identity_here}.",
        remedy="Two stacks share one broker, or a worker is connected to another database. Give each"
        " stack a broker of its own, and check the addresses of that worker.",
    ),
    Kind(
        code=MESSAGE,
        chip="UNKNOWN SENDER",
        title="Message without a record",
        template="Queue {queue} holds a message for attempt {attempt_id}, which this database never"
        " issued.",
        remedy="The database is older than the broker: it was restored. The message is refused when"
        " it is delivered.",
    ),
    Kind(
        code=RUN_TWICE,
        chip="DUPLICATE",
        title="A run that exists twice",
        template="Flow {flow_id} has two runs for {logical_date}: {run_id} is kept, {other_run_id}"
        " is set aside as {other_code}.",
        remedy="Its work may have been done twice. Compare both runs, and repair what the flow writes"
        " to if it is not idempotent.",
    ),
    Kind(
        code=SUSPECT_RUNNING,
        chip="SUSPECT",
        title="Runs longer than its history explains",
        template="Runs for {age_s} s; {threshold_words}.",
        remedy="Nothing is killed. Look at its log; stop it if it hangs.",
        is_suspect=True,
    ),
    Kind(
        code=SUSPECT_QUEUED,
        chip="SUSPECT",
        title="Queued longer than its history explains",
        template="Queued for {age_s} s; {threshold_words}.",
        remedy="Nothing is killed. See whether a worker listens on queue {queue}, and what fills it.",
        is_suspect=True,
    ),
)

KINDS: Final[dict[str, Kind]] = {kind.code: kind for kind in _ALL}
SUSPECTS: Final = frozenset(code for code, kind in KINDS.items() if kind.is_suspect)
# Kinds that are over once their process is no longer reported.
OF_PROCESS: Final = frozenset({NO_RECORD, SUPERSEDED, CLOSED, TERMINAL_RUN})


def explain(code: str, detail: Mapping[str, object] | None) -> str:
    """The sighting as a sentence with the compared values; never raises."""
    kind = KINDS.get(code)
    return visibility.filled(kind.template, detail) if kind else str(code)


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """One execution that a worker reports. ``reported_at`` by the database's clock."""

    attempt_id: UUID
    worker_job_id: UUID
    hostname: str
    pid: int
    reported_at: datetime
    age_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What the database says of an attempt."""

    attempt_id: UUID
    kind: str
    state: str
    outcome: str | None
    filter_code: str | None
    ended_at: datetime | None
    ti_id: int | None
    task_id: str | None
    map_index: int | None
    try_number: int | None
    shard: int | None
    lease_token: int | None
    current_attempt_id: UUID | None
    run: int | None
    run_id: str | None
    flow_id: str | None
    run_state: str | None
    run_type: str | None
    run_created_at: datetime | None
    run_ended_at: datetime | None
    logical_date: datetime | None

    @property
    def is_acknowledged(self) -> bool:
        """Whether an execution of it is wanted now."""
        is_current = self.kind == AttemptKind.CALLBACK or self.current_attempt_id == self.attempt_id
        return is_current and self.filter_code is None and self.state != AttemptState.ENDED


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """One message that waits in the broker."""

    queue: str
    attempt_id: UUID
    identity: str  # of the database that it was sent for


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """One thing that was seen. The same kind and subject are the same sighting."""

    kind: str
    subject: str
    attempt_id: UUID | None = None
    current_attempt_id: UUID | None = None
    ti_id: int | None = None
    run: int | None = None
    task_id: str | None = None
    map_index: int | None = None
    try_number: int | None = None
    shard: int | None = None
    lease_token: int | None = None
    hostname: str | None = None
    pid: int | None = None
    worker_job_id: UUID | None = None
    detail: dict[str, Any] = field(default_factory=dict)


def kind_of_execution(record: Record | None) -> str | None:
    """Which kind of ghost an execution of this record is; none if it is acknowledged."""
    if record is None or (record.ti_id is None and record.kind == AttemptKind.TASK):
        return NO_RECORD
    if record.is_acknowledged:
        return None
    if record.kind == AttemptKind.CALLBACK:
        return CLOSED  # it has no successor, and outlives its run
    if record.run_state in RUN_TERMINAL:
        return TERMINAL_RUN
    if record.filter_code is not None or record.current_attempt_id != record.attempt_id:
        return SUPERSEDED
    return CLOSED


def of_execution(
    execution: Execution, record: Record | None, known: Record | None = None
) -> Sighting | None:
    """The sighting of this execution; none if its record acknowledges it.

    ``known`` is what its worker remembers of an attempt that the database no longer has.
    """
    kind = kind_of_execution(record)
    if kind is None:
        return None
    process = {"hostname": execution.hostname, "pid": execution.pid, "age_s": execution.age_s}
    # What is recorded of a ghost since it was first seen says nothing of what it works for.
    said = _said(known if kind == NO_RECORD else record)
    return Sighting(
        kind=kind,
        subject=_process(execution),
        attempt_id=execution.attempt_id,
        hostname=execution.hostname,
        pid=execution.pid,
        worker_job_id=execution.worker_job_id,
        **_parents(record),
        detail={
            **said,
            **process,
            "attempt_id": str(execution.attempt_id),
            "rule": "ghosts.kind_of_execution",
        },
    )


def compare(
    *,
    executions: Iterable[Execution],
    records: Mapping[UUID, Record],
    messages: Iterable[Waiting],
    identity: str,
    settled_after: timedelta,
) -> list[Sighting]:
    """Every ghost among what the workers report and what waits in the broker.

    An execution whose record was closed less than ``settled_after`` before it was reported is about
    to end by itself and is no ghost yet.
    """
    live = [
        (execution, records.get(execution.attempt_id))
        for execution in executions
        if not _is_ending(execution, records.get(execution.attempt_id), settled_after)
    ]
    found = [seen for execution, record in live if (seen := of_execution(execution, record))]
    found += _two_live(live)
    found += [seen for message in messages if (seen := _of_message(message, records, identity))]
    return found


def _is_ending(execution: Execution, record: Record | None, settled_after: timedelta) -> bool:
    if record is None:
        return False
    closed = [at for at in (record.ended_at, record.run_ended_at) if at is not None]
    return bool(closed) and execution.reported_at - max(closed) < settled_after


def _two_live(live: Iterable[tuple[Execution, Record | None]]) -> list[Sighting]:
    by_ti: dict[int, list[tuple[Execution, Record]]] = defaultdict(list)
    for execution, record in live:
        if record is not None and record.ti_id is not None and record.kind == AttemptKind.TASK:
            by_ti[record.ti_id].append((execution, record))
    found = []
    for ti_id, several in sorted(by_ti.items()):
        processes = {(e.worker_job_id, e.pid) for e, _ in several}
        if len(processes) < 2:
            continue
        # The one that is not wanted is the ghost; its record names the current one.
        execution, record = next(((e, r) for e, r in several if not r.is_acknowledged), several[-1])
        where = ", ".join(f"attempt {e.attempt_id} on {e.hostname}:{e.pid}" for e, _ in several)
        found.append(
            Sighting(
                kind=TWO_LIVE,
                subject=f"ti {ti_id}",
                attempt_id=execution.attempt_id,
                hostname=execution.hostname,
                pid=execution.pid,
                worker_job_id=execution.worker_job_id,
                **_parents(record),
                detail={
                    **_said(record),
                    "executions": len(processes),
                    "where": where,
                    "rule": "ghosts.two_live",
                },
            )
        )
    return found


def _of_message(message: Waiting, records: Mapping[UUID, Record], identity: str) -> Sighting | None:
    if message.identity != identity:
        return of_other_database(
            message.attempt_id,
            presented=message.identity,
            here=identity,
            where=f"A message in queue {message.queue}",
            subject=f"queue {message.queue}: {message.identity}",
        )
    if message.attempt_id in records:
        return None  # stale or doubled ones are refused by the claim, each with its reason
    return Sighting(
        kind=MESSAGE,
        subject=f"message {message.attempt_id}",
        attempt_id=message.attempt_id,
        detail={
            "queue": message.queue,
            "attempt_id": str(message.attempt_id),
            "rule": "ghosts.of_message",
        },
    )


def of_other_database(
    attempt_id: UUID,
    *,
    presented: str,
    here: str,
    where: str,
    subject: str,
    hostname: str | None = None,
    pid: int | None = None,
    worker_job_id: UUID | None = None,
) -> Sighting:
    """A message that was sent for another database was met ``where``."""
    return Sighting(
        kind=OTHER_DATABASE,
        subject=subject,
        attempt_id=attempt_id,
        hostname=hostname,
        pid=pid,
        worker_job_id=worker_job_id,
        detail={
            "attempt_id": str(attempt_id),
            "where": where,
            "identity_presented": presented,
            "identity_here": here,
            "rule": "ghosts.of_other_database",
        },
    )


def run_twice(
    *, kept: Mapping[str, Any], other: Mapping[str, Any], other_code: str, shard: int, token: int
) -> Sighting:
    """Two runs of one logical date; each given by id, flow_id, run_id and logical_date."""
    date = kept["logical_date"]
    return Sighting(
        kind=RUN_TWICE,
        subject=f"run {other['id']}",
        run=other["id"],
        shard=shard,
        lease_token=token,
        detail={
            "flow_id": kept["flow_id"],
            "logical_date": date.isoformat() if date else None,
            "run_id": kept["run_id"],
            "kept_run": kept["id"],
            "other_run_id": other["run_id"],
            "other_code": other_code,
            "shard": shard,
            "token": token,
            "rule": "ghosts.run_twice",
        },
    )


def _process(execution: Execution) -> str:
    return f"attempt {execution.attempt_id} in {execution.worker_job_id}:{execution.pid}"


def _parents(record: Record | None) -> dict[str, Any]:
    if record is None:
        return {}
    replaced = record.current_attempt_id
    return {
        "ti_id": record.ti_id,
        "run": record.run,
        "task_id": record.task_id,
        "map_index": record.map_index,
        "try_number": record.try_number,
        "shard": record.shard,
        "lease_token": record.lease_token,
        "current_attempt_id": replaced if replaced != record.attempt_id else None,
    }


def _said(record: Record | None) -> dict[str, Any]:
    if record is None:
        return {}
    return {
        "attempt_state": record.state,
        "outcome": record.outcome,
        "filter_code": record.filter_code,
        "record_ended_at": record.ended_at.isoformat() if record.ended_at else None,
        "current_attempt_id": str(record.current_attempt_id) if record.current_attempt_id else None,
        "task_id": record.task_id,
        "run_id": record.run_id,
        "flow_id": record.flow_id,
        "logical_date": record.logical_date.isoformat() if record.logical_date else None,
        "run_state": record.run_state,
        "shard": record.shard,
        "token": record.lease_token,
    }
