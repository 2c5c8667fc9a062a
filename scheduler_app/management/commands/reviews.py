"""``manage.py reviews``: what guards held, what it would do, and deciding it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

from django.core.management.base import BaseCommand

from scheduler_app.management.acts import add_act, cleared
from scheduler_app.management.arguments import actor, add_json, add_list_options, as_asked, lens
from scheduler_app.management.output import as_json, fail, page_as_json, table, told_page
from scheduler_app.operations.reviews import approve_review, dismiss_review
from scheduler_app.queries import reviews, rights
from scheduler_app.queries.filters import ReviewFilter
from scheduler_app.queries.scope import EVERYTHING
from scheduler_app.queries.shown import REVIEW_STATES
from scheduler_app.rules.errors import SchedulerError

if TYPE_CHECKING:
    from django.core.management.base import CommandParser


class Command(BaseCommand):
    """Exit codes: 0 done, 1 refused or not there, 2 wrong arguments."""

    help = "List and show what guards left for a person; approve or dismiss it."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        """One verb with its own arguments."""
        verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
        listed = verbs.add_parser(
            "list", help="reviews, newest first; open ones unless told otherwise"
        )
        listed.add_argument(
            "--state", action="append", default=[], choices=REVIEW_STATES, help="may be repeated"
        )
        listed.add_argument("--flow", action="append", default=[], help="may be repeated")
        add_list_options(listed)
        shown = verbs.add_parser("show", help="one review, with what approving it would do now")
        approved = verbs.add_parser("approve", help="carry it out, as the world is now")
        dismissed = verbs.add_parser("dismiss", help="give it up")
        for each in (shown, approved, dismissed):
            each.add_argument("review", metavar="NUMBER", type=int, help="of the list")
            add_json(each)
        add_act(approved)
        approved.add_argument(
            "--plan", type=UUID, metavar="ID", help="carry out just this plan, if it still holds"
        )
        dismissed.add_argument("--reason", default="", help="why, for the audit; needed to act")

    def handle(self, *args: Any, **options: Any) -> None:
        """The verb's function has printed its answer."""
        verbs = {
            "list": self._list,
            "show": self._show,
            "approve": self._approve,
            "dismiss": self._dismiss,
        }
        try:
            verbs[options["verb"]](options)
        except SchedulerError as error:
            fail(str(error))

    def _list(self, options: dict[str, Any]) -> None:
        asked = ReviewFilter(
            limit=options["limit"],
            filtered=lens(options),
            state=tuple(options["state"] or ["open"]),
            flow_id=tuple(options["flow"]),
        )
        asked = as_asked(asked, options)
        page = reviews.page(asked, EVERYTHING)
        if options["json"]:
            self.stdout.write(page_as_json(page))
            return
        headings = ("REVIEW", "STATE", "WAITS", "FLOW", "RUN", "SINCE", "TIMES", "BECAUSE")
        lines = [
            (
                row.id,
                row.state,
                row.action,
                row.flow_id,
                row.object_id,
                row.created_at,
                row.times,
                row.summary,
            )
            for row in page.rows
        ]
        self.stdout.write(table(headings, lines))
        self.stdout.write(f"\n{told_page(page, 'reviews', lens=asked.filtered)}")

    def _show(self, options: dict[str, Any]) -> None:
        row = reviews.one(EVERYTHING, options["review"])
        if options["json"]:
            self.stdout.write(as_json(row))
            return
        facts = (
            ("Review", row.id),
            ("State", row.state),
            ("Waits", f"{row.action} of run {row.object_id} of flow {row.flow_id}"),
            ("Because", row.summary),
            ("Asked by", f"{row.asked_by}: {row.reason}"),
            ("Asked for", f"{row.times} times"),
            ("Since", row.created_at),
            ("Decided by", f"{row.decided_by}: {row.note}" if row.decided_by else None),
        )
        self.stdout.write(table(("", ""), facts))
        if row.is_open:
            try:
                plan = approve_review(review_id=row.id, actor=actor(), dry_run=True)
            except SchedulerError as error:
                self.stdout.write(f"\nApproving it would be refused: {error}")
            else:
                self.stdout.write(f"\n{cleared(plan)}")

    def _approve(self, options: dict[str, Any]) -> None:
        rights.check_named(actor(), rights.DECIDE_REVIEWS)
        plan = approve_review(
            review_id=options["review"],
            actor=actor(),
            reason=options["reason"],
            dry_run=options["dry_run"],
            plan_id=options["plan"],
        )
        self.stdout.write(as_json(plan) if options["json"] else cleared(plan))

    def _dismiss(self, options: dict[str, Any]) -> None:
        rights.check_named(actor(), rights.DECIDE_REVIEWS)
        dismiss_review(review_id=options["review"], actor=actor(), reason=options["reason"])
        row = reviews.one(EVERYTHING, options["review"])
        self.stdout.write(as_json(row) if options["json"] else f"Review {row.id}: {row.state}.")
