"""Parameters of lists: page, order and filters, by Airflow's names."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from django.db.models import Q

from scheduler_app.airflow_api import bodies
from scheduler_app.airflow_api.bodies import Unprocessable, Wrong, fault
from scheduler_app.rules.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from rest_framework.request import Request

LIMIT_DEFAULT: Final = 50
LIMIT_MAX: Final = 100  # more is silently this many
OFFSET_MAX: Final = 1_000_000
ORDERS_MAX: Final = 10
VALUES_MAX: Final = 200  # of one parameter
TEXT_MAX: Final = 250  # characters
ANYTHING: Final = "~"
COMPARED: Final = ("gte", "gt", "lte", "lt")


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Which part of a list."""

    limit: int
    offset: int
    order: tuple[tuple[str, bool], ...]  # column, is descending


def window(
    request: Request, orders: Mapping[str, str], *, default: str, limit_name: str = "limit"
) -> Window:
    """What the address asks for. ``orders`` maps names to columns. Raises as Airflow answers."""
    limit = _number(request, limit_name, LIMIT_DEFAULT)
    offset = _number(request, "offset", 0)
    asked = [part for text in request.query_params.getlist("order_by") for part in text.split(",")]
    return Window(
        limit=min(limit, LIMIT_MAX), offset=offset, order=ordered(asked or [default], orders)
    )


def ordered(asked: Sequence[str], orders: Mapping[str, str]) -> tuple[tuple[str, bool], ...]:
    """Columns and directions. Raises ``InvalidInput``."""
    if len(asked) > ORDERS_MAX:
        raise InvalidInput(
            f"Ordering with more than {ORDERS_MAX} parameters is not allowed. Provided: {asked}"
        )
    order = []
    for name in asked:
        bare = name.removeprefix("-")
        if bare not in orders:
            raise InvalidInput(
                f"Ordering with '{bare[:80]}' is disallowed or the attribute does not exist on the"
                " model"
            )
        order.append((orders[bare], name.startswith("-")))
    return tuple(order)


def refuse_unsupported(request: Request, names: Sequence[str]) -> None:
    """A filter that Airflow knows and this API does not is refused, not passed over."""
    for name in request.query_params:
        if name in names:
            raise InvalidInput(
                f"The filter '{name}' is not part of Daylight's compatible API; leave it out."
            )


def texts(request: Request, name: str) -> tuple[str, ...]:
    """The values of a parameter that may be given several times."""
    found = request.query_params.getlist(name)
    if len(found) > VALUES_MAX or any(len(one) > TEXT_MAX or "\x00" in one for one in found):
        raise InvalidInput(f"{name}: at most {VALUES_MAX} values of {TEXT_MAX} characters.")
    return tuple(found)


def among(request: Request, name: str, column: str) -> Q:
    """Keeps the rows whose column is one of the values; all, without any."""
    found = texts(request, name)
    return Q(**{f"{column}__in": found}) if found else Q()


def numbers(request: Request, name: str, column: str) -> Q:
    """As ``among``, of whole numbers."""
    found = [read(["query", name], int, one, "int_parsing") for one in texts(request, name)]
    return Q(**{f"{column}__in": found}) if found else Q()


def states(request: Request, known: Sequence[str]) -> list[str]:
    """The states that are asked for; ``none`` and ``no_status`` are the lack of one."""
    wanted = []
    for one in texts(request, "state"):
        state = "none" if one in ("none", "no_status", "null") else one
        if state not in known:
            raise InvalidInput(f"Invalid value for state. Valid values are {', '.join(known)}")
        wanted.append(state)
    return wanted


def ranges(request: Request, columns: Mapping[str, str]) -> Q:
    """Keeps the rows within every range of times that is given, as ``start_date_gte``."""
    kept = Q()
    for name, column in columns.items():
        for compare in COMPARED:
            given = request.query_params.get(f"{name}_{compare}")
            if given is not None:
                where = ["query", f"{name}_{compare}"]
                kept &= Q(
                    **{f"{column}__{compare}": read(where, bodies.moment, given.replace(" ", "+"))}
                )
    return kept


def pattern(request: Request, name: str, column: str) -> Q:
    """Keeps the rows whose column has the text in it: ``%`` and ``_`` stand for any, ``|`` is or."""
    kept = Q()
    for given in texts(request, f"{name}_pattern"):
        kept &= _any_of(given, lambda part: Q(**{f"{column}__iregex": _expression(part)}))
    for given in texts(request, f"{name}_prefix_pattern"):
        kept &= _any_of(given, lambda part: Q(**{f"{column}__startswith": part}))
    return kept


def flag(request: Request, name: str, default: bool | None = None) -> bool | None:
    """True, false or what is given as default. Raises ``Unprocessable``."""
    given = request.query_params.get(name)
    return default if given is None else read(["query", name], bodies.boolean, given)


def named(column: str, value: str) -> Q:
    """The rows of this parent; of any, for ``~``."""
    return Q() if value == ANYTHING else Q(**{column: value})


def read(
    where: list[Any], check: Callable[[Any], Any], given: Any, kind: str = "value_error"
) -> Any:
    """The value that the text means. Raises ``Unprocessable``."""
    try:
        return check(given)
    except Wrong as wrong:
        raise Unprocessable([fault(wrong.kind, where, wrong.message, given)]) from None
    except ValueError:
        raise Unprocessable([fault(kind, where, "Input is not valid", given)]) from None


def _number(request: Request, name: str, default: int) -> int:
    given = request.query_params.get(name)
    if given is None:
        return default
    if not re.fullmatch(r"[0-9]{1,9}", given):
        message = "Input should be a valid integer, greater than or equal to 0"
        raise Unprocessable([fault("greater_than_equal", ["query", name], message, given)])
    return min(int(given), OFFSET_MAX)


def _any_of(given: str, keep: Callable[[str], Q]) -> Q:
    parts = [part for part in given.split("|") if part]
    if not parts or ANYTHING in parts:
        return Q()
    kept = Q()
    for part in parts:
        kept |= keep(part)
    return kept


def _expression(part: str) -> str:
    return "".join({"%": ".*", "_": "."}.get(sign) or re.escape(sign) for sign in part)
