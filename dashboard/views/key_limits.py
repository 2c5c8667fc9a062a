"""Limits of keys: how many slots each has, who holds them, who waits, and sheets that resize them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from django.urls import reverse

from dashboard import acts, answer, listing
from dashboard.typed import offset, slots_typed
from scheduler_app.operations.key_limits import remove_limit, set_limit
from scheduler_app.queries import key_limits, slots
from scheduler_app.queries.filters import KeyLimitFilter
from scheduler_app.rules.limits import ANY

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse

    from scheduler_app.queries.key_limits import KeyLimitRow

TOPICS: Final = ("pools", "runs")
FIELDS: Final = ("q", "is_set", "waits")


@answer.page
def limit_list(request: HttpRequest) -> HttpResponse:
    """Every key that an operator set, that somebody holds or waits for."""
    reading = answer.begin(request)
    found = listing.read(
        request, reading, KeyLimitFilter, key_limits.page, noun="limits", fields=FIELDS
    )
    return answer.answer(
        request, "dashboard/limit_list.html", reading, {"list": found}, topics=TOPICS
    )


@answer.page
def limit_detail(request: HttpRequest, key: str) -> HttpResponse:
    """One key: its slots, who holds them, and who waits in which order."""
    reading = answer.begin(request)
    row = key_limits.one(reading.scope, key)
    context = {
        "limit": row,
        "holders": slots.holders(
            reading.scope, slots.Slots(key=key), offset=offset(request, "held_from")
        ),
        "waiters": slots.waiters(reading.scope, key=key, offset=offset(request, "waits_from")),
    }
    return answer.answer(request, "dashboard/limit_detail.html", reading, context, topics=TOPICS)


@answer.sheet
def limit_new(request: HttpRequest) -> HttpResponse:
    """What saying it of a key means; posted with a reason, the key has so many slots."""
    reading = answer.begin(request)

    def sheet() -> acts.Sheet:
        key = acts.Field(
            name="key",
            label="Key",
            value=request.POST.get("key", ""),
            hint=f"as customer:acme; customer:{ANY} is each that begins so",
        )
        return acts.Sheet(
            title="Limit a key",
            button="Limit it",
            effects=[
                "It holds over the number that the flows say.",
                "With 0 slots nothing of the key begins; what runs goes on.",
            ],
            fields=(key, *_fields(request, None)),
        )

    def act(reason: str) -> str:
        return _set(request, request.POST.get("key", ""), reason)

    return acts.answer_sheet(
        request, reading, sheet=sheet, act=act, back=reverse("dashboard:limit_list")
    )


@answer.sheet
def limit_edit(request: HttpRequest, key: str) -> HttpResponse:
    """What changing it means; posted with a reason, the key has so many slots."""
    reading = answer.begin(request)
    row = key_limits.one(reading.scope, key)

    def sheet() -> acts.Sheet:
        held = f"{row.held} executions hold a slot of it now, {row.waiting} wait for one."
        return acts.Sheet(
            title=f"Limit {key}",
            button="Change it",
            effects=[
                *(() if row.is_rule else (held,)),
                "With more slots, what waits is looked at at once.",
                "With fewer than are held, nothing is stopped, and nothing starts until enough of it"
                " has ended.",
            ],
            fields=_fields(request, row),
        )

    def act(reason: str) -> str:
        return _set(request, key, reason)

    return acts.answer_sheet(
        request, reading, sheet=sheet, act=act, back=reverse("dashboard:limit_detail", args=[key])
    )


@answer.sheet
def limit_remove(request: HttpRequest, key: str) -> HttpResponse:
    """What taking it away means; posted with a reason, tasks have their own numbers again."""
    reading = answer.begin(request)
    row = key_limits.one(reading.scope, key)

    def sheet() -> acts.Sheet:
        return acts.Sheet(
            title=f"Take the limit of {row.key} away",
            button="Take it away",
            effects=["The longest other rule that fits holds, else what the flows say."],
        )

    def act(reason: str) -> str:
        remove_limit(key=row.key, actor=request.user.get_username(), reason=reason)
        return f"{row.key} has what the flows say again."

    return acts.answer_sheet(
        request, reading, sheet=sheet, act=act, back=reverse("dashboard:limit_list")
    )


def _set(request: HttpRequest, key: str, reason: str) -> str:
    number = slots_typed(request)
    set_limit(
        key=key,
        slots=number,
        description=request.POST.get("description"),
        actor=request.user.get_username(),
        reason=reason,
    )
    each = "Each key that begins so" if key.endswith(ANY) else key
    return f"{each} has {number} slots."


def _fields(request: HttpRequest, row: KeyLimitRow | None) -> tuple[acts.Field, ...]:
    said = request.POST
    slots_now = "" if row is None or row.slots is None else str(row.slots)
    return (
        acts.Field(name="slots", label="Slots", value=said.get("slots", slots_now)),
        acts.Field(
            name="description",
            label="What it is for",
            value=said.get("description", row.description if row else ""),
        ),
    )
