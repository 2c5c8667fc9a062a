"""What acting verbs of several commands are asked for, and how they tell what was done."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

from scheduler_app.management.arguments import actor, moment
from scheduler_app.management.output import as_json, table
from scheduler_app.operations.clear_batch import carry_out_batch, go_on, plan_batch
from scheduler_app.operations.freeze import freeze
from scheduler_app.operations.thaw import thaw
from scheduler_app.rules.clear import Options
from scheduler_app.rules.folded import lines_of
from scheduler_app.rules.freezing import Mode

if TYPE_CHECKING:
    from argparse import ArgumentParser
    from collections.abc import Callable, Mapping, Sequence

    from scheduler_app.operations.clear import ClearPlan
    from scheduler_app.operations.clear_batch import Batch
    from scheduler_app.operations.freeze import FreezePlan
    from scheduler_app.operations.mark import MarkPlan
    from scheduler_app.operations.terminate import TerminationPlan
    from scheduler_app.operations.thaw import ThawPlan


def add_act(parser: ArgumentParser) -> None:
    """The verb acts for a reason, or only says what it would do."""
    parser.add_argument("--reason", default="", help="why, for the audit; needed to act")
    parser.add_argument(
        "--dry-run", action="store_true", help="only say what would follow; change nothing"
    )


def terminated(plan: TerminationPlan) -> str:
    """The plan as a person reads it."""
    does = "would be terminated" if plan.dry_run else "terminated"
    said = f"{len(plan.included)} task instances {does}, {len(plan.excluded)} left alone"
    return f"{table(('TASK', 'WAS', 'THEN'), _lines(plan))}\n\n{said}"


def add_mark(parser: ArgumentParser) -> None:
    """The verb marks: as what, and whether callbacks are called."""
    parser.add_argument(
        "--callbacks", action="store_true", help="call what that end calls for (default: nothing)"
    )
    parser.add_argument("--note", help="the run's note from then on")
    add_act(parser)


def marked(plan: MarkPlan) -> str:
    """The plan as a person reads it."""
    does = "would be marked" if plan.dry_run else "marked"
    several = len(plan.runs) > 1
    keys = {run.id: run.run_key for run in plan.runs} if several else {}
    lines = _lines(plan, keys)
    said = f"{len(plan.included)} task instances {does}, {len(plan.excluded)} left alone"
    told = [f"Run {run.run_key}: {run.effect}" for run in plan.runs]
    told += [f"Run {run.id} is left alone: {run.why}" for run in plan.refused]
    runs = "\n".join(told)
    return f"{table(('TASK', 'WAS', 'THEN'), lines)}\n\n{said}\n{runs}"


def add_freeze(parser: ArgumentParser) -> None:
    """The verb freezes: how, until when, and why."""
    parser.add_argument(
        "--mode",
        choices=[mode.value for mode in Mode],
        default=Mode.DRAIN.value,
        help="drain lets running tasks end, hard stops them (default: drain)",
    )
    parser.add_argument(
        "--until",
        metavar="TIME",
        type=moment,
        help="ISO 8601 with an offset; it thaws by itself then (default: by hand only)",
    )
    add_act(parser)


def freeze_or_thaw(options: dict[str, Any], *, scope_kind: str, scope_id: str | int = "") -> str:
    """What the verb ``freeze`` or ``thaw`` did to the scope, as a person or a script reads it."""
    asked: dict[str, Any] = {
        "scope_kind": scope_kind,
        "scope_id": scope_id,
        "actor": actor(),
        "reason": options["reason"],
        "dry_run": options["dry_run"],
    }
    if options["verb"] == "thaw":
        thawed = thaw(**asked)
        return as_json(thawed) if options["json"] else _thawed(thawed)
    frozen = freeze(**asked, mode=options["mode"], until=options["until"])
    return as_json(frozen) if options["json"] else _frozen(frozen)


def _frozen(plan: FreezePlan) -> str:
    does = "would be held" if plan.dry_run else f"held by freeze {plan.freeze_id}"
    until = "by hand" if plan.until_at is None else f"at {plan.until_at.isoformat()}"
    said = (
        f"{plan.held_count} task instances in {plan.run_count} runs {does},"
        f" {plan.stopped_count} executions stopped; thaws {until}"
    )
    return f"{_subjects(plan)}\n\n{said}"


def _thawed(plan: ThawPlan) -> str:
    does = "would go on" if plan.dry_run else "go on"
    said = (
        f"{plan.released_count} task instances {does}, {plan.waiting_count} when their pool has"
        f" room, {plan.kept_count} held by another freeze"
    )
    return f"{_subjects(plan)}\n\n{said}"


def _subjects(plan: FreezePlan | ThawPlan) -> str:
    return table(("TASK", "IS", "THEN"), _lines(plan))


def _lines(
    plan: TerminationPlan | MarkPlan | FreezePlan | ThawPlan | ClearPlan,
    keys: Mapping[int, str] | None = None,
) -> list[tuple[str, str, str]]:
    """What the plan says of each task instance, of many of a mapped task at once.

    ``keys``: what a run is called, where there are several.
    """

    def told(found: Sequence[Any], before: str) -> list[tuple[str, str, str]]:
        run_of = [keys[one.run_id] for one in found] if keys else ()
        return [
            (
                one.name if one.number == 1 else f"{one.number} x {one.name}",
                one.state,
                f"{before}{one.effect}",
            )
            for one in lines_of(found, run_of)
        ]

    return told(plan.included, "") + told(plan.excluded, "left alone: ")


def add_clear_options(parser: ArgumentParser) -> None:
    """The switches that every clear has."""
    for flag, key, means in (
        ("--only-failed", "only_failed", "of these, only failed and upstream_failed ones"),
        ("--only-running", "only_running", "of these, only running ones"),
        ("--only-new", "only_new", "only add the tasks that are new in the newest version"),
    ):
        parser.add_argument(flag, dest=key, action="store_true", help=means)
    for flag, is_latest, means in (
        ("--latest-version", True, "execute the flow's newest version"),
        ("--own-version", False, "keep the version that the run has, whatever the flow says"),
    ):
        parser.add_argument(
            flag,
            dest="run_on_latest_version",
            action="store_const",
            const=is_latest,
            default=None,
            help=means,
        )
    parser.add_argument(
        "--drop-checkpoints",
        dest="keep_checkpoints",
        action="store_false",
        help="begin without what earlier tries saved",
    )
    parser.add_argument("--note", help="the run's note from then on")
    parser.add_argument(
        "--plan", type=UUID, metavar="ID", help="carry out just this plan, if it still holds"
    )


def clear_options(options: dict[str, Any]) -> Options:
    """The switches as they were given."""
    return Options(**{key: options[key] for key in Options.__dataclass_fields__ if key in options})


def clear_batch(options: dict[str, Any], say: Callable[[str], object], **named: Any) -> str:
    """What the verb did with several runs, as a person or a script reads it; ``say`` tells how far it is."""
    plan_id = options["plan"]
    if plan_id is None:
        planned = plan_batch(actor=actor(), options=clear_options(options), **named)
        if options["dry_run"]:
            return as_json(planned) if options["json"] else batched(planned)
        plan_id = planned.batch_id
    done = carry_out_batch(
        plan_id,
        actor=actor(),
        reason=options["reason"],
        note=options["note"],
        told=lambda seen: say(_progress(seen)),
    )
    return as_json(done) if options["json"] else batched(done)


def go_on_with(options: dict[str, Any], say: Callable[[str], object]) -> str:
    """What going on with a batch did."""
    done = go_on(options["go_on"], actor=actor(), told=lambda seen: say(_progress(seen)))
    return as_json(done) if options["json"] else batched(done)


def _progress(seen: Batch) -> str:
    return f"{len(seen.parts) - seen.number('planned')} of {len(seen.parts)} runs"


def batched(plan: Batch) -> str:
    """The clear of several runs as a person reads it."""
    lines = [
        (
            f"{part.flow_id} {part.run_key}",
            part.state,
            part.included,
            part.excluded,
            part.refusal or "",
        )
        for part in plan.parts
    ]
    said = (
        f"{plan.included} task instances in {len(plan.parts)} runs,"
        f" at most {plan.worst_case_executions} executions; "
    )
    said += ", ".join(
        f"{plan.number(state)} {state}"
        for state in ("planned", "done", "refused", "undone")
        if plan.number(state)
    )
    if plan.state == "planned":
        said += (
            f"\nPlan {plan.batch_id} holds until {plan.expires_at:%H:%M:%S} UTC, if nothing moves."
        )
    return f"{table(('RUN', 'STATE', 'CLEARED', 'LEFT ALONE', 'BECAUSE'), lines)}\n\n{said}"


def cleared(plan: ClearPlan) -> str:
    """The plan as a person reads it."""
    does = "would be cleared" if plan.dry_run else "cleared"
    said = f"{len(plan.included)} task instances {does}, {len(plan.excluded)} left alone;"
    said += f" at most {plan.worst_case_executions} executions on version {plan.version}"
    if plan.new_run_attempt is not None:
        said += f", as run attempt {plan.new_run_attempt}"
    if plan.dry_run:
        said += (
            f"\nPlan {plan.plan_id} holds until {plan.expires_at:%H:%M:%S} UTC, if nothing moves."
        )
    elif plan.can_be_undone:
        said += f"\nUndo it, while nothing of it has started: manage.py tasks undo {plan.plan_id}"
    return f"{table(('TASK', 'WAS', 'THEN'), _lines(plan))}\n\n{said}"
