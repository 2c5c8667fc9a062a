"""``manage.py notifiers``: who is told of incidents, and a letter to try one by hand."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.core.management.base import BaseCommand
from django.db import DatabaseError, connection

from scheduler_app.authoring import notifiers
from scheduler_app.authoring.letters import Letter
from scheduler_app.authoring.secret import Secret
from scheduler_app.couriers.errors import NotSent
from scheduler_app.couriers.limits import Limits
from scheduler_app.couriers.secrets import Secrets, of_variables
from scheduler_app.couriers.send import send
from scheduler_app.management.arguments import add_json
from scheduler_app.management.output import as_json, fail, table
from scheduler_app.queries.notified import flows_with_notifiers

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.core.management.base import CommandParser


class Command(BaseCommand):
    """Lists and tries notifiers."""

    help = "Show who is told of incidents, and send a letter to try a notifier."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        """The verbs."""
        verbs = parser.add_subparsers(dest="verb", required=True)
        listing = verbs.add_parser("list", help="the installation's notifiers, and those of flows")
        add_json(listing)
        trying = verbs.add_parser(
            "test",
            help="send one letter now, once; exit code 1 if it was not taken",
            description="Without an option the installation's notifiers (DAYLIGHT_ALERTS) are tried.",
        )
        which = trying.add_mutually_exclusive_group()
        which.add_argument("--webhook", metavar="URL", help="POST to this address")
        which.add_argument("--email", metavar="ADDRESS", help="send a mail")
        which.add_argument("--slack", metavar="SECRET", help="the name of the secret with its URL")
        which.add_argument("--apprise", metavar="SECRET", help="likewise, of an Apprise URL")
        which.add_argument(
            "--json-notifier",
            metavar="JSON",
            help='a notifier as DAYLIGHT_ALERTS has it: {"kind": "email", "to": ["a@example.com"]}',
        )
        trying.add_argument(
            "--key", metavar="SECRET", help="sign the webhook with the secret of this name"
        )
        trying.add_argument("--text", default="This is a test.", help="what the letter says")

    def handle(self, *args: Any, **options: Any) -> None:
        """The verb's answer."""
        getattr(self, f"_{options['verb']}")(options)

    def _list(self, options: dict[str, Any]) -> None:
        own = [("the installation", told) for told in settings.ALERTS]
        found = own + flows_with_notifiers()
        if options["json"]:
            self.stdout.write(as_json([{"of": of, "notifier": told} for of, told in found]))
            return
        if found:
            self.stdout.write(
                table(("OF", "NOTIFIER"), [(of, notifiers.shown(told)) for of, told in found])
            )
        if not own:
            self.stdout.write(
                "The installation names no notifier: incidents that no flow tells of stand on their"
                " page alone. Set DAYLIGHT_ALERTS (docs/alerts.md)."
            )

    def _test(self, options: dict[str, Any]) -> None:
        try:
            asked = _asked(options)
        except ValueError as error:
            fail(str(error), code=2)
        if not asked:
            fail(
                "The installation names no notifier to try: set DAYLIGHT_ALERTS, or name one.",
                code=2,
            )
        letter = Letter(
            key=f"test-{datetime.now(UTC):%Y%m%dT%H%M%S}",
            event="test",
            subject="A test of Daylight",
            text=options["text"],
            url=settings.BASE_URL,
        )
        is_sent = True
        for notifier in asked:
            try:
                said = send(
                    notifier,
                    letter,
                    secrets=Secrets(of_variables(_ask)),
                    limits=Limits.of_installation(),
                )
            except NotSent as error:
                is_sent = False
                said = str(error)
            self.stdout.write(f"{notifiers.shown(notifier)}: {said}")
        if not is_sent:
            fail("Not every letter was taken.")


def _asked(options: dict[str, Any]) -> list[dict[str, Any]]:
    key = Secret(options["key"]) if options["key"] else None
    if options["webhook"]:
        return [notifiers.WebhookNotifier(options["webhook"], key=key).described()]
    if options["email"]:
        return [notifiers.EmailNotifier(options["email"]).described()]
    if options["slack"]:
        return [notifiers.SlackNotifier(Secret(options["slack"])).described()]
    if options["apprise"]:
        return [notifiers.AppriseNotifier(Secret(options["apprise"])).described()]
    if options["json_notifier"]:
        return [notifiers.from_description(json.loads(options["json_notifier"])).described()]
    return list(settings.ALERTS)


def _ask(question: Callable[[Any], object]) -> object:
    try:
        connection.ensure_connection()
    except DatabaseError:
        return None  # only the environment has secrets then
    return question(connection.connection)
