"""Runs: the list, and one run with its task instances, attempts, events and all that was set aside."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import urlencode

from django.http import HttpResponse, HttpResponseRedirect
from django.urls import reverse

from dashboard import acts, answer, listing
from dashboard.addresses import carried
from dashboard.folding import PARAMETER
from dashboard.pictures import picture_of
from dashboard.timelines import Around, Axis, Lanes, timeline_of
from dashboard.views.attempts import OF_CALLBACKS, OF_TASKS, callbacks_of
from scheduler_app.operations.retry_run import cancel_retry, retry_run
from scheduler_app.operations.terminate import terminate_run
from scheduler_app.queries import (
    attempts,
    audit,
    clears,
    executor_events,
    flow_versions,
    ghosts,
    groups,
    leadership,
    lens,
    reviews,
    run_attempts,
    runs,
    task_instances,
    terms,
)
from scheduler_app.queries.filters import (
    AttemptFilter,
    AuditFilter,
    EventFilter,
    GhostFilter,
    ReviewFilter,
    RunAttemptFilter,
    RunFilter,
    TaskInstanceFilter,
)
from scheduler_app.queries.list_filter import LIMIT_MAX, VALUES_MAX, Lens
from scheduler_app.rules import errors

if TYPE_CHECKING:
    from collections.abc import Mapping

    from django.http import HttpRequest

    from dashboard.answer import Reading
    from dashboard.listing import Listing
    from scheduler_app.queries.attempts import AttemptBrief, AttemptDetail, AttemptRow
    from scheduler_app.queries.list_filter import ListFilter
    from scheduler_app.queries.runs import RunRow
    from scheduler_app.queries.scope import Scope
    from scheduler_app.queries.task_instances import TaskInstanceRow

FIELDS: Final = ("flow_id", "state", "run_type", "run_id", "started_at_gte", "started_at_lte")
TABS: Final = (
    "summary",
    "graph",
    "timeline",
    "attempts",
    "callbacks",
    "filtered",
    "events",
    "details",
)
TASKS_LIMIT: Final = 200  # rows of the summary
ASIDE_LIMIT: Final = 100  # rows of each kind on the tab of filtered records
AXIS_WORDS: Final = {
    Axis.COMPRESSED: "quiet times short",
    Axis.REAL: "as it was",
    Axis.ORDINAL: "step by step",
}
LANE_WORDS: Final = {Lanes.TASK: "by task", Lanes.HOST: "by process"}
TRIGGERED_SHOWN: Final = 5  # runs that a run or task triggered
GHOSTS_MAX: Final = 50  # drawn beside one run
ACTS_OF_MAX: Final = VALUES_MAX - 1  # task instances whose acts are drawn
TIMELINE_FIELDS: Final = ("task_id", "hostname")
LANES_LIMIT: Final = 200  # attempts of one picture of a mapped task, each in a lane of its own
ATTEMPTS_LIMIT: Final = 500  # looked at for the task instances of one page


ChoiceT = TypeVar("ChoiceT", bound=StrEnum)


@answer.page
def run_list(request: HttpRequest) -> HttpResponse:
    """Runs, newest first."""
    reading = answer.begin(request)
    found = listing.read(request, reading, RunFilter, runs.page, noun="runs", fields=FIELDS)
    tallies = task_instances.state_counts(reading.scope, [row.id for row in found.rows])
    context = {"list": found, "tallies": tallies}
    return answer.answer(request, "dashboard/run_list.html", reading, context, topics=["runs"])


@answer.page
def run_by_key(request: HttpRequest, flow_id: str, run_id: str) -> HttpResponse:
    """The run's page, found by its text id."""
    reading = answer.begin(request)
    run = runs.by_key(reading.scope, flow_id, run_id)
    return HttpResponseRedirect(
        reverse("dashboard:run_detail", args=[run.id])
        + carried(request, {"tab": request.GET.get("tab")})
    )


@answer.page
def run_detail(request: HttpRequest, run: int) -> HttpResponse:
    """One run under one tab."""
    reading = answer.begin(request)
    row = runs.one(reading.scope, run)
    tab = request.GET.get("tab", "")
    tab = tab if tab in TABS else "summary"
    counts = _tab_counts(reading, run)
    context = {
        "run": row,
        "tab": tab,
        "problem": problem_of(reading, row, counts),
        "waiting_reviews": reviews.open_of_run(reading.scope, run)
        if tab == TABS[0] and counts["reviews"].shown
        else (),
        "near": leadership.near_run(reading.scope, run) if tab == TABS[0] else (),
        "undoable": None if row.is_over else clears.undoable_of_run(reading.scope, run),
        "tab_counts": counts,
        **(
            triggered_runs(reading, run=run) if tab == TABS[0] and counts["triggered"].total else {}
        ),
        **_TAB_CONTEXTS[tab](request, reading, row),
    }
    return answer.answer(
        request, "dashboard/run_detail.html", reading, context, topics=[f"run:{run}"]
    )


def triggered_runs(reading: Reading, **by: int) -> dict[str, Any]:
    """The newest runs that a run or a task asked for, and the address of all of them."""
    found = runs.triggered(reading.scope, **by, limit=TRIGGERED_SHOWN + 1)
    asked = {f"triggered_by{'' if name == 'run' else '_ti'}": number for name, number in by.items()}
    return {
        "triggered": found[:TRIGGERED_SHOWN],
        "triggered_more": f"{reverse('dashboard:run_list')}?{urlencode(asked)}"
        if len(found) > TRIGGERED_SHOWN
        else "",
    }


def _tab_counts(reading: Reading, run: int) -> dict[str, lens.Counts]:
    """Of each tab with a number, and of what most runs have none of, so that it is not looked for."""
    wanted: dict[str, tuple[lens.Noun[Any], ListFilter]] = {
        "tasks": (task_instances.NOUN, TaskInstanceFilter(run=(run,))),
        "attempts": (attempts.NOUN, AttemptFilter(run=(run,), kind=OF_TASKS)),
        "callbacks": (attempts.NOUN, AttemptFilter(run=(run,), kind=OF_CALLBACKS)),
        "events": (executor_events.NOUN, EventFilter(run=(run,))),
        "failed": (task_instances.NOUN, TaskInstanceFilter(run=(run,), state=("failed",))),
        "blocked": (
            task_instances.NOUN,
            TaskInstanceFilter(run=(run,), state=("upstream_failed",)),
        ),
        "reviews": (reviews.NOUN, ReviewFilter(run=(run,), state=("open",))),
        "triggered": (runs.NOUN, RunFilter(triggered_by=(run,))),
    }
    counted = lens.counts_together(list(wanted.values()), reading.scope)
    return dict(zip(wanted, counted, strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """The first thing that went wrong in a run, and what its attempt said."""

    ti: TaskInstanceRow
    attempt: AttemptDetail | None
    others: int  # more task instances that failed themselves
    blocked: int  # that could not start because of it


def problem_of(reading: Reading, run: RunRow, counts: Mapping[str, lens.Counts]) -> Problem | None:
    """The first failed task instance of a run, if any failed by these counts of it."""
    if not counts["failed"].shown:
        return None
    asked = TaskInstanceFilter(run=(run.id,), state=("failed",), order="ended_at", limit=1)
    failed = task_instances.page(asked, reading.scope)
    if not failed.rows:
        return None
    ti = failed.rows[0]
    return Problem(
        ti=ti,
        attempt=attempts.one(reading.scope, ti.attempt_id) if ti.attempt_id else None,
        others=failed.counts.shown - 1,
        blocked=counts["blocked"].shown,
    )


def _summary(request: HttpRequest, reading: Reading, run: RunRow) -> dict[str, Any]:
    found = listing.read(
        request,
        reading,
        TaskInstanceFilter,
        folded_page,
        noun="task instances",
        fields=("state", "task_id", "map_label", "group", "pool", "queue"),
        order="id",
        limit=TASKS_LIMIT,
        run=(run.id,),
    )
    return {"list": found, **about_rows(reading, found)}


def folded_page(asked: TaskInstanceFilter, scope: Scope) -> lens.Page[TaskInstanceRow]:
    """The page of the list, with one row for all instances of a mapped task where that can be."""
    if task_instances.can_fold(asked):
        return task_instances.page_folded(asked, scope)
    return task_instances.page(asked, scope)


def about_rows(reading: Reading, found: Listing[TaskInstanceRow]) -> dict[str, Any]:
    """What the rows of a list of task instances are told with: their attempts, and what is folded."""
    assert isinstance(found.asked, TaskInstanceFilter)
    folds = (
        task_instances.folds(found.asked, reading.scope, found.rows)
        if task_instances.can_fold(found.asked)
        else {}
    )
    alone = tuple(row for row in found.rows if row.id not in folds)
    return {"folds": folds, "of": of_task_instances(reading, alone)}


@dataclass(slots=True, kw_only=True)
class OfTaskInstance:
    """What the attempts of a task instance add to its row."""

    current: AttemptBrief | None = None
    attempts: int = 0
    filtered: int = 0


def of_task_instances(
    reading: Reading, rows: tuple[TaskInstanceRow, ...]
) -> dict[int, OfTaskInstance]:
    """For each task instance: its current attempt, and how many attempts it has, how many filtered.

    Read in parts of 200, the number of values that one parameter may have.
    """
    found = {row.id: OfTaskInstance() for row in rows}
    ids = [row.id for row in rows]
    for start in range(0, len(ids), TASKS_LIMIT):
        part = ids[start : start + TASKS_LIMIT]
        for attempt in attempts.briefly(reading.scope, tis=part, at_most=ATTEMPTS_LIMIT):
            of = found[attempt.ti]
            of.attempts += 1
            if attempt.is_filtered:
                of.filtered += 1
            else:
                of.current = attempt
    return found


def _graph(request: HttpRequest, reading: Reading, run: RunRow) -> dict[str, Any]:
    version = flow_versions.one(reading.scope, run.version_id)
    found = listing.read(
        request,
        reading,
        TaskInstanceFilter,
        task_instances.page,
        noun="task instances",
        order="id",
        limit=1,
        run=(run.id,),
    )
    cells = task_instances.cells(reading.scope, [run.id])[run.id]
    aside = AttemptFilter(run=(run.id,), filtered=Lens.ONLY, limit=ATTEMPTS_LIMIT)
    with_filtered = {row.task_id for row in attempts.page(aside, reading.scope).rows if row.task_id}
    definition = version.graph()
    units = groups.of_cells(reading.scope, run.id, definition, cells)
    picture = picture_of(
        definition,
        cells,
        with_filtered,
        folded=request.GET.get(PARAMETER, ""),
        groups={one.group_id: one for one in units},
    )
    retried = [one for one in units if one.history]
    return {"list": found, "picture": picture, "units": retried}


def _timeline(request: HttpRequest, reading: Reading, run: RunRow) -> dict[str, Any]:
    axis = _chosen(request, "axis", Axis)
    lanes = _chosen(request, "lanes", Lanes)
    # Who asks for a task or a host, or for processes, sees each attempt.
    is_folded = lanes is Lanes.TASK and not any(
        request.GET.get(name) for name in (*TIMELINE_FIELDS, "ti", "map_index")
    )
    found = listing.read(
        request,
        reading,
        AttemptFilter,
        attempts.page_folded if is_folded else attempts.page,
        noun="attempts",
        fields=TIMELINE_FIELDS,
        order="id",
        limit=LANES_LIMIT if request.GET.get("task_id") else ATTEMPTS_LIMIT,
        run=(run.id,),
        kind=OF_TASKS,
    )
    folds = attempts.folds_of_run(reading.scope, run.id) if is_folded else ()
    around, counts = _around(reading, run, found.rows)
    return {
        "list": found,
        "timeline": timeline_of(
            found.rows, now=reading.now, axis=axis, lanes=lanes, around=around, folds=folds
        ),
        "event_counts": counts,
        "is_lens_on": reading.is_lens_on,
        "axis": axis,
        "axis_choices": [(one.value, AXIS_WORDS[one]) for one in Axis],
        "lanes": lanes,
        "lane_choices": [(one.value, LANE_WORDS[one]) for one in Lanes],
    }


def _chosen(request: HttpRequest, name: str, choices: type[ChoiceT]) -> ChoiceT:
    asked = request.GET.get(name, "")
    if not asked:
        return next(iter(choices))
    try:
        return choices(asked)
    except ValueError:
        raise errors.InvalidInput(
            f"{name}: {asked[:20]!r} is not one of {', '.join(choices)}.", parameter=name
        ) from None


def _around(
    reading: Reading, run: RunRow, rows: tuple[AttemptRow, ...]
) -> tuple[Around, lens.Counts]:
    """What happened around these attempts; the filtered part of it while the lens is on."""
    half = Lens.ALL if reading.is_lens_on else Lens.CURRENT
    said = executor_events.page(
        EventFilter(run=(run.id,), filtered=half, limit=LIMIT_MAX, order="received_at"),
        reading.scope,
    )
    seen = ghosts.page(
        GhostFilter(run=(run.id,), filtered=half, limit=GHOSTS_MAX, order="first_seen_at"),
        reading.scope,
    )
    tis = sorted({row.ti for row in rows if row.ti is not None})[:ACTS_OF_MAX]
    done = audit.page(
        AuditFilter(
            object_kind=("run", "task_instance"),
            object_id=(str(run.id), *map(str, tis)),
            limit=LIMIT_MAX,
            order="at",
        ),
        reading.scope,
    )
    began = min((at for row in rows if (at := row.issued_at or row.started_at)), default=None)
    ended = max((row.ended_at or reading.now for row in rows), default=reading.now)
    led = (
        terms.terms(reading.scope, since=began, until=ended, shards=(run.shard,)).terms
        if began is not None
        else ()
    )
    around = Around(
        terms=led,
        ghosts=seen.rows,
        events=said.rows,
        events_aside=said.counts.filtered,
        acts=[
            one
            for one in done.rows
            if (one.object_kind, one.object_id) == ("run", str(run.id))
            or (one.object_kind == "task_instance" and one.object_id in {*map(str, tis)})
        ],
    )
    return around, said.counts


def _attempts(request: HttpRequest, reading: Reading, run: RunRow) -> dict[str, Any]:
    found = listing.read(
        request,
        reading,
        AttemptFilter,
        attempts.page,
        noun="attempts",
        fields=("task_id", "state", "outcome", "hostname"),
        run=(run.id,),
        kind=OF_TASKS,
    )
    return {"list": found}


def _callbacks(request: HttpRequest, reading: Reading, run: RunRow) -> dict[str, Any]:
    return callbacks_of(request, reading, fields=("task_id",), run=(run.id,))


def _events(request: HttpRequest, reading: Reading, run: RunRow) -> dict[str, Any]:
    found = listing.read(
        request,
        reading,
        EventFilter,
        executor_events.page,
        noun="executor events",
        fields=("task_id", "verdict", "kind"),
        run=(run.id,),
    )
    return {"list": found}


def _filtered(request: HttpRequest, reading: Reading, run: RunRow) -> dict[str, Any]:
    del request  # this tab has no filters: it is the other half of the record
    only: dict[str, Any] = {"run": (run.id,), "filtered": Lens.ONLY, "limit": ASIDE_LIMIT}
    scope = reading.scope
    tasks = task_instances.page(TaskInstanceFilter(**only), scope)
    tries = attempts.page(AttemptFilter(**only), scope)
    events = executor_events.page(EventFilter(**only), scope)
    goes = run_attempts.page(RunAttemptFilter(**only), scope)
    counts = (tasks.counts, tries.counts, events.counts, goes.counts)
    return {
        "lists": {"tasks": tasks, "attempts": tries, "events": events, "run_attempts": goes},
        "of": of_task_instances(reading, tasks.rows),
        "folds": {},
        "filtered_number": sum(one.filtered for one in counts),
        "record_number": sum(one.total for one in counts),
    }


def _details(request: HttpRequest, reading: Reading, run: RunRow) -> dict[str, Any]:
    found = listing.read(
        request,
        reading,
        RunAttemptFilter,
        run_attempts.page,
        noun="run attempts",
        lens=Lens.ALL,  # how often it was begun is what the reader looks for
        run=(run.id,),
    )
    return {"list": found}


_TAB_CONTEXTS: Final = {
    "summary": _summary,
    "graph": _graph,
    "timeline": _timeline,
    "attempts": _attempts,
    "callbacks": _callbacks,
    "filtered": _filtered,
    "events": _events,
    "details": _details,
}


@answer.sheet
def run_terminate(request: HttpRequest, run: int) -> HttpResponse:
    """What terminating would do; posted with a reason, everything unfinished is asked to end."""
    reading = answer.begin(request)
    row = runs.one(reading.scope, run)
    actor = request.user.get_username()

    def sheet() -> acts.Sheet:
        plan = terminate_run(run_id=run, actor=actor, dry_run=True)
        return acts.Sheet(
            title=f"Terminate run {row.run_id}",
            button=f"Terminate {len(plan.included)} unfinished tasks",
            effects=["The run fails when the last of its processes has ended."],
            included=acts.subjects(plan.included),
            excluded=acts.subjects(plan.excluded),
        )

    def act(reason: str) -> str:
        terminate_run(run_id=run, actor=actor, reason=reason)
        return f"Run {row.run_id} was terminated; what runs of it is stopped within seconds."

    return acts.answer_sheet(
        request, reading, sheet=sheet, act=act, back=reverse("dashboard:run_detail", args=[run])
    )


@answer.sheet
def run_retry(request: HttpRequest, run: int) -> HttpResponse:
    """What the next run attempt would take up; posted with a reason, it begins now."""
    reading = answer.begin(request)
    row = runs.one(reading.scope, run)
    actor = request.user.get_username()

    def sheet() -> acts.Sheet:
        plan = retry_run(run_id=run, actor=actor, dry_run=True)
        number = len(plan.included)
        return acts.Sheet(
            title=f"Retry run {row.run_id} now",
            button=f"Begin run attempt {plan.new_run_attempt}"
            if plan.new_run_attempt
            else "Nothing to repeat",
            effects=[
                f"{number} task{'' if number == 1 else 's'} begin anew, at most"
                f" {plan.worst_case_executions} executions, on version {plan.version}.",
                "It is the attempt that the run waits for, sooner."
                if row.retry_at
                else "It is one more than the flow's policy begins by itself.",
                "What has run stays in the record.",
            ],
            included=acts.subjects(plan.included),
            excluded=acts.subjects(plan.excluded),
        )

    def act(reason: str) -> str:
        plan = retry_run(run_id=run, actor=actor, reason=reason)
        return f"Run attempt {plan.new_run_attempt} of {row.run_id} begins."

    return acts.answer_sheet(
        request, reading, sheet=sheet, act=act, back=reverse("dashboard:run_detail", args=[run])
    )


@answer.sheet
def run_cancel_retry(request: HttpRequest, run: int) -> HttpResponse:
    """What cancelling would do; posted with a reason, the run stays failed."""
    reading = answer.begin(request)
    row = runs.one(reading.scope, run)
    actor = request.user.get_username()

    def sheet() -> acts.Sheet:
        cancel_retry(run_id=run, actor=actor, dry_run=True)
        return acts.Sheet(
            title=f"Cancel the retry of run {row.run_id}",
            button="Cancel the retry",
            effects=[
                "The run stays failed; no run attempt follows by itself.",
                "It can be retried or cleared by hand at any time.",
            ],
        )

    def act(reason: str) -> str:
        cancel_retry(run_id=run, actor=actor, reason=reason)
        return f"The retry of {row.run_id} is cancelled."

    return acts.answer_sheet(
        request, reading, sheet=sheet, act=act, back=reverse("dashboard:run_detail", args=[run])
    )
