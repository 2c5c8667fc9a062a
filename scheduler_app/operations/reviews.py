"""Decide reviews: what a guard held is carried out after all, or is given up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from django.conf import settings
from django.db import connection, transaction

from scheduler_app.hints.notices import Notices
from scheduler_app.operations.clear import clear_run, clear_task_instances
from scheduler_app.operations.reasons import check_reason
from scheduler_app.operations.retry_run import retry_run
from scheduler_app.rules.clear import Options
from scheduler_app.rules.errors import Conflict, NotFound
from scheduler_app.rules.guards import ActionKind
from scheduler_app.transitions import review as moves
from scheduler_app.transitions.audit import record_audit

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID

    from scheduler_app.operations.clear import ClearPlan

APPROVED: Final = "approved"
DISMISSED: Final = "dismissed"

_notices = Notices(settings.CACHE_URL)


def approve_review(
    *,
    review_id: int,
    actor: str,
    reason: str = "",
    dry_run: bool = False,
    plan_id: UUID | None = None,
) -> ClearPlan:
    """What waits in the review is carried out, as the world is now, on the actor's word.

    A dry run, the preview, changes nothing, needs no reason and is not audited; with the ``plan_id``
    that it answers just that is carried out, or refused with the difference. Of two who decide at
    once, one does. Raises ``NotFound``, ``InvalidInput``, ``NotAllowed``, and ``Conflict`` for one
    that is decided, whose run has moved on, or where nothing is left to do.
    """
    why = "" if dry_run else check_reason(reason)
    with transaction.atomic():
        waiting = _open(review_id)
        if dry_run:
            return _carry_out(waiting, actor=actor, dry_run=True)
        plan = _carry_out(
            waiting,
            actor=actor,
            dry_run=False,
            plan_id=plan_id,
            reason=f"Review {review_id}: {why}",
        )
        if not plan.included:
            raise Conflict("Nothing is left to do for it: dismiss it.")
        outcome = {
            "plan": str(plan.plan_id),
            "task_instances": len(plan.included),
            "run_attempt": plan.new_run_attempt,
        }
        _decide(waiting, state=APPROVED, actor=actor, why=why, outcome=outcome)
    return plan


def dismiss_review(*, review_id: int, actor: str, reason: str = "") -> None:
    """What waits in the review is given up. Raises as ``approve_review`` does."""
    why = check_reason(reason)
    with transaction.atomic():
        _decide(_open(review_id), state=DISMISSED, actor=actor, why=why)


def _open(review_id: int) -> dict[str, Any]:
    found = moves.read_review(connection.connection, review_id=review_id)
    if found is None:
        message = f"there is no review {review_id}"
        raise NotFound(message, field="review")
    if found["state"] != "open":
        by = f" by {found['decided_by']}" if found["decided_by"] else ""
        raise Conflict(f"Review {review_id} was {found['state']}{by}: nothing is left to decide.")
    return found


def _carry_out(
    waiting: Mapping[str, Any],
    *,
    actor: str,
    dry_run: bool,
    plan_id: UUID | None = None,
    reason: str = "",
) -> ClearPlan:
    asked: dict[str, Any] = {"actor": actor, "reason": reason, "dry_run": dry_run}
    asked["plan_id"] = plan_id
    run_id, request = int(waiting["object_id"]), waiting["request"] or {}
    if waiting["action"] == ActionKind.RUN_RETRY:
        return retry_run(run_id=run_id, **asked)
    asked |= {"options": Options(**request["options"]), "note": request["note"]}
    named = request["task_instances"]
    if named is None:
        return clear_run(run_id=run_id, **asked)
    return clear_task_instances(ti_ids=named, **asked)


def _decide(
    waiting: Mapping[str, Any],
    *,
    state: str,
    actor: str,
    why: str,
    outcome: Mapping[str, Any] | None = None,
) -> None:
    number = waiting["id"]
    if not moves.decide_review(
        connection.connection, review_id=number, state=state, by=actor, note=why, outcome=outcome
    ):
        raise Conflict(f"Somebody else decided review {number} just now.")
    record_audit(
        connection.connection,
        actor=actor,
        action="approve" if state == APPROVED else "dismiss",
        object_kind="review",
        object_id=str(number),
        flow_id=waiting["flow_id"],
        reason=why,
        before={"state": "open", "guard": waiting["guard"], "summary": waiting["summary"]},
        after={"state": state, **(outcome or {})},
    )
    run = waiting["object_id"]
    transaction.on_commit(lambda: _notices.changed(["reviews", "home", f"run:{run}"]))
