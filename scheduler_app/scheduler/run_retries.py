"""Run retries: what a failed run's policy says, and the run attempts that are due by it."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from django.conf import settings

from scheduler_app.processes import failpoints
from scheduler_app.rules import guards, run_outcome, run_retry
from scheduler_app.rules.run_retry import Siblings, Verdict
from scheduler_app.rules.states import RunState, TaskState
from scheduler_app.transitions import guard, review
from scheduler_app.transitions import run_retry as moves
from scheduler_app.transitions.run import lock_run
from scheduler_app.transitions.task_instance import lock_open, terminate

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import psycopg

    from scheduler_app.rules.run_outcome import InstanceState, RunDecision
    from scheduler_app.rules.run_retry import RunRetryPolicy
    from scheduler_app.scheduler.leases import Leases
    from scheduler_app.scheduler.run_views import RunView
    from scheduler_app.scheduler.versions import Versions

BATCH_MAX: Final = 100  # run attempts begun in one sweep
ACTOR: Final = "policy"
ROUNDS_MAX: Final = 10_000  # of playing a run to its end in thought

logger = logging.getLogger(__name__)


def after_failure(
    connection: psycopg.Connection[Any],
    *,
    run: Mapping[str, Any],
    policy: RunRetryPolicy,
    code: str,
    is_overdue: bool,
) -> None:
    """The run, which has just failed, waits for its next run attempt, or says why none follows.

    In the transaction of its end, after it. Where its policy is used up, a review asks a person.
    """
    causes, marked_by = moves.causes_of(connection, run_id=run["id"], is_overdue=is_overdue)
    if code == run_outcome.ALL_TASKS_DEADLOCKED:
        names = frozenset({run_retry.How.DEADLOCKED.value})
        causes = [run_retry.Cause(task_id="the run", names=names)]
    barred = run["retry_barred"] or (f"{marked_by} marked a task failed." if marked_by else "")
    decision = run_retry.decide(
        policy, retry_count=run["retry_count"], barred=barred, causes=causes
    )
    match decision.verdict:
        case Verdict.RETRY:
            moves.wait_for_retry(
                connection, run_id=run["id"], in_s=decision.in_s, reason=decision.reason
            )
        case Verdict.NOT:
            moves.leave_failed(connection, run_id=run["id"], reason=decision.reason)
        case Verdict.EXHAUSTED:
            moves.leave_failed(connection, run_id=run["id"], reason=decision.reason)
            review.open_review(
                connection,
                guard=guards.GuardCode.ATTEMPTS_MAX,
                action=guards.ActionKind.RUN_RETRY,
                run_id=run["id"],
                run_key=run["run_key"],
                flow_id=run["flow_id"],
                request={"run_attempt": run["run_attempt"]},
                summary=decision.reason,
                asked_by=ACTOR,
                reason=decision.reason,
            )


def stop_siblings(
    connection: psycopg.Connection[Any],
    *,
    views: Sequence[RunView],
    runs: Mapping[int, Mapping[str, Any]],
    decide: Callable[[RunView, Sequence[InstanceState]], RunDecision],
) -> set[int]:
    """Runs that cannot succeed any more, and whose policy asks for it, have what runs on stopped.

    The caller holds the runs. What a freeze holds stays as it is.
    """
    stopped = set()
    for view in views:
        policy = view.version.definition.run_retry
        run = runs[view.run_id]
        if (
            policy is None
            or policy.siblings != Siblings.STOP
            or run["retry_barred"]
            or run["retry_count"] + 1 >= policy.max_attempts
            or not view.open_ids
        ):
            continue
        failed = [i for i in view.instances.values() if i.state is TaskState.FAILED]
        if not failed or not _is_lost(view, decide):
            continue
        found = lock_open(connection, run_id=view.run_id)
        ids = [one.id for one in found if one.held_by is None and not one.is_asked_to_stop]
        if ids:
            why = f"{moves.SIBLING_STOP}: {failed[0].task_id} failed, and nothing can mend that."
            terminate(connection, ti_ids=ids, reason=why)
            stopped.add(view.run_id)
    return stopped


def _is_lost(
    view: RunView, decide: Callable[[RunView, Sequence[InstanceState]], RunDecision]
) -> bool:
    """Whether the run fails even if everything that has not ended succeeds."""
    states = {
        (i.task_id, i.map_index): run_outcome.InstanceState(
            task_id=i.task_id,
            map_index=i.map_index,
            state=i.state
            if i.state is TaskState.NONE or ti_id not in view.open_ids
            else TaskState.SUCCESS,
        )
        for ti_id, i in view.instances.items()
    }
    for _ in range(ROUNDS_MAX):
        decision = decide(view, list(states.values()))
        if decision.state is not RunState.RUNNING:
            return decision.state is RunState.FAILED
        if not decision.ready and not decision.marks:
            return False  # nobody can say
        for key, state in decision.marks.items():
            states[key] = replace(states[key], state=state)
        for key in decision.ready:
            states[key] = replace(states[key], state=TaskState.SUCCESS)
    return False


def begin_due(
    connection: psycopg.Connection[Any],
    *,
    leases: Leases,
    terms: dict[int, int],
    versions: Versions,
) -> tuple[set[int], float | None]:
    """Run attempts that are due have begun, or wait for a person where a guard says so.

    The runs that moved, and in how many seconds the next one is due. Each is a transaction of its
    own; looking twice, or two at once, begins each of them once.
    """
    due, next_in_s = moves.due_runs(connection, shards=list(terms), limit=BATCH_MAX)
    moved = set()
    for run_id in due:
        with connection.transaction():
            leases.prove(connection, terms)
            if _begin(connection, run_id, terms, versions):
                moved.add(run_id)
            failpoints.reach("run_retry.before_commit")
        failpoints.reach("run_retry.after_commit")
    return moved, next_in_s


def resolve_overtaken(
    connection: psycopg.Connection[Any], *, leases: Leases, terms: dict[int, int]
) -> bool:
    """Reviews that the world has overtaken are closed; whether there were any."""
    with connection.transaction():
        leases.prove(connection, terms)
        return bool(review.resolve_overtaken(connection))


def _begin(
    connection: psycopg.Connection[Any], run_id: int, terms: dict[int, int], versions: Versions
) -> bool:
    """Whether the run moved: it began its next run attempt, or gave it up."""
    flow_id = moves.flow_of(connection, run_id=run_id)
    if flow_id is None:
        return False
    guard.hold_flow(connection, flow_id=flow_id)
    run = lock_run(connection, run_id=run_id)
    if (
        run is None
        or run["state"] != RunState.FAILED
        or run["is_frozen"]
        or run["filter_code"] is not None
        or run["shard"] not in terms
        or not moves.is_due(connection, run_id=run_id)
    ):
        return False  # somebody was first, or something came between
    version = versions.get(connection, {run["version_id"]}).get(run["version_id"])
    policy = None if version is None else version.definition.run_retry
    if version is None or policy is None:
        return moves.leave_failed(
            connection, run_id=run_id, reason="Not retried: its version has no policy any more."
        )
    options = run_retry.options(policy)
    selection, rows = moves.select_for_retry(
        connection, run_id=run_id, definition=version.definition, options=options
    )
    if not selection.included:
        return moves.leave_failed(
            connection, run_id=run_id, reason="Not retried: none of its tasks can be repeated."
        )
    reason = f"{run_retry.told(run['retry_count'] + 1, policy)}: {run['state_reason']}"
    size = guards.Size(runs=1, task_instances=len(selection.included))
    refusal = guard.refusal(
        connection,
        flow_id=flow_id,
        kind=guards.ActionKind.RUN_RETRY,
        defined=version.definition.guards,
        defaults=settings.GUARD_LIMITS,
        size=size,
    )
    if refusal is not None:
        number = review.open_review(
            connection,
            guard=refusal.code,
            action=guards.ActionKind.RUN_RETRY,
            run_id=run_id,
            run_key=run["run_key"],
            flow_id=flow_id,
            request={"run_attempt": run["run_attempt"]},
            summary=refusal.sentence,
            asked_by=ACTOR,
            reason=reason,
        )
        moves.leave_failed(
            connection,
            run_id=run_id,
            reason=f"Waits for a person in review {number}: {refusal.sentence}",
        )
        logger.warning(
            "a run retry waits for a person",
            extra={"run": run_id, "flow_id": flow_id, "guard": refusal.code.value},
        )
        return True
    if not moves.count_retry(
        connection, run_id=run_id, seen=run["retry_count"], cap=policy.max_attempts - 1
    ):
        return moves.leave_failed(
            connection, run_id=run_id, reason="Its policy allows no other run attempt."
        )
    begun = moves.begin_run_attempt(
        connection,
        run=run,
        definition=version.definition,
        options=options,
        selection=selection,
        rows=rows,
        actor=ACTOR,
        reason=reason,
    )
    guard.record_action(
        connection,
        flow_id=flow_id,
        kind=guards.ActionKind.RUN_RETRY,
        run_id=run_id,
        size=size,
        actor=ACTOR,
        reason=reason,
    )
    logger.info(
        "a run attempt began by policy",
        extra={"run": run_id, "flow_id": flow_id, "run_attempt": begun.run_attempt},
    )
    return True
