"""``manage.py audit visibility``: every stored standing, derived again from facts."""

from __future__ import annotations

import sys
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from django.core.management.base import BaseCommand

from scheduler_app.queries import audit_visibility

if TYPE_CHECKING:
    from django.core.management.base import CommandParser

PRINTED_MAX: Final = 100  # differences; the rest is counted


class Command(BaseCommand):
    """Compares stored standings with facts; exits 1 on a difference."""

    help = "Derive the standing of every row from facts, and report each difference."

    def add_arguments(self, parser: CommandParser) -> None:
        """What is audited."""
        parser.add_argument("subject", choices=["visibility"])

    def handle(self, *args: Any, **options: Any) -> None:
        """Prints each difference and the counts of compared rows."""
        rows: Counter[str] = Counter(dict.fromkeys(audit_visibility.NOUNS, 0))
        found = 0
        for compared in audit_visibility.compare():
            rows[compared.noun] += 1
            for difference in compared.differences:
                found += 1
                if found <= PRINTED_MAX:
                    self.stdout.write(
                        f"{difference.noun} {difference.id}: {difference.column} is"
                        f" {difference.stored}, the facts say {difference.derived}"
                        f" ({difference.facts})"
                    )
        if found > PRINTED_MAX:
            self.stdout.write(f"... and {found - PRINTED_MAX} more")
        compared_rows = ", ".join(f"{number} {noun}" for noun, number in rows.items())
        self.stdout.write(f"Compared {compared_rows}: {found} differences.")
        if found:
            sys.exit(1)
