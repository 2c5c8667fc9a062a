"""``manage.py retention``: what is old and needed by nothing, and its removal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.core.management.base import BaseCommand

from scheduler_app.management.acts import add_act
from scheduler_app.management.arguments import actor, add_json
from scheduler_app.management.output import as_json, fail, table
from scheduler_app.operations.retention import remove_old
from scheduler_app.rules.errors import SchedulerError
from scheduler_app.rules.retention import Kind

if TYPE_CHECKING:
    from django.core.management.base import CommandParser


class Command(BaseCommand):
    """Exit codes: 0 done, 1 refused, 2 wrong arguments."""

    help = (
        "Remove old artifacts, exclusive keys that nobody holds, and resolved incidents with their alerts."
        " Runs, attempts, events and the audit are never removed, and nothing is removed by itself."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        """What, how old, and why."""
        parser.add_argument("--days", type=int, required=True, help="what is older than this")
        parser.add_argument(
            "--kind",
            action="append",
            default=[],
            choices=[kind.value for kind in Kind],
            help="only this kind; may be given several times (default: all)",
        )
        add_act(parser)
        add_json(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        """The answer has been printed."""
        del args
        try:
            found = remove_old(
                days=options["days"],
                kinds=[Kind(one) for one in options["kind"]],
                actor=actor(),
                reason=options["reason"],
                dry_run=options["dry_run"],
            )
        except SchedulerError as error:
            fail(str(error))
        if options["json"]:
            self.stdout.write(as_json({"dry_run": options["dry_run"], "removed": found}))
            return
        lines = [(one.kind, one.count, one.oldest_at) for one in found]
        self.stdout.write(table(("KIND", "OLD", "OLDEST"), lines))
        does = "would be removed" if options["dry_run"] else "removed"
        self.stdout.write(f"\n{sum(one.count for one in found)} {does}")
