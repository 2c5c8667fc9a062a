"""How a state, a time, a link or a count is written, once for every page."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo

from django import template
from django.template.loader import get_template
from django.templatetags.static import static
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from dashboard.acts import subjects
from dashboard.addresses import address, address_of, carried, changed, is_lens_on
from dashboard.markdown import rendered
from dashboard.pictures import WORST_FIRST, worst_of
from scheduler_app.queries import nouns
from scheduler_app.queries.list_filter import Lens
from scheduler_app.rules import states
from scheduler_app.rules.retry import told_rules

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from django.template import Context

    from dashboard.acts import Subject
    from dashboard.listing import Listing
    from scheduler_app.queries.freezes import FreezeRow
    from scheduler_app.queries.lens import Counts
    from scheduler_app.rules.definition import TaskDefinition

register = template.Library()

# States that have a mark of their own in static/img/marks.svg; others get the question mark.
OTHER_MARKS: Final = frozenset(
    {
        "frozen", "lost", "terminated", "filtered", "confirmed", "paused", "active", "held", "expired",
        "free", "suspect", "dead", "ended", "ghost",
    }
)  # fmt: skip
MARK_OF: Final = {
    "issued": "queued",
    "pending": "scheduled",
    "ignored": "filtered",
    "refused": "filtered",
    "rescheduled": "up_for_reschedule",
    "open": "up_for_retry",
    "resolved": "confirmed",
    "reviewed": "confirmed",
    "unreviewed": "scheduled",
    "acknowledged": "active",
    "waiting": "queued",
    "sent": "confirmed",
    "approved": "confirmed",
    "dismissed": "ended",
}
WORDS: Final = {"none": "no state yet"}
LOOKS: Final = ("system", "light", "dark", "contrast")
MONTHS: Final = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
MARKED: Final = OTHER_MARKS | {*states.TaskState}


@register.simple_tag
@lru_cache(maxsize=256)
def icon(name: str) -> str:
    """An icon of the vendored sprite; text beside it must say the same."""
    href = static("vendor/tabler-icons-3.52.0/icons.svg")
    return format_html('<svg class="icon" aria-hidden="true"><use href="{}#{}"/></svg>', href, name)


@register.simple_tag
@lru_cache(maxsize=256)
def mark(state: str | None, size: str = "") -> str:
    """The mark of a state: shape, glyph and hue. Never alone: a word or a name stands beside it."""
    name = _mark_name(state)
    return format_html(
        '<svg class="sign sign-{}" aria-hidden="true"{}><use href="{}#{}"/></svg>',
        name,
        SafeString(' x="8" y="8" width="16" height="16"') if size == "graph" else "",
        static("img/marks.svg"),
        name,
    )


@register.simple_tag
@lru_cache(maxsize=256)
def state_mark(state: str | None) -> str:
    """The mark of a state and its word."""
    return format_html(
        '<span class="state state-{}">{}{}</span>', _mark_name(state), mark(state), word(state)
    )


@register.filter
def word(code: str | None) -> str:
    """A state or a code as a reader says it: ``up_for_retry`` is "up for retry"."""
    text = code or "none"
    return WORDS.get(text, text.replace("_", " "))


def _mark_name(state: str | None) -> str:
    name = MARK_OF.get(state or "none", state or "none")
    return name if name in MARKED else "other"


@register.simple_tag(takes_context=True)
def moment(context: Context, value: datetime | str | None, empty: str = "") -> str:
    """A time in UTC; scripts write it in the reader's zone. Nothing gives ``empty``."""
    at = datetime.fromisoformat(value) if isinstance(value, str) and value else value
    if not isinstance(at, datetime):
        return empty
    at = at.astimezone(UTC)
    text = at.isoformat(" ", "microseconds")
    day, month, clock = text[8:10], MONTHS[at.month - 1], text[11:19]
    now = context.get("now")
    year = "" if isinstance(now, datetime) and text.startswith(f"{now.year}-") else f" {text[:4]}"
    return SafeString(  # digits and signs of our own
        f'<time datetime="{text[:10]}T{text[11:23]}Z" title="{text[:23]} UTC">'
        f"{day} {month}{year} {clock}</time>"
    )


@register.simple_tag
def moment_in(value: datetime, zone: str) -> str:
    """A time on the clock of a zone, with its name and offset: where changes of the clock show."""
    here = value.astimezone(ZoneInfo(zone))
    return f"{here:%a %d %b %H:%M} {zone} (UTC{here:%z})"


@register.simple_tag(takes_context=True)
def duration(context: Context, start: datetime | None, end: datetime | None = None) -> str:
    """How long from ``start`` to ``end``; without an end it goes on until now, and ticks."""
    if start is None:
        return ""
    if end is not None:
        return in_words((end - start).total_seconds())
    text = in_words((context["now"] - start).total_seconds())
    return format_html('<span data-since="{}">{}</span>', start.isoformat(), text)


@register.simple_tag(takes_context=True)
def until(context: Context, end: datetime | None) -> str:
    """How long until ``end``; ticks down."""
    if end is None:
        return ""
    text = in_words((end - context["now"]).total_seconds())
    return format_html('<span data-until="{}">{}</span>', end.isoformat(), text)


@register.filter
def in_words(seconds: float | None) -> str:
    """``4 m 12 s``; below ten seconds with a tenth, below one in milliseconds."""
    if seconds is None:
        return ""
    seconds = max(0.0, seconds)
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    whole = int(seconds)
    if seconds < 10:
        return f"{seconds:.1f} s"
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} m {whole % 60} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60} m"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"


@register.simple_tag(takes_context=True)
def qs(context: Context, **changes: object) -> str:
    """This page's address with some parameters changed; ``name=None`` takes one out."""
    return changed(context["request"], changes)


@register.simple_tag(takes_context=True)
def link(context: Context, name: str, *args: object, **parameters: object) -> str:
    """The address of another page, carrying the lens on while it is on."""
    return address(f"dashboard:{name}", *args) + carried(context["request"], parameters)


@register.simple_tag(takes_context=True)
def thaw_link(context: Context, freeze: FreezeRow) -> str:
    """The address of the sheet that thaws it, and leads back to this page."""
    args = (freeze.scope_id,) if freeze.scope_id else ()
    back = {"next": context["request"].get_full_path()}
    return reverse(f"dashboard:{freeze.scope_kind}_thaw", args=args) + carried(
        context["request"], back
    )


# Noun of a record -> the page of one, and how its id is read from text.
PAGE_OF: Final = {
    "run": "run_detail",
    "task_instance": "task_instance_detail",
    "attempt": "attempt_detail",
    "executor_event": "executor_event_detail",
    "flow": "flow_detail",
}


@register.simple_tag(takes_context=True)
def record_link(context: Context, noun: str, record_id: object, **parameters: object) -> str:
    """The address of a record by its noun and id; of a noun without pages, its list with it alone."""
    if noun == "job":
        return reverse("dashboard:job_list") + carried(
            context["request"], {"id": record_id, "filtered": "1"}
        )
    return address_of(f"dashboard:{PAGE_OF[noun]}", record_id) + carried(
        context["request"], parameters
    )


@register.simple_tag(takes_context=True)
def lens_on(context: Context) -> bool:
    """Whether this page shows filtered records."""
    request = context.get("request")
    return request is not None and is_lens_on(request)


@register.simple_tag(takes_context=True)
def navigation(context: Context, name: str) -> SafeString:
    """A part with ways to other pages, which says the same to everybody at this place: made once."""
    request = context["request"]
    here = request.resolver_match.url_name if request.resolver_match else ""
    key = (name, here, is_lens_on(request))
    if key not in _NAVIGATION:
        part: Any = get_template(f"dashboard/parts/{name}.html")
        _NAVIGATION[key] = part.template.render(context)
    return _NAVIGATION[key]


_NAVIGATION: Final[dict[tuple[str, str, bool], SafeString]] = {}  # a few for each address


@register.inclusion_tag("dashboard/parts/place.html", takes_context=True)
def place(context: Context, name: str, label: str, icon_name: str, key: str = "") -> dict[str, Any]:
    """One entry of the navigation, marked when the reader is there."""
    match = context["request"].resolver_match
    here = match.url_name if match else ""
    noun = name.removesuffix("_list")
    return {
        "href": link(context, name),
        "label": label,
        "icon_name": icon_name,
        "key": key,
        "is_here": here == name
        or (here or "").startswith(f"{noun}_")
        or (noun == "review" and (here or "").startswith("guard_"))
        or (noun == "record" and (here or "").startswith("ghost_")),
    }


@register.inclusion_tag("dashboard/parts/tab.html", takes_context=True)
def tab(context: Context, name: str, label: str, counts: Counts | None = None) -> dict[str, Any]:
    """One tab of a detail page, a link to the same record; the lens goes along, filters do not."""
    request = context["request"]
    return {
        "href": carried(request, {"tab": name}) or "?",
        "label": label,
        "counts": counts,
        "is_here": context["tab"] == name,
    }


@register.inclusion_tag("dashboard/parts/counts.html", takes_context=True)
def count_line(context: Context, listing: Listing[Any]) -> dict[str, Any]:
    """``23 shown · 4 filtered`` with the reasons, and the switch."""
    request = context["request"]
    counts = listing.counts
    reasons = [
        {
            "code": code,
            "number": number,
            "href": changed(request, {"filtered": "only", "why": code}),
            "is_here": listing.asked.why == (code,),
        }
        for code, number in counts.by_reason.items()
    ]
    return {
        "counts": counts,
        "noun": listing.noun,
        "export": listing.export,
        "more": "" if counts.exact else "+",
        "reasons": reasons,
        "is_on": listing.is_lens_on,
        "is_only": listing.is_only_filtered,
        "is_explorer": listing.lens is Lens.ONLY,
        "in_context": listing.asked.filtered is Lens.ALL,
        "switch": changed(request, {"filtered": None if listing.is_lens_on else "1", "why": None}),
        "context_switch": changed(
            request,
            {"filtered": None if listing.asked.filtered is Lens.ALL else "1", "why": None},
        ),
        "all": changed(request, {"filtered": "1", "why": None}),
        "only": changed(request, {"filtered": "only", "why": None}),
    }


@register.simple_tag(takes_context=True)
def sort(context: Context, listing: Listing[Any], column: str, label: str) -> str:
    """A column heading that orders the list; plain text where the list cannot be ordered so."""
    asked = getattr(listing, "asked", None)
    if asked is None or column not in asked.ORDERS:
        return label
    if not listing.counts.exact and not nouns.is_in_order(type(asked), column):
        return label
    now = asked.ordered_by
    # As the list says it: of what was set aside, two columns are the same.
    up, down = (asked.evolve(order=order).ordered_by for order in (column, f"-{column}"))
    following = column if now == down else f"-{column}"
    arrow = {up: " ↑", down: " ↓"}.get(now, "")
    href = changed(context["request"], {"order": following})
    return format_html('<a class="sort" href="{}">{}{}</a>', href, label, arrow)


@register.filter
def as_json(value: object) -> str:
    """The value as JSON that a person can read."""
    return json.dumps(value, indent=2, ensure_ascii=False, default=str, sort_keys=True)


@register.filter
def lookup(mapping: Mapping[Any, Any], key: object) -> object:
    """The value under the key, or nothing."""
    return mapping.get(key)


@register.filter
def short(value: object) -> str:
    """The last 12 characters of an id: where time-ordered ids differ."""
    text = str(value or "")
    return text if len(text) <= 13 else f"…{text[-12:]}"


@register.simple_tag(takes_context=True)
def look(context: Context) -> str:
    """The chosen look: light, dark, contrast, or system."""
    request = context.get("request")
    chosen = request.COOKIES.get("daylight_look", "system") if request else "system"
    return chosen if chosen in LOOKS else "system"


@register.filter
def worst_first(tally: Mapping[str, int] | None) -> list[tuple[str, int]]:
    """The states of a tally with their numbers, trouble first."""
    known = tally or {}
    ranked = sorted(known, key=lambda s: WORST_FIRST.index(s) if s in WORST_FIRST else -1)
    return [(state, known[state]) for state in ranked]


@register.simple_tag
def diff_lines(lines: Sequence[str]) -> SafeString:
    """The lines of a unified diff, each marked as what it is; its first sign says the same."""
    kinds = {"+": "plus", "-": "minus", "@": "where"}
    return format_html_join(
        "\n", '<span class="{}">{}</span>', ((kinds.get(line[:1], "same"), line) for line in lines)
    )


@register.filter
def worst(tally: Mapping[str, int]) -> str:
    """The state that several show together: trouble first."""
    return worst_of(tally)


@register.filter
def split_words(text: str) -> list[str]:
    """The words of the text."""
    return text.split()


@register.filter
def plainly(value: object) -> str:
    """A stored value in a line of text."""
    if isinstance(value, dict):
        return ", ".join(f"{word(name)} {plainly(one)}" for name, one in value.items())
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(str(one) for one in value)
    return str(value)


@register.filter
def markdown(text: object) -> SafeString:
    """A note in Markdown, as HTML that cannot do anything."""
    return rendered(str(text))


@register.filter
def web_address(url: object) -> str:
    """The address, if it leads over http or https; nothing for any other, whoever stored it."""
    text = str(url)
    return text if text.lower().startswith(("http://", "https://")) else ""


@register.filter
def retry_rules(task: TaskDefinition) -> list[str]:
    """What the task's retries say of exceptions, a line each."""
    return told_rules(task)


@register.filter
def grouped(value: int) -> str:
    """The number with its thousands apart."""
    return f"{value:,}"


@register.filter
def as_subjects(found: Sequence[Any]) -> tuple[Subject, ...]:
    """What a plan says of each record, of many instances of a mapped task at once."""
    return subjects(found)


@register.filter
def numbered(subjects: Sequence[Subject]) -> int:
    """How many records these lines of a preview stand for."""
    return sum(one.number for one in subjects)


@register.filter
def briefly(value: int) -> str:
    """The number where there is little room: 940, 1k, 12k."""
    return str(value) if value < 1000 else f"{value // 1000}k"


@register.filter
def signed_s(seconds: float) -> str:
    """A difference in seconds with its side: ``+5 m 0 s``, ``-12 ms``."""
    return f"{'-' if seconds < 0 else '+'}{in_words(abs(seconds))}"


@register.filter
def minus(value: int, other: int) -> int:
    """The difference."""
    return value - other
