"""Flows: the list, one flow with its runs and its graph, and the buttons: trigger, pause, unpause."""

from __future__ import annotations

import json
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from dashboard import answer, calendars, listing
from dashboard.addresses import came_from
from dashboard.folding import PARAMETER, folding_of
from dashboard.grids import grid_of
from dashboard.pictures import picture_of
from scheduler_app.authoring import notifiers
from scheduler_app.operations.pause_flow import set_paused
from scheduler_app.operations.trigger_run import trigger_run
from scheduler_app.queries import (
    attempts,
    flow_files,
    flow_versions,
    flows,
    guards,
    run_calendar,
    runs,
    task_instances,
    version_diffs,
)
from scheduler_app.queries.filters import FlowFilter, FlowVersionFilter, RunFilter
from scheduler_app.rules import errors
from scheduler_app.rules.calendar_days import Month, left_out_days, month_of, planned_days
from scheduler_app.rules.schedule_words import policies

if TYPE_CHECKING:
    from django.http import HttpRequest

    from dashboard.answer import Reading
    from scheduler_app.queries.flows import FlowRow
    from scheduler_app.rules.calendar_days import Planned

FIELDS: Final = ("q", "state", "tag", "owner")
TABS: Final = ("runs", "grid", "graph", "calendar", "versions", "details")
RUN_FIELDS: Final = ("state", "run_type", "run_id", "started_at_gte")
VERSION_FIELDS: Final = ("number", "created_at_gte", "created_at_lte")
VERSIONS: Final = 20  # on a page: each tells what came with it
GRID_RUNS: Final = 25  # columns
CONF_CHARACTERS_MAX: Final = 200_000


@answer.page
def flow_list(request: HttpRequest) -> HttpResponse:
    """Flows with their newest runs; faulty files on top."""
    reading = answer.begin(request)
    found = listing.read(request, reading, FlowFilter, flows.page, noun="flows", fields=FIELDS)
    context = {
        "list": found,
        "strips": runs.latest_of_flows(reading.scope, [row.flow_id for row in found.rows]),
        "schedules": {row.flow_id: flows.schedule_in_words(row) for row in found.rows},
        "faulty": flow_files.faulty(reading.scope),
    }
    return answer.answer(
        request, "dashboard/flow_list.html", reading, context, topics=["flows", "runs"]
    )


@answer.page
def flow_detail(request: HttpRequest, flow_id: str) -> HttpResponse:
    """One flow under one tab."""
    reading = answer.begin(request)
    flow = flows.one(reading.scope, flow_id)
    tab = request.GET.get("tab", "")
    tab = tab if tab in TABS else "runs"
    context = {
        "flow": flow,
        "tab": tab,
        "schedule": flows.schedule_in_words(flow),
        "holding": guards.holding(flow_id),
        "faulty": [
            file
            for file in flow_files.faulty(reading.scope)
            if flow_id in file.flow_ids or (file.folder, file.path) == (flow.folder, flow.path)
        ],
        **_TAB_CONTEXTS[tab](request, reading, flow),
    }
    return answer.answer(
        request,
        "dashboard/flow_detail.html",
        reading,
        context,
        topics=[f"flow:{flow_id}", "flows", "runs"],
    )


def _runs(request: HttpRequest, reading: Reading, flow: FlowRow) -> dict[str, Any]:
    found = listing.read(
        request,
        reading,
        RunFilter,
        runs.page,
        noun="runs",
        fields=RUN_FIELDS,
        flow_id=(flow.flow_id,),
    )
    tallies = task_instances.state_counts(reading.scope, [row.id for row in found.rows])
    return {"list": found, "tallies": tallies}


def _grid(request: HttpRequest, reading: Reading, flow: FlowRow) -> dict[str, Any]:
    found = listing.read(
        request,
        reading,
        RunFilter,
        runs.page,
        noun="runs",
        fields=RUN_FIELDS,
        limit=GRID_RUNS,
        flow_id=(flow.flow_id,),
    )
    ids = [row.id for row in found.rows]
    task_ids: list[str] = []
    group_of: dict[str, str] = {}
    folding = None
    if flow.version_id is not None:
        definition = flow_versions.one(reading.scope, flow.version_id).graph()
        task_ids = [task.task_id for task in definition.tasks]
        group_of = {task.task_id: task.group for task in definition.tasks}
        folding = folding_of(definition, request.GET.get(PARAMETER, ""), by_default=True)
    grid = grid_of(
        runs=found.rows,
        task_ids=task_ids,
        cells=task_instances.cells(reading.scope, ids) if ids else {},
        tries=attempts.tries_of_runs(reading.scope, ids) if ids else {},
        group_of=group_of,
        folding=folding,
        now=reading.now,
    )
    return {"list": found, "grid": grid}


def _graph(request: HttpRequest, reading: Reading, flow: FlowRow) -> dict[str, Any]:
    if flow.version_id is None:
        return {}
    definition = flow_versions.one(reading.scope, flow.version_id).graph()
    picture = picture_of(definition, folded=request.GET.get(PARAMETER, ""))
    return {"picture": picture, "tasks": definition.tasks}


def _calendar(request: HttpRequest, reading: Reading, flow: FlowRow) -> dict[str, Any]:
    own = flow.timezone or "UTC"
    zone = "UTC" if request.GET.get("zone") == "utc" else own
    today = reading.now.astimezone(ZoneInfo(zone)).date()
    current = Month(year=today.year, month=today.month).later(1)
    last = month_of(request.GET.get("month", "")) or current
    first, until = last.later(1 - calendars.MONTHS).first, last.later(1).first
    days = [first + timedelta(days=n) for n in range((until - first).days)]
    found = run_calendar.of_flow(reading.scope, flow.flow_id, zone, first, until)
    planned: dict[date, Planned] = {}
    left_out: frozenset[date] = frozenset()
    since = flow.next_interval_start
    if flow.version_id is not None and flow.schedule:
        definition = flow_versions.one(reading.scope, flow.version_id).graph()
        if since is not None and not flow.is_paused and not flow.is_filtered:
            planned = planned_days(definition, days, zone, since=since)
        empty = [day for day in days if day <= today and day not in found.days]
        left_out = left_out_days(
            definition,
            empty,
            zone,
            since=flow.created_at,
            before=since or flow.last_interval_end or reading.now,
        )
    return {
        "months": calendars.months_of(
            last=last,
            zone=zone,
            runs=found,
            planned=planned,
            left_out=left_out,
            today=today,
            is_lens_on=reading.is_lens_on,
        ),
        "zone": zone,
        "own_zone": own,
        "counted_from": found.counted_from,
        "earlier": str(last.later(-calendars.MONTHS)),
        "later": str(last.later(calendars.MONTHS)),
        "is_now": last == current,
        "has_planned": bool(planned),
    }


def _versions(request: HttpRequest, reading: Reading, flow: FlowRow) -> dict[str, Any]:
    found = listing.read(
        request,
        reading,
        FlowVersionFilter,
        flow_versions.page,
        noun="versions",
        fields=VERSION_FIELDS,
        limit=VERSIONS,
        flow_id=(flow.flow_id,),
    )
    context = {
        "list": found,
        "came_with": version_diffs.came_with(reading.scope, flow.flow_id, found.rows),
    }
    named = {name: request.GET.get(name, "").strip() for name in ("old", "new")}
    if any(named.values()):
        # What is wrong with the two does not take the list away, where one picks others.
        try:
            found_diff = version_diffs.of_flow(reading.scope, flow.flow_id, **named)
        except errors.SchedulerError as error:
            context["compare_error"] = str(error)
        else:
            context |= {"compared": found_diff, "diff": found_diff.diff}
    return context


def _details(request: HttpRequest, reading: Reading, flow: FlowRow) -> dict[str, Any]:
    del request
    context: dict[str, Any] = {}
    if flow.version_id is not None:
        watched = flow_versions.one(reading.scope, flow.version_id).graph()
        context |= {"policies": policies(watched)}
        context |= {"watched": watched, "told": [notifiers.shown(one) for one in watched.alerts]}
    return {**context, "fire_times": flows.next_times(flow, reading.now)}


_TAB_CONTEXTS: Final = {
    "runs": _runs,
    "grid": _grid,
    "graph": _graph,
    "calendar": _calendar,
    "versions": _versions,
    "details": _details,
}


@answer.translated
@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def flow_trigger(request: HttpRequest, flow_id: str) -> HttpResponse:
    """The form for a run by hand; posted, the run exists and its page is next."""
    reading = answer.begin(request)
    flow = flows.one(reading.scope, flow_id)
    if request.method != "POST":
        typed = {"conf": json.dumps(flow.defaults, indent=2), "run_id": "", "note": ""}
        return answer.answer(
            request, "dashboard/flow_trigger.html", reading, {"flow": flow, "typed": typed}
        )
    typed = {name: request.POST.get(name, "").strip() for name in ("conf", "run_id", "note")}
    try:
        run = trigger_run(
            flow_id=flow_id,
            actor=request.user.get_username(),
            conf=_conf(typed["conf"]),
            run_id=typed["run_id"] or None,
            note=typed["note"],
        )
    except (errors.InvalidInput, errors.Conflict) as error:
        # What was typed stays, beside what is wrong with it.
        context = {"flow": flow, "typed": typed, "error": str(error)}
        return answer.answer(request, "dashboard/flow_trigger.html", reading, context, status=400)
    messages.success(request, f"Run {run.run_key} was created.")
    return HttpResponseRedirect(reverse("dashboard:run_detail", args=[run.id]))


def _conf(text: str) -> dict[str, Any] | None:
    if not text:
        return None
    if len(text) > CONF_CHARACTERS_MAX:
        message = f"conf has {len(text)} characters; at most {CONF_CHARACTERS_MAX} are allowed"
        raise errors.InvalidInput(message, field="conf")
    try:
        conf = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise errors.InvalidInput(f"conf is not JSON: {error}", field="conf") from error
    if not isinstance(conf, dict):
        raise errors.InvalidInput('conf must be a JSON object, such as {"day": 1}', field="conf")
    return conf


@answer.act
def flow_pause(request: HttpRequest, flow_id: str) -> HttpResponse:
    """The flow's schedule creates no more runs."""
    return _set_paused(request, flow_id, is_paused=True)


@answer.act
def flow_unpause(request: HttpRequest, flow_id: str) -> HttpResponse:
    """The flow's schedule creates runs again."""
    return _set_paused(request, flow_id, is_paused=False)


def _set_paused(request: HttpRequest, flow_id: str, *, is_paused: bool) -> HttpResponse:
    flows.one(answer.begin(request).scope, flow_id)  # only what the reader may see
    set_paused(flow_id=flow_id, is_paused=is_paused, actor=request.user.get_username())
    told = (
        f"{flow_id} is paused: its schedule creates no runs. Runs that exist go on."
        if is_paused
        else f"{flow_id} is unpaused: its schedule creates runs again."
    )
    messages.success(request, told)
    return HttpResponseRedirect(came_from(request))
