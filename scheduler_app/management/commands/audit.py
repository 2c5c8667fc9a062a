"""``manage.py audit visibility`` and ``audit ghosts``: what is stored is held against what is so."""

from __future__ import annotations

import sys
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import psycopg
from django.core.management.base import BaseCommand

from scheduler_app.executors.choice import chosen_executor
from scheduler_app.executors.local_wire import NoFolder
from scheduler_app.management.arguments import add_json
from scheduler_app.management.output import as_json, fail, table
from scheduler_app.processes import database
from scheduler_app.queries import audit_visibility
from scheduler_app.rules import ghosts
from scheduler_app.scheduler.audit_ghosts import Comparison, compare_now
from scheduler_app.scheduler.suspects import suspects

if TYPE_CHECKING:
    from collections.abc import Iterable

    from django.core.management.base import CommandParser

PRINTED_MAX: Final = 100  # differences; the rest is counted
DIFFERENT: Final = 1  # exit codes
CANNOT_TELL: Final = 2
EVERY_SHARD: Final = range(4096)


class Command(BaseCommand):
    """Reads and compares; exits 1 on a difference or a ghost, 2 if a source did not answer."""

    help = (
        "visibility: derive the standing of every row from facts, and report each difference."
        " ghosts: compare database, broker and workers now, and report what no record acknowledges."
        " Exits 1 if something was found, 2 if a source did not answer, else 0."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        """What is audited."""
        parser.add_argument("subject", choices=["visibility", "ghosts"])
        add_json(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        """Prints what was found, and how much was compared."""
        audit = self._visibility if options["subject"] == "visibility" else self._ghosts
        code = audit(as_json_wanted=options["json"])
        if code:
            sys.exit(code)

    # -- visibility ---------------------------------------------------------------------------

    def _visibility(self, *, as_json_wanted: bool) -> int:
        rows: Counter[str] = Counter(dict.fromkeys(audit_visibility.NOUNS, 0))
        differences = []
        found = 0
        for compared in audit_visibility.compare():
            rows[compared.noun] += 1
            for difference in compared.differences:
                found += 1
                if found <= PRINTED_MAX:
                    differences.append(difference)
        if as_json_wanted:
            self.stdout.write(
                as_json({"compared": rows, "found": found, "differences": differences})
            )
        else:
            self._print_differences(differences, found)
            compared_rows = ", ".join(f"{number} {noun}" for noun, number in rows.items())
            self.stdout.write(f"Compared {compared_rows}: {found} differences.")
        return DIFFERENT if found else 0

    def _print_differences(
        self, differences: Iterable[audit_visibility.Difference], found: int
    ) -> None:
        for difference in differences:
            self.stdout.write(
                f"{difference.noun} {difference.id}: {difference.column} is"
                f" {difference.stored}, the facts say {difference.derived}"
                f" ({difference.facts})"
            )
        if found > PRINTED_MAX:
            self.stdout.write(f"... and {found - PRINTED_MAX} more")

    # -- ghosts -------------------------------------------------------------------------------

    def _ghosts(self, *, as_json_wanted: bool) -> int:
        try:
            executor = chosen_executor()
        except NoFolder as error:
            fail(str(error), CANNOT_TELL)
        try:
            with database.connect("scheduler") as connection:
                made = compare_now(connection, executor=executor)
                slow = suspects(connection, shards=EVERY_SHARD)
        except psycopg.Error as error:
            fail(f"The database does not answer: {str(error).strip()}", CANNOT_TELL)
        finally:
            executor.close()
        if as_json_wanted:
            self.stdout.write(as_json(_answer(made, slow)))
        else:
            self._print_ghosts(made, slow)
        if made.found:
            return DIFFERENT
        return 0 if made.is_complete else CANNOT_TELL

    def _print_ghosts(self, made: Comparison, slow: list[ghosts.Sighting]) -> None:
        rows = [
            (each.kind, each.attempt_id, each.hostname, each.pid, _sentence(each))
            for each in (*made.found, *slow)
        ]
        if rows:
            self.stdout.write(table(("KIND", "ATTEMPT", "HOST", "PID", "WHAT"), rows))
        read = ", ".join(
            f"{number} {name.replace('_', ' ')}" for name, number in made.numbers().items()
        )
        self.stdout.write(f"Read {read}.")
        missing = "" if made.is_complete else " Not every source answered."
        self.stdout.write(
            f"Compared {made.compared}: {len(made.found)} ghosts, {len(slow)} suspects.{missing}"
        )


def _answer(made: Comparison, slow: list[ghosts.Sighting]) -> dict[str, Any]:
    return {
        "compared": made.compared,
        "is_complete": made.is_complete,
        "read": made.numbers(),
        "ghosts": [{"sentence": _sentence(each), "sighting": each} for each in made.found],
        "suspects": [{"sentence": _sentence(each), "sighting": each} for each in slow],
    }


def _sentence(each: ghosts.Sighting) -> str:
    return ghosts.explain(each.kind, each.detail)
