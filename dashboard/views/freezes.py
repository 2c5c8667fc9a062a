"""Freezing and thawing: one sheet for each scope, and the banner that says what is frozen."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from django.urls import reverse

from dashboard import acts, answer
from dashboard.chosen import chosen
from scheduler_app.operations.freeze import freeze
from scheduler_app.operations.thaw import thaw
from scheduler_app.queries import flows, freezes, leases, runs, task_instances
from scheduler_app.rules.errors import Conflict, InvalidInput, NotFound
from scheduler_app.rules.freezing import Mode, ScopeKind, scope_of

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse

    from scheduler_app.operations.freeze import FreezePlan
    from scheduler_app.queries.scope import Scope

EVERYTHING = "everything"  # typed by hand before everything is frozen
MODES = (
    (Mode.DRAIN.value, "Drain: let what runs end"),
    (Mode.HARD.value, "Hard: stop what runs; it begins again after the thaw"),
)


@answer.sheet
def freeze_sheet(request: HttpRequest, kind: ScopeKind, scope_id: str | int = "") -> HttpResponse:
    """What freezing would do; posted with a reason, nothing of the scope starts any more."""
    reading = answer.begin(request)
    name, back = _named(reading.scope, kind, scope_id)
    actor = request.user.get_username()
    mode = request.POST.get("mode", Mode.DRAIN.value)

    def sheet() -> acts.Sheet:
        plan = freeze(
            scope_kind=kind.value,
            scope_id=scope_id,
            actor=actor,
            dry_run=True,
            mode=mode if mode in list(Mode) else Mode.DRAIN.value,
        )
        fields = [
            acts.Field(name="mode", label="What becomes of what runs", value=mode, choices=MODES),
            acts.Field(
                name="until",
                label="Until when (empty: until somebody thaws it)",
                value=request.POST.get("until", ""),
                hint="ISO 8601 with an offset, such as 2026-01-31T06:00:00Z",
            ),
        ]
        if kind is ScopeKind.ALL:
            fields.append(acts.Field(name="typed", label=f"Type: {EVERYTHING}"))
        return acts.Sheet(
            title=f"Freeze {name}",
            button=f"Freeze {_counted(plan.held_count, 'unfinished task')}",
            effects=[
                f"{_counted(plan.held_count, 'unfinished task')} in {_counted(plan.run_count, 'run')}"
                " will be held.",
                "Nothing starts, retries or times out before the thaw; results that come are kept.",
                "Pausing a schedule is another switch, and stays as it is.",
            ],
            included=acts.subjects(plan.included),
            excluded=acts.subjects(plan.excluded),
            fields=fields,
        )

    def act(reason: str) -> str:
        if kind is ScopeKind.ALL and request.POST.get("typed", "").strip() != EVERYTHING:
            raise InvalidInput(f"Type {EVERYTHING} to freeze everything.", field="typed")
        plan = freeze(
            scope_kind=kind.value,
            scope_id=scope_id,
            actor=actor,
            reason=reason,
            mode=mode,
            until=_moment(request.POST.get("until", "")),
        )
        return f"Freeze {plan.freeze_id} holds {name}: {plan.held_count} tasks."

    return acts.answer_sheet(request, reading, sheet=sheet, act=act, back=back)


@answer.sheet
def runs_freeze(request: HttpRequest) -> HttpResponse:
    """What freezing these runs would do; posted with a reason, each is frozen by a freeze of its own."""
    return _freeze_several(request, ScopeKind.RUN, "run", reverse("dashboard:run_list"))


@answer.sheet
def task_instances_freeze(request: HttpRequest) -> HttpResponse:
    """The same for task instances."""
    back = reverse("dashboard:task_instance_list")
    return _freeze_several(request, ScopeKind.TASK_INSTANCE, "task", back)


def _freeze_several(request: HttpRequest, kind: ScopeKind, noun: str, back: str) -> HttpResponse:
    reading = answer.begin(request)
    ids = chosen(request, lambda number: _named(reading.scope, kind, number))
    names = {number: _named(reading.scope, kind, number)[0] for number in ids}
    actor = request.user.get_username()
    mode = request.POST.get("mode", Mode.DRAIN.value)

    def each(**asked: Any) -> tuple[list[FreezePlan], list[acts.Subject]]:
        """The plans of those that can be frozen, and why the others cannot."""
        plans, refused = [], []
        for number in ids:
            try:
                plans.append(freeze(scope_kind=kind.value, scope_id=number, actor=actor, **asked))
            except (Conflict, NotFound) as error:
                refused.append(acts.Subject(name=names[number], state="none", effect=str(error)))
        return plans, refused

    def sheet() -> acts.Sheet:
        plans, refused = each(dry_run=True)
        held = sum(plan.held_count for plan in plans)
        return acts.Sheet(
            title=f"Freeze {_counted(len(ids), noun)}",
            button=f"Freeze {_counted(len(plans), noun)}",
            effects=[
                f"{_counted(held, 'unfinished task')} in {_counted(len(plans), noun)} will be held.",
                "Nothing starts, retries or times out before the thaw; results that come are kept.",
                "Each has a freeze of its own, and is thawed on its page.",
            ],
            included=acts.subjects(one for plan in plans for one in plan.included),
            excluded=refused,
            fields=[
                acts.Field(
                    name="mode", label="What becomes of what runs", value=mode, choices=MODES
                )
            ],
            hidden=[("id", str(number)) for number in ids],
        )

    def act(reason: str) -> str:
        plans, refused = each(reason=reason, mode=mode)
        told = f"{_counted(len(plans), noun)} frozen."
        return f"{told} {len(refused)} left alone: {refused[0].effect}" if refused else told

    return acts.answer_sheet(request, reading, sheet=sheet, act=act, back=back)


@answer.sheet
def thaw_sheet(request: HttpRequest, kind: ScopeKind, scope_id: str | int = "") -> HttpResponse:
    """What thawing would do; posted with a reason, what was frozen goes on where it stood."""
    reading = answer.begin(request)
    name, back = _named(reading.scope, kind, scope_id)
    actor = request.user.get_username()

    def sheet() -> acts.Sheet:
        plan = thaw(scope_kind=kind.value, scope_id=scope_id, actor=actor, dry_run=True)
        effects = [
            f"{_counted(plan.released_count, 'held task')} in {_counted(plan.run_count, 'run')} will go on"
            " where they stood, as if no time had passed."
        ]
        if plan.waiting_count:
            effects.append(f"{plan.waiting_count} queued tasks wait for room in their pools.")
        if plan.kept_count:
            effects.append(f"{plan.kept_count} tasks stay held by another freeze.")
        return acts.Sheet(
            title=f"Thaw {name}",
            button=f"Thaw {name}",
            effects=effects,
            included=acts.subjects(plan.included),
            excluded=acts.subjects(plan.excluded),
        )

    def act(reason: str) -> str:
        plan = thaw(scope_kind=kind.value, scope_id=scope_id, actor=actor, reason=reason)
        return f"{name[0].upper()}{name[1:]} is thawed: {plan.released_count} tasks go on."

    return acts.answer_sheet(request, reading, sheet=sheet, act=act, back=back)


def _named(scope: Scope, kind: ScopeKind, scope_id: str | int) -> tuple[str, str]:
    """What sentences call it, and the address of its page. Raises where the reader may not see it."""
    match kind:
        case ScopeKind.TASK_INSTANCE:
            ti = task_instances.one(scope, int(scope_id))
            return f"task {ti.task_id}", reverse("dashboard:task_instance_detail", args=[ti.id])
        case ScopeKind.TASK:
            named = scope_of(kind.value, scope_id)
            of_task = runs.one(scope, named.number or 0)
            back = reverse("dashboard:mapped_task", args=[of_task.id, named.task_id])
            return f"task {named.task_id} of {of_task.run_id}", back
        case ScopeKind.RUN:
            run = runs.one(scope, int(scope_id))
            return f"run {run.run_id}", reverse("dashboard:run_detail", args=[run.id])
        case ScopeKind.FLOW:
            flow = flows.one(scope, str(scope_id))
            return f"flow {flow.flow_id}", reverse("dashboard:flow_detail", args=[flow.flow_id])
        case ScopeKind.SHARD:
            freezes.check_wide(scope)
            leases.one(scope, int(scope_id))
            return f"shard {scope_id}", reverse("dashboard:lease_list")
        case ScopeKind.ALL:
            freezes.check_wide(scope)
    return EVERYTHING, reverse("dashboard:home")


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _moment(text: str) -> datetime | None:
    if not text.strip():
        return None
    try:
        return datetime.fromisoformat(text.strip())
    except ValueError:
        message = f"until: {text!r} is not a time; write it as 2026-01-31T06:00:00Z."
        raise InvalidInput(message, field="until") from None
