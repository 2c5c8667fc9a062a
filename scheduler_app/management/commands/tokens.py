"""``manage.py tokens``: who holds tokens of the API, and ending them before their time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.core.management.base import BaseCommand

from scheduler_app.management.arguments import actor, add_json, add_list_options, as_asked, lens
from scheduler_app.management.output import as_json, fail, page_as_json, table, told_page
from scheduler_app.operations.revoke_tokens import revoke_tokens
from scheduler_app.queries import api_tokens
from scheduler_app.queries.filters import TokenFilter
from scheduler_app.queries.scope import EVERYTHING
from scheduler_app.rules.errors import SchedulerError

if TYPE_CHECKING:
    from django.core.management.base import CommandParser


class Command(BaseCommand):
    """Exit codes: 0 done, 1 refused or not there, 2 wrong arguments."""

    help = "List the tokens of the API that are good now; end them before their time."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        """One verb with its own arguments."""
        verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
        listed = verbs.add_parser("list", help="whose they are and how long they serve; never them")
        listed.add_argument(
            "--user", metavar="NAME", action="append", default=[], help="may be repeated"
        )
        add_list_options(listed)
        ended = verbs.add_parser("revoke", help="they open nothing any more, at once")
        ended.add_argument("id", metavar="ID", nargs="*", type=int, help="of the list")
        ended.add_argument("--user", metavar="NAME", help="all of this account")
        ended.add_argument("--reason", default="", help="why, for the audit; needed to act")
        add_json(ended)

    def handle(self, *args: Any, **options: Any) -> None:
        """The verb's function has printed its answer."""
        del args
        try:
            {"list": self._list, "revoke": self._revoke}[options["verb"]](options)
        except SchedulerError as error:
            fail(str(error))

    def _list(self, options: dict[str, Any]) -> None:
        asked = TokenFilter(
            user=tuple(options["user"]), limit=options["limit"], filtered=lens(options)
        )
        asked = as_asked(asked, options)
        page = api_tokens.page(asked, EVERYTHING)
        if options["json"]:
            self.stdout.write(page_as_json(page))
            return
        lines = [(row.id, row.username, row.created_at, row.expires_at) for row in page.rows]
        self.stdout.write(table(("ID", "USER", "ISSUED", "EXPIRES"), lines))
        self.stdout.write(f"\n{told_page(page, 'tokens', lens=asked.filtered)}")

    def _revoke(self, options: dict[str, Any]) -> None:
        ended = revoke_tokens(
            actor=actor(),
            reason=options["reason"],
            token_ids=options["id"],
            username=options["user"],
        )
        self.stdout.write(as_json({"revoked": ended}) if options["json"] else f"{ended} revoked")
