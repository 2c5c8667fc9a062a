"""The review queue: what guards left for a person, what it would do, and deciding it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from django.contrib import messages
from django.http import HttpResponse, HttpResponseRedirect
from django.urls import reverse

from dashboard import answer, listing
from dashboard.addresses import carried
from dashboard.views.filtered import Preset
from scheduler_app.operations.reasons import REASON_CHARACTERS_MAX
from scheduler_app.operations.reviews import approve_review, dismiss_review
from scheduler_app.queries import lens, reviews, rights, runs
from scheduler_app.queries.filters import ReviewFilter
from scheduler_app.queries.shown import REVIEW_STATES
from scheduler_app.rules.errors import Conflict, InvalidInput, NotFound, SchedulerError

if TYPE_CHECKING:
    from django.http import HttpRequest

    from dashboard.answer import Reading

FIELDS: Final = ("flow_id", "action", "guard", "asked_by", "created_at_gte", "created_at_lte")


@answer.page
def review_list(request: HttpRequest) -> HttpResponse:
    """What waits for a person, newest first; decided ones under their own views."""
    reading = answer.begin(request)
    fixed: dict[str, Any] = {} if request.GET.get("state") else {"state": ("open",)}
    found = listing.read(
        request, reading, ReviewFilter, reviews.page, noun="reviews", fields=FIELDS, **fixed
    )
    context = {"list": found, "presets": _presets(request, reading, found.asked)}
    return answer.answer(
        request, "dashboard/review_list.html", reading, context, topics=["reviews"]
    )


def _presets(request: HttpRequest, reading: Reading, asked: Any) -> list[Preset]:
    here = reverse("dashboard:review_list")
    counts = lens.counts_together(
        [(reviews.NOUN, ReviewFilter(state=(state,))) for state in REVIEW_STATES], reading.scope
    )
    presets = [
        Preset(
            name=state,
            label=state.capitalize(),
            href=here + carried(request, {} if state == "open" else {"state": state}),
            number=str(counted.shown),
            is_here=asked.state == (state,),
        )
        for state, counted in zip(REVIEW_STATES, counts, strict=True)
    ]
    every = carried(request, {"state": REVIEW_STATES[0]})
    presets.append(
        Preset(
            name="all",
            label="All",
            href=here + every + "".join(f"&state={state}" for state in REVIEW_STATES[1:]),
            number=str(sum(counted.shown for counted in counts)),
            is_here=len(asked.state) > 1,
        )
    )
    guards = reverse("dashboard:guard_list") + carried(request, {})
    presets.append(Preset(name="guards", label="Guards", href=guards))
    return presets


@answer.page
def review_detail(request: HttpRequest, review: int) -> HttpResponse:
    """One review: who asked, why it waits, and what approving it would do now."""
    reading = answer.begin(request)
    row = reviews.one(reading.scope, review)
    return _page(request, reading, row)


def _page(
    request: HttpRequest, reading: Reading, row: reviews.ReviewRow, **more: Any
) -> HttpResponse:
    context: dict[str, Any] = {
        "review": row,
        "about": None,
        "plan": None,
        "refusal": "",
        "may_decide": rights.may(request.user, rights.DECIDE_REVIEWS),
        "reason_max": REASON_CHARACTERS_MAX,
    }
    if row.run is not None:
        try:
            context["about"] = runs.one(reading.scope, row.run)
        except NotFound:
            context["about"] = None  # it is gone, or not for this reader
    if row.is_open and context["about"] is not None:
        try:
            context["plan"] = approve_review(
                review_id=row.id, actor=request.user.get_username(), dry_run=True
            )
        except SchedulerError as error:
            context["refusal"] = str(error)
    status = more.pop("status", 200)
    topics = ["reviews"] if row.run is None else ["reviews", f"run:{row.run}"]
    return answer.answer(
        request,
        "dashboard/review_detail.html",
        reading,
        {**context, **more},
        # A plan that is being looked at is not replaced under the reader's hands.
        topics=[] if context["plan"] else topics,
        status=status,
    )


@answer.act
def review_decide(request: HttpRequest, review: int, *, is_approved: bool) -> HttpResponse:
    """The review is approved, by the plan that was shown, or dismissed."""
    reading = answer.begin(request)
    row = reviews.one(reading.scope, review)
    rights.check(request.user, rights.DECIDE_REVIEWS)
    actor = request.user.get_username()
    reason = request.POST.get("reason", "")
    try:
        if is_approved:
            plan = approve_review(
                review_id=review, actor=actor, reason=reason, plan_id=_plan_id(request)
            )
            told = f"Approved: {len(plan.included)} tasks of the run begin anew."
        else:
            dismiss_review(review_id=review, actor=actor, reason=reason)
            told = "Dismissed: nothing of it is carried out."
    except InvalidInput as error:
        return _page(request, reading, row, error=str(error), reason=reason, status=400)
    except Conflict as error:
        newest = reviews.one(reading.scope, review)
        return _page(
            request,
            reading,
            newest,
            error=str(error),
            difference=error.extra.get("difference"),
            reason=reason,
            status=409,
        )
    messages.success(request, told)
    return HttpResponseRedirect(reverse("dashboard:review_detail", args=[review]))


def _plan_id(request: HttpRequest) -> UUID:
    try:
        return UUID(request.POST.get("plan_id", ""))
    except ValueError:
        raise InvalidInput("The plan is missing: look at this one first.") from None
