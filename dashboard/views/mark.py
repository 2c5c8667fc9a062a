"""Marking from the pages: what it would do, with its options, and the act, for one record or for several."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from django.contrib import messages
from django.http import HttpResponseRedirect
from django.urls import reverse

from dashboard import acts, answer
from dashboard.addresses import came_from
from dashboard.chosen import chosen_or_matching, chosen_task_instances, form_of
from scheduler_app.operations.clear import NOTE_CHARACTERS_MAX
from scheduler_app.operations.mark import Reach, mark_runs, mark_task_instances
from scheduler_app.operations.reasons import REASON_CHARACTERS_MAX
from scheduler_app.queries import runs, task_instances
from scheduler_app.queries.filters import RunFilter
from scheduler_app.rules.errors import Conflict, InvalidInput
from scheduler_app.rules.mark import RUN_TARGETS, TASK_TARGETS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from django.http import HttpRequest, HttpResponse

    from dashboard.answer import Reading
    from scheduler_app.operations.mark import MarkPlan

SWITCHES: Final = (
    ("include_upstream", "With everything upstream"),
    ("include_downstream", "With everything downstream"),
    ("include_past", "In runs of earlier dates too"),
    ("include_future", "In runs of later dates too"),
)
CALLBACKS: Final = ("callbacks", "Call back, as if it had ended so by itself")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Marking:
    """What is marked, and what may be asked for."""

    title: str
    back: str
    targets: Sequence[str]
    switches: Sequence[tuple[str, str]]
    mark: Callable[..., MarkPlan]
    ids: Sequence[int] = ()  # of several records: ticked, or all that the filters of a list match


@answer.sheet
def run_mark(request: HttpRequest, run: int) -> HttpResponse:
    """What marking the run would do; posted with a reason, it is done."""
    reading = answer.begin(request)
    row = runs.one(reading.scope, run)
    return _answer(
        request,
        reading,
        _Marking(
            title=f"Mark run {row.run_id}",
            back=reverse("dashboard:run_detail", args=[run]),
            targets=RUN_TARGETS,
            switches=(CALLBACKS,),
            mark=lambda *, reach, **asked: mark_runs(run_ids=[run], **asked),
        ),
    )


@answer.sheet
def runs_mark(request: HttpRequest) -> HttpResponse:
    """The same for several runs, which the address names."""
    reading = answer.begin(request)
    ids = chosen_or_matching(
        request, reading.scope, runs.NOUN, RunFilter, lambda run: runs.one(reading.scope, run)
    )
    return _answer(
        request,
        reading,
        _Marking(
            title=f"Mark {len(ids)} run{'' if len(ids) == 1 else 's'}",
            back=reverse("dashboard:run_list"),
            targets=RUN_TARGETS,
            switches=(CALLBACKS,),
            mark=lambda *, reach, **asked: mark_runs(run_ids=ids, **asked),
            ids=ids,
        ),
    )


@answer.sheet
def task_instance_mark(request: HttpRequest, ti: int) -> HttpResponse:
    """What marking the task instance would do; posted with a reason, it is done."""
    reading = answer.begin(request)
    row = task_instances.one(reading.scope, ti)
    return _answer(
        request,
        reading,
        _Marking(
            title=f"Mark {row.task_id}",
            back=reverse("dashboard:task_instance_detail", args=[ti]),
            targets=TASK_TARGETS,
            switches=(*SWITCHES, CALLBACKS),
            mark=lambda **asked: mark_task_instances(ti_ids=[ti], **asked),
        ),
    )


@answer.sheet
def task_instances_mark(request: HttpRequest) -> HttpResponse:
    """The same for several task instances, which the address names."""
    reading = answer.begin(request)
    ids = chosen_task_instances(request, reading.scope)
    return _answer(
        request,
        reading,
        _Marking(
            title=f"Mark {len(ids)} task instance{'' if len(ids) == 1 else 's'}",
            back=reverse("dashboard:task_instance_list"),
            targets=TASK_TARGETS,
            switches=(*SWITCHES, CALLBACKS),
            mark=lambda **asked: mark_task_instances(ti_ids=ids, **asked),
            ids=ids,
        ),
    )


def _answer(request: HttpRequest, reading: Reading, marking: _Marking) -> HttpResponse:
    """The preview; posted with a reason, the mark is made."""
    given = request.POST if request.method == "POST" else request.GET
    state = given.get("state") or marking.targets[0]
    asked: dict[str, Any] = {
        "state": state,
        "actor": request.user.get_username(),
        "callbacks": bool(given.get("callbacks")),
        "reach": _reach(given),
    }
    context: dict[str, Any] = {"reason": "", "note": ""}
    status = 200
    if request.method == "POST":
        context = {"reason": given.get("reason", ""), "note": given.get("note", "")}
        try:
            done = marking.mark(
                **asked, reason=context["reason"], note=context["note"].strip() or None
            )
        except InvalidInput as error:
            context |= {"error": str(error)}
            status = 400
        except Conflict as error:
            context |= {"error": str(error)}
            status = 409
        else:
            messages.success(request, _told(done))
            return HttpResponseRedirect(came_from(request, otherwise=marking.back))
    plan = marking.mark(**asked, dry_run=True)
    several = len(plan.runs) > 1
    keys = {run.id: run.run_key for run in plan.runs} if several else {}
    context |= {
        "title": marking.title,
        "plan": plan,
        "included": _subjects(plan.included, keys),
        "excluded": _subjects(plan.excluded, keys),
        "targets": [(target, target == state) for target in marking.targets],
        "switches": [(key, label, bool(given.get(key))) for key, label in marking.switches],
        "hidden": [key for key, _ in marking.switches if given.get(key)],
        **form_of(request, marking.ids),
        "back": marking.back,
        "next": given.get("next") or marking.back,
        "reason_max": REASON_CHARACTERS_MAX,
        "note_max": NOTE_CHARACTERS_MAX,
    }
    return answer.answer(request, "dashboard/mark.html", reading, context, status=status)


def _reach(given: Mapping[str, str]) -> Reach:
    return Reach(**{key: bool(given.get(key)) for key in Reach.__dataclass_fields__})


def _subjects(found: Sequence[Any], keys: Mapping[int, str]) -> tuple[acts.Subject, ...]:
    """Named with their run where there are several."""
    return acts.subjects(found, [keys.get(one.run_id, "") for one in found])


def _told(plan: MarkPlan) -> str:
    number = len(plan.included)
    said = f"{number} task{' was' if number == 1 else 's were'} marked."
    if number == 0 and len(plan.runs) == 1:
        said = f"Run {plan.runs[0].run_key} counts as {plan.state}."
    stopping = sum(one.state in ("running", "restarting") for one in plan.included)
    if stopping:
        said += f" {stopping} of them run{'s' if stopping == 1 else ''}, and {'is' if stopping == 1 else 'are'} stopped first."
    if plan.refused:
        said += f" {len(plan.refused)} runs were left alone: {plan.refused[0].why}"
    return said
