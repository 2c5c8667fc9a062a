"""``manage.py pools``: what slots there are and how many are taken; create, change, delete one."""

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
from scheduler_app.operations.pools import change_pool, create_pool, delete_pool
from scheduler_app.queries import pools, slots
from scheduler_app.queries.filters import PoolFilter
from scheduler_app.queries.scope import EVERYTHING
from scheduler_app.rules.errors import InvalidInput, SchedulerError

if TYPE_CHECKING:
    from argparse import ArgumentParser

    from django.core.management.base import CommandParser

    from scheduler_app.queries.pools import PoolRow

HEADINGS = ("POOL", "SLOTS", "RUNNING", "QUEUED", "OPEN", "DEFERRED COUNT", "ABOUT")


class Command(BaseCommand):
    """Exit codes: 0 done, 1 refused or not there, 2 wrong arguments."""

    help = "List and show pools with what is taken of them; create, set and delete one."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        """One verb with its own arguments."""
        verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
        add_list_options(verbs.add_parser("list", help="pools by name, and what is taken of them"))
        shown = verbs.add_parser("show", help="one pool")
        shown.add_argument("name", metavar="POOL")
        add_json(shown)
        for verb, words in (("holders", "who holds its slots"), ("waiting", "who waits, in order")):
            read = verbs.add_parser(verb, help=words)
            read.add_argument("name", metavar="POOL")
            read.add_argument("--limit", type=int, default=slots.PLACES, metavar="N")
            read.add_argument("--offset", type=int, default=0, metavar="N")
            add_json(read)
        made = verbs.add_parser("create", help="make a pool")
        made.add_argument("name", metavar="POOL")
        made.add_argument("--slots", type=int, required=True, metavar="N", help="0: nothing starts")
        _add_values(made)
        changed = verbs.add_parser(
            "set", help="change a pool; what runs goes on, also where the slots get fewer"
        )
        changed.add_argument("name", metavar="POOL")
        changed.add_argument("--slots", type=int, metavar="N", help="0: nothing starts")
        _add_values(changed)
        gone = verbs.add_parser("delete", help="delete a pool that no unfinished task is in")
        gone.add_argument("name", metavar="POOL")
        gone.add_argument("--reason", default="", help="why, for the audit; needed")
        add_json(gone)

    def handle(self, *args: Any, **options: Any) -> None:
        """The verb's function has printed its answer."""
        verbs = {
            "list": self._list,
            "show": self._show,
            "holders": self._holders,
            "waiting": self._waiting,
            "create": self._create,
            "set": self._set,
            "delete": self._delete,
        }
        try:
            verbs[options["verb"]](options)
        except SchedulerError as error:
            fail(str(error))

    def _list(self, options: dict[str, Any]) -> None:
        asked = PoolFilter(limit=options["limit"], filtered=lens(options))
        asked = as_asked(asked, options)
        page = pools.page(asked, EVERYTHING)
        if options["json"]:
            self.stdout.write(page_as_json(page))
            return
        self.stdout.write(table(HEADINGS, map(_line, page.rows)))
        self.stdout.write(f"\n{told_page(page, 'pools', lens=asked.filtered)}")

    def _show(self, options: dict[str, Any]) -> None:
        row = pools.one(EVERYTHING, options["name"])
        self.stdout.write(as_json(row) if options["json"] else table(HEADINGS, [_line(row)]))

    def _holders(self, options: dict[str, Any]) -> None:
        row = pools.one(EVERYTHING, options["name"])
        of_pool = slots.Slots(pool=row.name)
        found = slots.holders(EVERYTHING, of_pool, limit=options["limit"], offset=options["offset"])
        if options["json"]:
            self.stdout.write(as_json(found))
            return
        lines = [(one.name, one.slots, one.state, one.since) for one in found.rows]
        self.stdout.write(table(("TASK", "SLOTS", "STATE", "SINCE"), lines))
        self.stdout.write("\n" + told_places(found, f"{found.total} hold slots of pool {row.name}"))

    def _waiting(self, options: dict[str, Any]) -> None:
        row = pools.one(EVERYTHING, options["name"])
        found = slots.waiters(
            EVERYTHING, pool=row.name, limit=options["limit"], offset=options["offset"]
        )
        if options["json"]:
            self.stdout.write(as_json(found))
            return
        lines = [(one.name, one.priority, one.slots, one.since, one.detail) for one in found.rows]
        self.stdout.write(table(("TASK", "PRIORITY", "SLOTS", "SINCE", "WHY"), lines))
        self.stdout.write("\n" + told_places(found, f"{found.total} wait in pool {row.name}"))

    def _create(self, options: dict[str, Any]) -> None:
        create_pool(
            name=options["name"],
            slots=options["slots"],
            description=options["description"] or "",
            include_deferred=bool(options["include_deferred"]),
            actor=actor(),
            reason=options["reason"],
        )
        self._show(options)

    def _set(self, options: dict[str, Any]) -> None:
        said = {name: options[name] for name in ("slots", "description", "include_deferred")}
        if all(value is None for value in said.values()):
            raise InvalidInput(
                "Say what changes: --slots, --description, or whether deferred count."
            )
        change_pool(name=options["name"], actor=actor(), reason=options["reason"], **said)
        self._show(options)

    def _delete(self, options: dict[str, Any]) -> None:
        delete_pool(name=options["name"], actor=actor(), reason=options["reason"])
        said = f"Pool {options['name']} is gone."
        self.stdout.write(as_json({"deleted": options["name"]}) if options["json"] else said)


def _add_values(parser: ArgumentParser) -> None:
    parser.add_argument("--description", metavar="TEXT", help="for people")
    counted = parser.add_mutually_exclusive_group()
    counted.add_argument(
        "--count-deferred",
        dest="include_deferred",
        action="store_const",
        const=True,
        help="tasks that wait without a worker keep their slots",
    )
    counted.add_argument(
        "--leave-deferred",
        dest="include_deferred",
        action="store_const",
        const=False,
        help="they give them back",
    )
    parser.add_argument("--reason", default="", help="why, for the audit; needed")
    add_json(parser)


def _line(row: PoolRow) -> tuple[object, ...]:
    return (
        row.name,
        row.slots,
        row.running_slots,
        row.queued_slots,
        row.open_slots,
        "yes" if row.include_deferred else "no",
        row.description,
    )
