"""Every list of the dashboard: the filter from the address, its page of rows, and its filter bar."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar
from urllib.parse import urlencode

from django.http import QueryDict

from dashboard.addresses import changed
from dashboard.folding import PARAMETER
from scheduler_app.queries.list_filter import LIMIT_DEFAULT, Lens

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from django.http import HttpRequest

    from dashboard.answer import Reading
    from scheduler_app.queries.lens import Counts, Page
    from scheduler_app.queries.list_filter import ListFilter
    from scheduler_app.queries.scope import Scope

RowT = TypeVar("RowT")
FilterT = TypeVar("FilterT", bound="ListFilter")

OF_PAGES: Final = frozenset(
    {"tab", "attempt", "axis", "lanes", "old", "new", "month", "zone", PARAMETER}
)  # parameters that belong to pages, not to lists
EXPORTED: Final = frozenset(
    {
        "flows",
        "runs",
        "task instances",
        "attempts",
        "executor events",
        "leases",
        "jobs",
        "pools",
        "limits",
    }
    | {"variables", "variable changes", "connections"}
    | {"lease events", "take-overs", "take-over items", "inquiries"}
    | {"records", "ghosts", "ghost audits", "incidents", "backfills", "backfill dates"}
)
WORDS: Final = {
    "q": "name contains",
    "map_label": "label contains",
    "is_set": "set by an operator",
    "waits": "somebody waits",
    "noun": "record",
    "conn_type": "type",
    "at_gte": "from",
    "at_lte": "until",
}
HINTS: Final = {"date-time": "2026-01-31T02:00Z"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One field of a filter bar."""

    name: str
    label: str
    value: str
    choices: tuple[str, ...]
    hint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Pill:
    """One parameter in force, and the address without it."""

    name: str
    value: str
    without: str  # query string


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing(Generic[RowT]):
    """One list as a page shows it."""

    noun: str  # plural, for sentences
    asked: ListFilter
    rows: tuple[RowT, ...]
    counts: Counts
    next_cursor: str
    lens: Lens  # of the list where its address says nothing
    fields: tuple[Field, ...]
    pills: tuple[Pill, ...]

    @property
    def export(self) -> str:
        """Where the same rows are had as CSV, by the address of the API; empty where it has none."""
        if self.noun not in EXPORTED:
            return ""
        query = QueryDict(mutable=True)
        for name, values in self.asked.evolve(limit=LIMIT_DEFAULT).to_query().items():
            query.setlist(name, values)
        query["format"] = "csv"
        return f"/api/v1/{self.noun.replace(' ', '-')}/export/?{query.urlencode(safe=',:')}"

    @property
    def matching(self) -> str:
        """What tells an act that it is about all rows that the filters match, as a query string."""
        query = QueryDict(mutable=True)
        for name, values in self.asked.evolve(limit=LIMIT_DEFAULT).to_query().items():
            query.setlist(name, values)
        return urlencode({"all": query.urlencode(safe=",:")})

    @property
    def is_only_filtered(self) -> bool:
        """Whether filtered rows are listed alone."""
        return self.asked.filtered is Lens.ONLY

    @property
    def is_lens_on(self) -> bool:
        """Whether filtered rows are listed at all."""
        return self.asked.filtered is not Lens.CURRENT

    @property
    def listed(self) -> int:
        """How many rows the list has under its lens, on all pages."""
        asked = self.asked
        if not self.is_lens_on:
            return self.counts.shown
        by_reason = self.counts.by_reason
        aside = sum(n for code, n in by_reason.items() if not asked.why or code in asked.why)
        return aside if self.is_only_filtered else self.counts.shown + aside


def read(
    request: HttpRequest,
    reading: Reading,
    kind: type[FilterT],
    page: Callable[[FilterT, Scope], Page[RowT]],
    /,  # a list may have a parameter of the name of one of these
    *,
    noun: str,
    fields: Sequence[str] = (),
    order: str = "",
    limit: int = 0,
    lens: Lens = Lens.CURRENT,
    **fixed: Any,
) -> Listing[RowT]:
    """The list that the address asks for; ``fixed`` parameters are the page's own.

    ``order``, ``limit`` and ``lens`` hold unless the address names others. Raises ``InvalidInput``.
    """
    asked = kind.from_query(request.GET, ignore=OF_PAGES)
    changes = dict(fixed)
    if order and not asked.order:
        changes["order"] = order
    if limit and "limit" not in request.GET:
        changes["limit"] = limit
    if lens is not Lens.CURRENT and not request.GET.get("filtered"):
        changes["filtered"] = lens
    asked = asked.evolve(cursor=asked.cursor, **changes)
    found = page(asked, reading.scope)
    parameters = kind.parameters()
    return Listing(
        noun=noun,
        asked=asked,
        rows=found.rows,
        counts=found.counts,
        next_cursor=found.next_cursor,
        lens=lens,
        fields=tuple(
            Field(
                name=name,
                label=_label(name),
                value=request.GET.get(name, ""),
                choices=parameters[name].choices,
                hint=HINTS.get(parameters[name].kind, ""),
            )
            for name in fields
        ),
        pills=tuple(
            Pill(
                name=_label(name),
                value=", ".join(value for value in request.GET.getlist(name) if value),
                without=changed(request, {name: None}),
            )
            for name in parameters
            if any(request.GET.getlist(name)) and name not in fixed
        ),
    )


def _label(name: str) -> str:
    """``started_at_gte`` reads "started from"."""
    if name in WORDS:
        return WORDS[name]
    for ending, word in (
        ("_at_gte", " from"),
        ("_at_lte", " until"),
        ("_gte", " from"),
        ("_lte", " until"),
    ):
        if name.endswith(ending):
            return name.removesuffix(ending).replace("_", " ") + word
    return name.replace("_", " ")
