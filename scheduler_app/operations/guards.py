"""Guards of automatic actions: what one must pass, and what an operator sets."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from django.conf import settings
from django.db import connection, transaction

from scheduler_app.hints.notices import Notices
from scheduler_app.models import Flow, Run
from scheduler_app.operations.reasons import check_reason
from scheduler_app.rules.errors import HeldForReview, InvalidInput, NotFound
from scheduler_app.rules.guards import ActionKind, GuardLimits, GuardRow, Size
from scheduler_app.transitions import guard as marks
from scheduler_app.transitions import review
from scheduler_app.transitions.audit import record_audit

if TYPE_CHECKING:
    from collections.abc import Mapping

DURATION_MAX_S: Final = 366 * 86_400.0
COUNT_MAX: Final = 1_000_000
UNSET: Final = GuardLimits()

_notices = Notices(settings.CACHE_URL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """An automatic action that is about to be carried out on a locked run."""

    kind: ActionKind
    run_id: int
    run_key: str
    flow_id: str
    defined: GuardLimits | None  # of the flow's definition
    size: Size
    request: Mapping[str, Any]  # what a review keeps of it


def hold_flow_of(run_id: int) -> None:
    """No other automatic action on the run's flow goes on until this transaction ends.

    Before the run is locked. A run that does not exist holds nothing.
    """
    flow_id = Run.objects.filter(pk=run_id).values_list("flow_id", flat=True).first()
    if flow_id is not None:
        marks.hold_flow(connection.connection, flow_id=flow_id)


def admit(action: Action, *, actor: str, reason: str) -> HeldForReview | None:
    """The action counts, null; or it waits in the review queue, under the number that is told.

    In the transaction of the action, which holds the flow and then the run. Who is told to wait
    commits, carries nothing out, and raises what it was told.
    """
    refusal = marks.refusal(
        connection.connection,
        flow_id=action.flow_id,
        kind=action.kind,
        defined=action.defined,
        defaults=settings.GUARD_LIMITS,
        size=action.size,
    )
    if refusal is None:
        marks.record_action(
            connection.connection,
            flow_id=action.flow_id,
            kind=action.kind,
            run_id=action.run_id,
            size=action.size,
            actor=actor,
            reason=reason,
        )
        return None
    number = review.open_review(
        connection.connection,
        guard=refusal.code,
        action=action.kind,
        run_id=action.run_id,
        run_key=action.run_key,
        flow_id=action.flow_id,
        request=action.request,
        summary=refusal.sentence,
        asked_by=actor,
        reason=reason,
    )
    transaction.on_commit(lambda: _notices.changed(["reviews", "home", f"run:{action.run_id}"]))
    return HeldForReview(
        f"{refusal.sentence} It waits for a person in review {number}.",
        review=number,
        guard=refusal.code.value,
    )


def set_guard(
    *,
    actor: str,
    reason: str,
    flow_id: str = "",
    kind: str = "",
    limits: Mapping[str, float | None] | None = None,
    is_stopped: bool | None = None,
) -> GuardRow:
    """What is given holds for automatic actions on the flow (empty: everywhere) of the kind (empty: each).

    A limit that is given as null is no longer set here; what is not given stays. ``is_stopped`` is the
    kill switch: once this returns nothing more is done automatically, and what would be waits for a
    person. The same again changes nothing and is not audited. Raises ``NotFound``, ``InvalidInput``.
    """
    why = check_reason(reason)
    if kind and kind not in {one.value for one in ActionKind}:
        known = ", ".join(one.value for one in ActionKind)
        raise InvalidInput(f"kind: {kind!r} is none of {known}.", field="kind")
    if flow_id and not Flow.objects.filter(pk=flow_id).exists():
        message = f"no flow is called {flow_id!r}"
        raise NotFound(message, field="flow_id")
    checked: dict[str, Any] = {
        name: _checked(name, value) for name, value in (limits or {}).items()
    }
    with transaction.atomic():
        marks.take_turn(connection.connection, alone=True)
        rows = marks.read_guards(connection.connection, flow_id=flow_id)
        before = next((r for r in rows if (r.flow_id, r.kind) == (flow_id, kind)), None)
        old = before or GuardRow(flow_id=flow_id, kind=kind, limits=UNSET)
        row = replace(
            old,
            limits=replace(old.limits, **checked),
            is_stopped=old.is_stopped if is_stopped is None else is_stopped,
            actor=actor,
            reason=why,
        )
        if before is not None and (row.limits, row.is_stopped) == (
            before.limits,
            before.is_stopped,
        ):
            return before
        marks.set_guard(connection.connection, row=row)
        record_audit(
            connection.connection,
            actor=actor,
            action=_verb(old, row),
            object_kind="guard",
            object_id=f"{flow_id or 'everywhere'}:{kind or 'any'}",
            flow_id=flow_id or None,
            reason=why,
            before={"is_stopped": old.is_stopped, **asdict(old.limits)},
            after={"is_stopped": row.is_stopped, **asdict(row.limits)},
        )
        transaction.on_commit(lambda: _notices.changed(["reviews", "home"]))
    return row


def _verb(old: GuardRow, row: GuardRow) -> str:
    if old.is_stopped == row.is_stopped:
        return "set_guard"
    return "stop_automation" if row.is_stopped else "start_automation"


def _checked(name: str, value: float | None) -> float | int | None:
    known = GuardLimits.__dataclass_fields__
    if name not in known:
        raise InvalidInput(f"{name}: no such limit. Known: {', '.join(known)}.", field=name)
    if value is None:
        return None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if name.endswith("_s"):
        least = 1.0 if name == "window_s" else 0.0
        if not is_number or not least <= value <= DURATION_MAX_S:
            raise InvalidInput(
                f"{name}: give a number of seconds from {least:g} to {DURATION_MAX_S:g}.",
                field=name,
            )
        return float(value)
    if not is_number or value != int(value) or not 0 <= value <= COUNT_MAX:
        raise InvalidInput(f"{name}: give a whole number from 0 to {COUNT_MAX}.", field=name)
    return int(value)
