"""One tick: prove, lock, decide, mark, dispatch and end runs, in one transaction over all shards."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from psycopg.rows import tuple_row

from scheduler_app.processes import failpoints
from scheduler_app.rules import callbacks, retry, run_outcome
from scheduler_app.rules.errors import SchedulerError
from scheduler_app.rules.states import RunState, RunType, TaskState
from scheduler_app.scheduler import dispatch_attempts, expansion, groups, past, room, run_retries
from scheduler_app.scheduler.dispatch_attempts import Ready
from scheduler_app.scheduler.pace import Pace
from scheduler_app.scheduler.run_timeouts import end_overdue
from scheduler_app.scheduler.run_views import RunView, RunViews
from scheduler_app.scheduler.turns import Turns
from scheduler_app.scheduler.versions import Versions
from scheduler_app.transitions.backfill import room_of_backfills
from scheduler_app.transitions.callback import (
    NewCallbacks,
    issue_for_run,
    issue_for_task_instances,
)
from scheduler_app.transitions.run import end_runs, lock_active_runs, start_runs
from scheduler_app.transitions.task_instance import mark_task_instances, note_waits

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    import psycopg

    from scheduler_app.scheduler.leases import Leases
    from scheduler_app.transitions.attempt import Message

RUNS_MAX: Final = 100  # looked at in one tick
INSTANCES_MAX: Final = 20_000  # of newly read runs in one tick

logger = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What a tick did and what it asks for."""

    messages: list[Message] = field(default_factory=list)
    moved_runs: set[int] = field(default_factory=set)  # pages that show them refresh
    ended_flows: set[str] = field(default_factory=set)  # of which runs ended
    is_schedule_free: bool = (
        False  # one of them counted among the active ones of its schedule or backfill
    )
    is_retry_due: bool = False  # one of them failed, or had done so before
    failing: dict[str, int] = field(
        default_factory=dict
    )  # flow of a failed run -> failures it bears
    again: set[int] = field(default_factory=set)  # look at these runs at the next tick
    waiting_runs: set[int] = field(default_factory=set)  # ready, but there was no room
    queued_runs: dict[str, set[int]] = field(default_factory=dict)  # by flow: wait for a run to end
    retry_in_s: dict[int, float] = field(default_factory=dict)  # run -> seconds to its next retry
    has_callbacks: bool = False  # some were issued: to be published
    broken: dict[int, str] = field(default_factory=dict)  # runs that could not be decided
    lasts_s: float = 0.0  # how long what waits in the queues keeps their workers busy, at least


class Ticker:
    """Decides for runs of the shards held; keeps what it read for the next tick."""

    def __init__(self, leases: Leases) -> None:
        self._leases = leases
        self._versions = Versions()
        self._views = RunViews()
        self._turns = Turns()
        self._pace = Pace()

    def forget(self, run_ids: Iterable[int]) -> None:
        """The next tick reads these runs anew."""
        self._views.forget(run_ids)

    def doubt(self, run_ids: Iterable[int], *, by_the_way: bool = False) -> None:
        """Somebody else may have moved what never started or has ended in these runs.

        ``by_the_way``: nothing says so; see ``RunViews.doubt``.
        """
        self._views.doubt(run_ids, by_the_way=by_the_way)

    def tick(
        self,
        connection: psycopg.Connection[Any],
        *,
        terms: dict[int, int],
        run_ids: Iterable[int],
        queue_slots: dict[str, int],
    ) -> Outcome:
        """Everything that can be decided for these runs now is decided and committed.

        Raises ``Fenced`` (nothing was written) and ``psycopg.Error``.
        """
        wanted, later = self._turns.runs(run_ids, RUNS_MAX)
        outcome = Outcome(again=later)
        failpoints.reach("tick.before_proof")
        try:
            with connection.transaction():
                self._leases.prove(connection, terms)
                self._decide(connection, terms, wanted, queue_slots, outcome)
                failpoints.reach("tick.before_commit")
        except BaseException:
            self._views.forget(wanted)
            raise
        failpoints.reach("tick.after_commit")
        return outcome

    def _decide(
        self,
        connection: psycopg.Connection[Any],
        terms: dict[int, int],
        run_ids: list[int],
        queue_slots: dict[str, int],
        outcome: Outcome,
    ) -> None:
        version_ids = self._views.version_ids(run_ids)
        if unknown := [run_id for run_id in run_ids if run_id not in version_ids]:
            version_ids |= _version_ids(connection, unknown)
        versions = self._versions.get(connection, set(version_ids.values()))
        pools = room.lock(connection, versions=versions.values())
        runs = lock_active_runs(connection, run_ids=run_ids, shards=list(terms))
        if not runs:
            return
        now = max(run["now"] for run in runs)
        for run in runs:
            if run["version_id"] in self._versions.unreadable:
                # No other run waits for it.
                outcome.broken[run["id"]] = self._versions.unreadable[run["version_id"]]
            elif run["version_id"] not in versions:
                # It has another version than when it was last read, whose pools are not locked.
                self._views.forget([run["id"]])
                outcome.again.add(run["id"])
        runs = [run for run in runs if run["version_id"] in versions]
        runs = self._start(
            connection, [run for run in runs if not run["frozen"]], versions, outcome
        )
        overdue = end_overdue(connection, runs=runs, versions=versions)
        outcome.moved_runs |= overdue.keys()
        views = self._views.refresh(connection, runs=runs, versions=versions, terms=terms)
        groups.read(connection, views)
        by_id = {run["id"]: run for run in runs}
        stopped = run_retries.stop_siblings(
            connection, views=views, runs=by_id, decide=_decide_states
        )
        # They are read anew: what was stopped may have ended with it.
        self._views.forget(stopped)
        outcome.again |= stopped
        outcome.moved_runs |= stopped
        revised = expansion.revise(connection, views)
        self._views.forget(revised.again)
        outcome.again |= revised.again
        outcome.moved_runs |= revised.moved_runs
        waiting = stopped | revised.again
        views = [view for view in views if view.run_id not in waiting]
        ready, ends = _let_go(connection, views, now, outcome)
        self._dispatch(connection, ready, pools, queue_slots, now, outcome)
        self._end(connection, ends, by_id, overdue, outcome)

    def _end(
        self,
        connection: psycopg.Connection[Any],
        ends: list[tuple[RunView, run_outcome.RunDecision]],
        runs: dict[int, dict[str, Any]],
        overdue: dict[int, str],
        outcome: Outcome,
    ) -> None:
        """The runs are over as decided, but for those of which something goes on after all."""
        decided = {view.run_id: _in_time(view, decision, overdue) for view, decision in ends}
        ended = end_runs(
            connection, ends={run_id: (one.state, one.reason) for run_id, one in decided.items()}
        )
        for view, _ in ends:
            if (how := ended.get(view.run_id)) is None:
                continue
            run, decision = runs[view.run_id], decided[view.run_id]
            definition = view.version.definition
            if how.state == RunState.FAILED and definition.run_retry is not None:
                run_retries.after_failure(
                    connection,
                    run=run,
                    policy=definition.run_retry,
                    code=decision.code,
                    is_overdue=view.run_id in overdue,
                )
            if not how.is_quiet:
                decision = replace(decision, state=RunState(how.state))
                outcome.has_callbacks |= _call_for_end(connection, view, decision)
            if definition.max_consecutive_failed_runs and decision.state is RunState.FAILED:
                outcome.failing[view.flow_id] = definition.max_consecutive_failed_runs
            outcome.ended_flows.add(view.flow_id)
            outcome.is_schedule_free |= (
                run["run_type"] == RunType.SCHEDULED or run["backfill_id"] is not None
            )
            outcome.is_retry_due |= how.state == RunState.FAILED or run["run_attempt"] > 1
            outcome.moved_runs.add(view.run_id)
            self._views.forget([view.run_id])

    def _start(
        self,
        connection: psycopg.Connection[Any],
        runs: list[dict[str, Any]],
        versions: dict[int, Any],
        outcome: Outcome,
    ) -> list[dict[str, Any]]:
        """The running runs, with those that could be started under ``max_active_runs``."""
        queued = [run for run in runs if run["state"] == RunState.QUEUED]
        running = [run for run in runs if run["state"] == RunState.RUNNING]
        if not queued:
            return running
        active = _running_by_flow(connection, {run["flow_id"] for run in queued})
        backfills = {run["backfill_id"] for run in queued} - {None}
        rooms = room_of_backfills(connection, backfill_ids=backfills) if backfills else {}
        starting = []
        for run in queued:
            flow_id = run["flow_id"]
            limit = versions[run["version_id"]].definition.max_active_runs
            if run["backfill_id"] in rooms:
                # It makes no more than may be active, but ended ones may have been cleared.
                if rooms[run["backfill_id"]] > 0:
                    rooms[run["backfill_id"]] -= 1
                    starting.append(run)
                else:
                    outcome.queued_runs.setdefault(flow_id, set()).add(run["id"])
            elif active.get(flow_id, 0) < limit:
                active[flow_id] = active.get(flow_id, 0) + 1
                starting.append(run)
            else:
                outcome.queued_runs.setdefault(flow_id, set()).add(run["id"])
        limits = {
            run["id"]: limit_s
            for run in starting
            if (limit_s := versions[run["version_id"]].definition.run_timeout_s) is not None
        }
        late = {
            run["id"]: definition.deadline_s
            for run in starting
            if (definition := versions[run["version_id"]].definition).deadline_s is not None
            and definition.deadline_from == "start"
        }
        started = start_runs(
            connection,
            run_ids=[run["id"] for run in starting],
            timeouts_s=limits,
            late_after_s=late,
        )
        outcome.moved_runs |= started
        return running + [run for run in starting if run["id"] in started]

    def _dispatch(
        self,
        connection: psycopg.Connection[Any],
        ready: list[Ready],
        pools: dict[str, room.Pool],
        queue_slots: dict[str, int],
        now: datetime,
        outcome: Outcome,
    ) -> None:
        if not ready:
            return
        left = room.read(connection, ready, pools=pools, queue_slots=queue_slots, pace=self._pace)
        held_back = past.held_back(connection, ready, now=now)
        free = [r for r in ready if r.instance.ti_id not in held_back]
        choice = dispatch_attempts.choose(free, room=left, turns=self._turns, now=now)
        room.note_kept(connection, ready, choice, pools=pools, left=left)
        choice.waiting.update(held_back)
        by_id = {r.instance.ti_id: r for r in ready}
        chosen = [by_id[ti_id] for ti_id in choice.chosen]
        outcome.messages = dispatch_attempts.issue(connection, chosen=chosen)
        self._pace.issued(message.queue for message in outcome.messages)
        outcome.lasts_s = self._pace.lasts_s(
            {queue: queue_slots.get(queue, 0) for queue in {r.instance.queue for r in ready}}
        )
        outcome.moved_runs |= {message.run_id for message in outcome.messages}
        issued = {message.ti_id for message in outcome.messages}
        # Somebody else moved a row in between: look again.
        outcome.again |= {r.view.run_id for r in chosen if r.instance.ti_id not in issued}
        outcome.waiting_runs |= {by_id[ti_id].view.run_id for ti_id in choice.waiting}
        note_waits(connection, notes=dispatch_attempts.wait_notes(ready, choice, now=now))


def _let_go(
    connection: psycopg.Connection[Any],
    views: list[RunView],
    now: datetime,
    outcome: Outcome,
) -> tuple[list[Ready], list[tuple[RunView, run_outcome.RunDecision]]]:
    """What is ready and which runs come to their end; marks are written, groups have taken a step."""
    ready: list[Ready] = []
    marks: dict[int, TaskState] = {}
    decided: list[tuple[RunView, run_outcome.RunDecision]] = []
    for view in views:
        try:
            decision = _decision(view)
        except SchedulerError as error:
            outcome.broken[view.run_id] = str(error)
            continue
        _collect(view, decision, now, marks, ready, outcome)
        decided.append((view, decision))
    expanded = expansion.expand(connection, decided)
    marks |= expanded.marks
    outcome.again |= expanded.again
    outcome.moved_runs |= expanded.moved_runs
    moved = mark_task_instances(connection, marks=marks)
    outcome.moved_runs |= {v.run_id for v in views if not moved.isdisjoint(v.open_ids)}
    _heed_marks(views, marks, moved, outcome)
    outcome.has_callbacks = _call_for_marks(connection, views, marks, moved)
    ready = _with_groups(connection, decided, ready, now, outcome)
    return ready, [one for one in decided if one[1].state is not RunState.RUNNING]


def _heed_marks(
    views: list[RunView], marks: dict[int, TaskState], moved: frozenset[int], outcome: Outcome
) -> None:
    """What was marked is read once more; where somebody was first, all that is open is."""
    for view in views:
        own = view.open_ids & marks.keys()
        view.let_go |= own
        if not own <= moved:
            view.is_doubted = True
            outcome.again.add(view.run_id)


def _decision(view: RunView) -> run_outcome.RunDecision:
    if view.board is not None:
        return view.board.decide()
    return _decide_states(
        view,
        [
            run_outcome.InstanceState(
                task_id=i.task_id, map_index=i.map_index, state=i.state, held=i.held
            )
            for i in view.instances.values()
        ],
    )


def _decide_states(
    view: RunView, instances: Sequence[run_outcome.InstanceState]
) -> run_outcome.RunDecision:
    return run_outcome.decide_run(
        upstream=view.version.upstream,
        trigger_rules=view.version.trigger_rules,
        instances=instances,
        ties=view.version.ties,
        choices=view.choices(),
        given_up=groups.given_up(view),
        mapped=view.version.mapped,
    )


def _collect(
    view: RunView,
    decision: run_outcome.RunDecision,
    now: datetime,
    marks: dict[int, TaskState],
    ready: list[Ready],
    outcome: Outcome,
) -> None:
    """Sort the open instances of a run: to be marked, ready now, or ready at a later time."""
    for key, state in decision.marks.items():
        marks[view.by_key[key]] = state
    waits = {view.by_key[key] for key in decision.ready}
    for ti_id in view.let_go | waits:
        instance = view.instances[ti_id]
        if instance.held:
            continue
        if instance.state in (TaskState.UP_FOR_RETRY, TaskState.UP_FOR_RESCHEDULE):
            due = instance.next_retry_at
            if retry.is_due(due, now):
                ready.append(Ready(view=view, instance=instance))
            elif due is not None:
                in_s = (due - now).total_seconds()
                outcome.retry_in_s[view.run_id] = min(
                    in_s, outcome.retry_in_s.get(view.run_id, in_s)
                )
        elif ti_id in waits or instance.state is TaskState.SCHEDULED:
            # Scheduled: let go once already; it waits, was handed back, or its worker was lost.
            ready.append(Ready(view=view, instance=instance))


def _with_groups(
    connection: psycopg.Connection[Any],
    decided: list[tuple[RunView, run_outcome.RunDecision]],
    ready: list[Ready],
    now: datetime,
    outcome: Outcome,
) -> list[Ready]:
    """What may be dispatched once the transactional groups have taken their step."""
    taken = groups.take_step(connection, decided=[one for one in decided if one[1].units], now=now)
    outcome.again |= taken.again
    outcome.moved_runs |= taken.moved_runs
    outcome.has_callbacks |= taken.has_callbacks
    for run_id, in_s in taken.retry_in_s.items():
        outcome.retry_in_s[run_id] = min(in_s, outcome.retry_in_s.get(run_id, in_s))
    return [one for one in ready if one.instance.ti_id not in taken.withheld]


def _call_for_marks(
    connection: psycopg.Connection[Any],
    views: list[RunView],
    marks: dict[int, TaskState],
    moved: frozenset[int],
) -> bool:
    """The callbacks of the marked task instances are issued; whether there were any."""
    new = {}
    for view in views:
        for ti_id in moved & view.open_ids:
            task = view.version.callbacks.get(view.instances[ti_id].task_id, {})
            calls = callbacks.due(task, marks[ti_id])
            if calls:
                why = "Its trigger rule can no longer be met."
                called = NewCallbacks.of(calls, state=marks[ti_id], reason=why)
                new[ti_id] = (view.token, called)
    issue_for_task_instances(connection, moved=new)
    return bool(new)


def _call_for_end(
    connection: psycopg.Connection[Any], view: RunView, decision: run_outcome.RunDecision
) -> bool:
    """The callbacks of the run's end are issued; whether there were any."""
    calls = callbacks.due(view.version.definition.callbacks, decision.state)
    if not calls:
        return False
    issue_for_run(
        connection,
        run_id=view.run_id,
        token=view.token,
        queue=view.version.queue,
        new=NewCallbacks.of(calls, state=decision.state, reason=decision.reason),
    )
    return True


def _in_time(
    view: RunView, decision: run_outcome.RunDecision, overdue: dict[int, str]
) -> run_outcome.RunDecision:
    """The decision, saying so where the run fails because its time was up."""
    if view.run_id not in overdue or decision.state is not RunState.FAILED:
        return decision
    return replace(decision, reason=f"{overdue[view.run_id]} {decision.reason}")


def _version_ids(connection: psycopg.Connection[Any], run_ids: list[int]) -> dict[int, int]:
    """By run, the version that it has."""
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute("SELECT id, version_id FROM run WHERE id = ANY(%s)", [run_ids])
        return dict(cursor.fetchall())


def _running_by_flow(connection: psycopg.Connection[Any], flow_ids: set[str]) -> dict[str, int]:
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(
            "SELECT flow_id, count(*)::int FROM run WHERE flow_id = ANY(%s) AND is_active"
            " AND state = 'running' AND filter_code IS NULL AND NOT EXISTS ("
            "  SELECT 1 FROM backfill b WHERE b.id = run.backfill_id AND b.is_active) GROUP BY 1",
            [sorted(flow_ids)],
        )
        return dict(cursor.fetchall())
