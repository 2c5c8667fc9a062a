"""``manage.py flows``: what authors and operators do with flows and their runs, verb by verb."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from django.core.management.base import BaseCommand

from scheduler_app.management import coming, follow, rehearse, starter, validate, versions
from scheduler_app.management.acts import (
    add_act,
    add_clear_options,
    add_freeze,
    add_mark,
    clear_batch,
    cleared,
    freeze_or_thaw,
    go_on_with,
    marked,
    terminated,
)
from scheduler_app.management.arguments import (
    actor,
    add_json,
    add_list_options,
    as_asked,
    json_object,
    lens,
    moment,
)
from scheduler_app.management.output import as_json, fail, page_as_json, table, told, told_page
from scheduler_app.operations.mark import mark_run
from scheduler_app.operations.pause_flow import set_paused
from scheduler_app.operations.retry_run import cancel_retry, retry_run
from scheduler_app.operations.terminate import terminate_run
from scheduler_app.operations.trigger_run import trigger_run
from scheduler_app.queries import (
    flow_files,
    flow_versions,
    flows,
    freezes,
    runs,
    task_instances,
)
from scheduler_app.queries.filters import FlowFilter, FreezeFilter, RunFilter, TaskInstanceFilter
from scheduler_app.queries.list_filter import LIMIT_MAX, Lens
from scheduler_app.queries.scope import EVERYTHING
from scheduler_app.queries.shown import FLOW_STATES
from scheduler_app.rules.errors import InvalidInput, NotFound, SchedulerError
from scheduler_app.rules.mark import RUN_TARGETS
from scheduler_app.rules.schedule_words import policies
from scheduler_app.rules.states import RunState

if TYPE_CHECKING:
    from argparse import ArgumentParser, _SubParsersAction

    from django.core.management.base import CommandParser

    from scheduler_app.queries.runs import RunRow
    from scheduler_app.rules.definition import FlowDefinition
    from scheduler_app.rules.params import Told

    Verbs = _SubParsersAction[CommandParser]

FAULTY_TOLD: Final = 10  # faulty files below a list of flows


class Command(BaseCommand):
    """Exit codes: 0 done, 1 refused, faulty or a followed run failed, 2 wrong arguments."""

    help = (
        "Write, check, test, list, show and compare flows, and say when they fire; pause, unpause,"
        " freeze and thaw them; trigger, list, show, terminate, clear, mark, retry, freeze and thaw"
        " their runs."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        """One verb with its own arguments."""
        verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
        _add_reading(verbs)
        _add_authoring(verbs)
        _add_trigger(verbs.add_parser("trigger", help="make a run by hand"))
        ended = verbs.add_parser(
            "terminate", help="end a run: what runs is stopped, the rest never starts"
        )
        ended.add_argument("flow_id", metavar="FLOW")
        ended.add_argument("run_id", metavar="RUN_ID")
        add_act(ended)
        add_json(ended)
        _add_clear(verbs.add_parser("clear", help="run many runs of a flow anew, each as a whole"))
        said = verbs.add_parser("mark", help="say by hand that a run is success or failed")
        said.add_argument("state", metavar="STATE", choices=[one.value for one in RUN_TARGETS])
        said.add_argument("flow_id", metavar="FLOW")
        said.add_argument("run_id", metavar="RUN_ID")
        add_mark(said)
        add_json(said)
        for verb, told_as in (
            ("retry", "begin the next run attempt of a failed run now"),
            ("cancel-retry", "a failed run begins no other run attempt by itself"),
        ):
            again = verbs.add_parser(verb, help=told_as)
            again.add_argument("flow_id", metavar="FLOW")
            again.add_argument("run_id", metavar="RUN_ID")
            add_act(again)
            add_json(again)
        for verb, add, told_as in (
            ("freeze", add_freeze, "let nothing start in a flow, a run, a shard or at all"),
            ("thaw", add_act, "let what was frozen go on where it stood"),
        ):
            held = verbs.add_parser(verb, help=told_as)
            held.add_argument("flow_id", metavar="FLOW", nargs="?")
            held.add_argument("run_id", metavar="RUN_ID", nargs="?", help="only this run of it")
            held.add_argument("--shard", type=int, metavar="N", help="every flow of the shard")
            held.add_argument("--all", action="store_true", help="everything there is")
            add(held)
            add_json(held)
        holding = verbs.add_parser("freezes", help="what is frozen, by whom, since when and why")
        holding.add_argument("--all", action="store_true", help="also freezes that are over")
        add_list_options(holding)
        for verb, told_as in (
            ("pause", "its schedule makes no new runs; runs that are there go on"),
            ("unpause", "its schedule makes runs again"),
        ):
            parsed = verbs.add_parser(verb, help=told_as)
            parsed.add_argument("flow_id", metavar="FLOW")
            parsed.add_argument("--reason", default="", help="why, for the audit")
            add_json(parsed)

    def handle(self, *args: Any, **options: Any) -> None:
        """The verb's function has printed its answer."""
        verbs = {
            "list": self._list,
            "show": self._show,
            "versions": self._versions,
            "diff": self._diff,
            "new": self._new,
            "next": self._next,
            "validate": self._validate,
            "check": self._validate,
            "test": self._test,
            "trigger": self._trigger,
            "runs": self._runs,
            "run": self._run,
            "terminate": self._terminate,
            "clear": self._clear,
            "mark": self._mark,
            "retry": self._retry,
            "cancel-retry": self._cancel_retry,
            "freeze": self._freeze_or_thaw,
            "thaw": self._freeze_or_thaw,
            "freezes": self._freezes,
            "pause": self._set_paused,
            "unpause": self._set_paused,
        }
        try:
            verbs[options["verb"]](options)
        except SchedulerError as error:
            fail(str(error))

    def _list(self, options: dict[str, Any]) -> None:
        asked = FlowFilter.from_query(
            {
                **{name: options[name] for name in ("q", "state", "tag", "owner")},
                "limit": str(options["limit"]),
                "filtered": lens(options).value or "0",
            }
        )
        asked = as_asked(asked, options)
        page = flows.page(asked, EVERYTHING)
        if options["json"]:
            self.stdout.write(page_as_json(page))
            return
        headings = ("FLOW", "STATE", "SCHEDULE", "ZONE", "NEXT RUN", "VERSION", "FILE")
        lines = [
            (
                row.flow_id,
                row.filter_code or row.state,
                row.schedule,
                row.timezone if row.schedule else None,
                row.next_interval_end,
                row.version,
                row.path,
            )
            for row in page.rows
        ]
        self.stdout.write(table(headings, lines))
        self.stdout.write(f"\n{told_page(page, 'flows', lens=asked.filtered)}")
        faulty = flow_files.faulty(EVERYTHING)
        for file in faulty[:FAULTY_TOLD]:
            self.stderr.write(f"{file.folder}/{file.path} is faulty: {file.faults[0].message}")
        if len(faulty) > FAULTY_TOLD:
            more = len(faulty) - FAULTY_TOLD
            self.stderr.write(f"{more} more files are faulty; flows check FOLDER tells all.")

    def _show(self, options: dict[str, Any]) -> None:
        row = flows.one(EVERYTHING, options["flow_id"])
        version = (
            flow_versions.one(EVERYTHING, row.version_id) if row.version_id is not None else None
        )
        faults = [
            fault
            for file in flow_files.faulty(EVERYTHING)
            if (file.folder, file.path) == (row.folder, row.path)
            for fault in file.faults
        ]
        times = flows.next_times(row, datetime.now(UTC))
        if options["json"]:
            answer = {
                "flow": row,
                "definition": version.definition if version else None,
                "faults": faults,
                "schedule_in_words": flows.schedule_in_words(row),
                "next_fire_times": times,
            }
            self.stdout.write(as_json(answer))
            return
        facts = (
            ("flow", row.flow_id),
            ("state", row.state),
            ("filtered", row.filter_reason),
            ("schedule", flows.schedule_in_words(row)),
            *(policies(version.graph()) if version else ()),
            ("next run", None if row.is_paused else row.next_interval_end),
            *((("waits since", row.in_line_from),) if row.in_line_from else ()),
            *((f"fires {number}", at) for number, at in enumerate(times, 1)),
            ("version", row.version),
            ("file", f"{row.folder}/{row.path}"),
            ("owner", row.owner),
            ("tags", ", ".join(row.tags)),
            ("about", row.description),
            *((f"param {one.name}", _param(one)) for one in row.declared_params),
        )
        self.stdout.write(table(("", ""), [fact for fact in facts if fact[1]]).lstrip())
        if version is not None:
            self.stdout.write(f"\n{_tasks(version.graph())}")
        for fault in faults:
            self.stdout.write(f"\n{fault.file}:{fault.line}: {fault.message} {fault.remedy}")

    def _versions(self, options: dict[str, Any]) -> None:
        self.stdout.write(versions.versions(options))

    def _diff(self, options: dict[str, Any]) -> None:
        said, differ = versions.diff(options)
        self.stdout.write(said)
        if differ and options["exit_code"]:
            sys.exit(versions.THEY_DIFFER)

    def _new(self, options: dict[str, Any]) -> None:
        made = starter.write(
            options["name"],
            schedule=options["schedule"],
            timezone=options["timezone"],
            folder=options["folder"],
        )
        self.stdout.write(as_json(made) if options["json"] else starter.told(made))

    def _next(self, options: dict[str, Any]) -> None:
        self.stdout.write(coming.told(options))

    def _validate(self, options: dict[str, Any]) -> None:
        # A folder takes a while: on a terminal it says how far it is, on a line of its own.
        say = _progress if sys.stderr.isatty() else None
        checked = validate.check(*options["what"], on_file=say)
        if options["json"]:
            self.stdout.write(
                as_json(
                    {
                        "files": checked.files,
                        "flows": [flow.flow_id for flow in checked.flows],
                        "faults": checked.faults,
                        "pools": checked.pools,
                    }
                )
            )
        else:
            for flow in checked.flows:
                self.stdout.write(f"{flow.flow_id}: {len(flow.tasks)} tasks")
            for fault in checked.faults:
                sys.stderr.write(
                    f"{fault['file']}:{fault['line']}: {fault['message']} {fault['remedy']}\n"
                )
            if not checked.flows and not checked.faults:
                sys.stderr.write("No flow is defined there.\n")
            self.stdout.write(
                f"{len(checked.files)} files, {len(checked.flows)} flows, "
                f"{len(checked.faults)} faults; pools {checked.pools}"
            )
        if checked.faults or not checked.flows:
            sys.exit(1)

    def _test(self, options: dict[str, Any]) -> None:
        flow = rehearse.flow_of(options["what"], options["flow"])
        done = flow.test(
            conf=options["conf"],
            logical_date=options["logical_date"],
            events=options["events"],
        )
        if options["json"]:
            self.stdout.write(as_json(rehearse.as_values(done)))
        else:
            self.stdout.write(rehearse.told(done))
        if done.state != RunState.SUCCESS:
            raise SystemExit(1)

    def _trigger(self, options: dict[str, Any]) -> None:
        run = trigger_run(
            flow_id=options["flow_id"],
            actor=actor(),
            conf=options["conf"],
            logical_date=options["logical_date"],
            run_id=options["run_id"],
            note=options["note"],
        )
        row = runs.one(EVERYTHING, run.id)
        if not options["follow"]:
            self.stdout.write(as_json(row) if options["json"] else f"Run {row.run_id} is queued.")
            return
        say = self.stderr.write if options["json"] else self.stdout.write
        say(f"Run {row.run_id} of {row.flow_id} is queued.")
        try:
            ended = follow.follow(row.id, say)
        except KeyboardInterrupt:
            fail(f"No longer followed; run {row.run_id} goes on.", 130)
        if options["json"]:
            self.stdout.write(as_json(ended))
        else:
            self.stdout.write(_outcome(ended))
        if ended.state_beneath != RunState.SUCCESS:
            for line in follow.errors(ended.id):
                sys.stderr.write(f"{line}\n")
            sys.exit(1)

    def _runs(self, options: dict[str, Any]) -> None:
        flows.one(EVERYTHING, options["flow_id"])
        query = {
            "flow_id": options["flow_id"],
            "state": options["state"],
            "run_type": options["type"],
            "version": options["version"],
            "logical_date_gte": _in_query(options["from_date"]),
            "logical_date_lte": _in_query(options["until_date"]),
            "limit": str(options["limit"]),
            "filtered": lens(options).value or "0",
        }
        asked = as_asked(RunFilter.from_query(query), options)
        page = runs.page(asked, EVERYTHING)
        if options["json"]:
            self.stdout.write(page_as_json(page))
            return
        headings = ("RUN", "STATE", "TYPE", "LOGICAL DATE", "STARTED", "ENDED", "VERSION", "NOTE")
        lines = [
            (
                row.run_id,
                f"{row.state} ({row.filter_code})" if row.filter_code else row.state,
                row.run_type,
                row.logical_date,
                row.started_at,
                row.ended_at,
                row.version,
                row.note,
            )
            for row in page.rows
        ]
        self.stdout.write(table(headings, lines))
        self.stdout.write(f"\n{told_page(page, 'runs', lens=asked.filtered)}")

    def _run(self, options: dict[str, Any]) -> None:
        row = runs.by_key(EVERYTHING, options["flow_id"], options["run_id"])
        flow = flows.one(EVERYTHING, row.flow_id)
        page = task_instances.page(
            TaskInstanceFilter(run=(row.id,), order="task_id", limit=LIMIT_MAX), EVERYTHING
        )
        if options["json"]:
            self.stdout.write(as_json({"run": row, "task_instances": page.rows}))
            return
        is_newest = row.version_id == flow.version_id
        facts = (
            ("run", row.run_id),
            ("state", row.state),
            ("because", row.state_reason),
            ("filtered", row.filter_reason),
            ("type", row.run_type),
            ("logical date", row.logical_date),
            ("data from", row.data_interval_start),
            ("data until", row.data_interval_end),
            ("version", row.version if is_newest else f"{row.version}; newest {flow.version}"),
            ("run attempt", row.run_attempt),
            ("queued", row.queued_at),
            ("started", row.started_at),
            ("ended", row.ended_at),
            ("by", row.actor),
            ("note", row.note),
            *((f"conf {name}", as_json(value)) for name, value in row.conf.items()),
        )
        self.stdout.write(table(("", ""), [fact for fact in facts if fact[1]]).lstrip())
        headings = ("TASK", "STATE", "TRY", "STARTED", "ENDED")
        lines = [
            (
                one.task_id if one.map_index < 0 else f"{one.task_id}[{one.map_index}]",
                one.state,
                one.try_number,
                one.started_at,
                one.ended_at,
            )
            for one in page.rows
        ]
        self.stdout.write(f"\n{table(headings, lines)}")
        self.stdout.write(f"\n{told(page.counts, 'task instances', lens=Lens.CURRENT)}")

    def _terminate(self, options: dict[str, Any]) -> None:
        run = runs.by_key(EVERYTHING, options["flow_id"], options["run_id"])
        plan = terminate_run(
            run_id=run.id, actor=actor(), reason=options["reason"], dry_run=options["dry_run"]
        )
        self.stdout.write(as_json(plan) if options["json"] else terminated(plan))

    def _clear(self, options: dict[str, Any]) -> None:
        if options["go_on"] is not None:
            self.stdout.write(go_on_with(options, self.stderr.write))
            return
        if options["plan"] is not None:
            self.stdout.write(clear_batch(options, self.stderr.write))
            return
        if options["flow_id"] is None:
            raise InvalidInput("Name a FLOW, a --plan, or what to --go-on with.")
        flows.one(EVERYTHING, options["flow_id"])
        query = {
            "flow_id": options["flow_id"],
            "state": options["state"],
            "logical_date_gte": options["since"].isoformat() if options["since"] else "",
            "logical_date_lte": options["until"].isoformat() if options["until"] else "",
            "limit": str(LIMIT_MAX),
        }
        asked = RunFilter.from_query(query)
        page = runs.page(asked, EVERYTHING)
        found = [row.id for row in page.rows]
        while page.next_cursor:
            page = runs.page(asked.evolve(cursor=page.next_cursor), EVERYTHING)
            found += [row.id for row in page.rows]
        if not found:
            raise NotFound(f"Flow {options['flow_id']} has no such runs: nothing would be cleared.")
        self.stdout.write(clear_batch(options, self.stderr.write, run_ids=found))

    def _mark(self, options: dict[str, Any]) -> None:
        run = runs.by_key(EVERYTHING, options["flow_id"], options["run_id"])
        plan = mark_run(
            run_id=run.id,
            state=options["state"],
            actor=actor(),
            reason=options["reason"],
            callbacks=options["callbacks"],
            note=options["note"],
            dry_run=options["dry_run"],
        )
        self.stdout.write(as_json(plan) if options["json"] else marked(plan))

    def _freeze_or_thaw(self, options: dict[str, Any]) -> None:
        flow_id, shard = options["flow_id"], options["shard"]
        if [flow_id is not None, shard is not None, options["all"]].count(True) != 1:
            raise InvalidInput(
                "Name one thing: a FLOW (and a RUN_ID of it), --shard N, or --all for everything."
            )
        kind, scope_id = "all", ""
        if shard is not None:
            kind, scope_id = "shard", str(shard)
        elif options["run_id"]:
            run = runs.by_key(EVERYTHING, flow_id, options["run_id"])
            kind, scope_id = "run", str(run.id)
        elif flow_id is not None:
            kind, scope_id = "flow", flow_id
        self.stdout.write(freeze_or_thaw(options, scope_kind=kind, scope_id=scope_id))

    def _retry(self, options: dict[str, Any]) -> None:
        run = runs.by_key(EVERYTHING, options["flow_id"], options["run_id"])
        plan = retry_run(
            run_id=run.id,
            actor=actor(),
            reason=options["reason"],
            dry_run=options["dry_run"],
        )
        self.stdout.write(as_json(plan) if options["json"] else cleared(plan))

    def _cancel_retry(self, options: dict[str, Any]) -> None:
        run = runs.by_key(EVERYTHING, options["flow_id"], options["run_id"])
        cancel_retry(
            run_id=run.id,
            actor=actor(),
            reason=options["reason"],
            dry_run=options["dry_run"],
        )
        row = runs.one(EVERYTHING, run.id)
        does = "would stay" if options["dry_run"] else "stays"
        said = f"Run {row.run_id} {does} {row.state}: no run attempt follows by itself."
        self.stdout.write(as_json(row) if options["json"] else said)

    def _freezes(self, options: dict[str, Any]) -> None:
        states = ("live", "ended") if options["all"] else ("live",)
        asked = FreezeFilter(state=states, limit=options["limit"], order="-id")
        asked = as_asked(asked, options)
        page = freezes.page(asked, EVERYTHING)
        if options["json"]:
            self.stdout.write(page_as_json(page))
            return
        headings = ("FREEZE", "OF", "STATE", "MODE", "BY", "SINCE", "UNTIL", "ENDED", "BECAUSE")
        lines = [
            (
                row.id,
                f"{row.scope_kind} {row.scope_id}".strip(),
                row.state,
                row.mode,
                row.actor,
                row.created_at,
                row.until,
                row.ended_at,
                row.reason,
            )
            for row in page.rows
        ]
        self.stdout.write(table(headings, lines))
        self.stdout.write(f"\n{told_page(page, 'freezes', lens=asked.filtered)}")

    def _set_paused(self, options: dict[str, Any]) -> None:
        flow = set_paused(
            flow_id=options["flow_id"],
            is_paused=options["verb"] == "pause",
            actor=actor(),
            reason=options["reason"],
        )
        row = flows.one(EVERYTHING, flow.flow_id)
        self.stdout.write(as_json(row) if options["json"] else f"Flow {row.flow_id}: {row.state}.")


def _add_reading(verbs: Verbs) -> None:
    listed = verbs.add_parser("list", help="the flows, and when each runs next")
    for name, words in (
        ("q", "whose ids have this in them"),
        ("state", f"in this state ({', '.join(FLOW_STATES)}); may be repeated"),
        ("tag", "with this tag; may be repeated"),
        ("owner", "of this owner; may be repeated"),
    ):
        listed.add_argument(f"--{name}", action="append", default=[], help=words)
    add_list_options(listed)
    shown = verbs.add_parser("show", help="one flow: its tasks, schedule and faults")
    shown.add_argument("flow_id", metavar="FLOW")
    add_json(shown)
    coming.add_next(verbs.add_parser("next", help="when a flow fires next"))
    versions.add_versions(verbs.add_parser("versions", help="the versions of a flow"))
    versions.add_diff(verbs.add_parser("diff", help="what differs between two versions"))
    listed_runs = verbs.add_parser("runs", help="the runs of a flow, newest first")
    listed_runs.add_argument("flow_id", metavar="FLOW")
    for name, words in (
        ("state", "in this state; may be repeated"),
        ("type", "scheduled, manual or backfill; may be repeated"),
        ("version", "of this version, by its number; may be repeated"),
    ):
        listed_runs.add_argument(f"--{name}", action="append", default=[], help=words)
    for name, words in (("from", "this logical date and later"), ("until", "and earlier")):
        listed_runs.add_argument(
            f"--{name}", dest=f"{name}_date", type=moment, metavar="TIME", help=words
        )
    add_list_options(listed_runs)
    one = verbs.add_parser("run", help="one run: its version, dates, parameters and tasks")
    one.add_argument("flow_id", metavar="FLOW")
    one.add_argument("run_id", metavar="RUN_ID")
    add_json(one)


def _add_authoring(verbs: Verbs) -> None:
    starter.add_new(verbs.add_parser("new", help="write a flow file to begin with"))
    checked = verbs.add_parser(
        "validate", aliases=["check"], help="check flow files; works without a stack"
    )
    checked.add_argument("what", metavar="FILE|FOLDER|FLOW", nargs="+")
    add_json(checked)
    _add_test(verbs.add_parser("test", help="play a run in this process; works without a stack"))


def _add_test(parser: ArgumentParser) -> None:
    parser.add_argument("what", metavar="FILE|FLOW", help="a flow file, or a flow by its id")
    parser.add_argument("--flow", metavar="FLOW", help="of the file, where it defines several")
    parser.add_argument("--conf", metavar="JSON", type=json_object, help="over the defaults")
    parser.add_argument(
        "--logical-date", metavar="TIME", type=moment, help="also when its clock begins"
    )
    parser.add_argument(
        "--events", metavar="JSON", type=json_object, help="by task: what its trigger fires with"
    )
    add_json(parser)


def _add_trigger(parser: ArgumentParser) -> None:
    parser.add_argument("flow_id", metavar="FLOW")
    parser.add_argument(
        "--conf", metavar="JSON", type=json_object, help="a JSON object for the run's tasks"
    )
    parser.add_argument("--run-id", metavar="ID", help="an id of its own for the run")
    parser.add_argument(
        "--logical-date",
        metavar="DATE",
        type=moment,
        help="ISO 8601 with an offset; default: now",
    )
    parser.add_argument("--note", default="", help="a note that stays with the run")
    parser.add_argument(
        "--follow", action="store_true", help="show progress; exit 0 only if the run succeeds"
    )
    add_json(parser)


def _in_query(at: datetime | None) -> str:
    return "" if at is None else at.isoformat()


def _param(one: Told) -> str:
    default = "required" if one.default is None else f"default {one.default}"
    return "; ".join(part for part in (one.accepts, default, one.description) if part)


def _add_clear(parser: ArgumentParser) -> None:
    parser.add_argument("flow_id", metavar="FLOW", nargs="?")
    parser.add_argument("--state", action="append", default=[], help="of runs; may be repeated")
    parser.add_argument(
        "--from", dest="since", metavar="DATE", type=moment, help="runs for this date and later"
    )
    parser.add_argument(
        "--until", metavar="DATE", type=moment, help="runs for this date and earlier"
    )
    parser.add_argument("--go-on", type=UUID, metavar="ID", help="go on with a plan that was begun")
    add_clear_options(parser)
    add_act(parser)
    add_json(parser)


def _tasks(definition: FlowDefinition) -> str:
    headings = ("TASK", "AFTER", "RULE", "RETRIES", "POOL", "SLOTS", "PRIORITY", "QUEUE")
    lines = [
        (
            task.task_id,
            ", ".join(task.upstream),
            task.trigger_rule,
            task.retries,
            task.pool,
            task.pool_slots,
            task.priority,
            task.queue,
        )
        for task in definition.tasks
    ]
    return table(headings, lines)


def _progress(done: int, of: int) -> None:
    sys.stderr.write(f"\r{done} of {of} files" + ("" if done < of else "\r\033[K"))
    sys.stderr.flush()


def _outcome(run: RunRow) -> str:
    if run.started_at is None or run.ended_at is None:
        return f"Run {run.run_id}: {run.state}."
    duration_s = (run.ended_at - run.started_at).total_seconds()
    reason = f" ({run.state_reason.rstrip('.')})" if run.state_reason else ""
    return f"Run {run.run_id}: {run.state} after {duration_s:.1f} s{reason}."
