"""``manage.py leases``: who leads each shard, what happened around leases, and how many shards there are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.core.management.base import BaseCommand

from scheduler_app.management.acts import add_act, add_freeze, freeze_or_thaw
from scheduler_app.management.arguments import actor, add_json, add_list_options, as_asked, lens
from scheduler_app.management.output import as_json, fail, page_as_json, table, told_page
from scheduler_app.operations.release_lease import release_lease
from scheduler_app.operations.reshard import Resharding, reshard
from scheduler_app.queries import inquiries, lease_events, leases, take_over_items, take_overs
from scheduler_app.queries.filters import (
    InquiryFilter,
    LeaseEventFilter,
    LeaseFilter,
    TakeOverFilter,
    TakeOverItemFilter,
)
from scheduler_app.queries.list_filter import LIMIT_MAX
from scheduler_app.queries.scope import EVERYTHING
from scheduler_app.rules.errors import SchedulerError
from scheduler_app.rules.freezing import ScopeKind

if TYPE_CHECKING:
    from django.core.management.base import CommandParser

NAMES_MAX = 10  # of flows, in a line


class Command(BaseCommand):
    """Exit codes: 0 done, 1 refused, 2 wrong arguments."""

    help = (
        "Show who leads each shard (with --events what happened lately), take-overs and what they"
        " found; release, freeze or thaw a shard; change the number of shards."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        """How much is shown, or a verb."""
        add_json(parser)
        parser.add_argument(
            "--events", type=int, default=0, metavar="N", help="the newest N lease events too"
        )
        verbs = parser.add_subparsers(dest="verb", metavar="VERB")
        taken = verbs.add_parser(
            "take-overs", help="changes of leaders, newest first; or one of them"
        )
        taken.add_argument("number", nargs="?", type=int, help="one take-over with what it found")
        add_list_options(taken)
        released = verbs.add_parser(
            "release",
            help="take a shard from its holder; the next one begins a new term",
            description=(
                "The holder's next write in the shard is refused, whether it is alive or not. Whoever"
                " leads the shard next, it too if it takes part still, goes over what runs there first."
            ),
        )
        released.add_argument("shard", type=int, metavar="SHARD")
        released.add_argument("--token", type=int, help="only if the lease has this token still")
        add_act(released)
        frozen = verbs.add_parser("freeze", help="nothing of the flows of a shard starts")
        frozen.add_argument("shard", type=int, metavar="SHARD")
        add_freeze(frozen)
        thawed = verbs.add_parser("thaw", help="they go on where they stood")
        thawed.add_argument("shard", type=int, metavar="SHARD")
        add_act(thawed)
        for acting in (released, frozen, thawed):
            add_json(acting)
        changed = verbs.add_parser(
            "reshard",
            help="change the number of shards; no scheduler may run",
            description=(
                "Flows are hashed into N shards. Runs stay in the shard they were created in; a flow"
                " with active runs moves when they have ended, and a shard that is still needed"
                " retires: run it again then. Nothing is changed while a scheduler may be deciding."
            ),
        )
        changed.add_argument("shards", type=int, metavar="N")
        changed.add_argument("--dry-run", action="store_true", help="say what it would do")
        add_json(changed)

    def handle(self, *args: Any, **options: Any) -> None:
        """The verb, or one line a shard."""
        try:
            if options["verb"] == "reshard":
                self._reshard(options)
            elif options["verb"] == "release":
                self._release(options)
            elif options["verb"] in {"freeze", "thaw"}:
                self.stdout.write(
                    freeze_or_thaw(
                        options, scope_kind=ScopeKind.SHARD.value, scope_id=options["shard"]
                    )
                )
            elif options["verb"] == "take-overs" and options["number"] is not None:
                self._take_over(options)
            elif options["verb"] == "take-overs":
                self._take_overs(options)
            else:
                self._leases(options)
        except SchedulerError as error:
            fail(f"{error}.".replace("..", "."))

    def _leases(self, options: dict[str, Any]) -> None:
        rows = leases.page(LeaseFilter(limit=LIMIT_MAX), EVERYTHING).rows
        count = min(max(0, options["events"]), LIMIT_MAX)
        events = lease_events.page(LeaseEventFilter(limit=count), EVERYTHING).rows if count else ()
        if options["json"]:
            self.stdout.write(as_json({"leases": rows, "events": events}))
            return
        headings = ("SHARD", "STATE", "TOKEN", "HOLDER", "HOST", "PID", "EXPIRES")
        lines = [
            (
                row.shard,
                row.state,
                row.token,
                row.holder,
                row.holder_hostname,
                row.holder_pid,
                row.expires_at,
            )
            for row in rows
        ]
        self.stdout.write(table(headings, lines))
        if events:
            told = [(one.at, one.shard, one.kind, one.token, one.holder, one.why) for one in events]
            self.stdout.write("")
            self.stdout.write(table(("AT", "SHARD", "KIND", "TOKEN", "HOLDER", "WHY"), told))

    def _release(self, options: dict[str, Any]) -> None:
        plan = release_lease(
            shard=options["shard"],
            token=options["token"],
            actor=actor(),
            reason=options["reason"],
            dry_run=options["dry_run"],
        )
        if options["json"]:
            self.stdout.write(as_json(plan))
            return
        does = "would be" if plan.dry_run else "is"
        said = f"Shard {plan.shard}, token {plan.token}, {does} taken from {plan.process}."
        self.stdout.write("\n".join((said, *plan.effects)))

    def _take_overs(self, options: dict[str, Any]) -> None:
        asked = as_asked(TakeOverFilter(limit=options["limit"], filtered=lens(options)), options)
        found = take_overs.page(asked, EVERYTHING)
        if options["json"]:
            self.stdout.write(page_as_json(found))
            return
        lines = [
            (
                row.id,
                row.acquired_at,
                row.shard,
                row.cause,
                f"{row.old_token or '-'} -> {row.new_token}",
                f"{row.holder_hostname}:{row.holder_pid}",
                "-" if row.gap_s is None else f"{row.gap_s:.1f} s",
                row.state,
                ", ".join(f"{name} {number}" for name, number in row.counts.items()),
            )
            for row in found.rows
        ]
        headings = ("ID", "AT", "SHARD", "CAUSE", "TOKEN", "BY", "NOBODY LED", "SCAN", "FOUND")
        self.stdout.write(table(headings, lines))
        self.stdout.write(f"\n{told_page(found, 'take-overs', lens=asked.filtered)}")

    def _take_over(self, options: dict[str, Any]) -> None:
        number = options["number"]
        row = take_overs.one(EVERYTHING, number)
        asked = TakeOverItemFilter(take_over=(number,), limit=LIMIT_MAX, order="id")
        items = take_over_items.page(asked, EVERYTHING).rows
        answers = (
            inquiries.page(InquiryFilter(ask_id=(row.ask_id,), limit=LIMIT_MAX), EVERYTHING).rows
            if row.ask_id
            else ()
        )
        if options["json"]:
            said = {"take_over": row, "items": items, "inquiries": answers}
            self.stdout.write(as_json(said))
            return
        self.stdout.write(
            f"Shard {row.shard}, token {row.new_token}: {row.cause}, by {row.holder_hostname}:"
            f"{row.holder_pid}; the scan is {row.state}; {row.answered} of {row.asked} workers that"
            " were asked have answered."
        )
        lines = [
            (one.decision, one.flow_id, one.run_id, one.task_id, one.attempt_id, one.reason)
            for one in items
        ]
        self.stdout.write(table(("DECISION", "FLOW", "RUN", "TASK", "ATTEMPT", "WHY"), lines))
        told = [
            (f"{one.hostname}:{one.pid}", one.asked_at, one.answered_at, _held(one))
            for one in answers
        ]
        self.stdout.write("")
        self.stdout.write(table(("WORKER", "ASKED", "ANSWERED", "RUNS"), told))

    def _reshard(self, options: dict[str, Any]) -> None:
        made = reshard(count=options["shards"], actor=actor(), dry_run=options["dry_run"])
        if options["json"]:
            self.stdout.write(as_json(made))
            return
        for line in _told(made):
            self.stdout.write(line)


def _held(one: inquiries.InquiryRow) -> str:
    if one.holdings is None:
        return ""
    return f"{len(one.holdings)} attempts"


def _told(made: Resharding) -> list[str]:
    will = "" if made.is_done else "would be "
    lines = [f"Shards: {made.before} -> {made.after}" + ("" if made.is_done else " (dry run)")]
    if made.added:
        lines.append(f"Leases {will}added: {', '.join(map(str, made.added))}")
    if made.removed:
        lines.append(f"Leases {will}removed: {', '.join(map(str, made.removed))}")
    lines.append(f"Flows {will}moved: {len(made.moved)}")
    if made.staying:
        names = ", ".join(list(made.staying)[:NAMES_MAX])
        more = ", ..." if len(made.staying) > NAMES_MAX else ""
        lines.append(
            f"Flows that stay until their active runs have ended: {len(made.staying)} ({names}{more});"
            " run this again then"
        )
    if made.retiring:
        named = ", ".join(f"{shard} ({runs} active runs)" for shard, runs in made.retiring.items())
        lines.append(f"Shards that retire, led until nothing is left in them: {named}")
    if made.leaders and not made.is_done:
        lines.append(f"Schedulers that must stop first: {', '.join(made.leaders)}")
    return lines
