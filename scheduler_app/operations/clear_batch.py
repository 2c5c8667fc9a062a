"""Clear in several runs: one plan a run, looked at together, carried out one after the other, gone on with."""

from __future__ import annotations

import hashlib
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from django.db import connection, transaction
from django.db.models import Q

from scheduler_app.models import ClearBatch, ClearPlan, Run
from scheduler_app.operations.clear import carry_out_part, check_note, difference_now, plan_of
from scheduler_app.operations.reaching import by_run, with_dates
from scheduler_app.operations.reasons import check_reason
from scheduler_app.rules import clear as rules
from scheduler_app.rules.errors import Conflict, HeldForReview, InvalidInput, NotAllowed, NotFound
from scheduler_app.transitions import clear_batch as moves
from scheduler_app.transitions.audit import record_audit
from scheduler_app.transitions.ids import uuid7

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime
    from uuid import UUID

RUNS_MAX: Final = 10_000  # of one batch
NAMED_MAX: Final = 50  # runs whose difference is told in a refusal
LEFT_AFTER_S: Final = 30.0  # a batch that was begun longer ago than a request carries it on
CHUNK: Final = 50  # plans looked up at a time; each is a transaction of its own


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One run of a batch."""

    run_id: int
    run_key: str
    flow_id: str
    plan_id: UUID | None  # null: there could be none
    state: str  # planned, done, undone, refused
    included: int  # task instances that begin anew
    excluded: int  # that are left alone
    worst_case_executions: int
    new_run_attempt: int | None
    refusal: str | None  # why nothing is done in it
    can_be_undone: bool  # while nothing of it has started


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A clear of several runs, and how far it has come. Times aware UTC."""

    batch_id: UUID
    hash: str
    state: str  # planned, expired, under_way, ended
    options: rules.Options
    actor: str
    reason: str
    created_at: datetime
    expires_at: datetime
    begun_at: datetime | None
    ended_at: datetime | None
    parts: tuple[Part, ...]

    def number(self, state: str) -> int:
        """How many of its runs are in this state."""
        return sum(part.state == state for part in self.parts)

    @property
    def included(self) -> int:
        """Task instances that begin anew, in all runs that were not refused."""
        return sum(part.included for part in self.parts if part.state != "refused")

    @property
    def worst_case_executions(self) -> int:
        """How often user code may run because of it, at most."""
        return sum(part.worst_case_executions for part in self.parts if part.state != "refused")


def plan_batch(
    *,
    actor: str,
    options: rules.Options | None = None,
    run_ids: Sequence[int] = (),
    ti_ids: Sequence[int] = (),
    past: bool = False,
    future: bool = False,
    asked: Mapping[str, Any] | None = None,
    automated: bool = False,
) -> Batch:
    """What clearing these whole runs, or these task instances of any runs, would do; kept for a while.

    ``past`` and ``future`` take the same tasks in runs of the same flows for other dates too. A run in
    which nothing can be cleared is a part with the reason, and keeps no other from it. ``asked`` is what
    the audit says of how they were chosen. Of an ``automated`` one, guards may hold each run. Nothing is locked. Raises ``InvalidInput`` and ``NotFound``.
    """
    chosen = options or rules.Options()
    rules.check_options(chosen)
    named = _named(run_ids, ti_ids, past=past, future=future)
    batch_id = uuid7()
    with transaction.atomic():
        moves.keep_batch(
            connection.connection,
            batch_id=batch_id,
            asked={**(asked or {}), "past": past, "future": future, "automated": automated},
            options=asdict(chosen),
            actor=actor,
            valid_s=rules.PLAN_VALID_S,
        )
    refused: list[Part] = []
    hashes = []
    for run_id, own in named.items():
        try:
            plan = plan_of(
                run_id=run_id, ti_ids=own, actor=actor, options=chosen, batch_id=batch_id
            )
        except (Conflict, NotAllowed) as error:
            refused.append(_refused(run_id, str(error)))
        else:
            hashes.append(plan.hash)
    with transaction.atomic():
        moves.seal_batch(
            connection.connection,
            batch_id=batch_id,
            fingerprint=hashlib.sha256("".join(hashes).encode()).hexdigest(),
        )
    return _batch(batch_id, refused)


def carry_out_batch(
    batch_id: UUID,
    *,
    actor: str,
    reason: str,
    note: str | None = None,
    within_s: float | None = None,
    told: Callable[[Batch], object] | None = None,
) -> Batch:
    """The batch is begun, if all of its plans still hold, and gone on with: see ``go_on``.

    Raises ``Conflict`` with the ``difference``, by run, where one does not, or where it was begun before or
    has expired; then nothing was done.
    """
    why = check_reason(reason)
    check_note(note)
    kept = _kept(batch_id)
    if kept["begun_at"] is not None:
        raise Conflict(f"Batch {batch_id} was begun before: go on with it, or make a new one.")
    if kept["is_expired"]:
        raise Conflict(f"Batch {batch_id} has expired: make a new one.")
    _hold_all(batch_id)
    with transaction.atomic():
        begun = moves.begin_batch(
            connection.connection, batch_id=batch_id, actor=actor, reason=why, note=note
        )
        if not begun:
            raise Conflict(f"Batch {batch_id} was begun before: go on with it, or make a new one.")
        found = _batch(batch_id)
        record_audit(
            connection.connection,
            actor=actor,
            action="clear_batch",
            object_kind="clear_batch",
            object_id=str(batch_id),
            reason=why,
            before={"runs": len(found.parts)},
            after={
                "options": asdict(found.options),
                "task_instances": found.included,
                "worst_case_executions": found.worst_case_executions,
            },
        )
    return go_on(batch_id, actor=actor, within_s=within_s, told=told)


def go_on(
    batch_id: UUID,
    *,
    actor: str,
    within_s: float | None = None,
    told: Callable[[Batch], object] | None = None,
    is_stopping: Callable[[], bool] = lambda: False,
) -> Batch:
    """The plans of a begun batch that are open are carried out one by one, for so long at most.

    Each in a transaction of its own, with the reason of the batch and in the name of whoever began it; two
    that go on at once share the work. A run that has moved meanwhile, or is frozen, is refused and says
    why. ``told`` is called now and then. Raises ``NotFound``, ``NotAllowed`` for one that was not begun.
    """
    kept = _kept(batch_id)
    if kept["begun_at"] is None:
        raise NotAllowed(f"Batch {batch_id} was not begun yet: carry it out with a reason.")
    del actor  # whoever goes on with it: the batch is somebody's, and the audit names that one
    until = None if within_s is None else time.monotonic() + within_s
    while found := moves.open_parts(connection.connection, batch_id=batch_id, limit=CHUNK):
        for plan_id in found:
            try:
                carry_out_part(
                    plan_id,
                    actor=kept["actor"],
                    reason=kept["reason"],
                    note=kept["note"],
                    automated=kept["automated"],
                )
            except (Conflict, HeldForReview, NotAllowed, NotFound) as error:
                with transaction.atomic():
                    moves.refuse_part(connection.connection, plan_id=plan_id, why=str(error))
            if is_stopping() or (until is not None and time.monotonic() > until):
                return batch(batch_id)
        if told is not None:
            told(batch(batch_id))
    with transaction.atomic():
        moves.end_batch(connection.connection, batch_id=batch_id)
    return batch(batch_id)


def go_on_with_left(
    *,
    within_s: float,
    idle_s: float = LEFT_AFTER_S,
    is_stopping: Callable[[], bool] = lambda: False,
) -> int:
    """Batches that were begun a while ago and have not ended are gone on with; how many of them.

    Each by one caller at a time, in the name of whoever began it. A request or a command that is at it
    still shares the work.
    """
    until = time.monotonic() + within_s
    done = 0
    with transaction.atomic():  # what opens the connection of this thread
        found = moves.left_batches(connection.connection, idle_s=idle_s)
    for batch_id in found:
        left_s = until - time.monotonic()
        if left_s <= 0 or is_stopping():
            break
        if not moves.take_batch(connection.connection, batch_id=batch_id):
            continue
        try:
            go_on(batch_id, actor="", within_s=left_s, is_stopping=is_stopping)
            done += 1
        finally:
            moves.leave_batch(connection.connection, batch_id=batch_id)
    return done


def batch(batch_id: UUID) -> Batch:
    """The batch as it is now. Raises ``NotFound``."""
    _kept(batch_id)
    return _batch(batch_id)


def _named(
    run_ids: Sequence[int], ti_ids: Sequence[int], *, past: bool, future: bool
) -> dict[int, list[int] | None]:
    if bool(run_ids) == bool(ti_ids):
        raise InvalidInput("Name runs, or task instances: one of the two.", field="runs")
    found: dict[int, list[int] | None] = {}
    if ti_ids:
        found |= with_dates(by_run(ti_ids), past=past, future=future)
    else:
        wanted = sorted(set(run_ids))
        known = set(Run.objects.filter(pk__in=wanted).values_list("id", flat=True))
        for run_id in wanted:
            if run_id not in known:
                message = f"there is no run {run_id}"
                raise NotFound(message, field="run")
        if past or future:
            message = "Earlier and later dates start from task instances, not from whole runs."
            raise InvalidInput(message, field="include_past" if past else "include_future")
        found |= dict.fromkeys(wanted)
    if len(found) > RUNS_MAX:
        message = f"{len(found)} runs are asked for; a batch has at most {RUNS_MAX}."
        raise InvalidInput(message, field="runs")
    return found


def _hold_all(batch_id: UUID) -> None:
    """Raises ``Conflict`` unless every plan would do now what it said."""
    moved: list[dict[str, Any]] = []
    number = 0
    for plan in ClearPlan.objects.filter(batch_id=batch_id).order_by("id").only("id", "run_id"):
        try:
            difference: list[dict[str, Any]] | None = difference_now(plan.pk)
        except (Conflict, NotAllowed) as error:
            difference = [{"why": str(error)}]
        if difference is not None:
            number += 1
            if len(moved) < NAMED_MAX:
                moved.append({"run": plan.run_id, "difference": difference})
    if number:
        raise Conflict(
            f"The plan no longer holds: {number} run{' is' if number == 1 else 's are'} not as"
            f" {'it was' if number == 1 else 'they were'}. Look at a new one.",
            difference=moved,
        )


def _kept(batch_id: UUID) -> dict[str, Any]:
    kept = moves.read_batch(connection.connection, batch_id=batch_id)
    if kept is None:
        raise NotFound(f"There is no batch {batch_id}.", field="batch_id")
    return kept


def _refused(run_id: int, why: str) -> Part:
    run = Run.objects.get(pk=run_id)
    return Part(
        run_id=run_id,
        run_key=run.run_key,
        flow_id=run.flow_id,
        plan_id=None,
        state="refused",
        included=0,
        excluded=0,
        worst_case_executions=0,
        new_run_attempt=None,
        refusal=why,
        can_be_undone=False,
    )


def _batch(batch_id: UUID, refused: Sequence[Part] = ()) -> Batch:
    row = ClearBatch.objects.get(pk=batch_id)
    plans = list(
        ClearPlan.objects.filter(batch_id=batch_id)
        .order_by("id")
        .defer("undo")
        .annotate(has_undo=Q(undo__isnull=False))
    )
    runs = Run.objects.in_bulk([plan.run_id for plan in plans])
    return Batch(
        batch_id=row.pk,
        hash=row.hash,
        state=_state(row),
        options=rules.Options(**row.options),
        actor=row.actor,
        reason=row.reason,
        created_at=row.created_at,
        expires_at=row.expires_at,
        begun_at=row.begun_at,
        ended_at=row.ended_at,
        parts=tuple(sorted([*(_part(p, runs) for p in plans), *refused], key=lambda p: p.run_id)),
    )


def _state(row: ClearBatch) -> str:
    if row.ended_at is not None:
        return "ended"
    return "planned" if row.begun_at is None else "under_way"


def _part(plan: Any, runs: Mapping[int, Run]) -> Part:
    run = runs.get(plan.run_id)
    included = plan.content["included"]
    state = "done" if plan.used_at is not None else "planned"
    if plan.undone_at is not None:
        state = "undone"
    if plan.refusal is not None:
        state = "refused"
    begins = plan.ti_ids is None and bool(included) and run is not None
    attempt = (run.run_attempt if run else 0) + (1 if plan.used_at is None else 0)
    return Part(
        run_id=plan.run_id,
        run_key=run.run_key if run else "",
        flow_id=run.flow_id if run else "",
        plan_id=plan.pk,
        state=state,
        included=len(included),
        excluded=len(plan.content["excluded"]),
        worst_case_executions=sum(one["executions"] for one in included),
        new_run_attempt=attempt if begins else None,
        refusal=plan.refusal,
        can_be_undone=state == "done" and plan.has_undo,
    )
