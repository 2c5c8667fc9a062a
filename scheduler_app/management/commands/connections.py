"""``manage.py connections``: where outside systems are, and what opens them."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from django.core.management.base import BaseCommand

from scheduler_app.management.arguments import (
    actor,
    add_json,
    add_list_options,
    as_asked,
    json_object,
    lens,
)
from scheduler_app.management.output import as_json, fail, page_as_json, table, told_page
from scheduler_app.operations.connections import (
    delete_connection,
    reveal_connection,
    set_connection,
)
from scheduler_app.queries import connections
from scheduler_app.queries.filters import ConnectionFilter
from scheduler_app.queries.scope import EVERYTHING
from scheduler_app.rules.connections import MASK
from scheduler_app.rules.errors import SchedulerError

if TYPE_CHECKING:
    from django.core.management.base import CommandParser

SAID = ("conn_type", "host", "login", "schema", "port", "description", "extra")


class Command(BaseCommand):
    """Exit codes: 0 done, 1 refused or not there, 2 wrong arguments."""

    help = "List, show, set and delete connections: where outside systems are, and what opens them."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        """One verb with its own arguments."""
        verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
        listed = verbs.add_parser("list", help="connections by id, without what opens them")
        listed.add_argument(
            "--type", metavar="TYPE", action="append", default=[], help="only these"
        )
        add_list_options(listed)
        read = verbs.add_parser("get", help="one connection; password and extras are masked")
        read.add_argument("connection_id", metavar="ID")
        read.add_argument("--reveal", action="store_true", help="all of it in clear; it is audited")
        written = verbs.add_parser("set", help="make or change one; what is not said stays")
        written.add_argument("connection_id", metavar="ID")
        written.add_argument("--type", dest="conn_type", metavar="TYPE", help="as postgres, http")
        for name in ("host", "login", "schema"):
            written.add_argument(f"--{name}", metavar="TEXT", help="empty: none")
        written.add_argument("--port", type=int, metavar="N", help="0 to 65535")
        written.add_argument("--description", metavar="TEXT", help="for people")
        written.add_argument(
            "--password-stdin",
            action="store_true",
            help="read the password from standard input: arguments are seen by every process",
        )
        written.add_argument(
            "--extra", type=json_object, metavar="JSON", help='an object, as {"sslmode": "require"}'
        )
        deleted = verbs.add_parser("delete", help="delete one")
        deleted.add_argument("connection_id", metavar="ID")
        for verb in (read, written, deleted):
            verb.add_argument("--reason", default="", help="why, for the audit; needed to act")
            add_json(verb)

    def handle(self, *args: Any, **options: Any) -> None:
        """The verb's function has printed its answer."""
        del args
        try:
            getattr(self, f"_{options['verb']}")(options)
        except SchedulerError as error:
            fail(str(error))

    def _list(self, options: dict[str, Any]) -> None:
        asked = ConnectionFilter(
            conn_type=tuple(options["type"]), limit=options["limit"], filtered=lens(options)
        )
        asked = as_asked(asked, options)
        page = connections.page(asked, EVERYTHING)
        if options["json"]:
            self.stdout.write(page_as_json(page))
            return
        lines = [
            (
                row.connection_id,
                row.conn_type,
                row.login,
                row.host,
                row.port,
                row.schema,
                MASK if row.has_password else None,
                ", ".join(row.extra_keys),
                row.description,
            )
            for row in page.rows
        ]
        headings = ("ID", "TYPE", "LOGIN", "HOST", "PORT", "SCHEMA", "PASSWORD", "EXTRAS", "FOR")
        self.stdout.write(table(headings, lines))
        self.stdout.write(f"\n{told_page(page, 'connections', lens=asked.filtered)}")

    def _get(self, options: dict[str, Any]) -> None:
        if options["reveal"]:
            found = reveal_connection(
                connection_id=options["connection_id"], actor=actor(), reason=options["reason"]
            )
            facts = {"connection_id": options["connection_id"], **asdict(found)}
        else:
            row = connections.one(EVERYTHING, options["connection_id"])
            facts = asdict(row)
            facts["password"] = MASK if facts.pop("has_password") else ""
            facts["extra"] = dict.fromkeys(facts.pop("extra_keys"), MASK)
        if options["json"]:
            self.stdout.write(as_json(facts))
            return
        lines = [
            (name, as_json(value) if name == "extra" else value) for name, value in facts.items()
        ]
        self.stdout.write(
            table(("", ""), [line for line in lines if line[1] not in ("", None, "{}")])
        )

    def _set(self, options: dict[str, Any]) -> None:
        said = {name: options[name] for name in SAID if options[name] is not None}
        if options["password_stdin"]:
            said["password"] = sys.stdin.read().rstrip("\r\n")
        is_new = set_connection(
            connection_id=options["connection_id"],
            actor=actor(),
            reason=options["reason"],
            **said,
        )
        sentence = f"Connection {options['connection_id']} {'made' if is_new else 'set'}."
        answer = {"connection_id": options["connection_id"], "is_new": is_new}
        self.stdout.write(as_json(answer) if options["json"] else sentence)

    def _delete(self, options: dict[str, Any]) -> None:
        delete_connection(
            connection_id=options["connection_id"], actor=actor(), reason=options["reason"]
        )
        sentence = f"Connection {options['connection_id']} deleted."
        answer = {"deleted": options["connection_id"]}
        self.stdout.write(as_json(answer) if options["json"] else sentence)
