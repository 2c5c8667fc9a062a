"""What an executor event means for the execution that it tells of: a verdict, a reason, an action.

An event is what a witness outside the user code says. It never grants success; it may only start
a loss check. Every dispatch has its own attempt id, so an event of an execution that was replaced
(a late exit after a deferral, a message of a lost worker) is told from one about the current
execution by identity, not by guessing from states and try numbers: ``reconcile``. An executor that
knows only task and try number leaves no more than that guess: ``judge_by_try``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, Literal, assert_never

from scheduler_app.rules import visibility
from scheduler_app.rules.states import AttemptKind, AttemptOutcome, AttemptState, TaskState

if TYPE_CHECKING:
    from collections.abc import Mapping

EXIT_SUCCESS: Final = "exit_success"  # its process ended and says that the task reported well
EXIT_FAILED: Final = "exit_failed"  # its process ended with an error
EXIT_KILLED: Final = "exit_killed"  # its process ended without a word
WORKER_LOST: Final = "worker_lost"  # the worker, or a part of it, fell silent
HANDED_BACK: Final = "handed_back"  # the worker shuts down and gives it back
DELIVERY_REFUSED: Final = "delivery_refused"  # a message arrived and nothing was started
LATE_REPORT: Final = "late_report"  # a result arrived that the database did not take
LATE_WRITE: Final = "late_write"  # a checkpoint, progress or value that the database did not take
INVENTORY: Final = "inventory"  # a worker executes it, and no record says why
EXECUTOR_QUEUED: Final = "executor_queued"  # an executor took it on; it may say its handle
EXECUTOR_RUNNING: Final = "executor_running"  # an executor started it; it may say its handle

LATE: Final = frozenset({LATE_REPORT, LATE_WRITE})
HANDLES: Final = frozenset({EXECUTOR_QUEUED, EXECUTOR_RUNNING})  # nothing follows from them
EXITS: Final = frozenset({EXIT_SUCCESS, EXIT_FAILED, EXIT_KILLED, WORKER_LOST})
_KINDS: Final = (
    HANDLES | EXITS | {HANDED_BACK, DELIVERY_REFUSED, LATE_REPORT, LATE_WRITE, INVENTORY}
)

KILLED_EXTERNALLY: Final = "killed_externally"  # codes of confirmed events; no row is set aside
LOST: Final = "worker_lost"
NEVER_CLAIMED: Final = "never_claimed"
CALLBACK_LOST: Final = "callback_lost"
CLEARED: Final = "cleared_and_stopped"
CLOSED: Final = "task_over"

_FROZEN: Final = "Its task is frozen; what follows waits for the thaw."
_UNDER_WAY: Final = "Its report may still be under way."

VerdictName = Literal["pending", "confirmed", "ignored", "refused", "ghost"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One statement of a witness."""

    kind: str
    attempt_id: str | None  # null from an executor that knows only task and try
    try_number: int | None = None
    claimed: Mapping[str, Any] = field(default_factory=dict)  # what else the witness said


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptFacts:
    """The attempt that the event names, as it is now."""

    attempt_id: str
    state: AttemptState
    outcome: AttemptOutcome | None
    # It is its task instance's current attempt; or of a callback, the newest call.
    is_current: bool
    superseded_by: str | None
    kind: AttemptKind = AttemptKind.TASK
    held: bool = False  # by a freeze; of a task, its TaskFacts say so


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFacts:
    """The task instance of the attempt, as it is now."""

    state: TaskState
    try_number: int
    next_method: str | None  # set while it resumes after a deferral
    held: bool  # by a freeze


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What else the verdict depends on."""

    grace_over: bool  # a report under way would have arrived by now
    worker_alive: bool  # the worker that claimed the attempt beats
    refusal: str | None = None  # why a delivery was refused
    # The witness saw another execution end than the one that claimed the attempt.
    is_anothers: bool = False
    infrastructure_losses: int = 0  # of this try so far
    infrastructure_budget: int = 0


class QueuedBy(StrEnum):
    """Who handed out the execution that is current now, seen from an event's source."""

    SOURCE = "source"  # the one that the event is of
    ANOTHER = "another"  # another scheduler; or anyone, after the event was received
    NOBODY = "nobody"  # it is handed out to no one: it was taken back, or never given


@dataclass(frozen=True, slots=True, kw_only=True)
class TryFacts:
    """What the verdict on an event without an attempt id depends on, beside its task instance."""

    grace_over: bool  # a report under way would have arrived by now
    queued_by: QueuedBy
    executor_holds: bool  # the source holds another execution of the same try
    is_resumed: bool  # the current attempt goes on after a deferral
    current_attempt_id: str | None
    attempt_state: AttemptState | None = None  # of the current attempt
    outcome: AttemptOutcome | None = None
    deferred_attempt_id: str | None = None  # the last one of this try that ended by deferring


class Action(StrEnum):
    """What has to follow, by compare-and-set: the world may have moved since the facts were read."""

    NONE = "none"
    PUBLISH_AGAIN = "publish_again"  # the same attempt
    FAIL_KILLED = "fail_killed"  # ended as terminated; a retry is used
    MARK_LOST = "mark_lost"  # ended as lost; infrastructure budget is used
    BEGIN_ANEW = "begin_anew"  # cleared, and stopped now: none again, with a whole budget
    CLOSE = "close"  # the attempt ended; its task stays as it is
    REPEAT_CALLBACK = "repeat_callback"  # ended; called again, a bounded number of times


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the event means. ``pending`` asks to be judged again later."""

    verdict: VerdictName
    code: str | None  # of visibility.REASONS unless pending or confirmed
    reason: str  # a sentence with the compared values
    action: Action = Action.NONE
    detail: dict[str, Any] = field(default_factory=dict)  # the compared values


# What a witness of each kind agrees with, once the attempt has ended by its own report.
_AGREEING: Final[dict[str, frozenset[AttemptOutcome]]] = {
    EXIT_SUCCESS: frozenset({AttemptOutcome.SUCCESS, AttemptOutcome.RESCHEDULED}),
    EXIT_FAILED: frozenset({AttemptOutcome.FAILED, AttemptOutcome.TERMINATED}),
    EXIT_KILLED: frozenset({AttemptOutcome.FAILED, AttemptOutcome.TERMINATED}),
    WORKER_LOST: frozenset({AttemptOutcome.LOST, AttemptOutcome.TERMINATED}),
    HANDED_BACK: frozenset({AttemptOutcome.LOST}),
}


def reconcile(
    event: Event, attempt: AttemptFacts | None, ti: TaskFacts | None, facts: Facts
) -> Verdict:
    """The verdict on an event that names an attempt by its id.

    ``attempt`` is null if no such attempt was issued, ``ti`` if it has no parents (a ghost that was
    recorded before).
    """
    judged = _Judged(event, "reconcile", ti)
    judged.compare_attempt(event, attempt)
    # The worker compared the message with the rows; one of another database has no row here.
    has_row = attempt is not None or facts.refusal == "fenced_other_database"
    if event.kind == DELIVERY_REFUSED and facts.refusal and has_row:
        return judged.say("refused", facts.refusal)
    if attempt is not None and attempt.kind is AttemptKind.CALLBACK:
        return _of_a_callback(judged, attempt, facts)
    if attempt is None or ti is None:
        return judged.say("ghost", "ghost_no_record")
    if event.kind == DELIVERY_REFUSED:
        return judged.say("refused", _refusal_from_facts(attempt, ti))
    if event.kind not in _KINDS:
        return judged.say("ignored", "unknown_kind")
    if attempt.outcome is AttemptOutcome.DEFERRED:
        return judged.say("ignored", "stale_after_defer")
    if not attempt.is_current:
        return judged.say("ignored", "stale_superseded")
    if event.kind in HANDLES:
        return judged.note_handle()
    match attempt.state:
        case AttemptState.ENDED:
            return _after_the_end(judged, attempt)
        case AttemptState.ISSUED:
            return _before_the_claim(judged, attempt, ti)
        case AttemptState.RUNNING:
            return _without_a_report(judged, attempt, ti, facts)
        case _:
            assert_never(attempt.state)


class _Judged:
    """The event with the compared values, ready to be put into words."""

    def __init__(self, event: Event, rule: str, ti: TaskFacts | None) -> None:
        self.kind = event.kind
        self.word = visibility.EVENT_WORDS.get(event.kind, event.kind)
        self.handle = event.claimed.get("info")
        self.detail: dict[str, Any] = {**event.claimed, "rule": rule, "event": self.word}
        if ti is not None:
            self.detail |= {
                "task_state": ti.state,
                "task_try_number": ti.try_number,
                "next_method": ti.next_method,
            }

    def compare_attempt(self, event: Event, attempt: AttemptFacts | None) -> None:
        """The values of the attempt that the event names are compared."""
        self.detail["attempt_id"] = event.attempt_id
        if attempt is not None:
            self.detail |= {
                "attempt_state": attempt.state,
                "outcome": attempt.outcome,
                "is_current": attempt.is_current,
                "superseded_by": attempt.superseded_by,
            }
            self.detail.setdefault("current_attempt_id", attempt.superseded_by)

    def compare_try(self, event: Event, facts: TryFacts) -> None:
        """The values that stand in for an attempt id are compared."""
        self.detail |= {
            "try_number": event.try_number,
            "attempt_id": facts.deferred_attempt_id,
            "current_attempt_id": facts.current_attempt_id,
            "attempt_state": facts.attempt_state,
            "outcome": facts.outcome,
            "queued_by": facts.queued_by,
            "executor_holds": facts.executor_holds,
            "is_resumed": facts.is_resumed,
        }

    def say(self, verdict: VerdictName, code: str) -> Verdict:
        """The verdict with the sentence that its code has in the table of reasons."""
        return Verdict(
            verdict=verdict,
            code=code,
            reason=visibility.explain(code, self.detail),
            detail=self.detail,
        )

    def confirm(
        self, reason: str, code: str | None = None, action: Action = Action.NONE
    ) -> Verdict:
        """The event is true of the current attempt."""
        return Verdict(
            verdict="confirmed", code=code, reason=reason, action=action, detail=self.detail
        )

    def note_handle(self) -> Verdict:
        """The executor has it, and perhaps said by which handle; nothing follows."""
        handle = "no handle" if self.handle is None else f"the handle {self.handle}"
        return self.confirm(f"{self.word}, with {handle}.")

    def wait(self, reason: str) -> Verdict:
        """Too early to tell."""
        return Verdict(verdict="pending", code=None, reason=reason, detail=self.detail)


def _refusal_from_facts(attempt: AttemptFacts, ti: TaskFacts) -> str:
    if not attempt.is_current:
        return "refused_superseded"
    if attempt.state is AttemptState.ISSUED:
        return "refused_frozen" if ti.held else "refused_superseded"
    return "duplicate_delivery"


def _after_the_end(judged: _Judged, attempt: AttemptFacts) -> Verdict:
    if attempt.outcome in _AGREEING.get(judged.kind, ()):
        return judged.confirm(
            f"{judged.word} agrees with the attempt, which ended as {attempt.outcome}."
        )
    return judged.say("ignored", "late_after_terminal")


def _before_the_claim(judged: _Judged, attempt: AttemptFacts, ti: TaskFacts) -> Verdict:
    if judged.kind in LATE:
        # Whoever sent it did not execute this attempt by right: nobody has claimed it.
        return judged.say("ignored", "stale_superseded")
    if ti.held:
        return judged.wait(_FROZEN)
    return judged.confirm(
        f"{judged.word} of attempt {attempt.attempt_id}, which no worker has claimed: its delivery"
        " came to nothing, so the same attempt is published again.",
        NEVER_CLAIMED,
        Action.PUBLISH_AGAIN,
    )


def _without_a_report(
    judged: _Judged, attempt: AttemptFacts, ti: TaskFacts, facts: Facts
) -> Verdict:
    if judged.kind in LATE:
        # The attempt runs under another delivery's claim, whose report is the one that counts.
        return judged.say("ignored", "stale_superseded")
    if facts.is_anothers:
        # A second delivery came to nothing before it could be refused; the first one goes on.
        return judged.say("refused", "duplicate_delivery")
    if ti.held:
        return judged.wait(_FROZEN)
    if ti.state is TaskState.RESTARTING:
        return judged.confirm(
            _cleared(judged.word, f"attempt {attempt.attempt_id}"), CLEARED, _ANEW
        )
    if not facts.grace_over:
        return judged.wait(_UNDER_WAY)
    if ti.state is not TaskState.RUNNING:
        return judged.confirm(
            f"{judged.word} of attempt {attempt.attempt_id}, whose task is {ti.state} already: the"
            " attempt is over, and the task stays as it is.",
            CLOSED,
            Action.CLOSE,
        )
    if judged.kind == HANDED_BACK or not facts.worker_alive:
        return judged.confirm(
            f"{judged.word} of attempt {attempt.attempt_id}, which runs without a report, and its"
            f" worker is silent or gives it up: it is lost, loss"
            f" {facts.infrastructure_losses + 1} of at most {facts.infrastructure_budget} that are"
            " made good.",
            LOST,
            Action.MARK_LOST,
        )
    return judged.confirm(
        f"{judged.word} of attempt {attempt.attempt_id}: its process ended without a report while"
        " its worker lives; it was killed externally.",
        KILLED_EXTERNALLY,
        Action.FAIL_KILLED,
    )


def _of_a_callback(judged: _Judged, attempt: AttemptFacts, facts: Facts) -> Verdict:
    """A callback stands by itself: no task instance waits for it, and its loss uses no budget."""
    if judged.kind == DELIVERY_REFUSED:
        if attempt.state is AttemptState.ISSUED:
            return judged.say("refused", "refused_frozen" if attempt.held else "refused_superseded")
        return judged.say("refused", "duplicate_delivery")
    if not attempt.is_current:
        return judged.say("ignored", "stale_superseded")
    if judged.kind not in _KINDS:
        return judged.say("ignored", "unknown_kind")
    if judged.kind in HANDLES:
        return judged.note_handle()
    if attempt.state is AttemptState.ENDED:
        return _after_the_end(judged, attempt)
    if judged.kind in LATE:
        return judged.say("ignored", "stale_superseded")
    if attempt.held:
        return judged.wait("What it is about is frozen; what follows waits for the thaw.")
    if attempt.state is AttemptState.ISSUED:
        return judged.confirm(
            f"{judged.word} of callback {attempt.attempt_id}, which no worker has claimed: its"
            " delivery came to nothing, so the same attempt is published again.",
            NEVER_CLAIMED,
            Action.PUBLISH_AGAIN,
        )
    if facts.is_anothers:
        return judged.say("refused", "duplicate_delivery")
    if not facts.grace_over:
        return judged.wait(_UNDER_WAY)
    return judged.confirm(
        f"{judged.word} of callback {attempt.attempt_id}: its process ended without a report. It is"
        " called again, unless it was begun too often.",
        CALLBACK_LOST,
        Action.REPEAT_CALLBACK,
    )


# States in which some executor has the task: elsewhere an exit tells nothing new.
_WITH_AN_EXECUTOR: Final = frozenset(
    {TaskState.SCHEDULED, TaskState.QUEUED, TaskState.RUNNING, TaskState.RESTARTING}
)


def judge_by_try(event: Event, ti: TaskFacts | None, facts: TryFacts) -> Verdict:
    """The verdict on an event that names a task and a try number, and no attempt.

    A deferral keeps the try, and so does a lost worker, so an exit is told from that of an earlier
    execution of the same try by what surrounds it. An end is an external kill only if all of this
    holds: the try is the task's own, some executor has the task, nobody has queued it since, the
    source holds no other execution of it, and it is not the leaving of a process that deferred.
    ``ti`` is null if there is no such task instance.

    Source: ``process_executor_events`` of apache-airflow-core 3.3.2 and main, as far as it is
    pinned; the resumed attempt that runs already is guarded too.
    """
    judged = _Judged(event, "judge_by_try", ti)
    judged.compare_try(event, facts)
    if ti is None:
        return judged.say("ghost", "ghost_no_task")
    if event.kind not in HANDLES | EXITS:
        return judged.say("ignored", "unknown_kind")
    if event.try_number != ti.try_number:
        return judged.say("ignored", "stale_other_try")
    if event.kind in HANDLES:
        return judged.note_handle()
    code = _stale_by_try(event, ti, facts)
    if code is not None:
        return judged.say("ignored", code)
    if ti.held:
        return judged.wait(_FROZEN)
    of_what = f"try {event.try_number}"
    if ti.state is TaskState.RESTARTING and event.kind == EXIT_SUCCESS:
        return judged.confirm(_cleared(judged.word, of_what), CLEARED, _ANEW)
    if not facts.grace_over:
        return judged.wait(_UNDER_WAY)
    return judged.confirm(
        f"{judged.word} of {of_what}, while its task is {ti.state} and no report has ended it: its"
        " executor has let go of it; it was killed externally.",
        KILLED_EXTERNALLY,
        Action.FAIL_KILLED,
    )


def _stale_by_try(event: Event, ti: TaskFacts, facts: TryFacts) -> str | None:
    """Why the end that the event tells of is not that of the current execution."""
    has_deferred = event.kind == EXIT_SUCCESS and (
        ti.next_method is not None or facts.outcome is AttemptOutcome.DEFERRED
    )
    if ti.state is TaskState.DEFERRED and has_deferred:
        return "stale_after_defer"
    if ti.state not in _WITH_AN_EXECUTOR:
        return "stale_not_executing"
    if facts.queued_by is not QueuedBy.SOURCE:
        return "stale_requeued"
    if facts.executor_holds:
        return "stale_still_held"
    if event.kind == EXIT_SUCCESS and ti.next_method is not None:
        resumes = ti.state in (TaskState.SCHEDULED, TaskState.QUEUED)
        if resumes or (ti.state is TaskState.RUNNING and facts.is_resumed):
            return "stale_after_defer"
    return None


_ANEW: Final = Action.BEGIN_ANEW


def _cleared(word: str, of_what: str) -> str:
    return (
        f"{word} of {of_what}, whose task was cleared while it ran: it has stopped, as the clear"
        " asked, and begins anew with all its tries."
    )
