"""Every stored standing derived again from facts, and the rows where the two differ.

Each kind of row is read in one statement, so that rows that move meanwhile cannot look wrong.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from django.db.models import Exists, F, OuterRef, Subquery, Window
from django.db.models.functions import Lead

from scheduler_app.models import (
    Attempt,
    ExecutorEvent,
    FlowVersion,
    Run,
    RunAttempt,
    TakeOverItem,
    TaskInstance,
)
from scheduler_app.rules import states, visibility

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CHUNK_ROWS: Final = 2_000
RUN_STATES: Final = frozenset(state.value for state in states.RunState)
ATTEMPT_STATES: Final = frozenset(state.value for state in states.AttemptState)


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One row whose stored standing is not the one that its facts ask for."""

    noun: str
    id: str
    column: str  # filter_code or superseded_by
    stored: str | None
    derived: str | None
    facts: str  # the compared values, in words


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One row was compared; ``differences`` is empty if it stands as it must."""

    noun: str
    differences: tuple[Difference, ...]


def compare() -> Iterator[Compared]:
    """Each run, run attempt, task instance, attempt and event, compared once."""
    for noun in NOUNS.values():
        yield from noun()


def _runs() -> Iterator[Compared]:
    twin = Run.objects.filter(
        flow_id=OuterRef("flow_id"),
        logical_date=OuterRef("logical_date"),
        filter_code__isnull=True,
    ).exclude(id=OuterRef("id"))
    rows = Run.objects.annotate(has_twin=Exists(twin)).values_list(
        "id", "state", "run_type", "logical_date", "has_twin", "filter_code"
    )
    for run, state, run_type, logical_date, has_twin, stored in _each(rows):
        derived = _run_code(state, stored, has_twin=has_twin)
        facts = (
            f"state {state}, {run_type}, logical date {logical_date},"
            f" {'another' if has_twin else 'no other'} current run has it"
        )
        yield _compared(visibility.RUN, run, stored, derived, facts)


def _run_code(state: str, stored: str | None, *, has_twin: bool) -> str | None:
    if state not in RUN_STATES:
        return "unknown_state"
    if stored == "duplicate_logical_date" and not has_twin:
        return None
    # What an import or a take-over found is known to the stored code alone.
    return stored if _is_code_of(visibility.RUN, stored) else None


def _run_attempts() -> Iterator[Compared]:
    rows = RunAttempt.objects.values_list(
        "id", "number", "run__run_attempt", "run__filter_code", "filter_code"
    )
    for row, number, now, run_code, stored in _each(rows):
        derived = visibility.derive_run_attempt_standing(
            number=number, run_attempt_now=now, run_code=run_code
        )
        facts = f"number {number}, its run is at attempt {now}, code of the run {run_code}"
        yield _compared(visibility.RUN_ATTEMPT, row, stored, derived, facts)


def _task_instances() -> Iterator[Compared]:
    task_ids: dict[int | None, frozenset[str]] = {None: frozenset()}  # None: its run is gone
    run = Run.objects.filter(id=OuterRef("run_id"))
    rows = TaskInstance.objects.values_list(
        "id",
        "task_id",
        Subquery(run.values("version_id")),
        Subquery(run.values("filter_code")),
        "filter_code",
    )
    for ti, task_id, version, run_code, stored in _each(rows):
        if version not in task_ids:
            task_ids[version] = _task_ids(version)
        derived = visibility.derive_task_instance_standing(
            is_in_version=task_id in task_ids[version], run_code=run_code
        )
        facts = f"task {task_id}, version row {version}, code of the run {run_code}"
        yield _compared(visibility.TASK_INSTANCE, ti, stored, derived, facts)


def _task_ids(version: int) -> frozenset[str]:
    stored = FlowVersion.objects.values_list("definition", flat=True).get(id=version)
    return frozenset(task["task_id"] for task in stored["tasks"])


def _attempts() -> Iterator[Compared]:
    def following(column: str) -> Window:
        # Of a callback: the next call of the same.
        return Window(
            Lead(column),
            partition_by=[F("ti_id"), F("kind"), F("callback_key")],
            order_by=F("fence").asc(),
        )

    # Found by a take-over first; one that had a row before keeps the reason it was given.
    found = TakeOverItem.objects.filter(attempt_id=OuterRef("id"), found="unknown")
    rows = (
        Attempt.objects.annotate(
            next_id=following("id"),
            next_run_attempt=following("run_attempt"),
            next_try=following("try_number"),
            next_resume=following("resume_index"),
            next_dispatch=following("dispatch_no"),
            is_found=Exists(found),
        )
        .select_related("ti", "run")
        .defer("result", "error", "ti__next_kwargs", "run__conf")
    )
    for row in rows.iterator(chunk_size=CHUNK_ROWS):
        yield _attempt(row)


def _attempt(row: Any) -> Compared:
    is_callback = row.kind == states.AttemptKind.CALLBACK
    has_parents = (row.ti_id is not None and row.ti is not None) or is_callback
    is_current = has_parents and not is_callback and row.ti.attempt_id == row.id
    place = successor = None
    if has_parents:
        place = _place(row.run_attempt, row.try_number, row.resume_index, row.dispatch_no)
        if row.next_id is not None:
            successor = _place(
                row.next_run_attempt, row.next_try, row.next_resume, row.next_dispatch
            )
    derived = visibility.derive_attempt_standing(
        visibility.AttemptStanding(
            is_current=is_current,
            place=place,
            successor=successor,
            kind=row.kind,
            is_repeated=row.next_id is not None,
            is_state_known=row.state in ATTEMPT_STATES,
            # What a heartbeat had found before keeps the reason that it was given then.
            is_found_in_take_over=row.is_found and row.filter_code != "ghost_no_record",
            is_cleared=row.cleared is not None,
            is_of_group=bool(row.cleared and row.cleared.get("group")),
            has_cleared_run=bool(row.cleared and row.cleared.get("new_run_attempt")),
            run_code=row.run.filter_code if row.run else None,
        )
    )
    facts = (
        f"current {is_current}, state {row.state}, outcome {row.outcome}, {place or 'no parents'},"
        f" next {successor or 'none'}"
    )
    compared = _compared(visibility.ATTEMPT, row.id, row.filter_code, derived, facts)
    # Whoever replaced it is named, by the dispatch that replaced it.
    next_id = str(row.next_id) if row.next_id is not None else None
    if derived in _NAMED_SUCCESSOR and row.superseded_by != next_id:
        other = Difference(
            noun=visibility.ATTEMPT,
            id=str(row.id),
            column="superseded_by",
            stored=row.superseded_by,
            derived=next_id,
            facts=facts,
        )
        return Compared(noun=visibility.ATTEMPT, differences=(*compared.differences, other))
    return compared


_NAMED_SUCCESSOR: Final = frozenset(
    {"superseded_by_retry", "superseded_by_resume", "lost_worker", "callback_repeated"}
)


def _place(
    run_attempt: int | None, try_number: int | None, resume: int | None, dispatch: int | None
) -> visibility.Place:
    return visibility.Place(
        run_attempt=run_attempt or 0,
        try_number=try_number or 0,
        resume_index=resume or 0,
        dispatch_no=dispatch or 0,
    )


def _events() -> Iterator[Compared]:
    rows = ExecutorEvent.objects.values_list("id", "verdict", "verdict_code", "filter_code")
    for event, verdict, code, stored in _each(rows):
        derived = visibility.derive_event_standing(verdict, code)
        facts = f"verdict {verdict}, code {code}"
        yield _compared(visibility.EXECUTOR_EVENT, event, stored, derived, facts)


NOUNS: Final[dict[str, Callable[[], Iterator[Compared]]]] = {
    visibility.RUN: _runs,
    visibility.RUN_ATTEMPT: _run_attempts,
    visibility.TASK_INSTANCE: _task_instances,
    visibility.ATTEMPT: _attempts,
    visibility.EXECUTOR_EVENT: _events,
}


def _each(rows: Any) -> Iterator[tuple[Any, ...]]:
    yield from rows.iterator(chunk_size=CHUNK_ROWS)


def _is_code_of(noun: str, code: str | None) -> bool:
    return code in visibility.REASONS and noun in visibility.REASONS[code].nouns


def _compared(
    noun: str, row: object, stored: str | None, derived: str | None, facts: str
) -> Compared:
    # A code that no row of this kind may carry is a difference, even where the facts agree with it.
    if stored == derived and (stored is None or _is_code_of(noun, stored)):
        return Compared(noun=noun, differences=())
    difference = Difference(
        noun=noun, id=str(row), column="filter_code", stored=stored, derived=derived, facts=facts
    )
    return Compared(noun=noun, differences=(difference,))
