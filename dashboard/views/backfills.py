"""Backfills: the form that previews and asks for one, the list, one with its dates, and its acts."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpResponseRedirect
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from dashboard import acts, answer, listing
from dashboard.typed import whole_number
from scheduler_app.operations import backfill as operations
from scheduler_app.queries import backfills, flows
from scheduler_app.queries.filters import BackfillDateFilter, BackfillFilter
from scheduler_app.rules import backfill as rules
from scheduler_app.rules import errors

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse

FIELDS: Final = ("state", "flow_id", "actor", "created_at_gte", "created_at_lte")
DATE_FIELDS: Final = ("state",)
DATES_SHOWN: Final = 100  # of a preview; of more their number is told
TYPED: Final = {
    "from_date": "",
    "to_date": "",
    "direction": "forwards",
    "reprocess": rules.Reprocess.NONE.value,
    "max_active_runs": str(rules.ACTIVE_RUNS_DEFAULT),
    "reason": "",
}


@answer.page
def backfill_list(request: HttpRequest) -> HttpResponse:
    """Backfills, newest first."""
    reading = answer.begin(request)
    context = {
        "list": listing.read(
            request, reading, BackfillFilter, backfills.page, noun="backfills", fields=FIELDS
        )
    }
    return answer.answer(
        request, "dashboard/backfill_list.html", reading, context, topics=["backfills", "runs"]
    )


@answer.page
def backfill_detail(request: HttpRequest, backfill: int) -> HttpResponse:
    """One backfill, how far it is, and what became of its dates."""
    reading = answer.begin(request)
    row = backfills.one(reading.scope, backfill)
    context = {
        "backfill": row,
        "list": listing.read(
            request,
            reading,
            BackfillDateFilter,
            backfills.dates,
            noun="backfill dates",
            fields=DATE_FIELDS,
            backfill=(row.id,),
        ),
    }
    return answer.answer(
        request, "dashboard/backfill_detail.html", reading, context, topics=["backfills", "runs"]
    )


@answer.translated
@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def flow_backfill(request: HttpRequest, flow_id: str) -> HttpResponse:
    """The form; posted, it shows what would become of each date, and posted again it begins."""
    reading = answer.begin(request)
    flow = flows.one(reading.scope, flow_id)
    context: dict[str, Any] = {
        "flow": flow,
        "typed": TYPED,
        "policies": [word.value for word in rules.Reprocess],
    }
    page = "dashboard/flow_backfill.html"
    if request.method != "POST":
        return answer.answer(request, page, reading, context)
    context["typed"] = typed = {
        name: request.POST.get(name, value).strip() for name, value in TYPED.items()
    }
    is_preview = "begin" not in request.POST
    try:
        plan = operations.create_backfill(
            flow_id=flow_id,
            actor=request.user.get_username(),
            dry_run=is_preview,
            **_asked(typed),
        )
    except (errors.InvalidInput, errors.Conflict) as error:
        # What was typed stays, beside what is wrong with it.
        return answer.answer(request, page, reading, {**context, "error": str(error)}, status=400)
    if is_preview:
        context |= {"plan": plan, "dates": plan.dates[:DATES_SHOWN]}
        return answer.answer(request, page, reading, context)
    messages.success(request, f"Backfill {plan.id} of {len(plan.dates)} dates has begun.")
    return HttpResponseRedirect(reverse("dashboard:backfill_detail", args=[plan.id]))


@answer.sheet
def backfill_limit(request: HttpRequest, backfill: int) -> HttpResponse:
    """What another limit means; posted with a reason, so many of its runs may be active at a time."""
    reading = answer.begin(request)
    row = backfills.one(reading.scope, backfill)

    def sheet() -> acts.Sheet:
        return acts.Sheet(
            title=f"Limit backfill {row.id} of {row.flow_id}",
            button="Limit it",
            effects=[
                f"{row.active_runs} of its runs are active now, of at most {row.max_active_runs}.",
                "With more, further dates get their runs at once. With fewer, none of those that run is"
                " stopped.",
            ],
            fields=(
                acts.Field(
                    name="max_active_runs",
                    label="Runs of it that may be active at a time",
                    value=request.POST.get("max_active_runs", str(row.max_active_runs)),
                ),
            ),
        )

    def act(reason: str) -> str:
        number = whole_number("max_active_runs", request.POST.get("max_active_runs", ""))
        operations.set_limit(
            backfill_id=backfill,
            max_active_runs=number,
            actor=request.user.get_username(),
            reason=reason,
        )
        return f"Backfill {backfill}: at most {number} of its runs are active at a time."

    back = reverse("dashboard:backfill_detail", args=[backfill])
    return acts.answer_sheet(request, reading, sheet=sheet, act=act, back=back)


@answer.sheet
def backfill_act(request: HttpRequest, backfill: int, verb: str) -> HttpResponse:
    """What pausing, going on or cancelling does; posted with a reason, it is done."""
    reading = answer.begin(request)
    row = backfills.one(reading.scope, backfill)
    words = {
        "pause": ("Pause", "No further run is made before it goes on. What runs goes on."),
        "unpause": ("Go on with", f"The {row.waiting} dates that wait get their runs."),
        "cancel": ("Cancel", f"The {row.waiting} dates that wait get no run. What runs goes on."),
    }
    name, effect = words[verb]

    def sheet() -> acts.Sheet:
        title = f"{name} backfill {row.id} of {row.flow_id}"
        return acts.Sheet(title=title, button=f"{name} it", effects=[effect])

    def act(reason: str) -> str:
        named: dict[str, Any] = {
            "backfill_id": backfill,
            "actor": request.user.get_username(),
            "reason": reason,
        }
        if verb == "cancel":
            operations.cancel_backfill(**named)
        else:
            operations.pause_backfill(is_paused=verb == "pause", **named)
        return f"Backfill {backfill}: {backfills.one(reading.scope, backfill).state}."

    back = reverse("dashboard:backfill_detail", args=[backfill])
    return acts.answer_sheet(request, reading, sheet=sheet, act=act, back=back)


def _asked(typed: dict[str, str]) -> dict[str, Any]:
    """The typed values as the operation takes them. Raises ``InvalidInput``."""
    return {
        "from_date": _moment("from_date", typed["from_date"]),
        "to_date": _moment("to_date", typed["to_date"]),
        "run_backwards": typed["direction"] == "backwards",
        "reprocess": typed["reprocess"],
        "max_active_runs": whole_number("max_active_runs", typed["max_active_runs"]),
        "reason": typed["reason"],
    }


def _moment(name: str, text: str) -> datetime:
    """A date or time; without an offset it is UTC, as the page says."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        message = f"{name} must be a date or time such as 2026-01-31 or 2026-01-31T02:00Z"
        raise errors.InvalidInput(message, field=name) from error
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
