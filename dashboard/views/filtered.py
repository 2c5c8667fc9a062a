"""Filtered and ghosts: what was set aside anywhere, what haunts now, and the audits that look for it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from django.contrib import messages
from django.http import HttpResponse, HttpResponseRedirect
from django.urls import reverse

from dashboard import acts, answer, listing
from dashboard.addresses import carried, in_address
from scheduler_app.operations.mark_reviewed import mark_reviewed, unmark_reviewed
from scheduler_app.operations.stop_ghost import stop_ghost
from scheduler_app.queries import attempts, ghost_audits, ghosts, leadership, lens, records
from scheduler_app.queries.filters import GhostAuditFilter, GhostFilter, RecordFilter
from scheduler_app.queries.list_filter import Lens
from scheduler_app.rules import errors
from scheduler_app.rules.ghosts import SUSPECTS

if TYPE_CHECKING:
    from django.http import HttpRequest

    from dashboard.answer import Reading
    from scheduler_app.queries.ghost_audits import GhostAuditRow
    from scheduler_app.queries.leadership import NearChange
    from scheduler_app.queries.records import Summary

FIELDS: Final = ("noun", "flow_id", "task_id", "hostname", "shard", "reviewed", "at_gte", "at_lte")
GHOST_FIELDS: Final = ("kind", "flow_id", "hostname", "shard", "reviewed", "last_seen_at_gte")
HOURS: Final = 24  # of the bars
BAR_HEIGHT: Final = 48.0
BAR_WIDTH: Final = 20
AUDITORS_MAX: Final = 20  # newest rows looked at for the schedulers that audit now
AUDIT_FRESH: Final = timedelta(minutes=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """One question that is asked often, as an address."""

    name: str
    label: str
    href: str
    number: str = ""
    is_here: bool = False
    title: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """The filtered records of one hour."""

    hour: datetime
    number: int
    said: str  # by reason
    x: int
    y: float
    height: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The newest audits of all schedulers together."""

    at: datetime | None = None
    compared: int = 0
    is_complete: bool = True
    audits: int = 0  # in the hours looked at


@answer.page
def record_list(request: HttpRequest) -> HttpResponse:
    """Records of every noun that are set aside, newest first; ``filtered=1`` shows all others too."""
    reading = answer.begin(request)
    found = listing.read(
        request,
        reading,
        RecordFilter,
        records.page,
        noun="records",
        fields=FIELDS,
        lens=Lens.ONLY,
        order="-at" if request.GET.get("filtered") == Lens.ALL else "",
    )
    asked = found.asked
    assert isinstance(asked, RecordFilter)
    # The hours that the bars show: what is asked stays the same for an hour, and is kept.
    since = _this_hour(reading.now) - timedelta(hours=HOURS - 1)
    summary = records.summary(asked, reading.scope, since=since)
    haunting = _haunting(reading)
    doubled = lens.counts(records.NOUN, RecordFilter(possible=("double_write",)), reading.scope)
    context = {
        "list": found,
        "bars": _bars(summary, reading.now),
        "bar_max": max((sum(codes.values()) for _, codes in summary.hours), default=0),
        "summary": summary,
        "haunting": haunting,
        "doubled": doubled.filtered,
        "judged": records.judged_events(),
        "comparison": _comparison(reading),
        "presets": _presets(request, reading, haunting=haunting, doubled=doubled.filtered),
    }
    return answer.answer(
        request, "dashboard/record_list.html", reading, context, topics=["runs", "ghosts"]
    )


@answer.page
def ghost_list(request: HttpRequest) -> HttpResponse:
    """Ghosts and suspects that are there now; those that are over are filtered."""
    reading = answer.begin(request)
    found = listing.read(
        request, reading, GhostFilter, ghosts.page, noun="ghosts", fields=GHOST_FIELDS
    )
    context = {
        "list": found,
        "comparison": _comparison(reading),
        "presets": _presets(request, reading),
    }
    return answer.answer(request, "dashboard/ghost_list.html", reading, context, topics=["ghosts"])


@answer.page
def ghost_detail(request: HttpRequest, ghost: int) -> HttpResponse:
    """One ghost: the process, what was compared, what to do."""
    reading = answer.begin(request)
    row = ghosts.one(reading.scope, ghost)
    return _ghost_page(request, reading, row)


def _ghost_page(
    request: HttpRequest,
    reading: Reading,
    row: ghosts.GhostRow,
    *,
    error: str = "",
    typed: str = "",
    status: int = 200,
) -> HttpResponse:
    attempt = None
    if row.attempt_id is not None:
        try:
            attempt = attempts.one(reading.scope, row.attempt_id)
        except errors.NotFound:
            attempt = None  # it has no record: that may be just what is wrong
    context = {
        "ghost": row,
        "attempt": attempt,
        "error": error,
        "typed": typed,
        "near": near_ghost(reading, row),
    }
    return answer.answer(
        request,
        "dashboard/ghost_detail.html",
        reading,
        context,
        topics=["ghosts"],
        status=status,
    )


def near_ghost(reading: Reading, row: ghosts.GhostRow) -> tuple[NearChange, ...]:
    """Changes of leader within 60 s of what it executes: of its attempt's life, or of its sighting."""
    if row.attempt_id is not None:
        near = leadership.near_attempt(reading.scope, row.attempt_id)
        if near:
            return near
    return leadership.near_span(
        reading.scope,
        shard=row.shard,
        began_at=row.first_seen_at,
        ended_at=row.ended_at or row.last_seen_at,
    )


@answer.act
def ghost_stop(request: HttpRequest, ghost: int) -> HttpResponse:
    """The worker of the ghost is asked to end its process."""
    reading = answer.begin(request)
    row = ghosts.one(reading.scope, ghost)  # only what the reader may see
    reason = request.POST.get("reason", "")
    try:
        stop_ghost(ghost_id=ghost, actor=request.user.get_username(), reason=reason)
    except errors.InvalidInput as error:
        return _ghost_page(request, reading, row, error=str(error), typed=reason, status=400)
    messages.success(
        request, f"The worker of {row.hostname}:{row.pid} ends it at one of its next heartbeats."
    )
    return HttpResponseRedirect(reverse("dashboard:ghost_detail", args=[ghost]))


@answer.sheet
def reviewed(request: HttpRequest, *, is_reviewed: bool) -> HttpResponse:
    """What marking the named records would do; posted with a note, they are marked, or not any more."""
    reading = answer.begin(request)
    keys = (request.POST if request.method == "POST" else request.GET).getlist("key")
    if not keys:
        raise errors.InvalidInput("key: tick the records that you have looked at.", field="key")
    records.check_visible(reading.scope, keys)
    verb = mark_reviewed if is_reviewed else unmark_reviewed
    actor = request.user.get_username()

    def sheet() -> acts.Sheet:
        plan = verb(keys=keys, actor=actor, dry_run=True)
        number = len(plan.included)
        what = f"{number} record{'' if number == 1 else 's'}"
        return acts.Sheet(
            title=f"Mark {what} as {'reviewed' if is_reviewed else 'not reviewed'}",
            button=f"Mark {what}",
            effects=(
                [
                    "Your name and note stand beside them; others see that somebody has looked.",
                    "Nothing else changes: they stay filtered, with their reasons, and are counted.",
                ]
                if is_reviewed
                else ["The audit keeps who had marked them, and their notes."]
            ),
            included=acts.subjects(plan.included),
            excluded=acts.subjects(plan.excluded),
            hidden=[("key", key) for key in keys],
        )

    def act(reason: str) -> str:
        plan = verb(keys=keys, actor=actor, reason=reason)
        number = len(plan.included)
        verbed = "marked as reviewed" if is_reviewed else "not marked as reviewed any more"
        return f"{number} record{' is' if number == 1 else 's are'} {verbed}."

    return acts.answer_sheet(
        request, reading, sheet=sheet, act=act, back=reverse("dashboard:record_list")
    )


@answer.page
def ghost_audit_list(request: HttpRequest) -> HttpResponse:
    """The three-way audits, hour by hour."""
    reading = answer.begin(request)
    found = listing.read(
        request,
        reading,
        GhostAuditFilter,
        ghost_audits.page,
        noun="ghost audits",
        fields=("last_at_gte", "last_at_lte"),
    )
    context = {
        "list": found,
        "comparison": _comparison(reading),
        "presets": _presets(request, reading),
    }
    return answer.answer(
        request, "dashboard/ghost_audit_list.html", reading, context, topics=["ghosts"]
    )


def _haunting(reading: Reading) -> tuple[ghosts.GhostRow, ...]:
    """Ghosts that are there now, without suspects."""
    found = ghosts.page(GhostFilter(limit=100), reading.scope).rows
    return tuple(row for row in found if row.kind not in SUSPECTS)


def _comparison(reading: Reading) -> Comparison:
    """What the newest audit of each scheduler compared."""
    newest: dict[object, GhostAuditRow] = {}
    since = (reading.now - AUDIT_FRESH).replace(second=0, microsecond=0)
    asked = GhostAuditFilter(last_at_gte=since, limit=AUDITORS_MAX)
    for row in ghost_audits.page(asked, reading.scope).rows:
        newest.setdefault(row.holder, row)
    if not newest:
        return Comparison()
    rows = newest.values()
    return Comparison(
        at=max(row.last_at for row in rows),
        compared=sum(row.last_compared for row in rows),
        is_complete=all(row.is_complete for row in rows),
        audits=sum(row.audits for row in rows),
    )


def _bars(summary: Summary, now: datetime) -> list[Bar]:
    """One bar for each of the last hours, also for those without records."""
    by_hour = dict(summary.hours)
    top = max((sum(codes.values()) for codes in by_hour.values()), default=0) or 1
    bars = []
    for place in range(HOURS):
        hour = _this_hour(now) - timedelta(hours=HOURS - 1 - place)
        codes = by_hour.get(hour, {})
        number = sum(codes.values())
        height = round(BAR_HEIGHT * number / top, 1)
        if number:
            height = max(height, 2.0)
        bars.append(
            Bar(
                hour=hour,
                number=number,
                said=", ".join(
                    f"{n} {code.replace('_', ' ')}" for code, n in sorted(codes.items())
                ),
                x=place * BAR_WIDTH,
                y=BAR_HEIGHT - height,
                height=height,
            )
        )
    return bars


def _this_hour(now: datetime) -> datetime:
    return now.replace(minute=0, second=0, microsecond=0)


def _presets(
    request: HttpRequest,
    reading: Reading,
    *,
    haunting: tuple[ghosts.GhostRow, ...] | None = None,
    doubled: int | None = None,
) -> list[Preset]:
    here = request.path
    explorer, list_of_ghosts = reverse("dashboard:record_list"), reverse("dashboard:ghost_list")
    is_explorer = here == explorer
    asked = {name for name in request.GET if request.GET.get(name)}
    last = records.last_changes(reading.scope)
    presets = [
        Preset(
            name="all",
            label="All filtered records",
            href=explorer + carried(request, {}),
            is_here=is_explorer and not asked - {"filtered", "cursor", "order"},
        )
    ]
    for name, label, at, never in (
        (
            "fail_over",
            "Since the last fail-over",
            last.fail_over,
            "No leader was ever replaced without having given its shard up.",
        ),
        (
            "hand_over",
            "Since the last planned change",
            last.planned,
            "No shard was ever handed over.",
        ),
    ):
        since = "" if at is None else in_address(at)
        presets.append(
            Preset(
                name=name,
                label=label,
                href=explorer + carried(request, {"at_gte": since}) if since else "",
                is_here=bool(since) and is_explorer and request.GET.get("at_gte") == since,
                title=never if at is None else f"The shard was taken at {at:%d %b %H:%M:%S} UTC.",
            )
        )
    presets += [
        Preset(
            name="ghosts",
            label="Live ghosts now",
            href=list_of_ghosts + carried(request, {}),
            number="" if haunting is None else str(len(haunting)),
            is_here=here == list_of_ghosts,
        ),
        Preset(
            name="double_write",
            label="Possible double writes",
            href=explorer + carried(request, {"possible": "double_write"}),
            number="" if doubled is None else str(doubled),
            is_here=is_explorer and request.GET.get("possible") == "double_write",
        ),
        Preset(
            name="unreviewed",
            label="Not reviewed yet",
            href=explorer + carried(request, {"reviewed": "no"}),
            is_here=is_explorer and request.GET.get("reviewed") == "no",
            title="What nobody has marked as reviewed.",
        ),
        Preset(
            name="audits",
            label="Audits",
            href=reverse("dashboard:ghost_audit_list") + carried(request, {}),
            is_here=here == reverse("dashboard:ghost_audit_list"),
        ),
    ]
    return presets
