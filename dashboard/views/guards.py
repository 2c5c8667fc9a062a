"""Guards of automatic actions: their limits, the kill switch, and what was done under them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from django.urls import reverse

from dashboard import acts, answer, listing
from scheduler_app.operations.guards import set_guard
from scheduler_app.queries import automatic_actions, flows, guards, rights
from scheduler_app.queries.filters import AutomaticActionFilter, GuardFilter
from scheduler_app.rules.errors import InvalidInput
from scheduler_app.rules.guards import ActionKind, GuardLimits

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse

    from scheduler_app.queries.scope import Scope

FIELDS: Final = ("flow_id", "kind", "actor", "run", "at_gte", "at_lte")
GUARDS_MAX: Final = 200
LABELS: Final = {
    "cooldown_s": "Cool-down between two actions, in seconds",
    "actions_max": "Actions in a window",
    "window_s": "Window, in seconds",
    "runs_max": "Runs that one action may touch",
    "task_instances_max": "Task instances that one action may touch",
}
KINDS: Final = (("", "every kind"), *((kind.value, kind.value) for kind in ActionKind))


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a guard is set."""

    flow_id: str
    kind: str

    @property
    def hidden(self) -> tuple[tuple[str, str], ...]:
        """As forms carry it."""
        return (("flow_id", self.flow_id), ("kind", self.kind))

    @property
    def words(self) -> str:
        """As sentences say it."""
        where = f"on flow {self.flow_id}" if self.flow_id else "everywhere"
        what = f" of kind {self.kind.replace('_', ' ')}" if self.kind else ""
        return f"automatic actions{what} {where}"


@answer.page
def guard_list(request: HttpRequest) -> HttpResponse:
    """The kill switch, what is set where, and what was done automatically, newest first."""
    reading = answer.begin(request)
    found = listing.read(
        request,
        reading,
        AutomaticActionFilter,
        automatic_actions.page,
        noun="automatic actions",
        fields=FIELDS,
    )
    rows = guards.page(GuardFilter(limit=GUARDS_MAX), reading.scope)
    context = {
        "list": found,
        "guards": rows.rows,
        "more_guards": bool(rows.next_cursor),
        "holding": guards.holding(""),
        "everywhere": next((r for r in rows.rows if (r.flow_id, r.kind) == ("", "")), None),
        "may_set": rights.may(request.user, rights.SET_GUARDS),
    }
    return answer.answer(request, "dashboard/guard_list.html", reading, context, topics=["reviews"])


@answer.sheet
def guard_set(request: HttpRequest) -> HttpResponse:
    """What holds for a flow or everywhere is asked; posted with a reason, it holds from then on."""
    reading = answer.begin(request)
    place = _place(request, reading.scope)
    rights.check(request.user, rights.SET_GUARDS)
    rows = guards.page(
        GuardFilter(flow_id=(place.flow_id,) if place.flow_id else (), limit=GUARDS_MAX),
        reading.scope,
    ).rows
    now = next((r for r in rows if (r.flow_id, r.kind) == (place.flow_id, place.kind)), None)

    def sheet() -> acts.Sheet:
        return acts.Sheet(
            title=f"Limit {place.words}",
            button="Set the limits",
            effects=[
                "An action past a limit waits in the review queue, and alerts.",
                "An empty field is not set here: the flow's own definition or what holds everywhere does.",
            ],
            hidden=place.hidden,
            fields=[
                acts.Field(
                    name=name,
                    label=label,
                    value=request.POST.get(name, _shown(getattr(now, name, None))),
                )
                for name, label in LABELS.items()
            ],
        )

    def act(reason: str) -> str:
        set_guard(
            actor=request.user.get_username(),
            reason=reason,
            flow_id=place.flow_id,
            kind=place.kind,
            limits={name: _number(name, request.POST.get(name, "")) for name in LABELS},
        )
        return f"The limits of {place.words} are set."

    return acts.answer_sheet(
        request, reading, sheet=sheet, act=act, back=reverse("dashboard:guard_list")
    )


@answer.sheet
def guard_switch(request: HttpRequest, *, is_stopped: bool) -> HttpResponse:
    """The kill switch: what it would do; posted with a reason, it is thrown."""
    reading = answer.begin(request)
    place = _place(request, reading.scope)
    rights.check(request.user, rights.SET_GUARDS)

    def sheet() -> acts.Sheet:
        if is_stopped:
            return acts.Sheet(
                title=f"Stop {place.words}",
                button=f"Stop {place.words}",
                effects=[
                    "Nothing of it begins once this is done; what would, waits in the review queue.",
                    "People go on as before, and so do tasks with their own retries.",
                ],
                hidden=place.hidden,
            )
        return acts.Sheet(
            title=f"Start {place.words} again",
            button=f"Start {place.words}",
            effects=["What waits in the review queue stays there: decide it one by one."],
            hidden=place.hidden,
        )

    def act(reason: str) -> str:
        set_guard(
            actor=request.user.get_username(),
            reason=reason,
            flow_id=place.flow_id,
            kind=place.kind,
            is_stopped=is_stopped,
        )
        done = "stopped" if is_stopped else "on again"
        return f"{place.words[0].upper()}{place.words[1:]}: {done}."

    return acts.answer_sheet(
        request, reading, sheet=sheet, act=act, back=reverse("dashboard:guard_list")
    )


def _place(request: HttpRequest, scope: Scope) -> Place:
    given = request.POST if request.method == "POST" else request.GET
    flow_id, kind = given.get("flow_id", ""), given.get("kind", "")
    if flow_id:
        flows.one(scope, flow_id)
    if kind not in dict(KINDS):
        raise InvalidInput(f"kind: there is none called {kind[:80]!r}.", field="kind")
    return Place(flow_id=flow_id, kind=kind)


def _shown(value: float | None) -> str:
    return "" if value is None else f"{value:g}"


def _number(name: str, text: str) -> float | None:
    if not text.strip():
        return None
    try:
        number = float(text.strip())
    except ValueError:
        raise InvalidInput(f"{LABELS[name]}: give a number, or nothing.", field=name) from None
    return number if name in _SECONDS or number != int(number) else int(number)


_SECONDS: Final = frozenset(n for n in GuardLimits.__dataclass_fields__ if n.endswith("_s"))
