"""Retry a failed run now, as its policy would, or cancel the retry that it waits for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.db import connection, transaction

from scheduler_app.hints.notices import Notices
from scheduler_app.models import Run
from scheduler_app.operations.clear import begin_again, check_failed
from scheduler_app.operations.reasons import check_reason
from scheduler_app.rules import run_retry
from scheduler_app.rules.clear import Options
from scheduler_app.rules.definition import from_dict
from scheduler_app.rules.errors import Conflict, NotAllowed, NotFound
from scheduler_app.transitions import run_retry as moves
from scheduler_app.transitions.audit import record_audit
from scheduler_app.transitions.run import lock_run

if TYPE_CHECKING:
    from uuid import UUID

    from scheduler_app.operations.clear import ClearPlan

_notices = Notices(settings.CACHE_URL)


def retry_run(
    *,
    run_id: int,
    actor: str,
    reason: str = "",
    dry_run: bool = False,
    plan_id: UUID | None = None,
    automated: bool = False,
) -> ClearPlan:
    """The failed run begins its next run attempt now, with what its policy takes up again.

    Where it waits for that attempt, this is it, sooner, and counts as one that the policy allows;
    else a person asked for one more, which no cap counts. A run without a policy repeats what failed.
    Plans are as in ``operations.clear``. Raises ``NotFound``, ``InvalidInput``, ``NotAllowed`` for a
    frozen run, ``Conflict`` for one that has not failed, has nothing to repeat, or has moved, and
    ``HeldForReview`` where ``automated`` and a guard says so.
    """
    run = _failed(run_id)
    policy = from_dict(run.version.definition).run_retry
    options = Options(only_failed=True) if policy is None else run_retry.options(policy)
    plan = begin_again(
        run_id=run_id,
        actor=actor,
        options=options,
        reason=reason,
        dry_run=dry_run,
        plan_id=plan_id,
        automated=automated,
    )
    if not dry_run and not plan.included:
        raise Conflict(f"Run {run.run_key} has nothing to repeat: none of its tasks failed.")
    return plan


def cancel_retry(*, run_id: int, actor: str, reason: str = "", dry_run: bool = False) -> Run:
    """The run stays failed: the run attempt that it waited for does not come.

    A dry run changes nothing, needs no reason and is not audited. Raises ``NotFound``,
    ``InvalidInput``, ``NotAllowed`` for a frozen run, ``Conflict`` for one that waits for none.
    """
    why = "" if dry_run else check_reason(reason)
    with transaction.atomic():
        run = lock_run(connection.connection, run_id=run_id)
        if run is None:
            message = f"there is no run {run_id}"
            raise NotFound(message, field="run")
        if run["retry_at"] is None:
            raise Conflict(f"Run {run['run_key']} waits for no run attempt: nothing is to cancel.")
        if run["is_frozen"]:
            raise NotAllowed(f"Run {run['run_key']} is frozen: thaw it first.")
        if not dry_run:
            moves.leave_failed(
                connection.connection,
                run_id=run_id,
                reason=f"{actor} cancelled its retry: {why}",
            )
            record_audit(
                connection.connection,
                actor=actor,
                action="cancel_retry",
                object_kind="run",
                object_id=str(run_id),
                flow_id=run["flow_id"],
                reason=why,
                before=_told(run),
                after={"retry_at": None},
            )
            transaction.on_commit(lambda: _notices.changed(["runs", "home", f"run:{run_id}"]))
    return Run.objects.get(pk=run_id)


def _failed(run_id: int) -> Run:
    run = Run.objects.select_related("version").filter(pk=run_id).first()
    if run is None:
        message = f"there is no run {run_id}"
        raise NotFound(message, field="run")
    check_failed(run.run_key, run.state)
    return run


def _told(run: dict[str, Any]) -> dict[str, Any]:
    return {"retry_at": run["retry_at"].isoformat(), "retry_count": run["retry_count"]}
