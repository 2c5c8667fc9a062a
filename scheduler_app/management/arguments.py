"""What several commands are asked for, and how a text becomes the value that it means."""

from __future__ import annotations

import getpass
import json
from argparse import ArgumentTypeError
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, TypeVar

from scheduler_app.queries.list_filter import LIMIT_DEFAULT, LIMIT_MAX, Lens, ListFilter
from scheduler_app.rules import spans
from scheduler_app.rules.errors import InvalidInput

FilterT = TypeVar("FilterT", bound=ListFilter)
INDEXES_MAX: Final = 100_000  # map indexes that one range names

if TYPE_CHECKING:
    from argparse import ArgumentParser
    from datetime import timedelta


def add_json(parser: ArgumentParser) -> None:
    """The verb can answer in JSON."""
    parser.add_argument("--json", action="store_true", help="answer in JSON")


def add_filtered(parser: ArgumentParser) -> None:
    """The verb can show both halves of its lists."""
    parser.add_argument("--filtered", action="store_true", help="also what was set aside, and why")


def add_list_options(parser: ArgumentParser) -> None:
    """The verb answers with one page of a list, and says how to get the next one."""
    add_json(parser)
    add_filtered(parser)
    parser.add_argument(
        "--limit",
        type=_limit,
        default=LIMIT_DEFAULT,
        help=f"rows, 1 to {LIMIT_MAX}; default {LIMIT_DEFAULT}",
    )
    parser.add_argument(
        "--order",
        metavar="NAME",
        default="",
        help="by what, as the API takes it; --order=-NAME: the greatest or newest first",
    )
    parser.add_argument(
        "--where",
        metavar="NAME=VALUE",
        type=_condition,
        action="append",
        default=[],
        help="only rows that this filter of the API keeps, as state=failed; may be repeated",
    )
    parser.add_argument(
        "--cursor",
        metavar="TEXT",
        default="",
        help="the page that begins there, as the page before said; with the same options otherwise",
    )


def as_asked(asked: FilterT, options: dict[str, Any]) -> FilterT:
    """The filter with the order, page and filters that were asked for besides.

    Raises ``InvalidInput``, naming the orders or filters that there are.
    """
    query = asked.to_query()
    for name in ("order", "cursor"):
        if options[name]:
            query[name] = [options[name]]
    given: dict[str, list[str]] = {}
    for name, value in options["where"]:
        given.setdefault(name, []).append(value)
    return type(asked).from_query({**query, **given})


def lens(options: dict[str, Any]) -> Lens:
    """The half that was asked for."""
    return Lens.ALL if options["filtered"] else Lens.CURRENT


def json_object(text: str) -> dict[str, Any]:
    """The object that the text is. Raises what argparse tells the user."""
    try:
        value = json.loads(text)
    except ValueError as error:
        raise ArgumentTypeError(f'not JSON ({error}); give an object, as {{"day": 1}}') from None
    if not isinstance(value, dict):
        raise ArgumentTypeError(f'{text} is no JSON object; give one, as {{"day": 1}}')
    return value


def json_value(text: str) -> Any:
    """The JSON value that the text is. Raises what argparse tells the user."""
    try:
        return json.loads(text)
    except ValueError as error:
        raise ArgumentTypeError(f"not JSON ({error}); a text needs quotes: '\"yes\"'") from None


def moment(text: str) -> datetime:
    """The time that the text names, with its offset. Raises what argparse tells the user."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise ArgumentTypeError(f"{text} is not a time; write 2026-01-31T02:00:00Z") from None
    if at.tzinfo is None:
        raise ArgumentTypeError(
            f"{text} has no offset; write {at.isoformat()}Z for UTC, or its own offset"
        )
    return at


def duration(text: str) -> timedelta:
    """The duration that the text names. Raises what argparse tells the user."""
    try:
        return spans.duration(text)
    except InvalidInput as error:
        raise ArgumentTypeError(str(error)) from None


def indexes(text: str) -> range:
    """The map indexes that "7" or "0-99" names. Raises what argparse tells the user."""
    first, dash, last = text.partition("-")
    if not (first.isdecimal() and (last.isdecimal() or not dash)) or len(text) > 20:
        raise ArgumentTypeError(f"{text} is no map index; write 7, or 0-99")
    found = range(int(first), int(last or first) + 1)
    if not found or len(found) > INDEXES_MAX:
        raise ArgumentTypeError(f"{text} names {len(found)} map indexes, not 1 to {INDEXES_MAX}")
    return found


def actor() -> str:
    """Who acts, for the audit: the account that the command runs under."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # an account without a name, as in some containers
        return "command line"


def _condition(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise ArgumentTypeError(f"{text} is no NAME=VALUE, as state=failed")
    return name, value


def _limit(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= LIMIT_MAX:
        raise ArgumentTypeError(f"{text} is not from 1 to {LIMIT_MAX}")
    return int(text)
