"""``manage.py ghosts``: executions that no live record acknowledges, and who spoke of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from django.core.management.base import BaseCommand

from scheduler_app.management.arguments import add_json
from scheduler_app.management.output import as_json, table
from scheduler_app.queries import attempts, executor_events
from scheduler_app.queries.filters import AttemptFilter, EventFilter
from scheduler_app.queries.list_filter import LIMIT_MAX, Lens
from scheduler_app.queries.scope import EVERYTHING

if TYPE_CHECKING:
    from django.core.management.base import CommandParser

CODES: Final = ("ghost_no_record", "ghost_after_takeover")


class Command(BaseCommand):
    """Reads; changes nothing."""

    help = "Show executions that no live record acknowledges, each with the reason."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        """How it answers."""
        add_json(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        """The newest of each kind; the counts say how many there are."""
        found = attempts.page(
            AttemptFilter(filtered=Lens.ONLY, why=CODES, limit=LIMIT_MAX), EVERYTHING
        )
        said = executor_events.page(
            EventFilter(filtered=Lens.ONLY, why=CODES, limit=LIMIT_MAX), EVERYTHING
        )
        if options["json"]:
            self.stdout.write(as_json({"attempts": found.rows, "events": said.rows}))
            return
        rows: list[tuple[object, ...]] = [
            ("attempt", row.id, row.filtered_at, row.hostname, row.pid, row.filter_reason)
            for row in found.rows
        ]
        rows += [
            ("event", row.attempt_id, row.filtered_at, row.source, None, row.filter_reason)
            for row in said.rows
        ]
        if rows:
            headings = ("WHAT", "ATTEMPT", "SINCE", "FROM", "PID", "REASON")
            self.stdout.write(table(headings, rows))
        counted = [
            sum(page.counts.by_reason.get(code, 0) for code in CODES) for page in (found, said)
        ]
        self.stdout.write(f"{counted[0]} ghost attempts, {counted[1]} events of ghosts")
