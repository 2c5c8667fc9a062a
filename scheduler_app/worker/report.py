"""From what user code came to, to the next state; and the report of it, which is never lost."""

from __future__ import annotations

import logging
import os
import socket
import traceback
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import psycopg
from django.conf import settings

import scheduler_app
from scheduler_app.authoring import retrying
from scheduler_app.rules import callbacks, reconcile, retry
from scheduler_app.rules.definition import TaskDefinition
from scheduler_app.rules.errors import SchedulerError
from scheduler_app.rules.states import AttemptOutcome, TaskState
from scheduler_app.rules.stopping import explain
from scheduler_app.transitions.attempt import finish
from scheduler_app.transitions.callback import NO_TI, NewCallbacks, finish_callback
from scheduler_app.transitions.checkpoint import ProgressNow, Save, save
from scheduler_app.transitions.executor_event import (
    Judgement,
    NewEvent,
    record_events,
    record_ghost_attempt,
)
from scheduler_app.transitions.trigger import Wait, defer
from scheduler_app.worker.facts import Facts, facts_of
from scheduler_app.worker.guard import TaskTimeout

if TYPE_CHECKING:
    from collections.abc import Callable

    from scheduler_app.rules.stopping import Stage
    from scheduler_app.transitions.attempt import Claim

MESSAGE_MAX: Final = 4_000  # characters
TRACEBACK_MAX: Final = 30_000  # characters: the beginning and the end are kept
BASES_MAX: Final = 20  # of an exception
UNSTORABLE: Final = "ReportRefused"
FINISH_TRIES: Final = 3  # while the facts say that it should have been accepted

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What an attempt came to, as the finish writes it. JSON values only."""

    ti_id: int
    attempt_id: str
    nonce: str
    state: str
    is_open: bool
    outcome: str
    retry_after_s: float | None = None
    retry_why: dict[str, Any] | None = None  # of a failure: see rules/retry.py
    max_tries: int | None = None
    reason: str | None = None
    result: Any = None
    error: dict[str, Any] | None = None
    wait: dict[str, Any] | None = None  # of a deferral: the fields of a transitions.trigger.Wait
    # Of the task, as its definition has them: which are due follows from the state.
    callbacks: dict[str, Any] = field(default_factory=dict)
    # What the task saved and the database has not yet: transitions.checkpoint.Save, and its progress.
    saves: list[dict[str, Any]] = field(default_factory=list)
    progress: dict[str, Any] | None = None

    def as_json(self) -> dict[str, Any]:
        """The report as it is spooled."""
        return asdict(self)


def signature(hostname: str) -> str:
    """How a worker signs its events."""
    return f"worker: {hostname}"


def success(
    claim: Claim, *, attempt_id: str, nonce: str, task: TaskDefinition, result: Any
) -> Report:
    """The report of a task that returned ``result`` (encoded)."""
    return Report(
        ti_id=claim.ti_id,
        attempt_id=attempt_id,
        nonce=nonce,
        state=TaskState.SUCCESS,
        is_open=False,
        outcome=AttemptOutcome.SUCCESS,
        result=result,
        callbacks=task.callbacks,
    )


def skipped(
    claim: Claim, *, attempt_id: str, nonce: str, task: TaskDefinition, reason: str
) -> Report:
    """The report of a task that said that it is to be skipped: its attempt ended well."""
    return Report(
        ti_id=claim.ti_id,
        attempt_id=attempt_id,
        nonce=nonce,
        state=TaskState.SKIPPED,
        is_open=False,
        outcome=AttemptOutcome.SUCCESS,
        reason=storable(f"Skipped: {reason}", MESSAGE_MAX),
        callbacks=task.callbacks,
    )


def deferred(
    claim: Claim, *, attempt_id: str, nonce: str, task: TaskDefinition, wait: dict[str, Any]
) -> Report:
    """The report of a task that handed over to a trigger."""
    return Report(
        ti_id=claim.ti_id,
        attempt_id=attempt_id,
        nonce=nonce,
        state=TaskState.DEFERRED,
        is_open=True,
        outcome=AttemptOutcome.DEFERRED,
        wait=wait,
        callbacks=task.callbacks,
    )


def rescheduled(
    claim: Claim, *, attempt_id: str, nonce: str, task: TaskDefinition, after_s: float
) -> Report:
    """The report of a task that asked to be run again, from its beginning, in the same try."""
    return Report(
        ti_id=claim.ti_id,
        attempt_id=attempt_id,
        nonce=nonce,
        state=TaskState.UP_FOR_RESCHEDULE,
        is_open=True,
        outcome=AttemptOutcome.RESCHEDULED,
        retry_after_s=after_s,
        reason=f"It asked to be run again after {after_s:g} s.",
        callbacks=task.callbacks,
    )


def failure(
    claim: Claim,
    *,
    attempt_id: str,
    nonce: str,
    error: BaseException,
    task: TaskDefinition | None,
) -> Report:
    """The report of a task that raised ``error``; another try follows if its budget allows it."""
    state, follows = after_failure(
        task,
        failure_of(error),
        try_number=claim.try_number,
        max_tries=claim.max_tries,
        budget_start=claim.budget_start,
        jitter_key=f"{claim.run_key}:{claim.task_id}:{claim.map_index}",
    )
    described = describe(error)
    return Report(
        ti_id=claim.ti_id,
        attempt_id=attempt_id,
        nonce=nonce,
        state=state,
        is_open=state is TaskState.UP_FOR_RETRY,
        outcome=AttemptOutcome.FAILED,
        retry_after_s=follows.delay_s,
        retry_why=follows.why,
        max_tries=follows.max_tries,
        reason=f"{described['type']}: {described['message']}"[:MESSAGE_MAX],
        error=described,
        callbacks={} if task is None else task.callbacks,
    )


def stopped(
    claim: Claim,
    *,
    attempt_id: str,
    nonce: str,
    why: str,
    stage: Stage,
    error: BaseException | None = None,
) -> Report:
    """The report of a task that was asked to stop and did: failed, without another try.

    A person asked for it, and knows: no callback is due. ``error`` is what it raised instead of the exception that it was stopped with.
    """
    return Report(
        ti_id=claim.ti_id,
        attempt_id=attempt_id,
        nonce=nonce,
        state=TaskState.FAILED,
        is_open=False,
        outcome=AttemptOutcome.TERMINATED,
        reason=storable(explain(why, stage), MESSAGE_MAX),
        error=None if error is None else describe(error),
    )


def _unstorable(report: Report, error: Exception) -> Report:
    """The report with what the database refused to store replaced by its refusal: failed, no retry."""
    message = storable(f"The database refused the report: {error}".strip(), MESSAGE_MAX)
    return replace(
        report,
        state=TaskState.FAILED,
        is_open=False,
        outcome=AttemptOutcome.FAILED,
        retry_after_s=None,
        retry_why=None,
        reason=message,
        result=None,
        wait=None,
        error={"type": UNSTORABLE, "message": message, "traceback": ""},
    )


def after_failure(
    task: TaskDefinition | None,
    failure: retry.Failure,
    *,
    try_number: int,
    max_tries: int,
    budget_start: int,
    jitter_key: str,
) -> tuple[TaskState, retry.RetryDecision]:
    """The next state of a task that failed in this try, and when another follows or why none does.

    Where this worker cannot read the definition, as one that is older than it, the budget alone counts.
    """
    follows = retry.decide(
        task or TaskDefinition(task_id="", retries=max_tries - budget_start),
        failure,
        try_number=try_number,
        max_tries=max_tries,
        budget_start=budget_start,
        jitter_key=jitter_key,
    )
    return TaskState.UP_FOR_RETRY if follows.retries else TaskState.FAILED, follows


# A time limit, as retry rules see it, whether the task minded it or had to be killed.
TIME_LIMIT: Final = retry.Failure(names=("TaskTimeout", "builtins.TimeoutError"))


def failure_of(error: BaseException) -> retry.Failure:
    """What retry rules need to know of what a task raised, fit for storage."""
    if isinstance(error, TaskTimeout):
        return TIME_LIMIT
    seen = retrying.failure_of(error)
    names = tuple(storable(name, retrying.NAME_CHARACTERS_MAX) for name in seen.names)
    reason = storable(seen.reason, retrying.REASON_CHARACTERS_MAX)
    return replace(seen, names=names, reason=reason)


# Of what is known by its name alone.
# What authors import has its public name, and what this product refuses is told by its message.
_PLAIN_MODULES: Final = frozenset(
    {"builtins", __name__, "scheduler_app.worker.guard", SchedulerError.__module__}
)
_AUTHORING: Final = "scheduler_app.authoring."


def describe(error: BaseException) -> dict[str, Any]:
    """Type, message, traceback and what the type is derived from, each capped and fit for storage.

    ``traceback`` leaves out this product's own frames; where there were any, ``whole_traceback`` has them.
    """
    name = _name_of(type(error))
    try:
        message = str(error)
    except BaseException as worse:  # noqa: BLE001 - user code again: an exception's own __str__
        message = f"(its message cannot be shown: its __str__ raised {type(worse).__name__})"
    if isinstance(error, SystemExit):
        message = f"the task called sys.exit({message}); a task ends by returning or raising"
    shown, whole = _tracebacks(error)
    return {
        "type": storable(name, 250),
        "message": storable(message, MESSAGE_MAX),
        "traceback": storable(shown, TRACEBACK_MAX),
        **({} if whole == shown else {"whole_traceback": storable(whole, TRACEBACK_MAX)}),
        # For policies that name a family of exceptions; the ones that all of them have say nothing.
        "bases": [
            storable(_name_of(base), 250)
            for base in type(error).__mro__[1 : BASES_MAX + 1]
            if base not in (object, BaseException)
        ],
    }


def masked(report: Report, hide: Callable[[str], str]) -> Report:
    """The report of a failure without secrets in its texts."""
    error, why = report.error, report.retry_why
    return replace(
        report,
        retry_why={**why, "said": hide(why["said"])} if why and "said" in why else why,
        reason=None if report.reason is None else hide(report.reason),
        error=None
        if error is None
        else {
            name: hide(value) if isinstance(value, str) else [hide(one) for one in value]
            for name, value in error.items()
        },
    )


def _name_of(kind: type) -> str:
    """The exception's name; its module with it unless it is built in or of this product."""
    if kind.__module__ in _PLAIN_MODULES or kind.__module__.startswith(_AUTHORING):
        return kind.__qualname__
    return f"{kind.__module__}.{kind.__qualname__}"


def storable(text: str, length_max: int) -> str:
    """The text as a database column takes it, its middle left out where it is too long."""
    if len(text) > length_max:
        half = length_max // 2
        text = (
            f"{text[:half]}\n... {len(text) - 2 * half:,} characters left out ...\n{text[-half:]}"
        )
    return text.encode("utf-8", "backslashreplace").decode().replace("\x00", "\\x00")


def _tracebacks(error: BaseException) -> tuple[str, str]:
    """What led to the exception in the user's own code, and in all code."""
    try:
        told = traceback.TracebackException.from_exception(error)
        whole = "".join(told.format())
        _leave_out_own_frames(told, set(), is_said=isinstance(error, SchedulerError))
        return "".join(told.format()), whole
    except BaseException as worse:  # noqa: BLE001 - user code again, as above
        said = f"(the traceback cannot be shown: {type(worse).__name__})"
        return said, said


def _leave_out_own_frames(
    told: traceback.TracebackException, seen: set[int], *, is_said: bool = False
) -> None:
    """Frames of this product are left out of it and what it came from, where any other is left.

    ``is_said``: also where none is, since the message is all that there is to know.
    """
    if id(told) in seen:
        return
    seen.add(id(told))
    others = [frame for frame in told.stack if not _is_own(frame.filename)]
    if others or is_said:
        told.stack = traceback.StackSummary.from_list(others)
    for one in (told.__cause__, told.__context__, *(told.exceptions or ())):
        if one is not None:
            _leave_out_own_frames(one, seen)


_PACKAGE: Final = str(Path(scheduler_app.__file__).parent) + os.sep
_FLOWS_IN_IT: Final = (f"{_PACKAGE}examples{os.sep}", f"{_PACKAGE}drills{os.sep}load{os.sep}")


def _is_own(filename: str) -> bool:
    return filename.startswith(_PACKAGE) and not filename.startswith(_FLOWS_IN_IT)


def send(
    connection: psycopg.Connection[Any],
    report: Report,
    *,
    source: str,
    job_id: UUID,
) -> int | None:
    """The report is accepted, or known to be, or an event says why it was not.

    The id of the run that it moved; ``None`` where it moved none. Repeating it changes nothing.
    Raises ``psycopg.Error``.
    """
    attempt_id, nonce = UUID(report.attempt_id), UUID(report.nonce)
    if report.saves or report.progress:
        # If this is refused, so is the report, whose event then tells of both.
        save(
            connection,
            ti_id=report.ti_id,
            attempt_id=attempt_id,
            nonce=nonce,
            saves=[Save(**one) for one in report.saves],
            progress=ProgressNow(**report.progress) if report.progress else None,
            kept=settings.CHECKPOINT_SAVES_KEPT,
        )
    for _ in range(FINISH_TRIES):
        run_id = _finish(connection, report, attempt_id=attempt_id, nonce=nonce)
        if run_id is not None:
            return run_id
        facts = facts_of(connection, [attempt_id]).get(attempt_id)
        is_mine = facts is not None and str(facts.nonce) == report.nonce
        if facts is not None and is_mine and facts.is_accepted:
            return facts.run_id  # accepted before; only the answer was lost
        if not (facts is not None and is_mine and facts.may_be_finished()):
            break
    record_late_report(connection, report, facts, source=source, job_id=job_id)
    return None


def due_callbacks(report: Report) -> tuple[callbacks.Call, ...]:
    """What the report, once accepted, calls for."""
    if report.ti_id == NO_TI:
        return ()
    return callbacks.due(report.callbacks, TaskState(report.state))


def _finish(
    connection: psycopg.Connection[Any], report: Report, *, attempt_id: UUID, nonce: UUID
) -> int | None:
    try:
        if report.ti_id == NO_TI:
            return finish_callback(
                connection,
                attempt_id=attempt_id,
                nonce=nonce,
                outcome=AttemptOutcome(report.outcome),
                reason=report.reason,
                error=report.error,
            )
        if report.wait is not None:
            return defer(
                connection,
                ti_id=report.ti_id,
                attempt_id=attempt_id,
                nonce=nonce,
                wait=Wait(**report.wait),
            )
        return finish(
            connection,
            ti_id=report.ti_id,
            attempt_id=attempt_id,
            nonce=nonce,
            state=TaskState(report.state),
            is_open=report.is_open,
            outcome=AttemptOutcome(report.outcome),
            retry_after_s=report.retry_after_s,
            retry_why=report.retry_why,
            max_tries=report.max_tries,
            reason=report.reason,
            result=report.result,
            error=report.error,
            callbacks=NewCallbacks.of(due_callbacks(report), state=report.state),
        )
    except psycopg.errors.UniqueViolation:
        # The law behind the compare-and-set: this execution has its accepted result already.
        return None
    except (psycopg.DataError, psycopg.IntegrityError) as error:
        if report.error is not None and report.error["type"] == UNSTORABLE:
            raise
        other = _unstorable(report, error)
        return _finish(connection, other, attempt_id=attempt_id, nonce=nonce)


def record_late_report(
    connection: psycopg.Connection[Any],
    report: Report,
    facts: Facts | None,
    *,
    source: str,
    job_id: UUID,
) -> None:
    """A report that changed nothing is an executor event with its verdict and the compared values."""
    _record_late(
        connection,
        reconcile.LATE_REPORT,
        UUID(report.attempt_id),
        report.nonce,
        facts,
        said={"outcome_reported": report.outcome, "state_reported": report.state},
        dedupe_key=f"late:{report.attempt_id}:{report.nonce}",
        source=source,
        job_id=job_id,
    )


def record_late_write(
    connection: psycopg.Connection[Any],
    *,
    attempt_id: UUID,
    nonce: UUID,
    what: str,
    source: str,
    job_id: UUID,
) -> None:
    """A save that changed nothing is an executor event with its verdict; one for each attempt."""
    _record_late(
        connection,
        reconcile.LATE_WRITE,
        attempt_id,
        str(nonce),
        facts_of(connection, [attempt_id]).get(attempt_id),
        said={"what": what},
        dedupe_key=f"late_write:{attempt_id}:{nonce}",
        source=source,
        job_id=job_id,
    )


def _record_late(
    connection: psycopg.Connection[Any],
    kind: str,
    attempt_id: UUID,
    nonce: str,
    facts: Facts | None,
    *,
    said: dict[str, Any],
    dedupe_key: str,
    source: str,
    job_id: UUID,
) -> None:
    claimed = {
        "hostname": socket.gethostname(),
        "pid": os.getpid(),
        **said,
        "nonce": nonce,
        "claimed_nonce": str(facts.nonce) if facts and facts.nonce else None,
        "attempt_state": facts.state if facts else None,
        "outcome": facts.outcome if facts else None,
        "current_attempt_id": str(facts.current_attempt_id)
        if facts and facts.current_attempt_id
        else None,
        "task_state": facts.ti_state if facts else None,
    }
    verdict = reconcile.reconcile(
        reconcile.Event(kind=kind, attempt_id=str(attempt_id), claimed=claimed),
        facts.of_attempt() if facts else None,
        facts.of_task() if facts else None,
        reconcile.Facts(grace_over=True, worker_alive=True),
    )
    judgement = None
    if verdict.verdict != "pending":
        judgement = Judgement(
            verdict=verdict.verdict,
            code=verdict.code,
            reason=verdict.reason,
            detail={**verdict.detail, **claimed},
        )
    event = NewEvent(
        attempt_id=attempt_id,
        kind=kind,
        source=source,
        source_job_id=job_id,
        payload=claimed,
        dedupe_key=dedupe_key,
        judgement=judgement,
    )
    with connection.transaction():
        if judgement is not None and judgement.verdict == "ghost":
            record_ghost_attempt(
                connection,
                attempt_id=attempt_id,
                code=judgement.code or "ghost_no_record",
                detail=judgement.detail,
                hostname=socket.gethostname(),
                pid=os.getpid(),
                worker_job_id=job_id,
                is_executed=True,
            )
        record_events(connection, events=[event])
    logger.warning(
        "a report or a save came too late",
        extra={"attempt_id": str(attempt_id), "kind": kind, "code": verdict.code},
    )
