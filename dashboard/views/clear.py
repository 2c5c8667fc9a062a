"""Clearing from the pages: a preview with its options, and the act that carries out just that preview."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from django.contrib import messages
from django.http import HttpResponseRedirect
from django.urls import reverse

from dashboard import acts, answer
from dashboard.addresses import came_from
from scheduler_app.operations.clear import NOTE_CHARACTERS_MAX, clear_run, clear_task_instances
from scheduler_app.operations.reasons import REASON_CHARACTERS_MAX
from scheduler_app.queries import runs, task_instances
from scheduler_app.rules.clear import PLAN_VALID_S, Options
from scheduler_app.rules.errors import Conflict, InvalidInput

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from django.http import HttpRequest, HttpResponse

    from dashboard.answer import Reading
    from scheduler_app.operations.clear import ClearPlan

FILTERS: Final = (
    ("", "Everything"),
    ("only_failed", "Only failed"),
    ("only_running", "Only running"),
    ("only_new", "Only new tasks"),
)
RELATIVES: Final = (
    ("include_upstream", "With everything upstream"),
    ("include_downstream", "With everything downstream"),
)
SWITCHES: Final = (("run_on_latest_version", "Execute the newest version of the flow"),)


@answer.sheet
def run_clear(request: HttpRequest, run: int) -> HttpResponse:
    """What clearing the run would do; posted with a reason, that plan is carried out."""
    reading = answer.begin(request)
    row = runs.one(reading.scope, run)
    return _answer(
        request,
        reading,
        title=f"Clear run {row.run_id}",
        back=reverse("dashboard:run_detail", args=[run]),
        switches=SWITCHES,
        clear=lambda **asked: clear_run(run_id=run, **asked),
    )


@answer.sheet
def task_instance_clear(request: HttpRequest, ti: int) -> HttpResponse:
    """What clearing the task instance would do; posted with a reason, that plan is carried out."""
    reading = answer.begin(request)
    row = task_instances.one(reading.scope, ti)
    return _answer(
        request,
        reading,
        title=f"Clear {row.task_id}",
        back=reverse("dashboard:task_instance_detail", args=[ti]),
        switches=(*RELATIVES, *SWITCHES),
        clear=lambda **asked: clear_task_instances(ti_ids=[ti], **asked),
    )


def _answer(
    request: HttpRequest,
    reading: Reading,
    *,
    title: str,
    back: str,
    switches: tuple[tuple[str, str], ...],
    clear: Callable[..., ClearPlan],
) -> HttpResponse:
    """The preview; posted with a reason, its plan is carried out, or shown anew with what moved."""
    given = request.POST if request.method == "POST" else request.GET
    options = clear_options(given)
    actor = request.user.get_username()
    context: dict[str, Any] = {"reason": "", "note": ""}
    status = 200
    if request.method == "POST":
        context = {"reason": given.get("reason", ""), "note": given.get("note", "")}
        try:
            done = clear(
                actor=actor,
                dry_run=False,
                plan_id=plan_id(given),
                reason=context["reason"],
                note=context["note"].strip() or None,
            )
        except InvalidInput as error:
            context |= {"error": str(error)}
            status = 400
        except Conflict as error:
            context |= {"error": str(error), "difference": error.extra.get("difference")}
            status = 409
        else:
            messages.success(request, _told(done))
            return HttpResponseRedirect(came_from(request, otherwise=back))
    if "only" not in given:  # the first look: what the flow says is what is ticked
        options = replace(options, run_on_latest_version=None)
    plan = clear(actor=actor, dry_run=True, options=options)
    options = plan.options
    context |= {
        "title": title,
        "plan": plan,
        "included": acts.subjects(plan.included),
        "excluded": acts.subjects(plan.excluded),
        "valid_minutes": int(PLAN_VALID_S // 60),
        "filters": [(key, label, chosen_filter(options) == key) for key, label in FILTERS],
        "switches": [(key, label, getattr(options, key)) for key, label in switches],
        "hidden": [key for key in Options.__dataclass_fields__ if getattr(options, key)],
        "only": chosen_filter(options),
        "back": back,
        "next": given.get("next") or back,
        "reason_max": REASON_CHARACTERS_MAX,
        "note_max": NOTE_CHARACTERS_MAX,
    }
    return answer.answer(request, "dashboard/clear.html", reading, context, status=status)


def clear_options(given: Mapping[str, str]) -> Options:
    """The switches that are on; the filter is one of ``FILTERS``."""
    only = given.get("only", "")
    on = {key for key, _ in (*RELATIVES, *SWITCHES) if given.get(key)}
    if only and only in dict(FILTERS):
        on.add(only)
    return Options(**dict.fromkeys(on, True))


def chosen_filter(options: Options) -> str:
    """The key of the filter that is on, or nothing."""
    return next((key for key, _ in FILTERS if key and getattr(options, key)), "")


def plan_id(given: Mapping[str, str]) -> UUID:
    """The plan that is to be carried out. Raises ``InvalidInput``."""
    try:
        return UUID(given.get("plan_id", ""))
    except ValueError:
        raise InvalidInput("The plan is missing: look at this one first.") from None


def _told(plan: ClearPlan) -> str:
    number = len(plan.included)
    tasks = "1 task was" if number == 1 else f"{number} tasks were"
    running = sum(one.state == "running" for one in plan.included)
    return f"{tasks} cleared." + (
        f" {running} of them run, and are stopped first." if running else ""
    )
