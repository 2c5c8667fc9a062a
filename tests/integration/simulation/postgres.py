"""The simulation's database, for once a real one: each call is the product's own transition."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar
from uuid import UUID

import psycopg
from psycopg.rows import class_row, tuple_row

from scheduler_app import sql
from scheduler_app.rules.errors import Fenced
from scheduler_app.rules.states import AttemptOutcome, AttemptState, RunState, TaskState
from scheduler_app.scheduler import room, sweep
from scheduler_app.transitions import attempt, executor_event, job, lease, run, trigger
from scheduler_app.transitions import task_instance as task_instances
from tests.integration.simulation.clock import EPOCH
from tests.simulation.database import (
    DEAD_AFTER_S,
    TTL_S,
    UNPUBLISHED_AFTER_S,
    Beat,
    Claim,
    Database,
    Dispatch,
    Fire,
    Judgement,
    Message,
    Size,
    Unclaimed,
    UniqueViolation,
    Wait,
)
from tests.simulation.rows import (
    Attempt,
    ExecutorEvent,
    ExternalEvent,
    Job,
    Lease,
    Row,
    Run,
    TaskInstance,
    Trigger,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tests.integration.simulation.clock import Clock

SHARD: Final = 0  # that of events which name no known attempt, too
RUN_ID: Final = 1
FREEZE: Final = 1
HOSTNAME: Final = "host-1"

R = TypeVar("R", bound=Row)


class PostgresDatabase(Database):
    """Rows are read again after each call; what is only read is inherited."""

    def __init__(self, clock: Clock, size: Size) -> None:
        super().__init__(size)
        self._clock = clock
        self._main = self._connection = clock.connection
        self._free: list[psycopg.Connection[Any]] = []
        self._parked: dict[int, psycopg.Connection[Any]] = {}
        self.look()

    @property
    def connection(self) -> psycopg.Connection[Any]:
        """The one of the transaction that is open now, if there is one."""
        return self._connection

    def close(self) -> None:
        """No transaction is left open."""
        for connection in self._parked.values():
            connection.execute("ROLLBACK")
            connection.close()

    # -- transactions -------------------------------------------------------------------------

    def begin(self, holder: int) -> None:
        del holder
        self._connection = self._free.pop() if self._free else self._clock.connect()
        self._connection.execute("BEGIN")

    def commit(self) -> None:
        self._end("COMMIT")

    def rollback(self) -> None:
        self._end("ROLLBACK")

    def _end(self, how: str) -> None:
        self._connection.execute(how)
        self._free.append(self._connection)
        self._connection = self._main
        self.look()

    def park(self, holder: int) -> None:
        super().park(holder)
        self._parked[holder] = self._connection
        self._connection = self._main

    def unpark(self, holder: int) -> None:
        super().unpark(holder)
        self._connection = self._parked.pop(holder)

    def lock_run(self, holder: int) -> bool:
        del holder
        return bool(run.lock_active_runs(self._connection, run_ids=[RUN_ID], shards=[SHARD]))

    # -- leases -------------------------------------------------------------------------------

    def acquire(self, holder: int) -> int | None:
        terms = lease.acquire(self._connection, holder=_id(holder), want=1, ttl_s=TTL_S)
        self.look()
        return terms.get(SHARD)

    def renew(self, holder: int, token: int) -> bool:
        held = lease.renew(self._connection, holder=_id(holder), terms={SHARD: token}, ttl_s=TTL_S)
        self.look()
        return SHARD in held

    def release(self, holder: int, token: int) -> bool:
        free = lease.release(
            self._connection, holder=_id(holder), terms={SHARD: token}, why="simulated"
        )
        self.look()
        return SHARD in free

    def prove(self, holder: int, token: int) -> bool:
        try:
            lease.prove(self._connection, holder=_id(holder), terms={SHARD: token})
        except Fenced:
            return False
        return True

    # -- the tick -----------------------------------------------------------------------------

    def use(self) -> int:
        return room.count_usage(self._connection).pool_slots.get("default", 0)

    def start_run(self) -> None:
        run.start_runs(self._connection, run_ids=[RUN_ID])

    def mark(self, marks: Iterable[tuple[int, TaskState]]) -> None:
        task_instances.mark_task_instances(
            self._connection, marks={ti_id + 1: state for ti_id, state in marks}
        )

    def note_waits(self, ti_ids: Iterable[int]) -> None:
        task_instances.note_waits(
            self._connection,
            notes=[
                task_instances.WaitNote(ti_id=ti_id + 1, code="pool_full", detail="")
                for ti_id in ti_ids
            ],
        )

    def dispatch(self, dispatches: Sequence[Dispatch], token: int) -> list[Message]:
        messages = attempt.dispatch(
            self._connection,
            dispatches=[
                attempt.Dispatch(
                    ti_id=d.ti_id + 1,
                    attempt_id=_id(d.attempt_id),
                    previous=None if d.previous is None else _id(d.previous),
                    try_number=d.try_number,
                    resume_index=d.resume_index,
                    dispatch_no=d.dispatch_no,
                    run_attempt=1,
                    token=token,
                    cause=d.cause,
                )
                for d in dispatches
            ],
        )
        return sorted(map(message_of, messages))

    def end_run(self, state: RunState) -> bool:
        return bool(run.end_runs(self._connection, ends={RUN_ID: (state, "simulated")}))

    # -- publishing ---------------------------------------------------------------------------

    def note_published(self, attempt_ids: Iterable[int], *, is_first: bool = True) -> None:
        ages_s = dict.fromkeys(map(_id, attempt_ids), 0.0)
        attempt.note_published(self._connection, ages_s=ages_s, is_first=is_first)
        self.look()

    def note_republished(self, attempt_ids: Iterable[int]) -> None:
        attempt.note_republished(self._connection, attempt_ids=list(map(_id, attempt_ids)))

    def ask_for_publication(self, attempt_id: int) -> None:
        attempt.ask_for_publication(self._connection, attempt_ids=[_id(attempt_id)])

    def unpublished(self) -> list[Message]:
        found = sweep.unpublished(
            self._connection, terms={SHARD: 0}, older_than_s=UNPUBLISHED_AFTER_S
        )
        return list(map(message_of, found))

    def unclaimed(self) -> list[Unclaimed]:
        return [
            Unclaimed(
                Message(row["attempt_id"].int, row["ti_id"] - 1, row["fence"], row["lease_token"]),
                row["overtaken"],
            )
            for row in sweep._unclaimed(self._connection, {SHARD: 0})
        ]

    # -- the worker ---------------------------------------------------------------------------

    def claim(self, message: Message, nonce: int, worker: int, pid: int) -> Claim | None:
        claimed = attempt.claim(
            self._connection,
            ti_id=message.ti_id + 1,
            attempt_id=_id(message.attempt_id),
            token=message.token,
            fence=message.fence,
            nonce=_id(nonce),
            worker_job_id=_id(worker),
            hostname=HOSTNAME,
            pid=pid,
        )
        self.look()
        if claimed is None:
            return None
        return Claim(
            claimed.ti_id - 1,
            claimed.try_number,
            claimed.max_tries,
            claimed.resume_index,
            claimed.next_method,
        )

    def beat(self, attempt_ids: Sequence[int], worker: int) -> list[Beat]:
        answers = attempt.beat(
            self._connection, attempt_ids=list(map(_id, attempt_ids)), worker_job_id=_id(worker)
        )
        self.look()
        return [Beat(one.attempt_id.int, one.is_wanted, AttemptState(one.state)) for one in answers]

    def start_job(self, job_id: int) -> None:
        job.start_job(
            self._connection,
            job_id=_id(job_id),
            kind="worker",
            name="",
            hostname=HOSTNAME,
            pid=job_id,
            detail={"queues": ["default"], "concurrency": 2},
        )
        self.look()

    def beat_job(self, job_id: int) -> None:
        job.beat_job(self._connection, job_id=_id(job_id), progressed=True)
        self.look()

    def end_job(self, job_id: int) -> None:
        job.end_job(self._connection, job_id=_id(job_id))
        self.look()

    def finish(
        self,
        ti_id: int,
        attempt_id: int,
        nonce: int,
        state: TaskState,
        outcome: AttemptOutcome,
        retry_after_s: float | None,
    ) -> bool:
        try:
            run_id = attempt.finish(
                self._connection,
                ti_id=ti_id + 1,
                attempt_id=_id(attempt_id),
                nonce=_id(nonce),
                state=state,
                is_open=retry_after_s is not None,
                outcome=outcome,
                retry_after_s=retry_after_s,
            )
        except psycopg.errors.UniqueViolation as error:
            raise UniqueViolation from error
        self.look()
        return run_id is not None

    def defer(self, ti_id: int, attempt_id: int, nonce: int, wait: Wait) -> bool:
        try:
            run_id = trigger.defer(
                self._connection,
                ti_id=ti_id + 1,
                attempt_id=_id(attempt_id),
                nonce=_id(nonce),
                wait=wait_of(wait),
            )
        except psycopg.errors.UniqueViolation as error:
            raise UniqueViolation from error
        self.look()
        return run_id is not None

    def hand_back(self, attempt_id: int, worker: int) -> bool:
        run_id = attempt.hand_back(
            self._connection,
            attempt_id=_id(attempt_id),
            worker_job_id=_id(worker),
            reason="simulated",
        )
        self.look()
        return run_id is not None

    def fail_killed(self, attempt_id: int, state: TaskState, retry_after_s: float | None) -> bool:
        run_id = attempt.fail_killed(
            self._connection,
            attempt_id=_id(attempt_id),
            state=state,
            is_open=retry_after_s is not None,
            retry_after_s=retry_after_s,
            reason="simulated",
        )
        self.look()
        return run_id is not None

    def stale(self) -> list[int]:
        rows = sweep._running(self._connection, {SHARD: 0}, DEAD_AFTER_S)
        return [row["attempt_id"].int for row in rows if row["is_stale"]]

    def lose(self, attempt_ids: Sequence[int]) -> list[int]:
        lost = attempt.lose(
            self._connection,
            attempt_ids=list(map(_id, attempt_ids)),
            dead_after_s=DEAD_AFTER_S,
            budget=self.budget,
            source="simulated",
        )
        return [row["attempt_id"].int for row in lost]

    # -- events -------------------------------------------------------------------------------

    def record_event(
        self,
        attempt_id: int,
        kind: str,
        dedupe_key: str | None,
        judgement: Judgement | None,
        *,
        worker: int | None = None,
        pid: int | None = None,
    ) -> bool:
        given = None
        if judgement is not None:
            given = executor_event.Judgement(
                verdict=judgement.verdict, code=judgement.code, reason="simulated"
            )
        new = executor_event.record_events(
            self._connection,
            events=[
                executor_event.NewEvent(
                    attempt_id=_id(attempt_id),
                    kind=kind,
                    source="simulated",
                    source_job_id=None if worker is None else _id(worker),
                    payload={} if pid is None else {"hostname": HOSTNAME, "pid": pid},
                    dedupe_key=dedupe_key,
                    judgement=given,
                )
            ],
        )
        self.look()
        return new == 1

    # -- triggers -----------------------------------------------------------------------------

    def due(self) -> tuple[list[Fire], bool]:
        with self._connection.cursor(row_factory=class_row(trigger.Fire)) as cursor:
            cursor.execute(sql.load("due_triggers"), {"limit": 100})
            due = cursor.fetchall()
        asleep = [one.trigger_id for one in due if one.state is None]
        trigger._let_sleep(self._connection, asleep)
        self.look()
        fires = [
            Fire(one.trigger_id, one.state, _tag(one.payload), one.event_id)
            for one in due
            if one.state is not None
        ]
        return fires, bool(asleep)

    def fire(self, one: Fire) -> str:
        (fired,) = trigger.fire(
            self._connection,
            fires=[
                trigger.Fire(
                    trigger_id=one.trigger_id,
                    state=one.state,
                    payload=None if one.payload is None else {one.payload: {"kind": "simulated"}},
                    event_id=one.event_id,
                )
            ],
        )
        self.look()
        return fired.what

    def record_external(self, ti_id: int) -> tuple[int, int | None]:
        with self._connection.transaction():
            found = trigger.record_external_event(
                self._connection, ti_id=ti_id + 1, key="key", payload=1, actor="simulated"
            )
        self.look()
        return found

    # -- freeze -------------------------------------------------------------------------------

    def hold(self, ti_ids: Iterable[int]) -> None:
        self._connection.execute(
            "UPDATE task_instance SET held_by = %s WHERE id = ANY(%s) AND is_open",
            [FREEZE, [ti_id + 1 for ti_id in ti_ids]],
        )
        self.look()

    def freeze_run(self) -> None:
        with self._connection.transaction():
            self._connection.execute("SELECT id FROM run FOR UPDATE")
            self._connection.execute("UPDATE run SET frozen_at = clock_timestamp()")
            self.hold(range(len(self.tis)))

    def thaw(self, ti_ids: Iterable[int]) -> None:
        with self._connection.transaction():
            self._connection.execute("SELECT id FROM run FOR UPDATE")
            self._connection.execute("UPDATE run SET frozen_at = NULL")
            self._connection.execute(
                "UPDATE task_instance SET held_by = NULL WHERE id = ANY(%s)",
                [[ti_id + 1 for ti_id in ti_ids]],
            )
        self.look()

    # -- the server ---------------------------------------------------------------------------

    def advance(self, seconds: float) -> None:
        self._clock.advance(seconds)
        self.look()

    def restart(self) -> None:
        self._clock.restart()
        self.look()

    # -- rows ---------------------------------------------------------------------------------

    def look(self) -> None:
        """Every row as it is now, as this transaction sees it."""
        with self._connection.cursor(row_factory=tuple_row) as cursor:
            cursor.execute(_LOOK)
            found = cursor.fetchone()
        assert found is not None
        rows = found[0]
        self.now, self.started_at = rows["clock"]
        (self.lease,) = (_filled(Lease(), row) for row in rows["lease"])
        (self.run,) = (_filled(Run(), row) for row in rows["run"])
        self.tis = [_filled(TaskInstance(0, 0), row) for row in rows["tis"] or ()]
        attempts = [_filled(Attempt(0, None, None), row) for row in rows["attempts"] or ()]
        self.attempts = {p.id: p for p in attempts}
        self.live = {p.id: p for p in self.attempts.values() if p.is_live}
        self.triggers = [
            _filled(Trigger(0, self.tis[0], ""), row) for row in rows["triggers"] or ()
        ]
        self.external = [_filled(ExternalEvent(0, 0), row) for row in rows["external"] or ()]
        self.events = [_filled(ExecutorEvent(0, 0, "", 0.0), row) for row in rows["events"] or ()]
        self.pending = [event for event in self.events if event.verdict == "pending"]
        jobs = [_filled(Job(0, 0.0), row) for row in rows["jobs"] or ()]
        self.jobs = {job.id: job for job in jobs}


def _filled(row: R, values: dict[str, Any]) -> R:
    for name in row.__slots__:
        setattr(row, name, _value(type(row), name, values[name]))
    return row


def _value(kind: type[Row], name: str, value: Any) -> Any:
    if value is None:
        return None
    if (kind, name) in _STATES:
        return _STATES[kind, name](value)
    if isinstance(value, str) and name in _IDS:
        return UUID(value).int
    return value


_STATES: Final[dict[tuple[type[Row], str], Any]] = {
    (Run, "state"): RunState,
    (TaskInstance, "state"): TaskState,
    (Attempt, "state"): AttemptState,
    (Attempt, "outcome"): AttemptOutcome,
}
_IDS: Final = frozenset({"id", "holder", "attempt_id", "nonce", "worker", "superseded_by"})


def _seconds(column: str) -> str:
    return f"extract(epoch FROM {column} - timestamptz '{EPOCH}')::float8"


def _rows(table: str, columns: dict[str, str]) -> str:
    listed = ", ".join(f"'{name}', {column}" for name, column in columns.items())
    return f"(SELECT json_agg(json_build_object({listed}) ORDER BY {columns['id']}) FROM {table})"


def _same(*names: str) -> dict[str, str]:
    return {name: name for name in names}


def _times(*names: str) -> dict[str, str]:
    return {name: _seconds(name) for name in names}


_TABLES: Final[dict[str, str]] = {
    "clock": "(SELECT json_build_array("
    f"{_seconds('now')}, {_seconds('server_started_at')}) FROM simulated.clock)",
    "lease": _rows("lease", {"id": "shard", **_same("holder", "token"), **_times("expires_at")}),
    "run": _rows("run", {**_same("id", "state"), "frozen": "frozen_at IS NOT NULL"}),
    "tis": _rows(
        "task_instance",
        {
            "id": "id - 1",
            **_same("state", "is_open", "try_number", "max_tries", "resume_index", "dispatch_no"),
            **_same("attempt_id", "next_method"),
            "nonce": "claim_nonce",
            "held": "held_by IS NOT NULL",
            "losses": "infra_losses",
            "event": "CASE WHEN next_kwargs ? 'event' THEN 'event'"
            " WHEN next_kwargs ? 'error' THEN 'error' END",
            **_times("next_retry_at"),
        },
    ),
    "attempts": _rows(
        "attempt",
        {
            "ti_id": "ti_id - 1",
            **_same("id", "try_number", "resume_index", "dispatch_no", "fence", "state", "is_live"),
            **_same("is_accepted", "outcome", "filter_code", "superseded_by", "nonce", "pid"),
            **_same("publish_count"),
            "token": "lease_token",
            "worker": "worker_job_id",
            **_times("issued_at", "published_at", "started_at", "heartbeat_at"),
        },
    ),
    "triggers": _rows(
        "trigger",
        {
            "ti_id": "ti_id - 1",
            **_same("id", "try_number", "resume_index", "kind", "state", "is_waiting"),
            "payload": "(SELECT min(key) FROM jsonb_object_keys(payload) AS key)",
            **_times("due_at", "timeout_at", "wake_at"),
        },
    ),
    "external": _rows("external_event", {"ti_id": "ti_id - 1", **_same("id", "trigger_id")}),
    "events": _rows(
        "executor_event",
        {
            **_same("id", "attempt_id", "kind", "verdict", "filter_code"),
            "code": "verdict_code",
            "worker": "source_job_id",
            "pid": "(payload->>'pid')::int",
            **_times("received_at"),
        },
    ),
    "jobs": _rows(
        "job", {**_same("id"), "has_ended": "ended_at IS NOT NULL", **_times("heartbeat_at")}
    ),
}
_LOOK: Final = "SELECT json_build_object({})".format(
    ", ".join(f"'{name}', {rows}" for name, rows in _TABLES.items())
)


def wait_of(wait: Wait) -> trigger.Wait:
    """The wait as the product's worker reports it."""
    return trigger.Wait(
        next_method="resumed",
        next_kwargs={},
        kind=wait.kind,  # type: ignore[arg-type] # one of the three
        classpath="simulated",
        kwargs={},
        detail="simulated",
        event_key="key" if wait.kind == "event" else None,
        due_after_s=wait.due_after_s,
        timeout_s=wait.timeout_s,
    )


def _id(number: int) -> UUID:
    return UUID(int=number)


def message_of(message: attempt.Message) -> Message:
    return Message(message.attempt_id.int, message.ti_id - 1, message.fence, message.lease_token)


def _tag(payload: dict[str, Any] | None) -> str | None:
    """``event`` or ``error``."""
    return None if payload is None else next(iter(payload))
