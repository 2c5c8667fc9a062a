"""Why a task instance is as it is: the facts, read in one snapshot, and the sentence of the rule."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from django.conf import settings
from django.db import connection
from django.db.models import Count, Q

from scheduler_app import sql
from scheduler_app.models import Attempt, FlowVersion, GroupAttempt, TaskInstance
from scheduler_app.queries import slots as holding
from scheduler_app.queries import task_instances
from scheduler_app.rules import ties, values, why
from scheduler_app.rules.definition import TriggerRule, from_dict
from scheduler_app.rules.group_retry import GroupState
from scheduler_app.rules.mapping import is_reached, mapped_groups, mapped_tasks, reached
from scheduler_app.rules.states import AttemptOutcome, RunState, TaskState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from scheduler_app.queries.scope import Scope
    from scheduler_app.rules.definition import FlowDefinition

HOLDERS_MAX: Final = 20  # read; the sentence names a few and counts the rest of these


def why_of(scope: Scope, ti: int) -> why.Why:
    """What happened to the task instance or what it waits for. Raises ``NotFound``."""
    row = task_instances.one(scope, ti)
    return explain(scope, row)


def explain(scope: Scope, row: task_instances.TaskInstanceRow) -> why.Why:
    """The same for a row that the reader has already; its facts are read anew, in one statement.

    Who holds what it waits for, where it waits for room, is read in another.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            sql.load("facts_of_task_instance"),
            {
                "ti": row.id,
                "alive_s": settings.JOB_ALIVE_S,
                "dead_after_s": settings.HEARTBEAT_DEAD_AFTER_S,
            },
        )
        found = cursor.fetchone()
    if found is None:  # gone since
        return why.explain(why.Facts(state=row.state_beneath, decider=""))
    read = json.loads(found[0]) if isinstance(found[0], str) else found[0]
    facts = _facts(scope, row, read)
    slots = slots_waited_for(row)
    if slots is not None:
        found_holders = holding.holders(scope, slots, limit=HOLDERS_MAX)
        facts = replace(
            facts,
            holders=tuple(_holder(one) for one in found_holders.rows),
            holders_total=found_holders.total,
            before=holding.before(ti=row.id) if slots.pool or slots.queue else 0,
        )
    return why.explain(facts)


def slots_waited_for(row: task_instances.TaskInstanceRow) -> holding.Slots | None:
    """What the slots are of that the task instance waits for; none if it does not wait for room."""
    if row.state_beneath not in _READY:
        return None
    of = holding.Slots(
        pool=row.pool, run=row.run, flow=row.flow_id, task=row.task_id, queue=row.queue
    )
    return holding.what_is_waited_for(row.wait, of=of)


_READY: Final = frozenset(
    {TaskState.SCHEDULED, TaskState.UP_FOR_RETRY, TaskState.UP_FOR_RESCHEDULE}
)


_NEVER_STARTED: Final = frozenset({TaskState.NONE, TaskState.SKIPPED, TaskState.UPSTREAM_FAILED})


def _facts(scope: Scope, row: task_instances.TaskInstanceRow, read: dict[str, Any]) -> why.Facts:
    ti, run, task = read["ti"], read["run"], read["task"] or {}
    wait = ti["wait"] or {}
    # What decides beside its upstream plays a part only before it starts, and where it never does.
    definition = _definition(ti) if ti["state"] in _NEVER_STARTED else None
    upstream = _at_own_index(ti, definition, [why.Upstream(**one) for one in read["upstream"]])
    picked = _picked(ti, definition)
    beside = _beside(ti, definition)
    return why.Facts(
        state=ti["state"],
        try_number=ti["try_number"],
        max_tries=ti["max_tries"],
        budget_start=row.budget_start,
        task_id=ti["task_id"],
        pool=ti["pool"],
        queue=ti["queue"],
        ready_at=_moment(ti["ready_at"]),
        ended_at=_moment(ti["ended_at"]),
        next_retry_at=_moment(ti["next_retry_at"]),
        next_retry_why=ti["next_retry_why"],
        now=_moment(read["now"]),
        next_method=ti["next_method"],
        wait_code=wait.get("code"),
        wait_detail=wait.get("detail"),
        wait_since=_moment(wait.get("since")),
        stop_at=_moment(ti["stop_requested_at"]),
        stop_reason=ti["stop_reason"],
        mark=ti["mark"]["state"] if ti["mark"] else None,
        infra_losses=ti["infra_losses"],
        infra_budget=settings.INFRASTRUCTURE_BUDGET,
        freeze=_freeze(ti, run, read["freeze"]),
        filter_reason=row.filter_reason,
        run_state=run["state"] or RunState.RUNNING,
        run_limit=run["run_limit"],
        run_retry_at=_moment(run["retry_at"]),
        run_retry_reason=run["retry_reason"],
        version=run["version"],
        shard=ti["shard"],
        decider=read["decider"],
        rule=task.get("trigger_rule", TriggerRule.ALL_SUCCESS),
        upstream=upstream,
        maps_over=_maps_over(ti, task, definition),
        setups=beside.setups,
        teardown_of=beside.teardown_of,
        scope=beside.scope,
        units=beside.units,
        root_causes=_root_causes(ti, definition, upstream),
        barred_by=picked.barred_by,
        barred_by_all=picked.barred_by_all,
        undecided_by=picked.undecided_by,
        attempt=_attempt(read["attempt"]),
        trigger=_trigger(read["trigger"]),
        queue_workers=read["queue_workers"],
    )


def _freeze(
    ti: Mapping[str, Any], run: Mapping[str, Any], row: Mapping[str, Any] | None
) -> why.Freeze | None:
    if ti["held_by"] is not None:
        found = row or {}
        return why.Freeze(
            scope=_SCOPES.get(found.get("scope_kind", ""), "task instance"),
            number=ti["held_by"],
            actor=found.get("actor"),
            reason=found.get("reason"),
            since=_moment(found.get("created_at")),
            until=_moment(found.get("until_at")),
        )
    for scope, at in (("run", run["frozen_at"]), ("flow", run["flow_frozen_at"])):
        if at is not None:
            return why.Freeze(scope=scope, since=_moment(at))
    return None


_SCOPES: Final = {
    "task_instance": "task instance",
    "task": "task",
    "run": "run",
    "flow": "flow",
    "shard": "shard",
}


def _maps_over(
    ti: Mapping[str, Any], task: Mapping[str, Any], definition: FlowDefinition | None
) -> tuple[str, ...] | None:
    """Of a mapped task that is not expanded: the tasks whose results it maps over. Null: it is none."""
    if ti["map_index"] >= 0 or not (task.get("mapped") or task.get("group")):
        return None
    definition = definition or _definition(ti)
    own = mapped_tasks(definition).get(ti["task_id"]) if definition is not None else None
    return None if own is None else tuple(sorted(own.inputs))


def _at_own_index(
    ti: Mapping[str, Any], definition: FlowDefinition | None, upstream: Sequence[why.Upstream]
) -> tuple[why.Upstream, ...]:
    """Its upstream; of what is in the mapped group that it is in, the instance of its own index."""
    own = _together(ti, definition, [one.task_id for one in upstream])
    if not own:
        return tuple(upstream)
    found = TaskInstance.objects.filter(
        run_id=ti["run_id"], task_id__in=own, map_index=ti["map_index"]
    )
    states = dict(found.order_by("task_id").values_list("task_id", "state"))
    others = [one for one in upstream if one.task_id not in states]
    siblings = (
        why.Upstream(task_id=one, state=state, map_index=ti["map_index"])
        for one, state in states.items()
    )
    return (*others, *siblings)


def _together(
    ti: Mapping[str, Any], definition: FlowDefinition | None, task_ids: Iterable[str]
) -> frozenset[str]:
    """Those of the tasks of which its own map index alone counts: they are in its mapped group."""
    if definition is None or ti["map_index"] < 0:
        return frozenset()
    groups = mapped_groups(definition)
    own = groups.get(ti["task_id"])
    return frozenset(one for one in task_ids if own is not None and groups.get(one) == own)


def _root_causes(
    ti: Mapping[str, Any], definition: FlowDefinition | None, upstream: tuple[why.Upstream, ...]
) -> tuple[str, ...]:
    """What failed by itself before it, where none of its direct upstream did."""
    if (
        definition is None
        or ti["state"] != TaskState.UPSTREAM_FAILED
        or any(one.state == TaskState.FAILED for one in upstream)
    ):
        return ()
    above = {task.task_id: task.upstream for task in definition.tasks}
    if ti["task_id"] not in above:
        return ()
    before = reached(above, {ti["task_id"]: [ti["map_index"]]}, mapped_groups(definition))
    own = before.pop(ti["task_id"])
    failed: dict[str, str] = {}
    found = TaskInstance.objects.filter(run_id=ti["run_id"], state=TaskState.FAILED)
    for task_id, map_index in found.values_list("task_id", "map_index"):
        if is_reached(before, task_id, map_index):
            is_one = before[task_id] is not None and before[task_id] == own
            failed[task_id] = why.named(task_id, map_index if is_one else None)
    return tuple(failed[task_id] for task_id in above if task_id in failed)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Picked:
    """The branches and gates before it that did not let it through, and those that have not ended."""

    barred_by: tuple[str, ...] = ()
    barred_by_all: tuple[str, ...] = ()
    undecided_by: tuple[str, ...] = ()


def _picked(ti: Mapping[str, Any], definition: FlowDefinition | None) -> _Picked:
    if (
        definition is None
        or ti["state"] == TaskState.UPSTREAM_FAILED
        or not any(task.picks for task in definition.tasks)
    ):
        return _Picked()
    known = ties.ties_of(definition)
    pickers = known.picked_by.get(ti["task_id"], ())
    together = _together(ti, definition, pickers)
    asked = Q(task_id__in=together, map_index=ti["map_index"])
    # Of what is not expanded nothing in its own group decides.
    in_group = known.picked_by_index.get(ti["task_id"], frozenset())
    asked |= Q(task_id__in=[one for one in pickers if one not in in_group])
    found = TaskInstance.objects.filter(asked, run_id=ti["run_id"])
    open_ones = found.filter(is_open=True).order_by("task_id")
    waits_for = list(open_ones.values_list("task_id", flat=True).distinct())
    ends: dict[str, dict[str, int]] = {}
    for task_id, state, number in (
        found.filter(is_open=False).values_list("task_id", "state").annotate(number=Count("id"))
    ):
        ends.setdefault(task_id, {})[state] = number
    # What many instances picked is much alike: each choice is read once.
    said: dict[str, list[tuple[Any, int]]] = {}
    for task_id, result, number in (
        Attempt.objects.filter(
            pk__in=found.filter(state=TaskState.SUCCESS).values("attempt_id"),
            is_accepted=True,
            outcome=AttemptOutcome.SUCCESS,
        )
        .values_list("task_id", "result")
        .annotate(number=Count("id"))
    ):
        said.setdefault(task_id, []).append((values.decode(result), number))
    above = {task.task_id: task.upstream for task in definition.tasks}
    barred = [
        picker
        for picker, choices in said.items()
        if picker not in waits_for
        # One that failed might have let it through, and one that a person marked did.
        and (of := ends.get(picker, {})).keys().isdisjoint(_BAD)
        and of.get(TaskState.SUCCESS) == sum(number for _, number in choices)
        and all(ties.is_barred(known, above, ti["task_id"], picker, one) for one, _ in choices)
    ]
    several = mapped_tasks(definition).keys() - together
    at = {one: why.named(one, ti["map_index"]) for one in together}
    return _Picked(
        barred_by=tuple(at.get(one, one) for one in barred if one not in several),
        barred_by_all=tuple(one for one in barred if one in several),
        undecided_by=tuple(at.get(one, one) for one in waits_for),
    )


_BAD: Final = (TaskState.FAILED, TaskState.UPSTREAM_FAILED)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Beside:
    """What decides about it beside its upstream."""

    setups: tuple[why.Upstream, ...] = ()
    teardown_of: tuple[str, ...] = ()
    scope: tuple[why.Upstream, ...] = ()
    units: tuple[why.Unit, ...] = ()


def _beside(ti: Mapping[str, Any], definition: FlowDefinition | None) -> _Beside:
    known = ties.NONE if definition is None else ties.ties_of(definition)
    task_id = ti["task_id"]
    tasks = () if definition is None or known is ties.NONE else definition.tasks
    task = next((one for one in tasks if one.task_id == task_id), None)
    if task is None:
        return _Beside()
    is_asked = task.trigger_rule != TriggerRule.ALWAYS
    setups = known.setups.get(task_id, ()) if is_asked else ()
    scope = known.scopes.get(task_id, ())
    own = known.unit_of.get(task_id)
    outside = {known.unit_of.get(one) for one in task.upstream} - {None, own, task.compensates}
    units = [known.units[one] for one in sorted(filter(None, outside))]
    named = {*setups, *scope, *(one for unit in units for one in unit.members)}
    if not named:
        return _Beside(teardown_of=known.own_setups.get(task_id, ()))
    together = _together(ti, definition, [*setups, *scope])
    found = (
        TaskInstance.objects.filter(
            Q(task_id__in=named - together) | Q(task_id__in=together, map_index=ti["map_index"]),
            run_id=ti["run_id"],
        )
        .values("task_id", "state")
        .annotate(number=Count("id"))
        .order_by("task_id", "state")
    )
    seen = [
        why.Upstream(**one, map_index=ti["map_index"] if one["task_id"] in together else None)
        for one in found
    ]
    attempts = {
        one.group_id: one
        for one in GroupAttempt.objects.filter(
            run_id=ti["run_id"], group_id__in=[unit.group_id for unit in units], is_current=True
        )
    }
    return _Beside(
        setups=tuple(one for one in seen if one.task_id in setups),
        teardown_of=known.own_setups.get(task_id, ()),
        scope=tuple(one for one in seen if one.task_id in scope),
        units=tuple(_unit(unit, seen, attempts.get(unit.group_id)) for unit in units),
    )


def _unit(unit: ties.Unit, seen: Sequence[why.Upstream], attempt: GroupAttempt | None) -> why.Unit:
    return why.Unit(
        group_id=unit.group_id,
        members=[one for one in seen if one.task_id in {*unit.members} - unit.lenient],
        is_given_up=attempt is not None and attempt.state == GroupState.FAILED,
        retry_at=None if attempt is None else attempt.retry_at,
    )


def _definition(ti: Mapping[str, Any]) -> FlowDefinition | None:
    found = FlowVersion.objects.filter(
        pk__in=TaskInstance.objects.filter(pk=ti["id"]).values("run__version_id")
    )
    raw = found.values_list("definition", flat=True).first()
    return None if raw is None else from_dict(raw)


def _attempt(read: Mapping[str, Any] | None) -> why.AttemptFacts | None:
    if read is None:
        return None
    error = read["error"]
    return why.AttemptFacts(
        id=read["id"],
        state=read["state"],
        outcome=read["outcome"],
        reason=read["reason"],
        error=f"{error['type']}: {error['message']}" if error else None,
        process=f"{read['hostname']}:{read['pid']}" if read["hostname"] else None,
        issued_at=_moment(read["issued_at"]),
        published_at=_moment(read["published_at"]),
        publish_count=read["publish_count"],
        started_at=_moment(read["started_at"]),
        heartbeat_at=_moment(read["heartbeat_at"]),
        ended_at=_moment(read["ended_at"]),
        is_accepted=read["is_accepted"],
        is_silent=bool(read["is_silent"]),
        signal=read["signal"],
        event_code=read["event_code"],
    )


def _trigger(read: Mapping[str, Any] | None) -> why.TriggerFacts | None:
    if read is None:
        return None
    return why.TriggerFacts(
        kind=read["kind"],
        state=read["state"],
        event_key=read["event_key"],
        due_at=_moment(read["due_at"]),
        timeout_at=_moment(read["timeout_at"]),
        since=_moment(read["since"]),
        watcher=read["watcher"],
        is_watcher_alive=bool(read["is_watcher_alive"]),
    )


def _holder(row: holding.HolderRow) -> why.Holder:
    return why.Holder(
        name=row.name,
        slots=row.slots,
        since=row.since,
        ti=row.ti,
        run=row.run,
        state=row.state,
    )


def _moment(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
