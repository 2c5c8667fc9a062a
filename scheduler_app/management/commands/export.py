"""``manage.py export``: every row of a list as a file, under the same filters as the API."""

from __future__ import annotations

import contextlib
import sys
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from django.core.management.base import BaseCommand

from scheduler_app.management.arguments import actor
from scheduler_app.management.output import fail
from scheduler_app.operations.note_export import note_export
from scheduler_app.queries import exports
from scheduler_app.queries.nouns import NOUNS
from scheduler_app.queries.scope import EVERYTHING
from scheduler_app.rules.errors import SchedulerError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django.core.management.base import CommandParser


class Command(BaseCommand):
    """Exit codes: 0 written, 1 refused, 2 wrong arguments."""

    help = "Write every row of a list as CSV or NDJSON."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        """What, how, where to."""
        parser.add_argument("noun", choices=sorted(NOUNS), metavar="LIST", help=", ".join(NOUNS))
        parser.add_argument("--format", choices=sorted(exports.FORMATS), default="csv")
        parser.add_argument("--output", type=Path, metavar="FILE", help="default: standard output")
        parser.add_argument(
            "filters",
            nargs="*",
            metavar="NAME=VALUE",
            help="as the parameters of the API, such as state=failed filtered=1",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Tells on standard error how many rows were written."""
        noun, kind = NOUNS[options["noun"]]
        try:
            asked = kind.from_query(_query(options["filters"]))
            export = exports.Export(noun, asked, EVERYTHING)
        except SchedulerError as error:
            fail(str(error))
        query = {**asked.to_query(), "format": [options["format"]]}
        note_export(actor=actor(), noun=noun.name, query=query, rows=export.row_count)
        with _opened(options["output"]) as file:
            for part in exports.lines(export, exports.FORMATS[options["format"]][1]):
                file.write(part)
        counts = export.counts
        self.stderr.write(
            f"{export.row_count} rows written; the list has {counts.shown} shown"
            f" and {counts.filtered} filtered"
        )


def _query(texts: list[str]) -> dict[str, list[str]]:
    query: dict[str, list[str]] = defaultdict(list)
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            fail(f"{text}: give a filter as NAME=VALUE", code=2)
        query[name].append(value)
    return query


@contextlib.contextmanager
def _opened(path: Path | None) -> Iterator[BinaryIO]:
    if path is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    try:
        with path.open("wb") as file:
            yield file
    except OSError as error:
        fail(f"{path}: {error.strerror}")
