"""What every list may be asked for, read from an address and given back for every link."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, TypeVar

from django.db.models import Q

from scheduler_app.queries.parameters import INTEGER, Parameter, quoted
from scheduler_app.rules import errors

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from django.db.models import Model, QuerySet

    ModelT = TypeVar("ModelT", bound=Model)

LIMIT_DEFAULT: Final = 50  # rows a page
LIMIT_MAX: Final = 500  # rows a page
VALUES_MAX: Final = 200  # of one parameter; more is no filter but a list
CODE: Final = re.compile(r"[a-z][a-z0-9_]{0,39}")


class Lens(StrEnum):
    """Which half of a list is shown."""

    CURRENT = ""  # current rows only
    ALL = "1"  # filtered rows among the current ones
    ONLY = "only"  # filtered rows alone


@dataclass(frozen=True, slots=True, kw_only=True)
class ListFilter:
    """What every list may be asked for; the noun's own filter adds its columns."""

    ORDERS: ClassVar[tuple[str, ...]] = ("id",)
    ORDER_DEFAULT: ClassVar[str] = "-id"
    # Which rows are current. Where no column says so, in the words that an index serves.
    CURRENT: ClassVar[Q] = Q(filter_code__isnull=True)

    # Parameters whose columns the index over what was set aside has of each row, and no index by themselves.
    KNOWN_ASIDE: ClassVar[frozenset[str]] = frozenset()

    filtered: Lens = Lens.CURRENT
    why: tuple[str, ...] = ()
    limit: int = LIMIT_DEFAULT
    cursor: str = ""
    order: str = ""
    count: str = ""

    @classmethod
    def from_query(cls, query: Mapping[str, Any], *, ignore: Collection[str] = ()) -> Self:
        """The filter that these parameters ask for. Raises ``InvalidInput`` naming the parameter.

        ``query`` maps a name to a text or to several; a ``QueryDict`` will do. A name that the list
        does not know is refused, unless the caller keeps it for itself (``ignore``).
        """
        given = dict(_read(query, ignore))
        known = cls.parameters()
        values: dict[str, Any] = {}
        for name, texts in given.items():
            if name in known:
                values[name] = _value(name, texts, known[name])
            elif name in _LENS_AND_PAGE:
                values[name] = _LENS_AND_PAGE[name](cls, texts[-1])
            else:
                allowed = ", ".join(sorted({*known, *_LENS_AND_PAGE}))
                raise errors.InvalidInput(
                    f"{name}: no such parameter of this list. It knows: {allowed}.", parameter=name
                )
        if values.get("why") and "filtered" not in values:
            values["filtered"] = Lens.ONLY
        return cls(**values)

    def to_query(self) -> dict[str, list[str]]:
        """The parameters that make this filter again; what is as by default is left out."""
        query: dict[str, list[str]] = {}
        for one in fields(self):
            value = getattr(self, one.name)
            if one.name == "filtered" and self.why and value is Lens.CURRENT:
                query["filtered"] = ["0"]  # said aloud, since 'why' alone means 'only'
            elif value == one.default:
                continue
            elif one.name == "why":
                query["why"] = [",".join(value)]
            elif isinstance(value, tuple):
                query[one.name] = [_text(each) for each in value]
            else:
                query[one.name] = [_text(value)]
        return query

    def evolve(self, **changes: Any) -> Self:
        """This filter with some parameters changed; the cursor goes, unless it is given."""
        return replace(self, **{"cursor": "", **changes})

    def matching(self, rows: QuerySet[ModelT]) -> QuerySet[ModelT]:
        """The rows that every parameter but ``filtered`` and ``why`` keeps: what counts count."""
        for name, parameter in self.parameters().items():
            value = getattr(self, name)
            if value not in ((), None):
                rows = rows.filter(parameter.keep(value))
        return rows

    def parts(self) -> tuple[ListFilter, ...]:
        """Filters of which each row that this one keeps is kept by one and no more.

        Several where no index serves all of it, and one serves each: PostgreSQL looks at every row of a
        table for an OR whose sides are found by different indexes.
        """
        return (self,)

    def shown_parts(self) -> tuple[ListFilter, ...]:
        """The same of the rows that the list shows: parts that each show some of them, and all together."""
        return self.parts()

    def counted_parts(self) -> tuple[ListFilter, ...]:
        """The same of the rows that are kept and current, in the order in which they are counted."""
        return self.parts()

    @property
    def is_found_aside(self) -> bool:
        """Whether it asks for some of what was set aside, which the index over all of that finds."""
        asked = self.narrowing()
        is_narrowed = bool(asked or (self.why and self.filtered is Lens.ONLY))
        return self.filtered is not Lens.CURRENT and is_narrowed and asked <= self.KNOWN_ASIDE

    @property
    def is_told_by_index(self) -> bool:
        """Whether an index in the order of the times of what was set aside tells alone what it keeps of that."""
        return False

    def apart(self) -> tuple[ListFilter, ...]:
        """The halves that it shows, each by itself."""
        if self.filtered is not Lens.ALL:
            return (self,)
        return tuple(
            replace(self, filtered=half, order=self.ordered_by)
            for half in (Lens.CURRENT, Lens.ONLY)
        )

    @property
    def is_lasting(self) -> bool:
        """Whether it means the same conditions whenever it is asked, so that its statement may be kept."""
        return True

    def narrowing(self) -> frozenset[str]:
        """The noun's own parameters that are in force."""
        return frozenset(
            name for name in self.parameters() if getattr(self, name) not in ((), None)
        )

    def condition(self, *, but: Collection[str] = ()) -> Q:
        """What these parameters ask of a row, but for some of them."""
        known = self.parameters()
        kept = Q()
        for name in sorted(self.narrowing() - frozenset(but)):
            kept &= known[name].keep(getattr(self, name))
        return kept

    def apply(self, rows: QuerySet[ModelT]) -> QuerySet[ModelT]:
        """The rows that the list shows, on all its pages."""
        rows = self.matching(rows)
        current, told = self.halves()
        if self.why:
            told &= Q(filter_code__in=self.why)
        if self.filtered is Lens.CURRENT:
            return rows.filter(current)
        if self.filtered is Lens.ONLY:
            return rows.filter(told)
        return rows.filter(current | told) if self.why else rows

    def halves(self) -> tuple[Q, Q]:
        """Which rows are current, and which are set aside."""
        return self.CURRENT, Q(filter_code__isnull=False)

    @property
    def ordered_by(self) -> str:
        """The order in force: the one asked for, or the list's own."""
        return self.order or self.ORDER_DEFAULT

    @classmethod
    def parameters(cls) -> dict[str, Parameter]:
        """The noun's own parameters, by name."""
        return {
            one.name: one.metadata["parameter"]
            for one in fields(cls)
            if "parameter" in one.metadata
        }


def _read(query: Mapping[str, Any], ignore: Collection[str]) -> Iterator[tuple[str, list[str]]]:
    getlist = getattr(query, "getlist", None)
    for name in query:
        if name in ignore:
            continue
        raw = getlist(name) if getlist else query[name]
        several: Sequence[Any] = [raw] if isinstance(raw, str) else raw
        texts = [text for text in several if text != ""]
        if len(texts) > VALUES_MAX:
            raise errors.InvalidInput(
                f"{name}: {len(texts)} values, at most {VALUES_MAX} are allowed.", parameter=name
            )
        if texts:
            yield name, texts


def _value(name: str, texts: list[str], parameter: Parameter) -> object:
    if parameter.is_repeated:
        return tuple(parameter.parse(name, text) for text in texts)
    if len({*texts}) > 1:
        raise errors.InvalidInput(
            f"{name}: given {len(texts)} times, once is allowed.", parameter=name
        )
    return parameter.parse(name, texts[0])


def _parse_lens(_: type[ListFilter], text: str) -> Lens:
    if text in {"0", "false"}:
        return Lens.CURRENT
    try:
        return Lens("1" if text == "true" else text)
    except ValueError:
        raise errors.InvalidInput(
            f"filtered: {quoted(text)} is not '1' (show filtered rows too) or 'only'.",
            parameter="filtered",
        ) from None


def _parse_why(_: type[ListFilter], text: str) -> tuple[str, ...]:
    codes = tuple(code for code in text.split(",") if code)
    for code in codes:
        if not CODE.fullmatch(code):
            raise errors.InvalidInput(
                f"why: {quoted(code)} is not a reason code. Codes are in by_reason of the counts;"
                " separate several by commas.",
                parameter="why",
            )
    return codes


def _parse_limit(_: type[ListFilter], text: str) -> int:
    limit = int(text) if INTEGER.fullmatch(text) else 0
    if not 1 <= limit <= LIMIT_MAX:
        raise errors.InvalidInput(
            f"limit: {quoted(text)} is not a whole number from 1 to {LIMIT_MAX}."
            " For more rows follow 'next', or use the export.",
            parameter="limit",
        )
    return limit


def _parse_cursor(_: type[ListFilter], text: str) -> str:
    return text  # read where the order is known: paging.decode


def _parse_order(kind: type[ListFilter], text: str) -> str:
    if text.removeprefix("-") not in kind.ORDERS:
        raise errors.InvalidInput(
            f"order: {quoted(text)} is not one of {', '.join(kind.ORDERS)}"
            " ('-' in front for descending).",
            parameter="order",
        )
    return text


def _parse_count(_: type[ListFilter], text: str) -> str:
    if text != "exact":
        raise errors.InvalidInput(
            f"count: {quoted(text)} is not 'exact'. Leave it out for counts up to 10,000.",
            parameter="count",
        )
    return text


def _text(value: object) -> str:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    return str(value)


_LENS_AND_PAGE: Final[dict[str, Callable[[type[ListFilter], str], object]]] = {
    "filtered": _parse_lens,
    "why": _parse_why,
    "limit": _parse_limit,
    "cursor": _parse_cursor,
    "order": _parse_order,
    "count": _parse_count,
}
