"""Pools: slots, who holds them, who waits for them in which order, and sheets that resize them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from django.urls import reverse

from dashboard import acts, answer, listing
from dashboard.typed import offset, slots_typed
from scheduler_app.operations.pools import DEFAULT_POOL, change_pool, create_pool, delete_pool
from scheduler_app.queries import pools, slots
from scheduler_app.queries.filters import PoolFilter

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse

    from scheduler_app.queries.pools import PoolRow

TOPICS: Final = ("pools", "runs")
DEFERRED: Final = (
    ("no", "No: they give them back"),
    ("yes", "Yes: they keep them while they wait"),
)


@answer.page
def pool_list(request: HttpRequest) -> HttpResponse:
    """Every pool with its use."""
    reading = answer.begin(request)
    found = listing.read(request, reading, PoolFilter, pools.page, noun="pools", fields=("name",))
    return answer.answer(
        request, "dashboard/pool_list.html", reading, {"list": found}, topics=TOPICS
    )


@answer.page
def pool_detail(request: HttpRequest, name: str) -> HttpResponse:
    """One pool: its bar, who holds its slots, and who waits in which order."""
    reading = answer.begin(request)
    row = pools.one(reading.scope, name)
    context = {
        "pool": row,
        "is_default": row.name == DEFAULT_POOL,
        "holders": slots.holders(
            reading.scope, slots.Slots(pool=name), offset=offset(request, "held_from")
        ),
        "waiters": slots.waiters(reading.scope, pool=name, offset=offset(request, "waits_from")),
    }
    return answer.answer(request, "dashboard/pool_detail.html", reading, context, topics=TOPICS)


@answer.sheet
def pool_new(request: HttpRequest) -> HttpResponse:
    """What a new pool will be; posted with a reason, it is there."""
    reading = answer.begin(request)

    def sheet() -> acts.Sheet:
        name = acts.Field(name="name", label="Name", value=request.POST.get("name", ""))
        return acts.Sheet(
            title="New pool",
            button="Create it",
            effects=["Tasks of flows that name it share its slots."],
            fields=(name, *_fields(request, None)),
        )

    def act(reason: str) -> str:
        name = request.POST.get("name", "")
        create_pool(
            name=name,
            slots=slots_typed(request),
            description=request.POST.get("description", ""),
            include_deferred=request.POST.get("include_deferred") == "yes",
            actor=request.user.get_username(),
            reason=reason,
        )
        return f"Pool {name} is there."

    return acts.answer_sheet(
        request, reading, sheet=sheet, act=act, back=reverse("dashboard:pool_list")
    )


@answer.sheet
def pool_edit(request: HttpRequest, name: str) -> HttpResponse:
    """What changing it means; posted with a reason, it has so many slots."""
    reading = answer.begin(request)
    row = pools.one(reading.scope, name)

    def sheet() -> acts.Sheet:
        return acts.Sheet(
            title=f"Change pool {name}",
            button="Change it",
            effects=[
                f"{row.taken_slots} of its {row.slots} slots are taken now.",
                "With more slots, what waits is looked at at once.",
                "With fewer than are taken, nothing is stopped, and nothing starts until enough of it"
                " has ended.",
            ],
            fields=_fields(request, row),
        )

    def act(reason: str) -> str:
        change_pool(
            name=name,
            slots=slots_typed(request),
            description=request.POST.get("description"),
            include_deferred=request.POST.get("include_deferred") == "yes",
            actor=request.user.get_username(),
            reason=reason,
        )
        return f"Pool {name} is changed."

    return acts.answer_sheet(
        request,
        reading,
        sheet=sheet,
        act=act,
        back=reverse("dashboard:pool_detail", args=[name]),
    )


@answer.sheet
def pool_delete(request: HttpRequest, name: str) -> HttpResponse:
    """What deleting means; posted with a reason, it is gone unless flows name it."""
    reading = answer.begin(request)
    row = pools.one(reading.scope, name)

    def sheet() -> acts.Sheet:
        return acts.Sheet(
            title=f"Delete pool {row.name}",
            button="Delete it",
            effects=["Refused while a flow names it, or an unfinished task is in it."],
        )

    def act(reason: str) -> str:
        delete_pool(name=row.name, actor=request.user.get_username(), reason=reason)
        return f"Pool {row.name} is deleted."

    return acts.answer_sheet(
        request, reading, sheet=sheet, act=act, back=reverse("dashboard:pool_list")
    )


def _fields(request: HttpRequest, row: PoolRow | None) -> tuple[acts.Field, ...]:
    said = request.POST
    return (
        acts.Field(
            name="slots", label="Slots", value=said.get("slots", str(row.slots) if row else "")
        ),
        acts.Field(
            name="include_deferred",
            label="Do deferred tasks hold slots?",
            value=said.get("include_deferred", "yes" if row and row.include_deferred else "no"),
            choices=DEFERRED,
        ),
        acts.Field(
            name="description",
            label="What it is for",
            value=said.get("description", row.description if row else ""),
        ),
    )
