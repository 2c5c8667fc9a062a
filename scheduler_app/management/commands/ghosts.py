"""``manage.py ghosts``: what haunts now, what takes too long, and what was set aside as a ghost."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

from django.core.management.base import BaseCommand

from scheduler_app.management.acts import add_act
from scheduler_app.management.arguments import actor, add_filtered, add_json, lens
from scheduler_app.management.output import as_json, fail, table
from scheduler_app.operations.mark_reviewed import mark_reviewed, unmark_reviewed
from scheduler_app.queries import attempts, executor_events, ghost_audits, ghosts
from scheduler_app.queries.filters import (
    AttemptFilter,
    EventFilter,
    GhostAuditFilter,
    GhostFilter,
)
from scheduler_app.queries.list_filter import LIMIT_MAX, Lens
from scheduler_app.queries.scope import EVERYTHING
from scheduler_app.rules.errors import SchedulerError
from scheduler_app.rules.ghosts import SUSPECTS

if TYPE_CHECKING:
    from django.core.management.base import CommandParser

    from scheduler_app.queries.ghost_audits import GhostAuditRow

CODES: Final = ("ghost_no_record", "ghost_after_takeover")


class Command(BaseCommand):
    """Exit codes: 0 done, 1 a ghost haunts (``--check``) or refused, 2 wrong arguments."""

    help = (
        "Show executions that no live record acknowledges, each with the reason, and tasks that take"
        " longer than their own history explains; mark ghosts and filtered records as reviewed."
        " See also: audit ghosts."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        """How it answers."""
        add_json(parser)
        add_filtered(parser)
        parser.add_argument(
            "--check",
            action="store_true",
            help="exit with 1 if a ghost haunts now; suspects do not count",
        )
        verbs = parser.add_subparsers(dest="verb", metavar="VERB")
        for verb, says in (
            ("reviewed", "note that you have looked at records, and what you made of them"),
            ("unreviewed", "take that note back; the audit keeps it"),
        ):
            marking = verbs.add_parser(verb, help=says)
            marking.add_argument(
                "keys", nargs="+", metavar="KEY", help="noun and id, as ghost:12 or attempt:0198..."
            )
            add_act(marking)
            add_json(marking)

    def handle(self, *args: Any, **options: Any) -> None:
        """The newest of each kind; the counts say how many there are. Or the verb."""
        if options["verb"]:
            self._mark(options)
            return
        seen = ghosts.page(GhostFilter(filtered=lens(options), limit=LIMIT_MAX), EVERYTHING)
        found = attempts.page(
            AttemptFilter(filtered=Lens.ONLY, why=CODES, limit=LIMIT_MAX), EVERYTHING
        )
        said = executor_events.page(
            EventFilter(filtered=Lens.ONLY, why=CODES, limit=LIMIT_MAX), EVERYTHING
        )
        haunting = [row for row in seen.rows if row.ended_at is None and row.kind not in SUSPECTS]
        audits = ghost_audits.page(GhostAuditFilter(limit=1), EVERYTHING).rows
        if options["json"]:
            answer = {
                "ghosts": seen.rows,
                "attempts": found.rows,
                "events": said.rows,
                "audit": audits[0] if audits else None,
            }
            self.stdout.write(as_json(answer))
        else:
            self._print(seen.rows, found.rows, said.rows)
            counted = [
                sum(page.counts.by_reason.get(code, 0) for code in CODES) for page in (found, said)
            ]
            suspects = sum(1 for row in seen.rows if row.ended_at is None) - len(haunting)
            self.stdout.write(
                f"{len(haunting)} ghosts now, {suspects} suspects; {counted[0]} ghost attempts,"
                f" {counted[1]} events of ghosts. {_compared(audits)}"
            )
        if options["check"] and haunting:
            sys.exit(1)

    def _mark(self, options: dict[str, Any]) -> None:
        act = mark_reviewed if options["verb"] == "reviewed" else unmark_reviewed
        try:
            plan = act(
                keys=options["keys"],
                actor=actor(),
                reason=options["reason"],
                dry_run=options["dry_run"],
            )
        except SchedulerError as error:
            fail(str(error))
        if options["json"]:
            self.stdout.write(as_json(plan))
            return
        for one in plan.included:
            self.stdout.write(f"{one.name}: {options['verb']}. {one.effect}")
        for one in plan.excluded:
            self.stdout.write(f"{one.name}: left alone. {one.effect}")

    def _print(self, seen: Any, found: Any, said: Any) -> None:
        rows: list[tuple[object, ...]] = [
            (
                ("suspect" if row.is_suspect else "ghost") if row.ended_at is None else "over",
                row.attempt_id,
                row.first_seen_at,
                row.hostname,
                row.pid,
                row.sentence,
            )
            for row in seen
        ]
        rows += [
            ("attempt", row.id, row.filtered_at, row.hostname, row.pid, row.filter_reason)
            for row in found
        ]
        rows += [
            ("event", row.attempt_id, row.filtered_at, row.source, None, row.filter_reason)
            for row in said
        ]
        if rows:
            headings = ("WHAT", "ATTEMPT", "SINCE", "FROM", "PID", "REASON")
            self.stdout.write(table(headings, rows))


def _compared(audits: tuple[GhostAuditRow, ...]) -> str:
    if not audits:
        return "Nothing was compared yet."
    newest = audits[0]
    parts = "" if newest.is_complete else ", not every source answered"
    return f"Last compared {newest.last_at:%Y-%m-%d %H:%M:%SZ}: {newest.last_compared}{parts}."
