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
    """The verb answers with one page of a list."""
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


def ordered(asked: FilterT, options: dict[str, Any]) -> FilterT:
    """The filter in the order that was asked for. Raises ``InvalidInput``, naming the orders."""
    if not options["order"]:
        return asked
    return type(asked).from_query({**asked.to_query(), "order": options["order"]})


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


def _limit(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= LIMIT_MAX:
        raise ArgumentTypeError(f"{text} is not from 1 to {LIMIT_MAX}")
    return int(text)
