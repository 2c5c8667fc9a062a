"""``manage.py incidents``: what a person must know of, and the word that it is known."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

from django.core.management.base import BaseCommand

from scheduler_app.management.arguments import actor, add_json, add_list_options, as_asked, lens
from scheduler_app.management.output import as_json, fail, page_as_json, table, told_page
from scheduler_app.operations.acknowledge_incident import acknowledge_incident
from scheduler_app.queries import alerts, incidents
from scheduler_app.queries.filters import AlertFilter, IncidentFilter
from scheduler_app.queries.list_filter import LIMIT_MAX
from scheduler_app.queries.scope import EVERYTHING
from scheduler_app.queries.shown import INCIDENT_STATES
from scheduler_app.rules.errors import SchedulerError

if TYPE_CHECKING:
    from django.core.management.base import CommandParser

STATES: Final = ("open", "acknowledged")


class Command(BaseCommand):
    """Lists, shows and acknowledges incidents."""

    help = (
        "Show the incidents that a person must know of, who was told of them, and acknowledge them."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        """The verbs."""
        verbs = parser.add_subparsers(dest="verb", required=True)
        listing = verbs.add_parser("list", help="incidents, newest first")
        add_list_options(listing)
        listing.add_argument(
            "--state",
            action="append",
            choices=INCIDENT_STATES,
            help="may be given again; default: open and acknowledged",
        )
        listing.add_argument("--flow", metavar="FLOW_ID", help="of this flow alone")
        listing.add_argument(
            "--check", action="store_true", help="exit with 1 if an incident is open"
        )
        showing = verbs.add_parser("show", help="one incident, and what each alert of it came to")
        showing.add_argument("incident", type=int, help="its number")
        add_json(showing)
        known = verbs.add_parser("acknowledge", help="say that it is known: it is not told again")
        known.add_argument("incident", type=int, help="its number")
        known.add_argument("--reason", required=True, help="what is done about it, for the audit")

    def handle(self, *args: Any, **options: Any) -> None:
        """The verb's answer; a refusal is one line and exit code 1."""
        try:
            getattr(self, f"_{options['verb']}")(options)
        except SchedulerError as error:
            fail(str(error))

    def _list(self, options: dict[str, Any]) -> None:
        asked = IncidentFilter(
            state=tuple(options["state"] or STATES),
            flow_id=(options["flow"],) if options["flow"] else (),
            limit=options["limit"],
            filtered=lens(options),
        )
        asked = as_asked(asked, options)
        found = incidents.page(asked, EVERYTHING)
        if options["json"]:
            self.stdout.write(page_as_json(found))
        else:
            if found.rows:
                headings = ("ID", "STATE", "KIND", "SINCE", "TIMES", "MESSAGE")
                rows = [
                    (row.id, row.state, row.kind, row.raised_at, row.count, row.message)
                    for row in found.rows
                ]
                self.stdout.write(table(headings, rows))
            self.stdout.write(
                told_page(found, f"incidents are {' or '.join(asked.state)}", lens=asked.filtered)
            )
        if options["check"] and incidents.open_count(EVERYTHING):
            sys.exit(1)

    def _show(self, options: dict[str, Any]) -> None:
        row = incidents.one(EVERYTHING, options["incident"])
        told = alerts.page(
            AlertFilter(incident=(row.id,), order="id", limit=LIMIT_MAX), EVERYTHING
        ).rows
        if options["json"]:
            self.stdout.write(as_json({"incident": row, "alerts": told}))
            return
        self.stdout.write(f"{row.title}: {row.subject}\n{row.message}")
        self.stdout.write(
            f"{row.state} since {row.raised_at:%Y-%m-%d %H:%M:%SZ}, {row.count} times"
        )
        if row.acknowledged_at:
            self.stdout.write(f"acknowledged by {row.acknowledged_by}: {row.acknowledge_note}")
        if row.resolved_at:
            self.stdout.write(f"over since {row.resolved_at:%Y-%m-%d %H:%M:%SZ}. {row.resolution}")
        if told:
            headings = ("ABOUT", "TO", "STATE", "TRIES", "SAID")
            self.stdout.write(
                table(
                    headings,
                    [
                        (
                            one.about,
                            one.notifier_shown,
                            one.state,
                            one.tries,
                            one.said[-1]["said"] if one.said else "",
                        )
                        for one in told
                    ],
                )
            )
        else:
            self.stdout.write("Nobody was told: no notifier is named for it.")

    def _acknowledge(self, options: dict[str, Any]) -> None:
        acknowledge_incident(
            incident_id=options["incident"], actor=actor(), reason=options["reason"]
        )
        row = incidents.one(EVERYTHING, options["incident"])
        self.stdout.write(f"Incident {row.id} is {row.state}.")
