"""Leases and fail-overs: who leads each shard, every change of it, and what each change found."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from django.conf import settings
from django.urls import reverse

from dashboard import acts, answer, listing, term_charts
from dashboard.addresses import carried
from dashboard.templatetags.dashboard import in_words
from scheduler_app.operations.release_lease import release_lease
from scheduler_app.queries import (
    attempts,
    clocks,
    executor_events,
    freezes,
    ghosts,
    inquiries,
    lease_events,
    leases,
    lens,
    take_over_items,
    take_overs,
    terms,
)
from scheduler_app.queries.filters import (
    AttemptFilter,
    EventFilter,
    GhostFilter,
    InquiryFilter,
    LeaseEventFilter,
    LeaseFilter,
    TakeOverFilter,
    TakeOverItemFilter,
)
from scheduler_app.queries.leadership import Leadership, leadership
from scheduler_app.queries.list_filter import LIMIT_MAX
from scheduler_app.rules import errors
from scheduler_app.rules.freezing import ScopeKind

if TYPE_CHECKING:
    from datetime import datetime

    from django.http import HttpRequest, HttpResponse

    from dashboard.answer import Reading
    from scheduler_app.queries.take_overs import TakeOverRow

LEASES_LIMIT: Final = 200
NAMES_MAX: Final = 6  # of shards, in a sentence
TABS: Final = ("shards", "terms", "take-overs", "history", "inquiries")
WINDOWS: Final = {
    "15m": timedelta(minutes=15),
    "1h": timedelta(hours=1),
    "6h": timedelta(hours=6),
    "24h": timedelta(days=1),
    "7d": timedelta(days=7),
}
WINDOW_DEFAULT: Final = "1h"
TERM_ROWS_MAX: Final = 50  # of the table below the chart


@answer.page
def lease_list(request: HttpRequest) -> HttpResponse:
    """Every shard with its leader; terms, fail-overs, history and inquiries under their tabs."""
    reading = answer.begin(request)
    tab = request.GET.get("tab", "")
    tab = tab if tab in TABS else "shards"
    led = leadership(reading.scope, reading.now)
    context = {
        "tab": tab,
        "led": led,
        "sentence": sentence(led, reading.now),
        "shards": {one.lease.shard: one for one in led.shards},
        "tab_counts": _tab_counts(reading),
        "ttl_s": settings.LEASE_TTL_S,
        "renew_interval_s": settings.LEASE_RENEW_INTERVAL_S,
        "deadline_s": settings.LEASE_DEADLINE_S,
        "margin_s": settings.LEASE_TTL_S - settings.LEASE_DEADLINE_S,
        **_CONTEXTS[tab](request, reading),
    }
    context["left_s"] = {
        one.lease.shard: f"{max(0.0, (one.lease.expires_at - reading.now).total_seconds()):.1f}"
        for one in led.shards
        if one.lease.expires_at is not None
    }
    return answer.answer(request, "dashboard/lease_list.html", reading, context, topics=["leases"])


def _tab_counts(reading: Reading) -> dict[str, lens.Counts]:
    shards, taken, history, asked = lens.counts_together(
        [
            (leases.NOUN, LeaseFilter()),
            (take_overs.NOUN, TakeOverFilter()),
            (lease_events.NOUN, LeaseEventFilter()),
            (inquiries.NOUN, InquiryFilter()),
        ],
        reading.scope,
    )
    return {"shards": shards, "take_overs": taken, "history": history, "inquiries": asked}


def _shards(request: HttpRequest, reading: Reading) -> dict[str, Any]:
    found = listing.read(
        request,
        reading,
        LeaseFilter,
        leases.page,
        noun="leases",
        fields=("shard", "state", "holder"),
        limit=LEASES_LIMIT,
    )
    of_hosts = clocks.clocks(reading.scope)
    return {
        "list": found,
        "clocks": of_hosts,
        "clocks_off": any(one.is_off for one in of_hosts),
        "clock_off_s": clocks.OFF_S,
        "frozen_shards": frozenset(
            int(one.scope_id)
            for one in freezes.live(reading.scope)
            if one.scope_kind == ScopeKind.SHARD
        ),
    }


def _terms(request: HttpRequest, reading: Reading) -> dict[str, Any]:
    window = request.GET.get("since", "") or WINDOW_DEFAULT
    if window not in WINDOWS:
        raise errors.InvalidInput(
            f"since: {window[:20]!r} is not one of {', '.join(WINDOWS)}.", parameter="since"
        )
    asked = LeaseFilter.from_query({"shard": request.GET.getlist("shard")}).shard
    since = reading.now - WINDOWS[window]
    found = terms.terms(reading.scope, since=since, until=reading.now, shards=asked)
    newest = sorted(found.terms, key=lambda one: one.began_at, reverse=True)
    return {
        "terms": found,
        "term_rows": newest[:TERM_ROWS_MAX],
        "terms_sentence": term_charts.summary(
            found.terms,
            window=WINDOWS[window],
            fail_overs=found.fail_overs,
            longest_gap=found.longest_gap,
        ),
        "terms_shard": asked[0] if len(asked) == 1 else None,
        "chart": term_charts.chart_of(found.terms, since=since, until=reading.now),
        "tick_format": "d M H:i" if WINDOWS[window] >= timedelta(days=1) else "H:i:s",
        "term_ends": term_charts.ENDS,
        "windows": tuple(WINDOWS),
        "window": window,
    }


def _take_overs(request: HttpRequest, reading: Reading) -> dict[str, Any]:
    found = listing.read(
        request,
        reading,
        TakeOverFilter,
        take_overs.page,
        noun="take-overs",
        fields=("shard", "cause", "decision", "state", "started_at_gte", "started_at_lte"),
    )
    return {"list": found}


def _history(request: HttpRequest, reading: Reading) -> dict[str, Any]:
    found = listing.read(
        request,
        reading,
        LeaseEventFilter,
        lease_events.page,
        noun="lease events",
        fields=("shard", "kind", "token", "at_gte", "at_lte"),
    )
    return {"list": found}


def _inquiries(request: HttpRequest, reading: Reading) -> dict[str, Any]:
    found = listing.read(
        request,
        reading,
        InquiryFilter,
        inquiries.page,
        noun="inquiries",
        fields=("state", "worker_job_id", "asked_at_gte", "asked_at_lte"),
    )
    return {"list": found}


_CONTEXTS: Final = {
    "shards": _shards,
    "terms": _terms,
    "take-overs": _take_overs,
    "history": _history,
    "inquiries": _inquiries,
}


@answer.sheet
def lease_release(request: HttpRequest, shard: int) -> HttpResponse:
    """What taking the shard from its holder would do; posted with a reason, it is done."""
    reading = answer.begin(request)
    leases.one(reading.scope, shard)
    actor = request.user.get_username()
    name = f"shard {shard}"

    def sheet() -> acts.Sheet:
        plan = release_lease(shard=shard, actor=actor, dry_run=True)
        return acts.Sheet(
            title=f"Take {name} from {plan.process}",
            button=f"Release {name}",
            effects=plan.effects,
            fields=[
                acts.Field(
                    name="token",
                    label="Only if the lease still has this token",
                    value=request.POST.get("token", str(plan.token)),
                ),
                acts.Field(name="typed", label=f"Type: {name}"),
            ],
        )

    def act(reason: str) -> str:
        if request.POST.get("typed", "").strip() != name:
            raise errors.InvalidInput(f"Type {name} to release it.", field="typed")
        token = request.POST.get("token", "").strip()
        if not token.isdecimal():
            raise errors.InvalidInput("token: a whole number, as the lease has it.", field="token")
        plan = release_lease(shard=shard, actor=actor, reason=reason, token=int(token))
        return f"Shard {shard} was taken from {plan.process}; the next leader gets token {plan.token + 1}."

    return acts.answer_sheet(
        request, reading, sheet=sheet, act=act, back=reverse("dashboard:lease_list")
    )


@answer.page
def take_over_detail(request: HttpRequest, take_over: int) -> HttpResponse:
    """One change of a shard's leader: what was live, who was asked, and what it left behind."""
    reading = answer.begin(request)
    taken = take_overs.one(reading.scope, take_over)
    found = listing.read(
        request,
        reading,
        TakeOverItemFilter,
        take_over_items.page,
        noun="take-over items",
        fields=("decision", "hostname"),
        order="id",
        take_over=(take_over,),
    )
    asked = InquiryFilter(
        ask_id=(taken.ask_id,) if taken.ask_id else (), limit=LIMIT_MAX, order="id"
    )
    context = {
        "taken": taken,
        "sentence": _of(taken),
        "list": found,
        "inquiries": inquiries.page(asked, reading.scope) if taken.ask_id else None,
        "left": _left_behind(request, reading, taken),
    }
    return answer.answer(
        request, "dashboard/take_over_detail.html", reading, context, topics=["leases"]
    )


def sentence(led: Leadership, now: datetime) -> str:
    """Is anyone leading, since when, does it flap: what an on-call reader needs first."""
    number = len(led.shards)
    held = number - len(led.vacant)
    leaders = led.leaders
    parts = [f"{held} of {number} shards are led, by {_counted(len(leaders), 'scheduler')}."]
    if led.vacant:
        parts.append(f"Nobody decides for {_shards_named(led.vacant)}.")
    last = led.last_fail_over
    if last is None:
        parts.append("There was no fail-over yet.")
    else:
        ago = in_words((now - (last.acquired_at or last.started_at)).total_seconds())
        parts.append(
            f"The last fail-over was {ago} ago: shard {last.shard}, {last.old_hostname}:{last.old_pid}"
            f" → {last.holder_hostname}:{last.holder_pid}."
        )
    if led.flapping:
        parts.append(f"Flapping: {_shards_named(led.flapping)} changed leaders again and again.")
    else:
        parts.append("Nothing flaps.")
    return " ".join(parts)


def _of(taken: TakeOverRow) -> str:
    new = f"{taken.holder_hostname}:{taken.holder_pid}"
    old = f"{taken.old_hostname}:{taken.old_pid}"
    gap = f" Nobody led for {in_words(taken.gap_s)}." if taken.gap_s is not None else ""
    match taken.cause:
        case "expired":
            return f"{old} did not renew its lease in time, and {new} took over.{gap}"
        case "released":
            return f"The shard had been given up, and {new} took it.{gap}"
        case "forced":
            return f"A person had taken the shard from {old}, and {new} took it.{gap}"
        case "taken_back":
            return f"{new} had stopped trusting its lease, and took it back with a new token."
        case _:
            return f"{new} was the first to lead this shard."


def _left_behind(request: HttpRequest, reading: Reading, taken: TakeOverRow) -> dict[str, Any]:
    """Counts of what was refused, set aside or unknown in the term that the take-over began."""
    since = taken.old_renewed_at or taken.acquired_at or taken.started_at
    following = take_overs.page(
        TakeOverFilter(shard=(taken.shard,), new_token=(taken.new_token + 1,), limit=1),
        reading.scope,
    ).rows
    until = (following[0].acquired_at or following[0].started_at) if following else None
    shard = (taken.shard,)
    by_scan = TakeOverItemFilter(take_over=(taken.id,), decision=("ghost",))
    refused = EventFilter(
        shard=shard,
        received_at_gte=since,
        received_at_lte=until,
    )
    fenced = LeaseEventFilter(shard=shard, kind=("fenced_write",), at_gte=since, at_lte=until)
    haunted = GhostFilter(shard=shard, first_seen_at_gte=since, first_seen_at_lte=until)
    unowned = GhostFilter(shard_known=("no",), first_seen_at_gte=since, first_seen_at_lte=until)
    aside = AttemptFilter(shard=shard, issued_at_lte=until, ended_at_gte=since)
    scope = reading.scope
    place = request.path

    def to(name: str, asked: dict[str, list[str]], **more: str) -> str:
        query = {key: values[0] for key, values in asked.items()}
        return reverse(f"dashboard:{name}") + carried(request, {**query, **more})

    counted = lens.counts_together(
        [
            (take_over_items.NOUN, by_scan),
            (ghosts.NOUN, haunted),
            (ghosts.NOUN, unowned),
            (executor_events.NOUN, refused),
            (lease_events.NOUN, fenced),
            (attempts.NOUN, aside),
        ],
        scope,
    )
    return {
        "since": since,
        "until": until,
        "ghosts": counted[0].shown,
        "ghosts_href": place + carried(request, {"decision": "ghost"}),
        "haunted": counted[1].total,
        "haunted_href": to("ghost_list", haunted.to_query(), filtered="1"),
        "unowned": counted[2].total,
        "unowned_href": to("ghost_list", unowned.to_query(), filtered="1"),
        "refused": counted[3].filtered,
        "refused_href": to("executor_event_list", refused.to_query(), filtered="only"),
        "fenced": counted[4].shown,
        "fenced_href": to("lease_list", fenced.to_query(), tab="history"),
        "aside": counted[5].filtered,
        "aside_href": to("attempt_list", aside.to_query(), filtered="only"),
    }


def _shards_named(shards: tuple[int, ...]) -> str:
    named = ", ".join(map(str, shards[:NAMES_MAX]))
    more = f" and {len(shards) - NAMES_MAX} more" if len(shards) > NAMES_MAX else ""
    return f"shard{'s' if len(shards) > 1 else ''} {named}{more}"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
