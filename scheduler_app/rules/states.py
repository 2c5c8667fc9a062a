"""The states of runs, task instances and attempts, and the one table of allowed moves.

Every write of a state goes through ``transitions/`` by compare-and-set on a source that ``MOVES``
allows. ``docs/state_machine.md`` is compared with these tables by a test.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class TaskState(StrEnum):
    """The state of a task instance."""

    NONE = "none"  # created; its upstream has not decided yet
    SCHEDULED = "scheduled"  # ready; waits for a slot
    QUEUED = "queued"  # an attempt is issued; waits for a worker's claim
    RUNNING = "running"  # a worker claimed the attempt and executes it
    RESTARTING = "restarting"  # cleared while running; waits for the old attempt to stop
    DEFERRED = "deferred"  # the attempt ended by handing over to a trigger
    UP_FOR_RETRY = "up_for_retry"  # failed; another try follows at next_retry_at
    UP_FOR_RESCHEDULE = "up_for_reschedule"  # asked to be run again later in the same try
    SUCCESS = "success"
    FAILED = "failed"
    SKIPPED = "skipped"
    UPSTREAM_FAILED = "upstream_failed"
    REMOVED = "removed"  # not in the version that the run executes any more


class RunState(StrEnum):
    """The state of a run."""

    QUEUED = "queued"  # created; waits for room under max_active_runs
    RUNNING = "running"
    SUCCESS = "success"
    FAILED = "failed"


class AttemptState(StrEnum):
    """The state of an attempt; what came of it is its ``AttemptOutcome``."""

    ISSUED = "issued"  # written, perhaps published; no worker has claimed it
    RUNNING = "running"
    ENDED = "ended"


class AttemptOutcome(StrEnum):
    """What came of an ended attempt."""

    SUCCESS = "success"
    FAILED = "failed"
    DEFERRED = "deferred"
    RESCHEDULED = "rescheduled"
    LOST = "lost"  # its worker fell silent, or handed it back
    TERMINATED = "terminated"  # stopped on request, or its child process was killed


class AttemptKind(StrEnum):
    """What an attempt executes: the task itself, or a callback about it."""

    TASK = "task"
    CALLBACK = "callback"


class RunType(StrEnum):
    """Why a run exists."""

    SCHEDULED = "scheduled"
    MANUAL = "manual"
    BACKFILL = "backfill"


class JobKind(StrEnum):
    """The kinds of process that keep a job row."""

    SCHEDULER = "scheduler"
    TRIGGERER = "triggerer"
    WORKER = "worker"
    WEB = "web"


TASK_TERMINAL: Final = frozenset(
    {
        TaskState.SUCCESS,
        TaskState.FAILED,
        TaskState.SKIPPED,
        TaskState.UPSTREAM_FAILED,
        TaskState.REMOVED,
    }
)
RUN_TERMINAL: Final = frozenset({RunState.SUCCESS, RunState.FAILED})

# States from which the dispatcher may issue an attempt.
DISPATCHABLE: Final = frozenset(
    {
        TaskState.NONE,
        TaskState.SCHEDULED,
        TaskState.UP_FOR_RETRY,
        TaskState.UP_FOR_RESCHEDULE,
    }
)

# Outcomes that an attempt reported itself: at most one per (task instance, try, resume).
REPORTED_OUTCOMES: Final = frozenset(
    {
        AttemptOutcome.SUCCESS,
        AttemptOutcome.FAILED,
        AttemptOutcome.DEFERRED,
        AttemptOutcome.RESCHEDULED,
    }
)

_S = TaskState

TASK_MOVES: Final[dict[TaskState, frozenset[TaskState]]] = {
    _S.NONE: frozenset(
        {_S.SCHEDULED, _S.QUEUED, _S.SKIPPED, _S.UPSTREAM_FAILED, _S.REMOVED, _S.SUCCESS, _S.FAILED}
    ),
    _S.SCHEDULED: frozenset(
        {
            _S.NONE,
            _S.QUEUED,
            _S.UP_FOR_RETRY,
            _S.SKIPPED,
            _S.UPSTREAM_FAILED,
            _S.REMOVED,
            _S.SUCCESS,
            _S.FAILED,
        }
    ),
    _S.QUEUED: frozenset(
        {
            _S.RUNNING,
            _S.SCHEDULED,
            _S.UP_FOR_RETRY,
            _S.FAILED,
            _S.SUCCESS,
            _S.NONE,
            _S.SKIPPED,
            _S.REMOVED,
        }
    ),
    _S.RUNNING: frozenset(
        {
            _S.SUCCESS,
            _S.FAILED,
            _S.SKIPPED,
            _S.UP_FOR_RETRY,
            _S.UP_FOR_RESCHEDULE,
            _S.DEFERRED,
            _S.RESTARTING,
            _S.SCHEDULED,
            _S.REMOVED,
        }
    ),
    _S.RESTARTING: frozenset({_S.NONE, _S.UP_FOR_RETRY, _S.FAILED, _S.SUCCESS, _S.SKIPPED}),
    _S.DEFERRED: frozenset(
        {
            _S.SCHEDULED,
            _S.FAILED,
            _S.NONE,
            _S.SUCCESS,
            _S.SKIPPED,
            _S.UP_FOR_RETRY,
            _S.REMOVED,
        }
    ),
    _S.UP_FOR_RETRY: frozenset(
        {_S.SCHEDULED, _S.QUEUED, _S.NONE, _S.FAILED, _S.SUCCESS, _S.SKIPPED, _S.REMOVED}
    ),
    _S.UP_FOR_RESCHEDULE: frozenset(
        {_S.SCHEDULED, _S.QUEUED, _S.NONE, _S.FAILED, _S.SUCCESS, _S.SKIPPED, _S.REMOVED}
    ),
    # A terminal state changes only by an explicit, audited act: clear (to none) or mark. A mapped
    # instance is removed where such an act made what it maps over shorter, and comes back with it.
    _S.SUCCESS: frozenset({_S.NONE, _S.FAILED, _S.SKIPPED, _S.REMOVED}),
    _S.FAILED: frozenset({_S.NONE, _S.SUCCESS, _S.SKIPPED, _S.REMOVED}),
    _S.SKIPPED: frozenset({_S.NONE, _S.SUCCESS, _S.FAILED, _S.REMOVED}),
    _S.UPSTREAM_FAILED: frozenset({_S.NONE, _S.SUCCESS, _S.FAILED, _S.SKIPPED, _S.REMOVED}),
    _S.REMOVED: frozenset({_S.NONE}),
}

RUN_MOVES: Final[dict[RunState, frozenset[RunState]]] = {
    RunState.QUEUED: frozenset({RunState.RUNNING, RunState.SUCCESS, RunState.FAILED}),
    RunState.RUNNING: frozenset({RunState.SUCCESS, RunState.FAILED, RunState.QUEUED}),
    RunState.SUCCESS: frozenset({RunState.QUEUED, RunState.FAILED}),
    RunState.FAILED: frozenset({RunState.QUEUED, RunState.SUCCESS}),
}

ATTEMPT_MOVES: Final[dict[AttemptState, frozenset[AttemptState]]] = {
    AttemptState.ISSUED: frozenset({AttemptState.RUNNING, AttemptState.ENDED}),
    AttemptState.RUNNING: frozenset({AttemptState.ENDED}),
    AttemptState.ENDED: frozenset(),
}


def sources_of(target: TaskState) -> frozenset[TaskState]:
    """The states from which a task instance may move to ``target``."""
    return frozenset(source for source, targets in TASK_MOVES.items() if target in targets)


def run_sources_of(target: RunState) -> frozenset[RunState]:
    """The states from which a run may move to ``target``."""
    return frozenset(source for source, targets in RUN_MOVES.items() if target in targets)
