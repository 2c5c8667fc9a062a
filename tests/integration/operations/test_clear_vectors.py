"""The vectors on clearing: each is held to, or deliberately not, or about what does not exist yet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

from scheduler_app.models import Attempt, Run, TaskInstance
from scheduler_app.operations.clear import clear_run, clear_task_instances
from scheduler_app.operations.clear_batch import plan_batch
from scheduler_app.rules import clear as rules
from scheduler_app.rules.clear import Options
from scheduler_app.rules.definition import FlowDefinition, GroupDefinition, TaskDefinition
from scheduler_app.rules.errors import InvalidInput
from scheduler_app.rules.mapping import Argument, Kind, MapOver, Source
from scheduler_app.rules.roles import Role
from scheduler_app.transitions.attempt import begin_anew
from tests.vectors.cases import Case, cases, parameters

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.world import World

ABOUT_TO_RUN = "it runs without a clear: a second clear changes nothing"
STAYS = "what is cleared and has not stopped stays so: a second execution never runs beside it"
DIFFERENT: Final = {
    "effect-none": ABOUT_TO_RUN,
    "effect-restarting": STAYS,
    "effect-removed": "its task is in no version that the run executes: it is left out, and says so",
    "history-not-duplicated": ABOUT_TO_RUN,
    "budget-task-gone-2": "the same: left out, unless the run moves to a version that has it",
    "running-task-gone": "the same: left out, unless the run moves to a version that has it",
    "run-second-clear": ABOUT_TO_RUN,
    "select-all": f"without those of which {ABOUT_TO_RUN}, and those that are being cleared",
    "select-failed-and-running": "the two exclude each other, everywhere",
    "select-api-default-only-failed": "who names a task instance means it: the filter is off",
    "run-success-no-reset": "cleared work always runs: there is no switch that leaves its run ended",
    "run-failed-no-reset": "the same",
    "run-success-to-running": "a run that had ended is queued, so that max_active_runs holds",
    "run-failed-to-running": "the same",
    "run-success-default": "last_decision does not exist; queued, and a run attempt more: held beside it",
    "clear-running-forbidden": "nobody needs the flag: a plan is refused if what it names has begun to run",
    "clear-queued-prevent-flag": "the same",
    "clear-running-worker-heartbeat": "the answer carries the clear as the reason to stop, in three stages",
    "version-run-without-version": "a run always has one",
    "version-latest-running-run": "new tasks are added at once, whatever the state of the run",
    "graph-unknown-id": "an id that matches nothing is an error",
    "external-id-dropped": "a handle belongs to the attempt, which is set aside with it",
}
DATES: Final = (
    "time-past",
    "time-future",
    "time-no-logical-date-past",
    "time-no-logical-date-plain",
)
IN_TESTS: Final = {
    "validate-empty-task-list": "tests/integration/api/test_clear.py",
    "validate-unknown-field": "tests/integration/api/test_clear.py",
    "validate-both-filters": "tests/integration/api/test_clear.py",
    "validate-note-max": "tests/integration/api/test_clear.py",
    "validate-only-running-alone": "tests/integration/api/test_clear.py",
    "version-keep": "test_clear.py: a cleared run keeps its version",
    "version-latest-removes": "test_clear.py: the newest version brings its tasks",
    "only-new": "test_clear.py: only new",
    "only-new-dry": "test_clear.py: only new",
    "only-new-with-only-failed": "tests/integration/api/test_clear.py",
    "only-new-with-only-running": "tests/integration/api/test_clear.py",
    "only-new-without-run": "a clear is always of a run, or of task instances, which have one",
    "run-running-default": "test_clear.py: a run under way goes on in a new run attempt",
    "run-nothing-selected": "test_clear.py: an empty selection touches nothing",
    "run-partial-clear": "test_clear.py: clearing tasks of a finished run",
    "dry-run-explicit": "test_clear.py: a preview changes nothing",
    "retry-raises-try": "tests/integration/scheduler: dispatch",
    "first-schedule": "tests/integration/scheduler: dispatch",
    "clear-twice-then-schedule": "test_clear.py: clears one after the other",
    "clear-running-stop-failed": "test_clear.py: begins anew; tests/integration/scheduler/test_event_vectors.py",
    "clear-reschedule-then-schedule": "below, with its effect",
    **dict.fromkeys(DATES, "below: the dates of the vectors"),
    "range-until": "tests/integration/queries: logical_date_lte of runs; both ends are inclusive",
    "range-both": "tests/integration/queries: logical_date_gte and logical_date_lte of runs",
    "validate-run-and-start": "a clear of one run has no filter of dates: an unknown field is refused",
    "validate-run-and-end": "the same",
    "mapped-missing-index": "test_clear_batch.py: an index that matches nothing is an error",
}
NOT_HERE: Final = {**DIFFERENT, **IN_TESTS}
ALL = cases("clear")
EFFECTS = [one for one in ALL if one.id not in NOT_HERE and "instance" in one.given]
PRECEDENCE = [one for one in ALL if one.when == "resolve_run_on_latest_version"]
SELECTIONS = [one for one in ALL if one.id not in NOT_HERE and "selected" in one.wanted]


def test_each_vector_is_answered_once() -> None:
    answered = [*NOT_HERE, *(one.id for one in EFFECTS + SELECTIONS + PRECEDENCE)]
    assert sorted(answered) == sorted(one.id for one in ALL)


@parameters(PRECEDENCE)
def test_who_is_nearest_to_the_act_says_which_version_is_executed(case: Case) -> None:
    given = case.given
    found = rules.runs_on_latest_version(
        given["request"],
        of_flow=given["flow_setting"],
        of_installation=given["global_setting"],
    )
    assert found is case.wanted["run_on_latest_version"]


@parameters(EFFECTS)
def test_a_cleared_instance_is_as_the_vector_says(world: World, case: Case) -> None:
    given, wanted = case.given["instance"], case.wanted["instance"]
    flow = world.flow("f", [TaskDefinition(task_id="a", retries=given["retries_configured"])])
    run_id = world.run(flow)
    world.tick(run_id)
    (message,), world.messages = world.messages, []
    over = given["state"] in ("success", "failed", "skipped", "upstream_failed", "removed")
    state = given["state"]
    attempt = {"running": ("running", None), "queued": ("issued", None)}.get(
        state, ("ended", state)
    )
    outcome = attempt[1] if attempt[1] in ("success", "failed", "deferred") else "failed"
    Attempt.objects.filter(pk=message.attempt_id).update(
        state=attempt[0],
        is_live=attempt[1] is None,
        outcome=None if attempt[1] is None else outcome,
        ended_at=None if attempt[1] is None else Run.objects.get().created_at,
        try_number=given["try_number"],
    )
    TaskInstance.objects.filter(pk=message.ti_id).update(
        state=state,
        is_open=not over,
        try_number=given["try_number"],
        max_tries=given["max_tries"],
        budget_start=max(0, given["max_tries"] - given["retries_configured"]),
        next_method=given["next_method"],
    )
    clear_task_instances(ti_ids=[message.ti_id], actor="ada", reason="r", dry_run=False)
    ti = TaskInstance.objects.get(pk=message.ti_id)
    assert ti.state == wanted["state"]
    assert (ti.try_number, ti.max_tries, ti.next_method) == (
        wanted["try_number"],
        wanted["max_tries"],
        wanted["next_method"],
    )
    kept = Attempt.objects.get(pk=message.attempt_id)
    assert kept.try_number == given["try_number"], "the abandoned attempt stays in the record"
    assert kept.cleared is not None
    if ti.state == "restarting":
        assert begin_anew(world.connection, attempt_id=message.attempt_id, reason="stopped")
    else:
        assert kept.filter_code == "superseded_by_clear"
    world.tick(run_id)
    (again,) = world.messages
    made = Attempt.objects.get(pk=again.attempt_id)
    assert (made.try_number, made.resume_index) == (given["try_number"] + 1, 0)


def graph_of(case: Case) -> dict[str, tuple[str, ...]]:
    flow = case.given.get("flow")
    if flow is None:
        return {one["task"]: () for one in case.given["instances"]}
    return {task["id"]: tuple(task.get("upstream", ())) for task in flow["tasks"]}


def definition_of(case: Case) -> FlowDefinition:
    raw = {task["id"]: task for task in case.given.get("flow", {}).get("tasks", ())}
    roles = {"setup": Role.SETUP, "teardown": Role.TEARDOWN}
    over = MapOver(arguments=(Argument(name="x", source=Source(kind=Kind.LITERAL, items=(1, 2))),))
    mapped = {task["mapped_group"] for task in raw.values() if "mapped_group" in task}
    return FlowDefinition(
        flow_id="f",
        groups=tuple(GroupDefinition(group_id=one, mapped=over) for one in sorted(mapped)),
        tasks=tuple(
            TaskDefinition(
                task_id=task_id,
                upstream=above,
                group=raw.get(task_id, {}).get("mapped_group", ""),
                role=next((roles[r] for r in roles if raw.get(task_id, {}).get(r)), Role.WORK),
            )
            for task_id, above in graph_of(case).items()
        ),
    )


@parameters(SELECTIONS)
def test_what_is_selected_is_what_the_vector_says(case: Case) -> None:
    ((_, asked),) = case.when.items()
    instances: list[dict[str, Any]] = case.given["instances"]
    named = asked.get("task_ids")
    switches = {key: asked[key] for key in Options.__dataclass_fields__ if key in asked}
    upstream = graph_of(case)
    found = rules.select(
        [
            rules.Candidate(
                id=number,
                task_id=one["task"],
                map_index=one.get("map_index", -1),
                state=one["state"],
                try_number=one["try_number"],
                attempt_id=f"attempt {number}",
            )
            for number, one in enumerate(instances)
        ],
        upstream=upstream,
        retries=dict.fromkeys(upstream, 0),
        definition=definition_of(case),
        asked=None
        if named is None
        else [
            n
            for n, i in enumerate(instances)
            if i["task"] in named or [i["task"], i.get("map_index", -1)] in named
        ],
        options=Options(**switches),
    )
    wanted = {one if isinstance(one, str) else tuple(one) for one in case.wanted["selected"]}
    keyed = any(isinstance(one, tuple) for one in wanted)

    def told(chosen: Sequence[rules.Choice]) -> set[Any]:
        return {(one.task_id, one.map_index) if keyed else one.task_id for one in chosen}

    assert told(found.included) == wanted
    about = told(found.included + found.excluded)
    assert about >= wanted
    assert all(one.effect for one in found.excluded)


def test_filters_that_exclude_each_other_are_refused_everywhere() -> None:
    with pytest.raises(InvalidInput):
        rules.check_options(Options(only_failed=True, only_running=True))


def test_a_run_that_had_ended_is_queued_with_a_run_attempt_more(world: World) -> None:
    run_id = world.run(world.flow("f", [TaskDefinition(task_id="a")]))
    world.play(run_id)
    clear_run(run_id=run_id, actor="ada", reason="r", dry_run=False)
    run = Run.objects.get(pk=run_id)
    assert (run.state, run.run_attempt, run.started_at, run.ended_at) == ("queued", 2, None, None)
    assert run.queued_at is not None


@parameters([one for one in ALL if one.id in DATES])
def test_other_dates_are_those_that_the_vector_selects(world: World, case: Case) -> None:
    flow = world.flow("f", [TaskDefinition(task_id="a")], max_active_runs=9)
    runs = {}
    for one in case.given["runs"]:
        runs[one["id"]] = world.run(flow, one["id"])
        world.play(runs[one["id"]], failing=["a"])
        Run.objects.filter(pk=runs[one["id"]]).update(logical_date=one["logical"])
    asked = case.when["api_clear"]
    ti = TaskInstance.objects.get(run_id=runs[asked["run_id"]], task_id="a")
    dates = {key: asked.get(f"include_{key}", False) for key in ("past", "future")}
    if "error" in case.wanted:
        with pytest.raises(InvalidInput):
            plan_batch(actor="ada", ti_ids=[ti.pk], **dates)
        return
    made = plan_batch(actor="ada", ti_ids=[ti.pk], **dates)
    assert {f"{part.run_key}/a" for part in made.parts if part.included} == set(
        case.wanted["selected"]
    )
