"""``manage.py jobs``: the processes that take part, and asking one of them to end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

from django.core.management.base import BaseCommand

from scheduler_app.management.acts import add_act
from scheduler_app.management.arguments import actor, add_json, add_list_options, as_asked, lens
from scheduler_app.management.output import as_json, fail, page_as_json, table, told_page
from scheduler_app.operations.drain_job import drain_job, undrain_job
from scheduler_app.operations.stop_job import stop_job
from scheduler_app.queries import jobs
from scheduler_app.queries.filters import JobFilter
from scheduler_app.queries.scope import EVERYTHING
from scheduler_app.rules.errors import SchedulerError
from scheduler_app.rules.states import JobKind

if TYPE_CHECKING:
    from django.core.management.base import CommandParser


class Command(BaseCommand):
    """Exit codes: 0 done, 1 refused or not there, 2 wrong arguments."""

    help = (
        "List the processes that take part; ask one to end in order; drain a scheduler, which gives up"
        " its shards and stands by."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        """One verb with its own arguments."""
        verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
        listed = verbs.add_parser(
            "list", help="processes, newest first; --filtered: ended ones too"
        )
        listed.add_argument(
            "--kind",
            action="append",
            default=[],
            choices=[kind.value for kind in JobKind],
            help="may be repeated",
        )
        add_list_options(listed)
        stopped = verbs.add_parser("stop", help="ask one process to end, wherever it runs")
        stopped.add_argument("job_id", metavar="ID", type=UUID, help="of the list")
        drained = verbs.add_parser("drain", help="a scheduler gives up its shards and takes none")
        undrained = verbs.add_parser("undrain", help="a drained scheduler takes its share again")
        drained.add_argument("job_id", metavar="ID", type=UUID, help="of the list")
        undrained.add_argument("job_id", metavar="ID", type=UUID, help="of the list")
        for acting in (stopped, drained, undrained):
            add_act(acting)
            add_json(acting)

    def handle(self, *args: Any, **options: Any) -> None:
        """The verb's function has printed its answer."""
        verbs = {
            "list": self._list,
            "stop": self._stop,
            "drain": self._drain,
            "undrain": self._drain,
        }
        try:
            verbs[options["verb"]](options)
        except SchedulerError as error:
            fail(str(error))

    def _list(self, options: dict[str, Any]) -> None:
        asked = JobFilter(
            kind=tuple(options["kind"]), limit=options["limit"], filtered=lens(options)
        )
        asked = as_asked(asked, options)
        page = jobs.page(asked, EVERYTHING)
        if options["json"]:
            self.stdout.write(page_as_json(page))
            return
        headings = ("ID", "KIND", "STATE", "ALIVE", "PROCESS", "STARTED", "HEARTBEAT", "PROGRESS")
        lines = [
            (
                row.id,
                row.kind,
                _state(row),
                "yes" if row.alive else "no",
                f"{row.hostname}:{row.pid}",
                row.started_at,
                row.heartbeat_at,
                row.progress_at,
            )
            for row in page.rows
        ]
        self.stdout.write(table(headings, lines))
        self.stdout.write(f"\n{told_page(page, 'jobs', lens=asked.filtered)}")

    def _stop(self, options: dict[str, Any]) -> None:
        plan = stop_job(
            job_id=options["job_id"],
            actor=actor(),
            reason=options["reason"],
            dry_run=options["dry_run"],
        )
        if options["json"]:
            self.stdout.write(as_json(plan))
            return
        process = f"The {plan.kind} {plan.hostname}:{plan.pid}"
        told_as = "would be asked to stop" if plan.dry_run else "was asked to stop"
        self.stdout.write("\n".join((f"{process} {told_as}.", *plan.effects)))

    def _drain(self, options: dict[str, Any]) -> None:
        act = drain_job if options["verb"] == "drain" else undrain_job
        plan = act(
            job_id=options["job_id"],
            actor=actor(),
            reason=options["reason"],
            dry_run=options["dry_run"],
        )
        if options["json"]:
            self.stdout.write(as_json(plan))
            return
        does = "would be" if plan.dry_run else "is"
        said = f"The scheduler {plan.process} {does} {options['verb']}ed."
        self.stdout.write("\n".join((said, *plan.effects)))


def _state(row: jobs.JobRow) -> str:
    if row.state == "running" and row.stop_requested_at:
        return "stopping"
    return "drained" if row.state == "running" and row.drain_requested_at else row.state
