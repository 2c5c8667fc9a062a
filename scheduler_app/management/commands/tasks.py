"""``manage.py tasks``: states and attempts of tasks, what an attempt printed, events for tasks."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any, Final, TypeVar
from uuid import UUID

from django.core.management.base import BaseCommand

from scheduler_app.management.acts import (
    add_act,
    add_clear_options,
    add_freeze,
    add_mark,
    clear_batch,
    clear_options,
    cleared,
    freeze_or_thaw,
    marked,
    terminated,
)
from scheduler_app.management.arguments import (
    actor,
    add_filtered,
    add_json,
    duration,
    indexes,
    json_value,
    lens,
    moment,
)
from scheduler_app.management.output import as_json, fail, table, told
from scheduler_app.operations.clear import clear_run, clear_task_instances
from scheduler_app.operations.mark import Reach, mark_task_instances
from scheduler_app.operations.reaching import of_run
from scheduler_app.operations.send_event import send_event
from scheduler_app.operations.set_next_retry import set_next_retry
from scheduler_app.operations.terminate import (
    terminate_task_instance,
    terminate_task_instances,
)
from scheduler_app.operations.undo_clear import undo_clear
from scheduler_app.queries import artifacts, attempts, logs, runs, task_instances, why
from scheduler_app.queries.filters import AttemptFilter, TaskInstanceFilter
from scheduler_app.queries.lens import counts as counts_of
from scheduler_app.queries.list_filter import LIMIT_MAX, Lens, ListFilter
from scheduler_app.queries.scope import EVERYTHING
from scheduler_app.queries.shown import TASK_STATES
from scheduler_app.rules.errors import InvalidInput, NotFound, SchedulerError
from scheduler_app.rules.folded import told_indexes
from scheduler_app.rules.freezing import ScopeKind
from scheduler_app.rules.mark import TASK_TARGETS
from scheduler_app.rules.states import AttemptKind

if TYPE_CHECKING:
    from argparse import ArgumentParser
    from collections.abc import Callable, Iterator

    from django.core.management.base import CommandParser

    from scheduler_app.queries.attempts import AttemptRow
    from scheduler_app.queries.lens import Counts, Page
    from scheduler_app.queries.scope import Scope
    from scheduler_app.queries.task_instances import TaskInstanceRow

    FilterT = TypeVar("FilterT", bound=ListFilter)
    RowT = TypeVar("RowT")

POLL_INTERVAL_S: Final = 0.5
TI_HEADINGS: Final = (
    "TASK",
    "STATE",
    "TRY",
    "PROGRESS",
    "STARTED",
    "ENDED",
    "NEXT TRY",
    "WAITS FOR",
)
ATTEMPT_HEADINGS: Final = (
    "ATTEMPT",
    "TASK",
    "TRY",
    "OUTCOME",
    "PROCESS",
    "FENCE",
    "LEASE TOKEN",
    "STARTED",
    "ENDED",
    "FILTERED BECAUSE",
)
CALLBACK_HEADINGS: Final = (
    "CALLBACK",
    "OF",
    "ON",
    "CALLS",
    "CALL",
    "OUTCOME",
    "SAID",
    "ISSUED",
    "ENDED",
    "FILTERED BECAUSE",
)
OF_TASKS: Final = (AttemptKind.TASK.value,)
OF_CALLBACKS: Final = (AttemptKind.CALLBACK.value,)
INTERRUPTED: Final = 130  # exit code, as shells give it after Ctrl-C


class Command(BaseCommand):
    """Exit codes: 0 done, 1 refused or not there, 2 wrong arguments, 130 no longer followed."""

    help = (
        "Show the states, attempts and logs of tasks; tell, retry, clear, mark, terminate, freeze"
        " and thaw them."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        """One verb with its own arguments."""
        verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
        state = verbs.add_parser(
            "state", help="each task of a run, or one with its attempts and callbacks"
        )
        _add_task(state, nargs="?")
        add_filtered(state)
        add_json(state)
        told = verbs.add_parser(
            "why", help="what happened to a task or what it waits for, in a sentence"
        )
        _add_task(told, nargs=None)
        add_json(told)
        log = verbs.add_parser("log", help="what the newest attempt of a task printed")
        _add_task(log, nargs=None)
        log.add_argument("--try", dest="try_number", type=int, metavar="N", help="of this try")
        log.add_argument(
            "--attempt", type=UUID, metavar="ID", help="of just this attempt, or this callback"
        )
        log.add_argument("--all", action="store_true", help="of every attempt, oldest first")
        log.add_argument("--follow", action="store_true", help="go on until the attempt ends")
        add_json(log)
        shown = verbs.add_parser("artifacts", help="the links, tables and notes of a task")
        _add_task(shown, nargs=None)
        add_json(shown)
        event = verbs.add_parser("event", help="tell a task what it waits for, or will wait for")
        _add_task(event, nargs=None)
        event.add_argument("--key", default="event", help="of its EventTrigger (event)")
        event.add_argument(
            "--payload", metavar="JSON", type=json_value, help="what the resumed method gets (null)"
        )
        add_json(event)
        _add_retry(
            verbs.add_parser(
                "retry", help="begin the next try of a waiting task now, or at another time"
            )
        )
        ended = verbs.add_parser("terminate", help="end tasks as failed, without a retry")
        ended.add_argument("flow_id", metavar="FLOW")
        ended.add_argument("run_id", metavar="RUN_ID")
        ended.add_argument("task_ids", metavar="TASK", nargs="+")
        _add_instances(ended)
        add_act(ended)
        add_json(ended)
        _add_mark(verbs.add_parser("mark", help="say by hand what tasks are"))
        held = verbs.add_parser("freeze", help="let nothing of a task start until its thaw")
        _add_task(held, nargs=None)
        add_freeze(held)
        add_json(held)
        freed = verbs.add_parser("thaw", help="let a frozen task go on where it stood")
        _add_task(freed, nargs=None)
        add_act(freed)
        add_json(freed)
        _add_clear(verbs.add_parser("clear", help="run tasks, or a whole run, anew"))
        undone = verbs.add_parser("undo", help="undo a clear of which nothing has started")
        undone.add_argument("plan_id", metavar="PLAN", type=UUID)
        add_act(undone)
        add_json(undone)

    def handle(self, *args: Any, **options: Any) -> None:
        """The verb's function has printed its answer."""
        verbs = {
            "state": self._state,
            "why": self._why,
            "log": self._log,
            "artifacts": self._artifacts,
            "event": self._event,
            "retry": self._retry,
            "terminate": self._terminate,
            "mark": self._mark,
            "freeze": self._freeze_or_thaw,
            "thaw": self._freeze_or_thaw,
            "clear": self._clear,
            "undo": self._undo,
        }
        try:
            verbs[options["verb"]](options)
        except SchedulerError as error:
            fail(str(error))

    def _state(self, options: dict[str, Any]) -> None:
        run = runs.by_key(EVERYTHING, options["flow_id"], options["run_id"])
        what: dict[str, Any] = {
            "run": (run.id,),
            "task_id": (options["task_id"],) if options["task_id"] else (),
            "map_index": (options["map_index"],) if options["map_index"] is not None else (),
            "filtered": lens(options),
            "limit": LIMIT_MAX,
        }
        asked = TaskInstanceFilter(order="task_id", **what)
        if not options["task_id"] and not options["json"] and not options["filtered"]:
            self._folded_state(asked)
            return
        tis, ti_counts = _whole(task_instances.page, asked)
        if options["task_id"] and not ti_counts.total:
            raise NotFound(f"Run {run.run_id} has no task {options['task_id']}.")
        tried, tried_counts = _whole(
            attempts.page, AttemptFilter(order="fence", kind=OF_TASKS, **what)
        )
        called, called_counts = _whole(
            attempts.page, AttemptFilter(order="fence", kind=OF_CALLBACKS, **what)
        )
        if options["json"]:
            self.stdout.write(
                as_json({"task_instances": tis, "attempts": tried, "callbacks": called})
            )
            return
        self.stdout.write(table(TI_HEADINGS, map(_ti_line, tis)))
        self.stdout.write(f"\n{table(ATTEMPT_HEADINGS, map(_attempt_line, tried))}")
        if called:
            self.stdout.write(f"\n{table(CALLBACK_HEADINGS, map(_callback_line, called))}")
        self.stdout.write(f"\n{told(ti_counts, 'task instances', lens=lens(options))}")
        self.stdout.write(told(tried_counts, "attempts", lens=lens(options)))
        if called_counts.total:
            self.stdout.write(told(called_counts, "callbacks", lens=lens(options)))

    def _folded_state(self, asked: TaskInstanceFilter) -> None:
        """A line for each task, a mapped one with how many of its instances are in which state.

        The attempts of a whole run would be the same lines again: only their number is told.
        """
        shown_as = task_instances.page_folded if task_instances.can_fold(asked) else None
        rows, ti_counts = _whole(shown_as or task_instances.page, asked)
        folds = task_instances.folds(asked, EVERYTHING, rows) if shown_as else {}
        lines = [_fold_line(folds[row.id]) if row.id in folds else _ti_line(row) for row in rows]
        self.stdout.write(table(TI_HEADINGS, lines))
        self.stdout.write(f"\n{told(ti_counts, 'task instances', lens=asked.filtered)}")
        for kind, noun in ((OF_TASKS, "attempts"), (OF_CALLBACKS, "callbacks")):
            of_run = AttemptFilter(run=asked.run, map_index=asked.map_index, kind=kind)
            counts = counts_of(attempts.NOUN, of_run, EVERYTHING)
            if counts.total or kind is OF_TASKS:
                self.stdout.write(told(counts, noun, lens=asked.filtered))

    def _why(self, options: dict[str, Any]) -> None:
        row = _task(options)
        told = why.explain(EVERYTHING, row)
        if options["json"]:
            answer = {"task_id": row.task_id, "map_index": row.map_index, "state": row.state}
            self.stdout.write(as_json({**answer, "rule": told.rule, "sentence": told.sentence}))
            return
        self.stdout.write(f"{_name(row)} is {row.state}. {told.sentence} (rule: {told.rule})")

    def _log(self, options: dict[str, Any]) -> None:
        found = _attempts(options)
        if options["json"]:
            self.stdout.write(as_json([_log_as_json(attempt) for attempt in found]))
            return
        for number, attempt in enumerate(found):
            if options["all"]:
                title = f"try {attempt.try_number}, {attempt.outcome or attempt.state}"
                blank = "\n" if number else ""
                _write(f"{blank}== attempt {attempt.id}: {title} ==\n".encode())
            try:
                for piece in _pieces(attempt.id, follow=options["follow"] and attempt is found[-1]):
                    _write(piece)
            except KeyboardInterrupt:
                fail(f"No longer followed; attempt {attempt.id} goes on.", INTERRUPTED)

    def _artifacts(self, options: dict[str, Any]) -> None:
        found = artifacts.of_task(_task(options))
        if options["json"]:
            self.stdout.write(as_json(found))
            return
        for row in artifacts.newest(found):
            self.stdout.write(f"== {row.title or row.key} ({row.kind}, try {row.try_number}) ==")
            if row.kind == "table":
                self.stdout.write(table(row.body["columns"], row.body["rows"]))
            else:
                self.stdout.write(row.body.get("url") or row.body.get("text", ""))

    def _event(self, options: dict[str, Any]) -> None:
        sent = send_event(
            ti_id=_task(options).id,
            key=options["key"],
            payload=options["payload"],
            actor=actor(),
        )
        if options["json"]:
            self.stdout.write(as_json(sent))
        elif sent.trigger_id is None:
            self.stdout.write(
                f"Event {sent.id} ({sent.key}) is kept: the task is {sent.state} and takes it when "
                "it waits for that key."
            )
        else:
            self.stdout.write(f"Event {sent.id} ({sent.key}) was taken; the task is {sent.state}.")

    def _retry(self, options: dict[str, Any]) -> None:
        moved = set_next_retry(
            ti_id=_task(options).id,
            actor=actor(),
            at=options["at"],
            after=options["after"],
            reason=options["reason"],
            dry_run=options["dry_run"],
        )
        self.stdout.write(as_json(moved) if options["json"] else moved.effect)

    def _terminate(self, options: dict[str, Any]) -> None:
        run = runs.by_key(EVERYTHING, options["flow_id"], options["run_id"])
        named = _named(run.id, options)
        asked = {"actor": actor(), "reason": options["reason"], "dry_run": options["dry_run"]}
        if len(named) == 1:
            plan = terminate_task_instance(ti_id=named[0], **asked)
        else:
            (plan,) = terminate_task_instances(ti_ids=named, **asked).plans
        self.stdout.write(as_json(plan) if options["json"] else terminated(plan))

    def _mark(self, options: dict[str, Any]) -> None:
        run = runs.by_key(EVERYTHING, options["flow_id"], options["run_id"])
        plan = mark_task_instances(
            ti_ids=_named(run.id, options),
            state=options["state"],
            actor=actor(),
            reach=Reach(**{key: options[key] for key in Reach.__dataclass_fields__}),
            reason=options["reason"],
            callbacks=options["callbacks"],
            note=options["note"],
            dry_run=options["dry_run"],
        )
        self.stdout.write(as_json(plan) if options["json"] else marked(plan))

    def _freeze_or_thaw(self, options: dict[str, Any]) -> None:
        run = runs.by_key(EVERYTHING, options["flow_id"], options["run_id"])
        mapped = task_instances.fold_of(EVERYTHING, run.id, options["task_id"])
        if mapped is not None and options["map_index"] is None:
            kind, scope_id = ScopeKind.TASK, mapped.scope_id
        else:
            kind, scope_id = ScopeKind.TASK_INSTANCE, str(_task(options).id)
        self.stdout.write(freeze_or_thaw(options, scope_kind=kind.value, scope_id=scope_id))

    def _clear(self, options: dict[str, Any]) -> None:
        run = runs.by_key(EVERYTHING, options["flow_id"], options["run_id"])
        asked: dict[str, Any] = {
            "actor": actor(),
            "reason": options["reason"],
            "dry_run": options["dry_run"],
            "plan_id": options["plan"],
            "note": options["note"],
            "options": clear_options(options),
        }
        named = _named(run.id, options) if options["task_ids"] else []
        if options["group"] is not None:
            named += of_run(run.id, group=options["group"])
        reach = [key for key in Reach.__dataclass_fields__ if options[key]]
        if not named and reach:
            flags = "--" + reach[0].removeprefix("include_")
            raise InvalidInput(f"{flags} starts from a TASK or a --group: name one.")
        if options["include_past"] or options["include_future"]:
            dates = {"past": options["include_past"], "future": options["include_future"]}
            self.stdout.write(clear_batch(options, self.stderr.write, ti_ids=named, **dates))
            return
        if named:
            plan = clear_task_instances(ti_ids=named, **asked)
        else:
            plan = clear_run(run_id=run.id, **asked)
        self.stdout.write(as_json(plan) if options["json"] else cleared(plan))

    def _undo(self, options: dict[str, Any]) -> None:
        done = undo_clear(
            plan_id=options["plan_id"],
            actor=actor(),
            reason=options["reason"],
            dry_run=options["dry_run"],
        )
        does = "would be as before" if done.dry_run else "are as before"
        self.stdout.write(
            as_json(done) if options["json"] else f"{done.task_instances} task instances {does}."
        )


def _add_mark(parser: ArgumentParser) -> None:
    parser.add_argument("state", metavar="STATE", choices=[one.value for one in TASK_TARGETS])
    parser.add_argument("flow_id", metavar="FLOW")
    parser.add_argument("run_id", metavar="RUN_ID")
    parser.add_argument("task_ids", metavar="TASK", nargs="+")
    _add_instances(parser)
    _add_reach(parser)
    add_mark(parser)
    add_json(parser)


def _add_instances(parser: ArgumentParser) -> None:
    """Which instances of mapped tasks: all of them unless some are named."""
    parser.add_argument(
        "--map-index",
        action="append",
        type=indexes,
        default=[],
        metavar="N",
        help="of tasks that were mapped: 7, or 0-99; may be repeated (default: every index)",
    )
    parser.add_argument(
        "--map-label", action="append", default=[], metavar="TEXT", help="a part of their labels"
    )
    parser.add_argument(
        "--state",
        action="append",
        default=[],
        choices=TASK_STATES,
        help="only those in this state; may be repeated",
        dest="states",
    )


def _add_reach(parser: ArgumentParser) -> None:
    """How far from the tasks that are named."""
    for flag, key, means in (
        ("--upstream", "include_upstream", "also what the named tasks wait for"),
        ("--downstream", "include_downstream", "also what waits for the named tasks"),
        ("--past", "include_past", "also in runs of the flow for earlier dates"),
        ("--future", "include_future", "also in runs of the flow for later dates"),
    ):
        parser.add_argument(flag, dest=key, action="store_true", help=means)


def _add_retry(parser: ArgumentParser) -> None:
    _add_task(parser, nargs=None)
    when = parser.add_mutually_exclusive_group()
    when.add_argument("--at", metavar="TIME", type=moment, help="ISO 8601 with an offset")
    when.add_argument(
        "--after", metavar="DURATION", type=duration, help="from now: 90, 10m, 2h, 1d"
    )
    add_act(parser)
    add_json(parser)


def _add_clear(parser: ArgumentParser) -> None:
    parser.add_argument("flow_id", metavar="FLOW")
    parser.add_argument("run_id", metavar="RUN_ID")
    parser.add_argument(
        "task_ids", metavar="TASK", nargs="*", help="none: the whole run, as a new run attempt"
    )
    _add_instances(parser)
    parser.add_argument("--group", metavar="GROUP", help="the tasks of this group, too")
    _add_reach(parser)
    add_clear_options(parser)
    add_act(parser)
    add_json(parser)


def _named(run: int, options: dict[str, Any]) -> list[int]:
    """The ids of the task instances that are named. Raises ``NotFound``."""
    asked = TaskInstanceFilter(run=(run,), task_id=tuple(options["task_ids"]), limit=LIMIT_MAX)
    found, _ = _whole(task_instances.page, asked)
    missing = sorted(set(options["task_ids"]) - {row.task_id for row in found})
    if missing:
        raise NotFound(f"Run {options['run_id']} has no task {missing[0]}.")
    wanted = {index for several in options["map_index"] for index in several}
    unknown = sorted(wanted - {row.map_index for row in found})
    if unknown:
        named = ", ".join(options["task_ids"])
        raise NotFound(f"Run {options['run_id']} has no {named} [{told_indexes(unknown)}].")
    some = [row.id for row in found if _is_asked_for(row, wanted, options)]
    if not some:
        raise NotFound("No instance of these tasks is in that state and has that label.")
    return some


def _is_asked_for(row: TaskInstanceRow, indexes: set[int], options: dict[str, Any]) -> bool:
    label = (row.map_label or "").lower()
    return (
        (not indexes or row.map_index in indexes)
        and (not options["states"] or row.state in options["states"])
        and (not options["map_label"] or any(one.lower() in label for one in options["map_label"]))
    )


def _add_task(parser: ArgumentParser, *, nargs: str | None) -> None:
    parser.add_argument("flow_id", metavar="FLOW")
    parser.add_argument("run_id", metavar="RUN_ID")
    parser.add_argument("task_id", metavar="TASK", nargs=nargs)
    parser.add_argument("--map-index", type=int, metavar="N", help="of a task that was mapped")


def _whole(
    page_of: Callable[[FilterT, Scope], Page[RowT]], asked: FilterT
) -> tuple[list[RowT], Counts]:
    """The rows of all pages, and the counts of the list."""
    page = page_of(asked, EVERYTHING)
    rows, counts = list(page.rows), page.counts
    while page.next_cursor:
        page = page_of(asked.evolve(cursor=page.next_cursor), EVERYTHING)
        rows += page.rows
    return rows, counts


def _task(options: dict[str, Any]) -> TaskInstanceRow:
    """The one task instance that is named. Raises ``NotFound`` and ``InvalidInput``."""
    run = runs.by_key(EVERYTHING, options["flow_id"], options["run_id"])
    asked = TaskInstanceFilter(
        run=(run.id,),
        task_id=(options["task_id"],),
        map_index=(options["map_index"],) if options["map_index"] is not None else (),
    )
    found = task_instances.page(asked, EVERYTHING).rows
    if not found:
        raise NotFound(f"Run {run.run_id} has no task {options['task_id']}.")
    if len(found) > 1:
        raise InvalidInput(f"Task {options['task_id']} was mapped: say which with --map-index N.")
    return found[0]


def _attempts(options: dict[str, Any]) -> list[AttemptRow]:
    """The attempts whose logs are wanted, oldest first. Raises ``NotFound``."""
    run = runs.by_key(EVERYTHING, options["flow_id"], options["run_id"])
    asked = AttemptFilter(
        run=(run.id,),
        task_id=(options["task_id"],),
        map_index=(options["map_index"],) if options["map_index"] is not None else (),
        try_number=(options["try_number"],) if options["try_number"] is not None else (),
        # What a callback printed is asked for by its id.
        kind=OF_TASKS if options["attempt"] is None else (),
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


def _pieces(attempt_id: UUID, *, follow: bool) -> Iterator[bytes]:
    """What the attempt printed; when it is followed, until it has ended."""
    offset = 0
    while True:
        page = logs.read_log(EVERYTHING, attempt_id, offset)
        yield page.data
        offset = page.next_offset
        if page.data and offset < page.size:
            continue
        if not follow or page.ended:
            return
        time.sleep(POLL_INTERVAL_S)


def _log_as_json(attempt: AttemptRow) -> dict[str, object]:
    data = b"".join(_pieces(attempt.id, follow=False))
    return {
        "attempt_id": attempt.id,
        "try_number": attempt.try_number,
        "state": attempt.state,
        "outcome": attempt.outcome,
        "bytes": len(data),
        "text": data.decode("utf-8", "replace"),
    }


def _write(data: bytes) -> None:
    """Any bytes, as they were printed."""
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def _fold_line(fold: task_instances.Fold) -> tuple[object, ...]:
    name = f"{fold.task_id}[0-{fold.total - 1}]"
    return (name, fold.told, None, None, fold.started_at, fold.ended_at, None, None)


def _ti_line(row: TaskInstanceRow) -> tuple[object, ...]:
    return (
        _name(row),
        f"{row.state} ({row.filter_code})" if row.filter_code else row.state,
        row.tries if row.try_number else None,
        _progress(row),
        row.started_at,
        row.ended_at,
        row.next_retry_at,
        _wait(row),
    )


def _progress(row: TaskInstanceRow) -> str | None:
    """As "7 of 10 (70 %), reading", as far as the task told it."""
    if row.progress is None:
        return None
    done, total, note = row.progress["done"], row.progress["total"], row.progress["note"]
    told = f"{done:,} of {total:,}" if total is not None else f"{done:,}"
    if total:
        told += f" ({min(100, 100 * done // total)} %)"
    return f"{told}, {note}" if note else told


def _attempt_line(row: AttemptRow) -> tuple[object, ...]:
    return (
        row.id,
        _name(row),
        row.try_number,
        row.outcome or row.state,
        f"{row.hostname}:{row.pid}" if row.hostname else None,
        row.fence,
        row.lease_token,
        row.started_at,
        row.ended_at,
        row.filter_reason,
    )


def _callback_line(row: AttemptRow) -> tuple[object, ...]:
    return (
        row.id,
        _name(row) or "the run",
        row.callback_on,
        row.callback_name,
        row.dispatch_no,
        row.outcome or row.state,
        row.outcome_reason,
        row.issued_at,
        row.ended_at,
        row.filter_reason,
    )


def _name(row: TaskInstanceRow | AttemptRow) -> str | None:
    if row.task_id is None or row.map_index is None or row.map_index < 0:
        return row.task_id
    return f"{row.task_id}[{row.map_index}]{f' {row.map_label}' if row.map_label else ''}"


def _wait(row: TaskInstanceRow) -> str | None:
    if not row.wait:
        return None
    return str(row.wait.get("detail") or row.wait.get("code"))
