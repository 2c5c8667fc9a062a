"""``manage.py drill``: a real fault on a throw-away stack, and what held."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from django.core.management.base import BaseCommand

from scheduler_app.drills.hold import drills, hold
from scheduler_app.drills.report import as_dict, as_text
from scheduler_app.drills.stack import DrillFailed
from scheduler_app.management.output import as_json, fail

if TYPE_CHECKING:
    from django.core.management.base import CommandParser

NOT_HELD = 3
INTERRUPTED = 130


class Command(BaseCommand):
    """Exit codes: 0 all held, 1 something did not, 2 wrong arguments, 3 not held, 130 interrupted."""

    help = (
        "Hold a fire drill: a real fault on a stack of its own, which is cleared away afterwards."
        " A stack of yours is never touched."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        """Which drill, and how it answers."""
        names = parser.add_subparsers(dest="drill", required=True, metavar="DRILL")
        for drill in drills().values():
            named = names.add_parser(drill.name, help=drill.summary, description=drill.summary)
            named.add_argument(
                "--keep", action="store_true", help="leave the stack's folder, and say where it is"
            )
            named.add_argument(
                "--output",
                choices=["text", "json"],
                default="text",
                help="how the report is printed; with json, progress goes to standard error",
            )
            named.add_argument(
                "--ttl",
                type=float,
                default=drill.ttl_s,
                metavar="SECONDS",
                help=f"of a lease; other terms follow from it ({drill.ttl_s:g})",
            )
            if drill.arguments is not None:
                drill.arguments(named)

    def handle(self, *args: Any, **options: Any) -> None:
        """Progress while it goes on, then the report."""
        is_json = options["output"] == "json"
        output = sys.stderr if is_json else sys.stdout

        def say(line: str) -> None:
            print(line, file=output, flush=True)

        try:
            report = hold(
                drills()[options["drill"]],
                keep=options["keep"],
                ttl_s=options["ttl"],
                options=options,
                say=say,
            )
        except DrillFailed as error:
            fail(str(error), NOT_HELD)
        except KeyboardInterrupt:
            fail("Interrupted; the stack of the drill was cleared away.", INTERRUPTED)
        self.stdout.write(as_json(as_dict(report)) if is_json else as_text(report))
        if not report.holds:
            sys.exit(1)
