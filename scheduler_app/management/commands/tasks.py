"""``manage.py tasks``: the states of a run's tasks, and what an attempt printed."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from django.core.management.base import BaseCommand

from scheduler_app.management.output import as_json, fail, table, told
from scheduler_app.queries import attempts, logs, runs, task_instances
from scheduler_app.queries.filters import AttemptFilter, TaskInstanceFilter
from scheduler_app.queries.list_filter import LIMIT_MAX, Lens
from scheduler_app.queries.scope import EVERYTHING
from scheduler_app.rules.errors import NotFound, SchedulerError

if TYPE_CHECKING:
    from argparse import ArgumentParser

    from django.core.management.base import CommandParser

    from scheduler_app.queries.attempts import AttemptRow
    from scheduler_app.queries.task_instances import TaskInstanceRow

POLL_INTERVAL_S: Final = 0.5


class Command(BaseCommand):
    """Exit codes: 0 done, 1 refused or not there, 2 wrong arguments."""

    help = "Show the states of a run's tasks, and what an attempt printed."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        """One verb with its own arguments."""
        verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
        state = verbs.add_parser("state", help="the state of each task of a run, or of one")
        _add_task(state, nargs="?")
        state.add_argument(
            "--filtered", action="store_true", help="also what was set aside, and why"
        )
        state.add_argument("--json", action="store_true", help="answer in JSON")
        log = verbs.add_parser("log", help="what the newest attempt of a task printed")
        _add_task(log, nargs=None)
        log.add_argument("--try", dest="try_number", type=int, help="of this try")
        log.add_argument("--attempt", type=UUID, metavar="ID", help="of just this attempt")
        log.add_argument("--all", action="store_true", help="of every attempt, oldest first")
        log.add_argument("--follow", action="store_true", help="go on until the attempt ends")

    def handle(self, *args: Any, **options: Any) -> None:
        """The verb's function has printed its answer."""
        verbs = {"state": self._state, "log": self._log}
        try:
            verbs[options["verb"]](options)
        except SchedulerError as error:
            fail(str(error))

    def _state(self, options: dict[str, Any]) -> None:
        run = runs.by_key(EVERYTHING, options["flow_id"], options["run_id"])
        asked = TaskInstanceFilter(
            run=(run.id,),
            task_id=(options["task_id"],) if options["task_id"] else (),
            map_index=(options["map_index"],) if options["map_index"] is not None else (),
            filtered=Lens.ALL if options["filtered"] else Lens.CURRENT,
            order="task_id",
            limit=LIMIT_MAX,
        )
        page = task_instances.page(asked, EVERYTHING)
        rows = list(page.rows)
        counts = page.counts
        while page.next_cursor:
            asked = asked.evolve(cursor=page.next_cursor)
            page = task_instances.page(asked, EVERYTHING)
            rows += page.rows
        if not rows and options["task_id"]:
            raise NotFound(f"Run {run.run_id} has no task {options['task_id']}.")
        if options["json"]:
            self.stdout.write(as_json(rows))
        elif options["task_id"] and len(rows) == 1:
            self.stdout.write(rows[0].state)
        else:
            headings = ("TASK", "STATE", "TRY", "STARTED", "ENDED", "NEXT TRY", "WAITS FOR")
            self.stdout.write(table(headings, map(_line, rows)))
            self.stdout.write(f"\n{told(counts, 'task instances')}")

    def _log(self, options: dict[str, Any]) -> None:
        found = _attempts(options)
        for number, attempt in enumerate(found):
            if options["all"]:
                title = f"try {attempt.try_number}, {attempt.outcome or attempt.state}"
                blank = "\n" if number else ""
                _write(f"{blank}== attempt {attempt.id}: {title} ==\n".encode())
            _print_log(attempt.id, follow=options["follow"] and attempt is found[-1])


def _add_task(parser: ArgumentParser, *, nargs: str | None) -> None:
    parser.add_argument("flow_id", metavar="FLOW")
    parser.add_argument("run_id", metavar="RUN")
    parser.add_argument("task_id", metavar="TASK", nargs=nargs)
    parser.add_argument("--map-index", type=int, help="of a task that was mapped")


def _attempts(options: dict[str, Any]) -> list[AttemptRow]:
    """The attempts whose logs are wanted, oldest first. Raises ``NotFound``."""
    run = runs.by_key(EVERYTHING, options["flow_id"], options["run_id"])
    asked = AttemptFilter(
        run=(run.id,),
        task_id=(options["task_id"],),
        map_index=(options["map_index"],) if options["map_index"] is not None else (),
        try_number=(options["try_number"],) if options["try_number"] is not None else (),
        filtered=Lens.ALL,
        order="-fence",
        limit=LIMIT_MAX,
    )
    found = list(attempts.page(asked, EVERYTHING).rows)
    if options["attempt"] is not None:
        found = [row for row in found if row.id == options["attempt"]]
    if not found:
        raise NotFound(_no_attempt(run.id, options))
    return found[::-1] if options["all"] else found[:1]


def _no_attempt(run: int, options: dict[str, Any]) -> str:
    asked = TaskInstanceFilter(run=(run,), task_id=(options["task_id"],), filtered=Lens.ALL)
    rows = task_instances.page(asked, EVERYTHING).rows
    if not rows:
        return f"Run {options['run_id']} has no task {options['task_id']}."
    told = f"Task {options['task_id']} is {rows[0].state} and has no such attempt"
    return f"{told}: {_wait(rows[0])}." if rows[0].wait else f"{told}."


def _print_log(attempt_id: UUID, *, follow: bool) -> None:
    offset = 0
    while True:
        page = logs.read_log(EVERYTHING, attempt_id, offset)
        _write(page.data)
        offset = page.next_offset
        if offset < page.size:
            continue
        if not follow or page.ended:
            return
        time.sleep(POLL_INTERVAL_S)


def _write(data: bytes) -> None:
    """Any bytes, as they were printed."""
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def _line(row: TaskInstanceRow) -> tuple[object, ...]:
    name = row.task_id if row.map_index < 0 else f"{row.task_id}[{row.map_index}]"
    return (
        name,
        f"{row.state} ({row.filter_code})" if row.filter_code else row.state,
        f"{row.try_number} of {row.max_tries + 1}" if row.try_number else None,
        row.started_at,
        row.ended_at,
        row.next_retry_at,
        _wait(row),
    )


def _wait(row: TaskInstanceRow) -> str | None:
    if not row.wait:
        return None
    return str(row.wait.get("detail") or row.wait.get("code"))
