"""The three-way audit: what the database says runs, what workers say they run, what the broker holds.

Each scheduler audits the shards that it holds, and everything that belongs to no shard. The audit
flags and counts; it ends no attempt and no run.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from django.conf import settings
from psycopg.rows import dict_row, tuple_row

from scheduler_app.processes.attempt_records import records_of
from scheduler_app.rules import ghosts
from scheduler_app.transitions.ghost import end_ghosts, note_audit, see
from scheduler_app.transitions.identity import database_identity

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence
    from datetime import datetime

    import psycopg

    from scheduler_app.executors.interface import Executor

MESSAGES_MAX: Final = 2000  # read of one queue
RUNNING_MAX: Final = 20_000  # attempts of the shards, in one audit
SEEN_BY: Final = "audit"
# What no audit has seen again for so many intervals is over.
FORGOTTEN_AFTER: Final = 3

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """An attempt that runs by its record."""

    attempt_id: UUID
    worker_job_id: UUID | None
    started_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Reporting:
    """A worker that is not gone, and whether it said lately what it executes."""

    job_id: UUID
    hostname: str
    pid: int
    queues: tuple[str, ...]
    reported_at: datetime | None  # null: never
    is_fresh: bool


@dataclass(slots=True, kw_only=True)
class Comparison:
    """What one audit read, and what it found."""

    running: list[Running] = field(default_factory=list)
    workers: list[Reporting] = field(default_factory=list)
    executions: list[ghosts.Execution] = field(default_factory=list)
    messages: dict[str, list[ghosts.Waiting] | None] = field(default_factory=dict)  # by queue
    found: list[ghosts.Sighting] = field(default_factory=list)
    is_news: bool = False  # a ghost appeared or is over

    @property
    def compared(self) -> int:
        """Records, executions and messages that were held against each other."""
        waiting = sum(len(each) for each in self.messages.values() if each)
        return len(self.running) + len(self.executions) + waiting

    @property
    def is_complete(self) -> bool:
        """Whether every live worker said what it executes, and every queue could be read."""
        return all(worker.is_fresh for worker in self.workers) and None not in (
            self.messages.values()
        )

    def numbers(self) -> dict[str, int]:
        """The audit in numbers, as it is stored and shown."""
        reported = {each.attempt_id for each in self.executions}
        fresh = {worker.job_id: worker for worker in self.workers if worker.is_fresh}
        settled = timedelta(seconds=settings.HEARTBEAT_INTERVAL_S)
        unheard = [
            record
            for record in self.running
            if record.worker_job_id in fresh
            and record.attempt_id not in reported
            and (at := fresh[record.worker_job_id].reported_at) is not None
            and at - record.started_at > settled
        ]
        return {
            "running_records": len(self.running),
            "reported_executions": len(self.executions),
            "workers": len(self.workers),
            "silent_workers": sum(1 for worker in self.workers if not worker.is_fresh),
            "queues": len(self.messages),
            "unreadable_queues": sum(1 for each in self.messages.values() if each is None),
            "waiting_messages": sum(len(each) for each in self.messages.values() if each),
            # Its worker lives and does not execute it: its exit event or a loss decides.
            "records_without_execution": len(unheard),
        }

    def by_kind(self) -> dict[str, int]:
        """How many of each kind were found."""
        return dict(sorted(Counter(each.kind for each in self.found).items()))


def compare_now(
    connection: psycopg.Connection[Any],
    *,
    executor: Executor,
    shards: Collection[int] | None = None,
) -> Comparison:
    """What database, workers and broker say now, held against each other; nothing is written.

    Of some shards, or of all; executions and messages without a record belong to every shard.
    """
    made = Comparison()
    identity = database_identity(connection)
    # The broker first: a message that is sent meanwhile has its record by the time of the reads.
    made.workers = _workers(connection)
    queues = {queue for worker in made.workers for queue in worker.queues}
    queues |= _queues_in_use(connection)
    made.messages = _messages(executor, sorted(queues))
    made.running = _running(connection, shards)
    made.executions = _executions(connection)
    waiting = [one for each in made.messages.values() if each for one in each]
    named = {each.attempt_id for each in made.executions} | {one.attempt_id for one in waiting}
    records = records_of(connection, named)
    found = ghosts.compare(
        executions=made.executions,
        records=records,
        messages=waiting,
        identity=identity,
        settled_after=timedelta(seconds=settings.HEARTBEAT_INTERVAL_S),
    )
    made.found = [
        each for each in found if shards is None or each.shard is None or each.shard in shards
    ]
    return made


def _messages(executor: Executor, queues: Sequence[str]) -> dict[str, list[ghosts.Waiting] | None]:
    """What waits in each queue; once the broker fails to answer, it is asked no more."""
    found: dict[str, list[ghosts.Waiting] | None] = dict.fromkeys(queues)
    for queue in queues:
        found[queue] = executor.waiting(queue, limit=MESSAGES_MAX)
        if found[queue] is None:
            break
    return found


def audit_ghosts(
    connection: psycopg.Connection[Any],
    *,
    executor: Executor,
    holder: UUID,
    shards: Collection[int],
    more: Iterable[ghosts.Sighting] = (),
) -> Comparison:
    """The audit is done and noted; ghosts that are there are open, those that are not are over.

    ``more`` are sightings that the caller made.
    """
    began = time.monotonic()
    made = compare_now(connection, executor=executor, shards=shards)
    made.found += more
    policy = settings.GHOST_POLICY
    with connection.transaction():
        seen = see(connection, sightings=made.found, seen_by=SEEN_BY, policy=policy)
        ended = _end_what_is_over(connection, made, shards)
    made.is_news = bool(ended) or any(each.is_new for each in seen)
    for each in seen:
        if each.is_new:
            logger.warning("a ghost was found", extra={"kind": each.kind, "subject": each.subject})
    note_audit(
        connection,
        holder=holder,
        compared=made.compared,
        numbers=made.numbers(),
        open_ghosts=made.by_kind(),
        duration_ms=round((time.monotonic() - began) * 1000),
        is_complete=made.is_complete,
    )
    return made


def _end_what_is_over(
    connection: psycopg.Connection[Any], made: Comparison, shards: Collection[int]
) -> int:
    here = {(each.kind, each.subject) for each in made.found}
    executing = {(each.attempt_id, each.worker_job_id, each.pid) for each in made.executions}
    known = {worker.job_id for worker in made.workers}
    fresh = {worker.job_id for worker in made.workers if worker.is_fresh}
    over: dict[str, list[int]] = {}
    for ghost in _open_ghosts(connection, shards):
        if (ghost["kind"], ghost["subject"]) in here:
            continue
        reason = ""
        if ghost["kind"] in ghosts.OF_PROCESS:
            process = (ghost["attempt_id"], ghost["worker_job_id"], ghost["pid"])
            if ghost["worker_job_id"] not in known:
                reason = "its worker is gone"
            elif ghost["worker_job_id"] in fresh and process not in executing:
                reason = "its process ended"
        elif ghost["kind"] in ghosts.SUSPECTS:
            reason = "it moved on"
        elif ghost["is_forgotten"] or ghost["kind"] == ghosts.TWO_LIVE:
            reason = "it was not seen again"
        if reason:
            over.setdefault(reason, []).append(ghost["id"])
    return sum(end_ghosts(connection, ids=ids, reason=reason) for reason, ids in over.items())


def _open_ghosts(
    connection: psycopg.Connection[Any], shards: Collection[int]
) -> list[dict[str, Any]]:
    with connection.cursor(row_factory=dict_row) as cursor:
        cursor.execute(
            "SELECT id, kind, subject, attempt_id, worker_job_id, pid,"
            " last_seen_at < clock_timestamp() - make_interval(secs => %s::float8) AS is_forgotten"
            " FROM ghost WHERE ended_at IS NULL AND (shard IS NULL OR shard = ANY(%s))",
            [FORGOTTEN_AFTER * settings.GHOST_AUDIT_INTERVAL_S, list(shards)],
        )
        return cursor.fetchall()


def _workers(connection: psycopg.Connection[Any]) -> list[Reporting]:
    """Workers that beat, and silent ones that nobody has declared dead yet."""
    with connection.cursor(row_factory=dict_row) as cursor:
        cursor.execute(
            "SELECT j.id, j.hostname, j.pid, j.detail, i.at,"
            " coalesce(i.at > clock_timestamp() - make_interval(secs => %s::float8), false) AS fresh"
            " FROM job j LEFT JOIN inventory i ON i.job_id = j.id"
            " WHERE j.kind = 'worker' AND j.ended_at IS NULL AND j.state = 'running'",
            [settings.HEARTBEAT_DEAD_AFTER_S],
        )
        return [
            Reporting(
                job_id=row["id"],
                hostname=row["hostname"],
                pid=row["pid"],
                queues=tuple(row["detail"].get("queues", ())),
                reported_at=row["at"],
                is_fresh=row["fresh"],
            )
            for row in cursor.fetchall()
        ]


def _queues_in_use(connection: psycopg.Connection[Any]) -> set[str]:
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute("SELECT DISTINCT queue FROM attempt WHERE is_live AND state = 'issued'")
        return {row[0] for row in cursor.fetchall() if row[0]}


def _running(connection: psycopg.Connection[Any], shards: Collection[int] | None) -> list[Running]:
    with connection.cursor(row_factory=dict_row) as cursor:
        cursor.execute(
            "SELECT id AS attempt_id, worker_job_id, started_at FROM attempt"
            " WHERE is_live AND state = 'running' AND (%(all)s OR shard = ANY(%(shards)s)) LIMIT %(max)s",
            {"all": shards is None, "shards": list(shards or ()), "max": RUNNING_MAX},
        )
        return [Running(**row) for row in cursor.fetchall()]


def _executions(connection: psycopg.Connection[Any]) -> list[ghosts.Execution]:
    """What workers that are not gone said lately."""
    with connection.cursor(row_factory=dict_row) as cursor:
        cursor.execute(
            "SELECT i.job_id, i.hostname, i.at, i.executions FROM inventory i"
            " JOIN job j ON j.id = i.job_id AND j.ended_at IS NULL AND j.state = 'running'"
            " WHERE i.at > clock_timestamp() - make_interval(secs => %s::float8)",
            [settings.HEARTBEAT_DEAD_AFTER_S],
        )
        return [
            ghosts.Execution(
                attempt_id=UUID(each["attempt"]),
                worker_job_id=row["job_id"],
                hostname=row["hostname"],
                pid=each["pid"],
                reported_at=row["at"],
                age_s=each["age_s"],
            )
            for row in cursor.fetchall()
            for each in row["executions"]
        ]
