"""Clearing several runs from the pages: the plan, the act, how far it has come, and undoing a clear."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from django.contrib import messages
from django.http import HttpResponseRedirect
from django.urls import reverse

from dashboard import acts, answer
from dashboard.chosen import chosen_or_matching, chosen_task_instances, form_of
from dashboard.views.clear import (
    FILTERS,
    RELATIVES,
    SWITCHES,
    chosen_filter,
    clear_options,
    plan_id,
)
from scheduler_app.operations.clear import NOTE_CHARACTERS_MAX
from scheduler_app.operations.clear_batch import batch, carry_out_batch, go_on, plan_batch
from scheduler_app.operations.reasons import REASON_CHARACTERS_MAX
from scheduler_app.operations.undo_clear import undo_clear
from scheduler_app.queries import runs
from scheduler_app.queries.filters import RunFilter
from scheduler_app.rules.clear import PLAN_VALID_S
from scheduler_app.rules.errors import Conflict, InvalidInput

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from django.http import HttpRequest, HttpResponse

    from dashboard.answer import Reading
    from scheduler_app.operations.clear_batch import Batch

CARRIED_S: Final = 10.0  # how long one request carries out plans; the rest is gone on with by hand
DATES: Final = (
    ("include_past", "In runs of earlier dates too"),
    ("include_future", "In runs of later dates too"),
)


@answer.sheet
def runs_clear(request: HttpRequest) -> HttpResponse:
    """What clearing these runs would do; posted with a reason, that plan is carried out."""
    reading = answer.begin(request)
    ids = chosen_or_matching(
        request, reading.scope, runs.NOUN, RunFilter, lambda run: runs.one(reading.scope, run)
    )
    return _answer(
        request,
        reading,
        ids=ids,
        title=f"Clear {len(ids)} run{'' if len(ids) == 1 else 's'}",
        back=reverse("dashboard:run_list"),
        switches=SWITCHES,
        asked={"run_ids": ids},
    )


@answer.sheet
def task_instances_clear(request: HttpRequest) -> HttpResponse:
    """What clearing these task instances, of any runs, would do; posted, that plan is carried out."""
    reading = answer.begin(request)
    ids = chosen_task_instances(request, reading.scope)
    given = request.POST if request.method == "POST" else request.GET
    return _answer(
        request,
        reading,
        ids=ids,
        title=f"Clear {len(ids)} task instance{'' if len(ids) == 1 else 's'}",
        back=reverse("dashboard:task_instance_list"),
        switches=(*RELATIVES, *DATES, *SWITCHES),
        asked={
            "ti_ids": ids,
            "past": bool(given.get("include_past")),
            "future": bool(given.get("include_future")),
        },
    )


@answer.sheet
def clear_batch(request: HttpRequest, batch_id: UUID) -> HttpResponse:
    """How far a clear of several runs has come; posted, it is gone on with."""
    reading = answer.begin(request)
    if request.method == "POST":
        go_on(batch_id, actor=request.user.get_username(), within_s=CARRIED_S)
        return HttpResponseRedirect(reverse("dashboard:clear_batch", args=[batch_id]))
    found = batch(batch_id)
    context = {"title": f"Clear of {len(found.parts)} runs", **_shown(found)}
    return answer.answer(request, "dashboard/clear_batch.html", reading, context)


@answer.sheet
def clear_undo(request: HttpRequest, plan: UUID) -> HttpResponse:
    """What undoing this clear would do; posted with a reason, all is as it was before."""
    reading = answer.begin(request)
    actor = request.user.get_username()
    preview = undo_clear(plan_id=plan, actor=actor, dry_run=True)
    row = runs.one(reading.scope, preview.run_id)
    number = preview.task_instances

    def sheet() -> acts.Sheet:
        return acts.Sheet(
            title=f"Undo the clear of run {row.run_id}",
            button="Undo the clear",
            effects=[
                f"{number} task{' is' if number == 1 else 's are'} as before, with results and attempts.",
                "The run and its run attempt are as before. Nothing of it has started since.",
                "The audit keeps the clear and this.",
            ],
        )

    def act(reason: str) -> str:
        undo_clear(plan_id=plan, actor=actor, reason=reason)
        return f"The clear of run {row.run_id} was undone."

    back = reverse("dashboard:run_detail", args=[row.id])
    return acts.answer_sheet(request, reading, sheet=sheet, act=act, back=back)


def _answer(
    request: HttpRequest,
    reading: Reading,
    *,
    ids: Sequence[int],
    title: str,
    back: str,
    switches: Sequence[tuple[str, str]],
    asked: dict[str, Any],
) -> HttpResponse:
    """The plan; posted with a reason, it is carried out, or shown anew with what moved."""
    given = request.POST if request.method == "POST" else request.GET
    options = clear_options(given)
    actor = request.user.get_username()
    context: dict[str, Any] = {"reason": "", "note": ""}
    status = 200
    if request.method == "POST":
        context = {"reason": given.get("reason", ""), "note": given.get("note", "")}
        try:
            done = carry_out_batch(
                plan_id(given),
                actor=actor,
                reason=context["reason"],
                note=context["note"].strip() or None,
                within_s=CARRIED_S,
            )
        except InvalidInput as error:
            context |= {"error": str(error)}
            status = 400
        except Conflict as error:
            context |= {"error": str(error), "difference": error.extra.get("difference")}
            status = 409
        else:
            messages.success(request, f"{done.number('done')} runs were cleared.")
            return HttpResponseRedirect(reverse("dashboard:clear_batch", args=[done.batch_id]))
    made = plan_batch(
        actor=actor, options=options, asked={"address": request.get_full_path()[:2000]}, **asked
    )
    context |= {
        "title": title,
        **_shown(made),
        "filters": [(key, label, chosen_filter(options) == key) for key, label in FILTERS],
        "switches": [(key, label, bool(given.get(key))) for key, label in switches],
        "hidden": [key for key, _ in switches if given.get(key)],
        "only": chosen_filter(options),
        **form_of(request, ids),
        "back": back,
        "next": given.get("next") or back,
        "valid_minutes": int(PLAN_VALID_S // 60),
        "reason_max": REASON_CHARACTERS_MAX,
        "note_max": NOTE_CHARACTERS_MAX,
    }
    return answer.answer(request, "dashboard/clear_batch.html", reading, context, status=status)


def _shown(found: Batch) -> dict[str, Any]:
    return {
        "batch": found,
        "planned": found.number("planned"),
        "done": found.number("done"),
        "refused": found.number("refused"),
        "undone": found.number("undone"),
        "left": found.number("planned"),
    }
