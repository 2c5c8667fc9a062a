"""Task instances: the list, and one with its attempts, log, events and what it waits for."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from django.urls import reverse

from dashboard import acts, answer, listing, story
from dashboard.chosen import chosen_task_instances, form_of
from dashboard.logs import log_of
from dashboard.views.attempts import OF_CALLBACKS, OF_TASKS, callbacks_of
from dashboard.views.runs import about_rows, folded_page, triggered_runs
from scheduler_app.operations.set_next_retry import set_next_retry
from scheduler_app.operations.terminate import (
    terminate_task_instance,
    terminate_task_instances,
)
from scheduler_app.queries import (
    artifacts,
    attempts,
    executor_events,
    leadership,
    lens,
    saving,
    task_instances,
    triggers,
    why,
)
from scheduler_app.queries.filters import (
    AttemptFilter,
    EventFilter,
    TaskInstanceFilter,
    TriggerFilter,
)
from scheduler_app.queries.list_filter import LIMIT_MAX
from scheduler_app.rules import errors, spans

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse

    from dashboard.answer import Reading
    from scheduler_app.queries.attempts import AttemptDetail
    from scheduler_app.queries.task_instances import TaskInstanceRow

FIELDS: Final = (
    "flow_id",
    "run_id",
    "task_id",
    "map_label",
    "state",
    "pool",
    "queue",
    "started_at_gte",
)
REFUSALS_TOLD: Final = 20
TABS: Final = ("attempts", "log", "checkpoints", "callbacks", "events", "details")


@answer.page
def task_instance_list(request: HttpRequest) -> HttpResponse:
    """Task instances, newest first."""
    reading = answer.begin(request)
    found = listing.read(
        request,
        reading,
        TaskInstanceFilter,
        folded_page,
        noun="task instances",
        fields=FIELDS,
    )
    context = {"list": found, **about_rows(reading, found), "with_run": True}
    return answer.answer(
        request, "dashboard/task_instance_list.html", reading, context, topics=["runs"]
    )


@answer.page
def task_instance_detail(request: HttpRequest, ti: int) -> HttpResponse:
    """One task instance under one tab."""
    reading = answer.begin(request)
    row = task_instances.one(reading.scope, ti)
    tab = request.GET.get("tab", "")
    tab = tab if tab in TABS else "attempts"
    of_tab = _TAB_CONTEXTS[tab](request, reading, row)
    context = {
        "ti": row,
        "why": why.explain(reading.scope, row),
        "tab": tab,
        "beside": task_instances.beside(reading.scope, row),
        "attempt": _current(reading, row, of_tab.get("log_attempt")),
        "near": leadership.near_task_instance(reading.scope, ti) if tab == TABS[0] else (),
        "artifacts": artifacts.newest(artifacts.of_task(row)) if tab == TABS[0] else (),
        "tab_counts": _tab_counts(reading, row),
        **triggered_runs(reading, ti=row.id),
        **of_tab,
    }
    return answer.answer(
        request,
        "dashboard/task_instance_detail.html",
        reading,
        context,
        topics=[f"ti:{ti}", f"run:{row.run}"],
    )


def _tab_counts(reading: Reading, ti: TaskInstanceRow) -> dict[str, lens.Counts]:
    tries, callbacks, events = lens.counts_together(
        [
            (attempts.NOUN, AttemptFilter(ti=(ti.id,), kind=OF_TASKS)),
            (attempts.NOUN, AttemptFilter(ti=(ti.id,), kind=OF_CALLBACKS)),
            (executor_events.NOUN, EventFilter(ti=(ti.id,), run=(ti.run,))),
        ],
        reading.scope,
    )
    return {"attempts": tries, "callbacks": callbacks, "events": events}


def _current(
    reading: Reading, ti: TaskInstanceRow, read: AttemptDetail | None
) -> AttemptDetail | None:
    """The current attempt, if there is one; not read again where the tab has read it."""
    if ti.attempt_id is None:
        return None
    if read is not None and read.id == ti.attempt_id:
        return read
    return attempts.one(reading.scope, ti.attempt_id)


def _attempts(request: HttpRequest, reading: Reading, ti: TaskInstanceRow) -> dict[str, Any]:
    found = listing.read(
        request,
        reading,
        AttemptFilter,
        attempts.page,
        noun="attempts",
        ti=(ti.id,),
        kind=OF_TASKS,
    )
    return {"list": found}


def _callbacks(request: HttpRequest, reading: Reading, ti: TaskInstanceRow) -> dict[str, Any]:
    return callbacks_of(request, reading, ti=(ti.id,))


def _log(request: HttpRequest, reading: Reading, ti: TaskInstanceRow) -> dict[str, Any]:
    """The log of the chosen attempt; the switcher shows filtered ones while the lens is on."""
    found = listing.read(
        request,
        reading,
        AttemptFilter,
        attempts.page,
        noun="attempts",
        order="fence",
        ti=(ti.id,),
        kind=OF_TASKS,
    )
    chosen = _chosen(request.GET.get("attempt"), ti)
    if chosen is None:
        return {"list": found}
    attempt = attempts.one(reading.scope, chosen)
    return {"list": found, "log_attempt": attempt, "log": log_of(reading, attempt)}


def _chosen(text: str | None, ti: TaskInstanceRow) -> UUID | None:
    if not text:
        return ti.attempt_id
    try:
        return UUID(text)
    except ValueError:
        raise errors.InvalidInput(
            "attempt: not an attempt id (8-4-4-4-12 hexadecimal digits).", parameter="attempt"
        ) from None


def _events(request: HttpRequest, reading: Reading, ti: TaskInstanceRow) -> dict[str, Any]:
    """What was said of it, woven into what was done with it; filtered by kind or verdict, said alone."""
    found = listing.read(
        request,
        reading,
        EventFilter,
        executor_events.page,
        noun="executor events",
        fields=("verdict", "kind"),
        order="id",
        ti=(ti.id,),
        run=(ti.run,),
    )
    is_whole = not found.pills
    done = AttemptFilter(ti=(ti.id,), run=(ti.run,), limit=LIMIT_MAX, filtered=found.asked.filtered)
    waits = TriggerFilter(ti=(ti.id,), run=(ti.run,), limit=LIMIT_MAX)
    return {
        "list": found,
        "story": story.woven(
            found.rows,
            attempts.page(done, reading.scope).rows if is_whole else (),
            triggers.page(waits, reading.scope).rows if is_whole else (),
            is_first=not found.asked.cursor,
            is_last=not found.next_cursor,
            is_descending=found.asked.ordered_by.startswith("-"),
        ),
    }


def _checkpoints(request: HttpRequest, reading: Reading, ti: TaskInstanceRow) -> dict[str, Any]:
    """What its attempts left for the next, and who saved which value."""
    del request
    kept = saving.of_task(reading.scope, ti)
    return {"checkpoints": kept, "saves": saving.newest_saves(kept)}


def _details(request: HttpRequest, reading: Reading, ti: TaskInstanceRow) -> dict[str, Any]:
    del request, reading, ti
    return {}


_TAB_CONTEXTS: Final = {
    "attempts": _attempts,
    "log": _log,
    "checkpoints": _checkpoints,
    "callbacks": _callbacks,
    "events": _events,
    "details": _details,
}


@answer.sheet
def task_instance_terminate(request: HttpRequest, ti: int) -> HttpResponse:
    """What terminating would do; posted with a reason, the task instance is asked to end."""
    reading = answer.begin(request)
    row = task_instances.one(reading.scope, ti)
    actor = request.user.get_username()

    def sheet() -> acts.Sheet:
        plan = terminate_task_instance(ti_id=ti, actor=actor, dry_run=True)
        return acts.Sheet(
            title=f"Terminate {row.task_id}",
            button="Terminate this task",
            effects=["Tasks behind it go by their trigger rules, as after any failure."],
            included=acts.subjects(plan.included),
            excluded=acts.subjects(plan.excluded),
        )

    def act(reason: str) -> str:
        terminate_task_instance(ti_id=ti, actor=actor, reason=reason)
        return f"{row.task_id} was terminated; what runs of it is stopped within seconds."

    return acts.answer_sheet(
        request,
        reading,
        sheet=sheet,
        act=act,
        back=reverse("dashboard:task_instance_detail", args=[ti]),
    )


@answer.sheet
def task_instances_terminate(request: HttpRequest) -> HttpResponse:
    """The same for several, which the address names or its filters match."""
    reading = answer.begin(request)
    ids = chosen_task_instances(request, reading.scope)
    actor = request.user.get_username()
    form = form_of(request, ids)

    def sheet() -> acts.Sheet:
        plan = terminate_task_instances(ti_ids=ids, actor=actor, dry_run=True)
        number = len(plan.included)
        return acts.Sheet(
            title=f"Terminate {len(ids):,} task instance{'' if len(ids) == 1 else 's'}",
            button=f"Terminate {number:,} unfinished task{'' if number == 1 else 's'}",
            effects=[
                "Tasks behind them go by their trigger rules, as after any failure.",
                *(f"Left alone: {one.why}" for one in plan.refused[:REFUSALS_TOLD]),
            ],
            included=acts.subjects(plan.included),
            excluded=acts.subjects(plan.excluded),
            hidden=[
                *([("all", form["form_all"])] if form["form_all"] else []),
                *(("id", str(number)) for number in form["form_ids"]),
            ],
        )

    def act(reason: str) -> str:
        plan = terminate_task_instances(ti_ids=ids, actor=actor, reason=reason)
        number = len(plan.included)
        told = f"{number:,} task instance{' was' if number == 1 else 's were'} terminated."
        return f"{told} {plan.refused[0].why}" if plan.refused else told

    back = reverse("dashboard:task_instance_list")
    return acts.answer_sheet(request, reading, sheet=sheet, act=act, back=back)


@answer.sheet
def task_instance_retry(request: HttpRequest, ti: int) -> HttpResponse:
    """When the next try begins; posted with a reason, it begins now or at the time that is given."""
    reading = answer.begin(request)
    row = task_instances.one(reading.scope, ti)
    actor = request.user.get_username()
    typed = request.POST.get("at", "")

    def sheet() -> acts.Sheet:
        set_next_retry(ti_id=ti, actor=actor, dry_run=True)
        now = [f"Now: {row.next_retry_reason}."] if row.next_retry_reason else []
        return acts.Sheet(
            title=f"Next try of {row.task_id}",
            button="Set the next try",
            effects=[*now, "It counts as the try that it would have been."],
            fields=[
                acts.Field(
                    name="at",
                    label="When (empty: now)",
                    value=typed,
                    hint="A time with an offset, 2026-01-31T06:00:00Z, or a duration from now:"
                    " 90s, 10m, 2h",
                )
            ],
        )

    def act(reason: str) -> str:
        moved = set_next_retry(ti_id=ti, actor=actor, reason=reason, **_when(typed))
        return f"{row.task_id}: {moved.effect}"

    return acts.answer_sheet(
        request,
        reading,
        sheet=sheet,
        act=act,
        back=reverse("dashboard:task_instance_detail", args=[ti]),
    )


def _when(typed: str) -> dict[str, Any]:
    """The time or duration that was typed, as the operation takes it. Raises ``InvalidInput``."""
    if not typed.strip():
        return {}
    given = spans.moment_or_duration(typed)
    return {"at" if isinstance(given, datetime) else "after": given}
