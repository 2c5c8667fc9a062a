"""``manage.py backfills``: fill a range of dates, watch it, change or cancel it."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, time
from typing import TYPE_CHECKING, Any

from django.core.management.base import BaseCommand

from scheduler_app.management.arguments import (
    actor,
    add_json,
    add_list_options,
    as_asked,
    lens,
    moment,
)
from scheduler_app.management.output import as_json, fail, page_as_json, table, told_page
from scheduler_app.operations import backfill as operations
from scheduler_app.queries import backfills
from scheduler_app.queries.filters import BackfillDateFilter, BackfillFilter
from scheduler_app.queries.scope import EVERYTHING
from scheduler_app.queries.shown import BACKFILL_STATES
from scheduler_app.rules.backfill import ACTIVE_RUNS_DEFAULT, Reprocess
from scheduler_app.rules.errors import SchedulerError

if TYPE_CHECKING:
    from django.core.management.base import CommandParser

DATES_SHOWN = 50  # of a plan; of more their number is told


class Command(BaseCommand):
    """Exit codes: 0 done, 1 refused or not there, 2 wrong arguments."""

    help = "Make the runs of a range of dates: create, list, show, pause, unpause, limit, cancel."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        """One verb with its own arguments."""
        verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
        created = verbs.add_parser("create", help="every date of the range gets its run")
        created.add_argument("flow", metavar="FLOW")
        for name, words in (("from", "first"), ("to", "last")):
            created.add_argument(
                f"--{name}",
                dest=f"{name}_date",
                metavar="TIME",
                type=_day_or_moment,
                required=True,
                help=f"{words} logical date, a day of UTC or ISO 8601 with an offset; included",
            )
        created.add_argument("--backwards", action="store_true", help="begin with the newest date")
        created.add_argument(
            "--reprocess",
            choices=[str(word) for word in Reprocess],
            default=str(Reprocess.NONE),
            help="which runs that exist already run again (default: none)",
        )
        created.add_argument(
            "--max-active-runs",
            type=int,
            default=ACTIVE_RUNS_DEFAULT,
            metavar="N",
            help=f"of this backfill at a time (default: {ACTIVE_RUNS_DEFAULT})",
        )
        created.add_argument("--conf", metavar="JSON", help="an object, for every run")
        created.add_argument("--reason", default="", help="why, for the audit; needed to act")
        created.add_argument(
            "--dry-run", action="store_true", help="only say what would follow; change nothing"
        )
        add_json(created)
        listed = verbs.add_parser("list", help="backfills, newest first")
        listed.add_argument(
            "--state", action="append", default=[], choices=BACKFILL_STATES, help="may be repeated"
        )
        listed.add_argument("--flow", action="append", default=[], help="may be repeated")
        add_list_options(listed)
        shown = verbs.add_parser("show", help="one backfill and what became of its dates")
        add_list_options(shown)
        acts = {
            "pause": "no further run is made before it goes on",
            "unpause": "it goes on",
            "cancel": "the dates that wait get no run; what runs goes on",
            "limit": "so many of its runs may be active at a time",
        }
        each = {name: verbs.add_parser(name, help=words) for name, words in acts.items()}
        for name, one in {"show": shown, **each}.items():
            one.add_argument("backfill", metavar="NUMBER", type=int, help="of the list")
            if name != "show":
                one.add_argument("--reason", default="", help="why, for the audit")
                add_json(one)
        each["limit"].add_argument("--max-active-runs", type=int, required=True, metavar="N")

    def handle(self, *args: Any, **options: Any) -> None:
        """The verb's function has printed its answer."""
        verbs = {"create": self._create, "list": self._list, "show": self._show}
        try:
            verbs.get(options["verb"], self._change)(options)
        except SchedulerError as error:
            fail(str(error))

    def _create(self, options: dict[str, Any]) -> None:
        try:
            conf = json.loads(options["conf"]) if options["conf"] else None
        except ValueError as error:
            fail(f"--conf is no JSON: {error}")
        plan = operations.create_backfill(
            flow_id=options["flow"],
            from_date=options["from_date"],
            to_date=options["to_date"],
            actor=actor(),
            reason=options["reason"],
            run_backwards=options["backwards"],
            reprocess=options["reprocess"],
            max_active_runs=options["max_active_runs"],
            conf=conf,
            dry_run=options["dry_run"],
        )
        if options["json"]:
            self.stdout.write(as_json(plan))
            return
        lines = [(one.logical_date, one.state, one.reason) for one in plan.dates[:DATES_SHOWN]]
        self.stdout.write(table(("LOGICAL DATE", "THEN", "BECAUSE"), lines))
        if len(plan.dates) > DATES_SHOWN:
            self.stdout.write(f"... and {len(plan.dates) - DATES_SHOWN} more")
        counts = ", ".join(f"{number} {state}" for state, number in sorted(plan.counts.items()))
        begun = "would be" if plan.dry_run else f"in backfill {plan.id}, to be"
        self.stdout.write(f"\n{len(plan.dates)} dates {begun} {counts}")

    def _list(self, options: dict[str, Any]) -> None:
        asked = BackfillFilter(
            limit=options["limit"],
            filtered=lens(options),
            state=tuple(options["state"]),
            flow_id=tuple(options["flow"]),
        )
        asked = as_asked(asked, options)
        page = backfills.page(asked, EVERYTHING)
        if options["json"]:
            self.stdout.write(page_as_json(page))
            return
        lines = [
            (
                row.id,
                row.state,
                row.flow_id,
                row.from_date,
                row.to_date,
                f"{row.done}/{row.dates}",
                row.active_runs,
                row.failed_runs,
            )
            for row in page.rows
        ]
        headings = ("BACKFILL", "STATE", "FLOW", "FROM", "TO", "DONE", "ACTIVE", "FAILED")
        self.stdout.write(table(headings, lines))
        self.stdout.write(f"\n{told_page(page, 'backfills', lens=asked.filtered)}")

    def _show(self, options: dict[str, Any]) -> None:
        row = backfills.one(EVERYTHING, options["backfill"])
        asked = BackfillDateFilter(
            backfill=(row.id,), limit=options["limit"], filtered=lens(options)
        )
        asked = as_asked(asked, options)
        page = backfills.dates(asked, EVERYTHING)
        if options["json"]:
            following = {"next_cursor": page.next_cursor or None}
            self.stdout.write(as_json({"backfill": row, "dates": page.rows, **following}))
            return
        facts = (
            ("Backfill", row.id),
            ("State", row.state),
            ("Flow", row.flow_id),
            ("Dates", f"{row.from_date:%Y-%m-%dT%H:%M:%SZ} to {row.to_date:%Y-%m-%dT%H:%M:%SZ}"),
            *(
                (("Waits for", "a thaw of its flow"),)
                if row.is_flow_frozen and not row.is_over
                else ()
            ),
            ("Done", f"{row.done} of {row.dates}; {row.skipped} skipped"),
            ("Runs", f"{row.active_runs} active of at most {row.max_active_runs}"),
            ("Failed", row.failed_runs),
            ("Asked by", f"{row.actor}: {row.reason}"),
        )
        self.stdout.write(table(("", ""), facts))
        lines = [
            (one.logical_date, one.state, one.run, one.run_state, one.reason) for one in page.rows
        ]
        self.stdout.write("\n" + table(("LOGICAL DATE", "WAS", "RUN", "RUN IS", "BECAUSE"), lines))
        self.stdout.write(f"\n{told_page(page, 'dates', lens=asked.filtered)}")

    def _change(self, options: dict[str, Any]) -> None:
        named: dict[str, Any] = {
            "backfill_id": options["backfill"],
            "actor": actor(),
            "reason": options["reason"],
        }
        match options["verb"]:
            case "limit":
                operations.set_limit(max_active_runs=options["max_active_runs"], **named)
            case "cancel":
                operations.cancel_backfill(**named)
            case verb:
                operations.pause_backfill(is_paused=verb == "pause", **named)
        row = backfills.one(EVERYTHING, options["backfill"])
        self.stdout.write(as_json(row) if options["json"] else f"Backfill {row.id}: {row.state}.")


def _day_or_moment(text: str) -> datetime:
    """A day is its first moment, by UTC, as on the page that asks for a backfill."""
    try:
        day = date.fromisoformat(text)
    except ValueError:
        return moment(text)
    return datetime.combine(day, time(), UTC)
