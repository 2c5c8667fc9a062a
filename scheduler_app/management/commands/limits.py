"""``manage.py limits``: how many slots keys have, over what the flows say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.core.management.base import BaseCommand

from scheduler_app.management.arguments import actor, add_json, add_list_options, as_asked, lens
from scheduler_app.management.output import (
    as_json,
    fail,
    page_as_json,
    table,
    told_page,
    told_places,
)
from scheduler_app.operations.key_limits import remove_limit, set_limit
from scheduler_app.queries import key_limits, slots
from scheduler_app.queries.filters import KeyLimitFilter
from scheduler_app.queries.scope import EVERYTHING
from scheduler_app.rules.errors import SchedulerError

if TYPE_CHECKING:
    from django.core.management.base import CommandParser

    from scheduler_app.queries.key_limits import KeyLimitRow

HEADINGS = ("KEY", "SLOTS", "HELD", "WAITING", "SAID BY", "ABOUT")


class Command(BaseCommand):
    """Exit codes: 0 done, 1 refused or not there, 2 wrong arguments."""

    help = "List and show limits of keys, who holds them and who waits; set and remove one."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        """One verb with its own arguments."""
        verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
        add_list_options(
            verbs.add_parser("list", help="keys that were set, are held or waited for")
        )
        one = verbs.add_parser("show", help="one key")
        one.add_argument("key", metavar="KEY")
        add_json(one)
        for name, words in (("holders", "who holds its slots"), ("waiting", "who waits, in order")):
            read = verbs.add_parser(name, help=words)
            read.add_argument("key", metavar="KEY")
            read.add_argument("--limit", type=int, default=slots.PLACES, metavar="N")
            read.add_argument("--offset", type=int, default=0, metavar="N")
            add_json(read)
        written = verbs.add_parser("set", help="say how many slots a key has")
        written.add_argument("key", metavar="KEY", help="customer:acme; customer:* for all of them")
        written.add_argument("slots", metavar="SLOTS", type=int, help="0: nothing of it begins")
        written.add_argument("--description", metavar="TEXT", help="for people")
        freed = verbs.add_parser("remove", help="the key has what the flows say again")
        freed.add_argument("key", metavar="KEY")
        for verb in (written, freed):
            verb.add_argument("--reason", default="", help="why, for the audit; needed")
            add_json(verb)

    def handle(self, *args: Any, **options: Any) -> None:
        """The verb's function has printed its answer."""
        del args
        try:
            getattr(self, f"_{options['verb']}")(options)
        except SchedulerError as error:
            fail(str(error))

    def _list(self, options: dict[str, Any]) -> None:
        asked = KeyLimitFilter(limit=options["limit"], filtered=lens(options))
        asked = as_asked(asked, options)
        page = key_limits.page(asked, EVERYTHING)
        if options["json"]:
            self.stdout.write(page_as_json(page))
            return
        self.stdout.write(table(HEADINGS, map(_line, page.rows)))
        self.stdout.write(f"\n{told_page(page, 'limits', lens=asked.filtered)}")

    def _show(self, options: dict[str, Any]) -> None:
        row = key_limits.one(EVERYTHING, options["key"])
        self.stdout.write(as_json(row) if options["json"] else table(HEADINGS, [_line(row)]))

    def _holders(self, options: dict[str, Any]) -> None:
        row = key_limits.one(EVERYTHING, options["key"])
        of_key = slots.Slots(key=row.key)
        found = slots.holders(EVERYTHING, of_key, limit=options["limit"], offset=options["offset"])
        if options["json"]:
            self.stdout.write(as_json(found))
            return
        lines = [(one.name, one.state, one.since) for one in found.rows]
        self.stdout.write(table(("TASK", "STATE", "SINCE"), lines))
        self.stdout.write("\n" + told_places(found, f"{found.total} hold slots of {row.key}"))

    def _waiting(self, options: dict[str, Any]) -> None:
        row = key_limits.one(EVERYTHING, options["key"])
        found = slots.waiters(
            EVERYTHING, key=row.key, limit=options["limit"], offset=options["offset"]
        )
        if options["json"]:
            self.stdout.write(as_json(found))
            return
        lines = [(one.name, one.priority, one.since, one.detail) for one in found.rows]
        self.stdout.write(table(("TASK", "PRIORITY", "SINCE", "WHY"), lines))
        self.stdout.write("\n" + told_places(found, f"{found.total} wait for {row.key}"))

    def _set(self, options: dict[str, Any]) -> None:
        said = {name: options[name] for name in ("key", "slots", "description")}
        set_limit(actor=actor(), reason=options["reason"], **said)
        sentence = f"{options['key']} has {options['slots']} slots."
        self.stdout.write(as_json(said) if options["json"] else sentence)

    def _remove(self, options: dict[str, Any]) -> None:
        remove_limit(key=options["key"], actor=actor(), reason=options["reason"])
        sentence = f"{options['key']} has what the flows say again."
        self.stdout.write(as_json({"removed": options["key"]}) if options["json"] else sentence)


def _line(row: KeyLimitRow) -> tuple[object, ...]:
    said_by = "operator" if row.is_set else row.rule or "flows"
    used = (None, None) if row.is_rule else (row.held, row.waiting)
    return (row.key, row.slots, *used, said_by, row.description)
