"""``manage.py guards``: the limits of automatic actions, and the kill switch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from django.core.management.base import BaseCommand

from scheduler_app.management.arguments import actor, add_json, add_list_options, as_asked, lens
from scheduler_app.management.output import as_json, fail, page_as_json, table, told_page
from scheduler_app.operations.guards import set_guard
from scheduler_app.queries import guards, rights
from scheduler_app.queries.filters import GuardFilter
from scheduler_app.queries.scope import EVERYTHING
from scheduler_app.rules.errors import SchedulerError
from scheduler_app.rules.guards import ActionKind

if TYPE_CHECKING:
    from argparse import ArgumentParser

    from django.core.management.base import CommandParser

LIMITS: Final = {
    "cooldown_s": ("--cooldown-s", float, "seconds between two actions; 0: none"),
    "actions_max": ("--actions-max", int, "actions in a window"),
    "window_s": ("--window-s", float, "seconds"),
    "runs_max": ("--runs-max", int, "runs that one action may touch"),
    "task_instances_max": ("--task-instances-max", int, "task instances likewise"),
}
HEADINGS: Final = ("COOLDOWN", "ACTIONS", "WINDOW", "RUNS", "TASKS")


class Command(BaseCommand):
    """Exit codes: 0 done, 1 refused or not there, 2 wrong arguments."""

    help = "List, show and set the guards of automatic actions; stop and start them (kill switch)."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        """One verb with its own arguments."""
        verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
        listed = verbs.add_parser("list", help="what operators set")
        add_list_options(listed)
        shown = verbs.add_parser("show", help="what holds for a flow, or everywhere")
        shown.add_argument("flow_id", metavar="FLOW", nargs="?", default="")
        add_json(shown)
        given = verbs.add_parser("set", help="set limits; what is not given stays")
        _add_place(given)
        for name, (flag, kind, told_as) in LIMITS.items():
            given.add_argument(flag, dest=name, type=kind, metavar="N", help=told_as)
        given.add_argument(
            "--unset",
            action="append",
            default=[],
            choices=list(LIMITS),
            help="a limit that is no longer set here; may be repeated",
        )
        for verb, told_as in (
            ("stop", "the kill switch: nothing more is done automatically"),
            ("start", "automatic actions pass again"),
        ):
            _add_place(verbs.add_parser(verb, help=told_as))

    def handle(self, *args: Any, **options: Any) -> None:
        """The verb's function has printed its answer."""
        verbs = {
            "list": self._list,
            "show": self._show,
            "set": self._set,
            "stop": self._set,
            "start": self._set,
        }
        try:
            verbs[options["verb"]](options)
        except SchedulerError as error:
            fail(str(error))

    def _list(self, options: dict[str, Any]) -> None:
        asked = GuardFilter(limit=options["limit"], filtered=lens(options))
        asked = as_asked(asked, options)
        page = guards.page(asked, EVERYTHING)
        if options["json"]:
            self.stdout.write(page_as_json(page))
            return
        lines = [
            (
                row.flow_id or "everywhere",
                row.kind or "any",
                "stopped" if row.is_stopped else "on",
                *(getattr(row, name) for name in LIMITS),
                row.actor,
                row.reason,
            )
            for row in page.rows
        ]
        self.stdout.write(table(("FLOW", "KIND", "IS", *HEADINGS, "BY", "BECAUSE"), lines))
        self.stdout.write(f"\n{told_page(page, 'guards', lens=asked.filtered)}")

    def _show(self, options: dict[str, Any]) -> None:
        found = guards.holding(options["flow_id"])
        if options["json"]:
            self.stdout.write(as_json(found))
            return
        lines = [
            (
                one.kind,
                f"stopped by {one.stopped_by.actor}" if one.stopped_by else "on",
                *(getattr(one.limits, name) for name in LIMITS),
            )
            for one in found
        ]
        self.stdout.write(table(("KIND", "IS", *HEADINGS), lines))

    def _set(self, options: dict[str, Any]) -> None:
        rights.check_named(actor(), rights.SET_GUARDS)
        limits: dict[str, float | None] = dict.fromkeys(options.get("unset", []))
        limits |= {n: options[n] for n in LIMITS if options.get(n) is not None}
        is_stopped = {"stop": True, "start": False}.get(options["verb"])
        row = set_guard(
            actor=actor(),
            reason=options["reason"],
            flow_id=options["flow"],
            kind=options["kind"],
            limits=limits,
            is_stopped=is_stopped,
        )
        if options["json"]:
            self.stdout.write(as_json(row))
            return
        where = f"flow {row.flow_id}" if row.flow_id else "everywhere"
        state = "stopped" if row.is_stopped else "on"
        self.stdout.write(f"Automatic actions ({row.kind or 'any'}) {where}: {state}.")


def _add_place(parser: ArgumentParser) -> None:
    parser.add_argument("--flow", default="", metavar="FLOW", help="default: everywhere")
    parser.add_argument(
        "--kind",
        default="",
        choices=[kind.value for kind in ActionKind],
        help="default: every kind",
    )
    parser.add_argument("--reason", default="", help="why, for the audit; needed to act")
    add_json(parser)
