"""Undo a clear: while nothing of it has started, everything is as it was before."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.db import connection, transaction

from scheduler_app.hints.notices import Notices
from scheduler_app.models import Attempt, ClearPlan, RunAttempt
from scheduler_app.operations.reasons import check_reason
from scheduler_app.rules.errors import Conflict, NotAllowed, NotFound
from scheduler_app.transitions import undo_clear as moves
from scheduler_app.transitions.audit import record_audit
from scheduler_app.transitions.run import lock_run

if TYPE_CHECKING:
    from uuid import UUID

_notices = Notices(settings.CACHE_URL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Undone:
    """What undoing a clear does, or would do."""

    plan_id: UUID
    run_id: int
    task_instances: int  # that are as they were before
    dry_run: bool


def undo_clear(*, plan_id: UUID, actor: str, reason: str = "", dry_run: bool = False) -> Undone:
    """Task instances, attempts, checkpoints, the run and its run attempt are as before the clear.

    Only while nothing that was cleared has started or moved. What the clear had to stop cannot be put
    back. The audit keeps both acts. A dry run changes nothing and needs no reason. Raises ``NotFound``,
    ``NotAllowed`` for a clear that cannot be undone, ``Conflict`` for one that was not carried out, was
    undone before, or of which something has moved since.
    """
    why = "" if dry_run else check_reason(reason)
    with transaction.atomic():
        plan = ClearPlan.objects.filter(pk=plan_id).first()
        if plan is None:
            raise NotFound(f"There is no clear {plan_id}.", field="plan_id")
        run = lock_run(connection.connection, run_id=plan.run_id)
        plan.refresh_from_db()
        if run is None:
            raise NotFound(f"The run of clear {plan_id} is gone.", field="plan_id")
        _check(plan, run)
        moved = moves.moved_since(connection.connection, plan_id=plan_id, run_id=plan.run_id)
        if moved:
            one = moved[0]
            raise Conflict(
                f"Clear {plan_id} cannot be undone any more: {len(moved)} of its tasks have moved since,"
                f" {one['task_id']} is {one['state']}."
            )
        if _has_begun(plan, run):
            raise Conflict(f"Something of run {run['run_key']} has started since the clear.")
        assert plan.undo is not None
        before = run["run_attempt"]
        was = int(plan.undo["run"]["run_attempt"])
        done = Undone(
            plan_id=plan_id,
            run_id=plan.run_id,
            task_instances=len(plan.undo["tis"]),
            dry_run=dry_run,
        )
        if dry_run:
            return done
        ids = moves.put_back(
            connection.connection,
            plan_id=plan_id,
            run_id=plan.run_id,
            run_attempt=before if before != was else None,
            actor=actor,
        )
        record_audit(
            connection.connection,
            actor=actor,
            action="undo_clear",
            object_kind="run",
            object_id=str(plan.run_id),
            flow_id=run["flow_id"],
            reason=why,
            before={"run_state": run["state"], "run_attempt": before, "plan": str(plan_id)},
            after={
                "run_state": plan.undo["run"]["state"],
                "run_attempt": was,
                "task_instances": {str(row["id"]): row["state"] for row in plan.undo["tis"]},
            },
        )
        topics = ["runs", "home", f"run:{plan.run_id}", *(f"ti:{ti_id}" for ti_id in ids[:500])]
        transaction.on_commit(lambda: _notices.both(runs=[plan.run_id], topics=topics))
    return done


def _check(plan: ClearPlan, run: dict[str, Any]) -> None:
    """Raises where the clear as a whole stands against it."""
    if plan.used_at is None:
        raise Conflict(f"Clear {plan.pk} was not carried out: there is nothing to undo.")
    if plan.undone_at is not None:
        raise Conflict(f"Clear {plan.pk} was undone before, by {plan.undone_by}.")
    if plan.undo is None:
        raise NotAllowed(
            f"Clear {plan.pk} cannot be undone: it stopped work that was under way, moved its run to"
            " another version, or changed nothing."
        )
    if run["is_frozen"]:
        raise NotAllowed(f"Run {run['run_key']} is frozen: thaw it before you undo its clear.")
    if run["state"] not in ("queued", "running"):
        raise Conflict(f"Run {run['run_key']} has ended as {run['state']} since the clear.")
    was = int(plan.undo["run"]["run_attempt"])
    newest = RunAttempt.objects.filter(run_id=plan.run_id).order_by("-number").first()
    if newest is None or newest.number != (was if plan.ti_ids is not None else was + 1):
        raise Conflict(f"Run {run['run_key']} was cleared or retried again since.")


def _has_begun(plan: ClearPlan, run: dict[str, Any]) -> bool:
    """Whether something was issued since in a run, or a run attempt, that the clear had begun again."""
    assert plan.undo is not None
    went_on = plan.undo["run"]["state"] not in ("success", "failed")
    if went_on and plan.undo["run"]["run_attempt"] == run["run_attempt"]:
        return False  # the rest of the run is none of the clear's business
    return Attempt.objects.filter(
        run_id=plan.run_id, kind="task", issued_at__gt=plan.used_at
    ).exists()
