"""``manage.py leases``: who decides for each shard, and what happened around leases lately."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.core.management.base import BaseCommand

from scheduler_app.management.arguments import add_json
from scheduler_app.management.output import as_json, table
from scheduler_app.queries import lease_events, leases
from scheduler_app.queries.filters import LeaseEventFilter, LeaseFilter
from scheduler_app.queries.list_filter import LIMIT_MAX
from scheduler_app.queries.scope import EVERYTHING

if TYPE_CHECKING:
    from django.core.management.base import CommandParser


class Command(BaseCommand):
    """Reads; changes nothing."""

    help = "Show the lease of each shard; with --events the newest lease events too."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        """How much is shown."""
        add_json(parser)
        parser.add_argument(
            "--events", type=int, default=0, metavar="N", help="the newest N lease events too"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """One line a shard."""
        rows = leases.page(LeaseFilter(limit=LIMIT_MAX), EVERYTHING).rows
        count = min(max(0, options["events"]), LIMIT_MAX)
        events = lease_events.page(LeaseEventFilter(limit=count), EVERYTHING).rows if count else ()
        if options["json"]:
            self.stdout.write(as_json({"leases": rows, "events": events}))
            return
        headings = ("SHARD", "STATE", "TOKEN", "HOLDER", "HOST", "PID", "EXPIRES")
        lines = [
            (
                row.shard,
                row.state,
                row.token,
                row.holder,
                row.holder_hostname,
                row.holder_pid,
                row.expires_at,
            )
            for row in rows
        ]
        self.stdout.write(table(headings, lines))
        if events:
            told = [(one.at, one.shard, one.kind, one.token, one.holder) for one in events]
            self.stdout.write("")
            self.stdout.write(table(("AT", "SHARD", "KIND", "TOKEN", "HOLDER"), told))
