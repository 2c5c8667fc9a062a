"""Why a row is set aside: the one table of codes, and the facts from which a standing follows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from string import Formatter
from typing import TYPE_CHECKING, Any, Final

from scheduler_app.rules.states import AttemptKind

if TYPE_CHECKING:
    from collections.abc import Sequence

CHIP_OTHER: Final = "OTHER"  # of a code that this version does not know
UNKNOWN: Final = "unknown"  # in place of a value that was not stored
UNEXPLAINED: Final = "unexplained"  # of no row: the facts ask for a standing and give no reason
VALUE_CHARACTERS_MAX: Final = 200  # of one value in a sentence

RUN: Final = "run"
RUN_ATTEMPT: Final = "run_attempt"
TASK_INSTANCE: Final = "task_instance"
ATTEMPT: Final = "attempt"
EXECUTOR_EVENT: Final = "executor_event"
FLOW: Final = "flow"  # flows, jobs and ghosts have no stored standing: their lists derive it
JOB: Final = "job"
GHOST: Final = "ghost"

_RUN_AND_BELOW: Final = frozenset({RUN, RUN_ATTEMPT, TASK_INSTANCE, ATTEMPT})
_OF_ATTEMPT: Final = frozenset({ATTEMPT})
_OF_EVENT: Final = frozenset({EXECUTOR_EVENT})


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """One code: what it may stand on, how it is shown, and who writes it."""

    code: str
    nouns: frozenset[str]  # run, run_attempt, task_instance, attempt, executor_event, ...
    chip: str  # the word that pages show beside the row
    template: str  # a sentence; its {names} are keys of the stored filter_detail
    set_by: str  # the module that writes it


_ALL: Final = (
    Reason(
        code="superseded_by_retry",
        nouns=_OF_ATTEMPT,
        chip="SUPERSEDED",
        template="Try {try_number} ended as {outcome}; try {new_try_number} replaced it"
        " (shard {shard}, token {token}).",
        set_by="transitions.attempt.dispatch",
    ),
    Reason(
        code="superseded_by_resume",
        nouns=_OF_ATTEMPT,
        chip="SUPERSEDED",
        template="Try {try_number} ended as {outcome} at resume {resume_index}; resume"
        " {new_resume_index} goes on with it (shard {shard}, token {token}).",
        set_by="transitions.attempt.dispatch",
    ),
    Reason(
        code="lost_worker",
        nouns=_OF_ATTEMPT,
        chip="SUPERSEDED",
        template="Dispatch {dispatch_no} of try {try_number} ended as {outcome}, without a result;"
        " dispatch {new_dispatch_no} replaced it (shard {shard}, token {token}).",
        set_by="transitions.attempt.dispatch",
    ),
    Reason(
        code="callback_repeated",
        nouns=_OF_ATTEMPT,
        chip="SUPERSEDED",
        template="Call {dispatch_no} of {callback} ({on}) ended as {outcome}, without a report; call"
        " {new_dispatch_no} replaced it (shard {shard}, token {token}).",
        set_by="transitions.callback.repeat_callbacks",
    ),
    Reason(
        code="superseded_by_clear",
        nouns=_OF_ATTEMPT,
        chip="SUPERSEDED",
        template="Try {try_number} was cleared by {actor}: {reason} (clear {clear}). Its task runs anew.",
        set_by="transitions.clear",
    ),
    Reason(
        code="superseded_by_run_attempt",
        nouns=frozenset({ATTEMPT, RUN_ATTEMPT}),
        chip="SUPERSEDED",
        template="It belongs to run attempt {run_attempt}; {actor} began attempt {new_run_attempt}:"
        " {reason} (clear {clear}).",
        set_by="transitions.clear",
    ),
    Reason(
        code="superseded_by_group_attempt",
        nouns=_OF_ATTEMPT,
        chip="SUPERSEDED",
        template="Try {try_number} belongs to attempt {group_attempt} of group {group}. {reason} The"
        " group was begun anew as a whole: {told}.",
        set_by="transitions.clear",
    ),
    Reason(
        code="ghost_no_record",
        nouns=frozenset({ATTEMPT, EXECUTOR_EVENT}),
        chip="UNKNOWN SENDER",
        template="No attempt with id {attempt_id} was issued.",
        set_by="transitions.executor_event",
    ),
    Reason(
        code="ghost_no_task",
        nouns=_OF_EVENT,
        chip="UNKNOWN SENDER",
        template="Flow {flow_id} has no task instance {task_id} with map index {map_index} in a run"
        " {run_id}.",
        set_by="transitions.executor_event",
    ),
    Reason(
        code="ghost_after_takeover",
        nouns=_OF_ATTEMPT,
        chip="GHOST",
        template="Found on {hostname}:{pid} when shard {shard} was taken over with token {token};"
        " no live record acknowledges it.",
        set_by="transitions.attempt",
    ),
    Reason(
        code="unknown_state",
        nouns=frozenset({RUN, TASK_INSTANCE, ATTEMPT}),
        chip=CHIP_OTHER,
        template="Its state {state} is none that this version knows.",
        set_by="transitions.attempt",
    ),
    Reason(
        code="removed_from_flow",
        nouns=frozenset({TASK_INSTANCE}),
        chip="ORPHAN",
        template="Task {task_id} is not in version {version}.",
        set_by="transitions.task_instance",
    ),
    Reason(
        code="duplicate_logical_date",
        nouns=_RUN_AND_BELOW,
        chip="DUPLICATE",
        template="Run {kept_run_id} has the logical date {logical_date} too, and was kept.",
        set_by="transitions.run",
    ),
    Reason(
        code="ghost_run",
        nouns=_RUN_AND_BELOW,
        chip="GHOST",
        template="No record says who created run {run_id}; it was found by {rule}.",
        set_by="transitions.run",
    ),
    Reason(
        code="imported_duplicate",
        nouns=_RUN_AND_BELOW,
        chip="DUPLICATE",
        template="An import brought run {run_id}, which was here already.",
        set_by="transitions.run",
    ),
    Reason(
        code="skipped_overlap",
        nouns=frozenset({RUN, RUN_ATTEMPT}),
        chip=CHIP_OTHER,
        template="It was due while {active} scheduled runs of its flow were active, of at most"
        " {max_active_runs}; the flow says overlap={overlap}, so that it never started (shard {shard},"
        " token {token}).",
        set_by="transitions.run",
    ),
    Reason(
        code="stale_after_defer",
        nouns=_OF_EVENT,
        chip="STALE EVENT",
        template="{event} of attempt {attempt_id}, which had ended by deferring: its process leaves,"
        " its task waits.",
        set_by="transitions.executor_event",
    ),
    Reason(
        code="stale_superseded",
        nouns=_OF_EVENT,
        chip="STALE EVENT",
        template="{event} of attempt {attempt_id}; the current one is {current_attempt_id}.",
        set_by="transitions.executor_event",
    ),
    Reason(
        code="late_after_terminal",
        nouns=_OF_EVENT,
        chip="STALE EVENT",
        template="{event} of attempt {attempt_id}, which had ended as {outcome} before.",
        set_by="transitions.executor_event",
    ),
    Reason(
        code="stale_other_try",
        nouns=_OF_EVENT,
        chip="STALE EVENT",
        template="{event} of try {try_number}; its task is at try {task_try_number}.",
        set_by="transitions.executor_event",
    ),
    Reason(
        code="stale_not_executing",
        nouns=_OF_EVENT,
        chip="STALE EVENT",
        template="{event} of try {try_number}; its task is {task_state}, and no executor has it.",
        set_by="transitions.executor_event",
    ),
    Reason(
        code="stale_requeued",
        nouns=_OF_EVENT,
        chip="STALE EVENT",
        template="{event} of try {try_number}, which is not the execution that counts: the current"
        " one, {current_attempt_id}, was queued by {queued_by}, its task is {task_state}.",
        set_by="transitions.executor_event",
    ),
    Reason(
        code="stale_still_held",
        nouns=_OF_EVENT,
        chip="STALE EVENT",
        template="{event} of try {try_number}; its executor holds another execution of the same try,"
        " and its task is {task_state}.",
        set_by="transitions.executor_event",
    ),
    Reason(
        code="unknown_kind",
        nouns=_OF_EVENT,
        chip=CHIP_OTHER,
        template="{event} tells nothing that this version knows; its task stays {task_state}.",
        set_by="transitions.executor_event",
    ),
    Reason(
        code="duplicate_delivery",
        nouns=_OF_EVENT,
        chip="DUPLICATE",
        template="Attempt {attempt_id} was delivered again; delivery {claimed_nonce} had claimed it"
        " on {claimed_by}.",
        set_by="transitions.executor_event",
    ),
    Reason(
        code="refused_superseded",
        nouns=_OF_EVENT,
        chip="SUPERSEDED",
        template="Attempt {attempt_id} was delivered; the current one is {current_attempt_id}, and"
        " its task is {task_state}.",
        set_by="transitions.executor_event",
    ),
    Reason(
        code="refused_frozen",
        nouns=_OF_EVENT,
        chip="SUPERSEDED",
        template="Attempt {attempt_id} was delivered while freeze {held_by} held its task.",
        set_by="transitions.executor_event",
    ),
    Reason(
        code="refused_run_finished",
        nouns=_OF_EVENT,
        chip="SUPERSEDED",
        template="Attempt {attempt_id} was delivered after its run had ended as {run_state}.",
        set_by="transitions.executor_event",
    ),
    Reason(
        code="fenced_stale_leader",
        nouns=_OF_EVENT,
        chip="FENCED",
        template="The delivery of attempt {attempt_id} carries token {token_presented} and fence"
        " {fence_presented}; issued were {token_issued} and {fence_issued}.",
        set_by="transitions.executor_event",
    ),
    Reason(
        code="fenced_other_database",
        nouns=_OF_EVENT,
        chip="FENCED",
        template="The delivery of attempt {attempt_id} comes from database {identity_presented};"
        " this is {identity_here}.",
        set_by="transitions.executor_event",
    ),
    Reason(
        code="flow_removed",
        nouns=frozenset({FLOW}),
        chip="ORPHAN",
        template="No file has defined it since {at}; the last one was {path} in {folder}.",
        set_by="queries.flows",
    ),
    Reason(
        code="ended_incarnation",
        nouns=frozenset({JOB}),
        chip="SUPERSEDED",
        template="Process {hostname}:{pid} ended at {at}.",
        set_by="queries.jobs",
    ),
    Reason(
        code="dead_incarnation",
        nouns=frozenset({JOB}),
        chip="GHOST",
        template="Process {hostname}:{pid} was last heard at {at} and is taken for dead.",
        set_by="queries.jobs",
    ),
    Reason(
        code="ghost_over",
        nouns=frozenset({GHOST}),
        chip="SUPERSEDED",
        template="It is over: {reason}.",
        set_by="queries.ghosts",
    ),
)

REASONS: Final[dict[str, Reason]] = {reason.code: reason for reason in _ALL}

# What is compared: its name, the key of what was presented, the key of what was in force.
COMPARED: Final = (
    ("token", "token_presented", "token_issued"),
    ("fence", "fence_presented", "fence_issued"),
    ("database", "identity_presented", "identity_here"),
    ("delivery", "nonce", "claimed_nonce"),
    ("try", "try_number", "new_try_number"),
    ("resume", "resume_index", "new_resume_index"),
    ("dispatch", "dispatch_no", "new_dispatch_no"),
    ("run attempt", "run_attempt", "new_run_attempt"),
    ("attempt", "attempt_id", "current_attempt_id"),
    ("run", "run_id", "kept_run_id"),
)

# Codes of attempts whose user code may have written outside although another result counts, if it was
# seen to run.
POSSIBLE_DOUBLE_WRITES: Final = frozenset(
    {
        "lost_worker",
        "superseded_by_clear",
        "superseded_by_group_attempt",
        "ghost_no_record",
        "ghost_after_takeover",
        "duplicate_logical_date",
        "imported_duplicate",
        "ghost_run",
    }
)

# What an executor event is called in a sentence.
EVENT_WORDS: Final[dict[str, str]] = {
    "exit_success": "Exit with success",
    "exit_failed": "Exit with failure",
    "exit_killed": "Kill",
    "worker_lost": "Loss of the worker",
    "handed_back": "Hand-back",
    "delivery_refused": "Delivery",
    "late_report": "Report",
    "late_write": "Write",
    "executor_queued": "Taken on by an executor",
    "executor_running": "Started by an executor",
    "orphaned": "Orphan",
    "inventory": "Sight",
}


def explain(code: str, detail: Mapping[str, object] | None) -> str:
    """The reason as a sentence with the compared values; never raises.

    A value that was not stored reads "unknown"; a code that is not in the table is the answer.
    """
    reason = REASONS.get(code)
    if reason is None:
        return str(code)
    return filled(reason.template, detail)


def filled(template: str, detail: Mapping[str, object] | None) -> str:
    """The template with the values in the places of their names; never raises."""
    return _Sentence().vformat(template, (), detail if isinstance(detail, Mapping) else {})


def chip(code: str) -> str:
    """The word for the code that pages show beside the row."""
    reason = REASONS.get(code)
    return reason.chip if reason else CHIP_OTHER


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where an attempt stands among those of its task instance, in the order they were issued."""

    run_attempt: int
    try_number: int
    resume_index: int
    dispatch_no: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptStanding:
    """The facts from which the standing of an attempt follows."""

    is_current: bool  # it is its task instance's current attempt
    place: Place | None  # null: nobody issued it, it has no parents
    successor: Place | None = None  # the attempt that was issued next for the same task instance
    kind: str = AttemptKind.TASK
    is_repeated: bool = False  # of a callback: it was called again after this call
    is_state_known: bool = True
    is_found_in_take_over: bool = False
    is_cleared: bool = False  # it keeps the clear that set it aside, or stopped it
    has_cleared_run: bool = False  # that clear began a run attempt
    is_of_group: bool = False  # no clear: its transactional group was begun anew
    run_code: str | None = None  # of its run's own standing


def derive_attempt_standing(facts: AttemptStanding) -> str | None:
    """The code that the attempt must carry; null if it must be current.

    A reason that was given once stays: an attempt that a retry had replaced is not renamed when
    the whole run is cleared later. ``UNEXPLAINED`` if it must be set aside and no rule says why.
    """
    if not facts.is_state_known:
        return "unknown_state"
    if facts.place is None:
        return "ghost_after_takeover" if facts.is_found_in_take_over else "ghost_no_record"
    if facts.run_code is not None:
        return facts.run_code
    if facts.kind == AttemptKind.CALLBACK:
        return "callback_repeated" if facts.is_repeated else None
    if facts.is_current:
        return None
    if facts.is_cleared and facts.is_of_group:
        return "superseded_by_group_attempt"
    if facts.is_cleared:
        return "superseded_by_run_attempt" if facts.has_cleared_run else "superseded_by_clear"
    own, after = facts.place, facts.successor
    if after is None:
        return UNEXPLAINED
    if after.try_number > own.try_number:
        return "superseded_by_retry"
    if after.resume_index > own.resume_index:
        return "superseded_by_resume"
    return "lost_worker" if after.dispatch_no > own.dispatch_no else UNEXPLAINED


def derive_event_standing(verdict: str, code: str | None) -> str | None:
    """The code that an event must carry, by its verdict alone; null while pending or confirmed."""
    if verdict in ("ignored", "refused", "ghost"):
        return code or UNEXPLAINED
    return None


def derive_task_instance_standing(*, is_in_version: bool, run_code: str | None) -> str | None:
    """The code that a task instance must carry: its run's, or that its task left the version."""
    if run_code is not None:
        return run_code
    return None if is_in_version else "removed_from_flow"


def derive_run_attempt_standing(
    *, number: int, run_attempt_now: int, run_code: str | None
) -> str | None:
    """The code that a run attempt must carry: its run's, or that a newer one replaced it."""
    if run_code is not None:
        return run_code
    return "superseded_by_run_attempt" if number < run_attempt_now else None


class _Sentence(Formatter):
    """Fills a template; what is missing reads "unknown", what is long is clipped."""

    def get_field(
        self, field_name: str, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[Any, str]:
        return kwargs.get(field_name), field_name

    def format_field(self, value: Any, format_spec: str) -> str:
        return _shown(value)


def _shown(value: object) -> str:
    if value is None or value == "":
        return UNKNOWN
    try:
        text = str(value)
    except Exception:  # noqa: BLE001 - a page must not break on one value of one row
        return UNKNOWN
    return text if len(text) <= VALUE_CHARACTERS_MAX else f"{text[: VALUE_CHARACTERS_MAX - 1]}…"
