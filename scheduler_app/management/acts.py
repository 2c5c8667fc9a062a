"""What acting verbs of several commands are asked for, and how they tell what was done."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler_app.management.output import table

if TYPE_CHECKING:
    from argparse import ArgumentParser

    from scheduler_app.operations.terminate import TerminationPlan


def add_act(parser: ArgumentParser) -> None:
    """The verb acts for a reason, or only says what it would do."""
    parser.add_argument("--reason", default="", help="why, for the audit; needed to act")
    parser.add_argument(
        "--dry-run", action="store_true", help="only say what would follow; change nothing"
    )


def terminated(plan: TerminationPlan) -> str:
    """The plan as a person reads it."""
    does = "would be terminated" if plan.dry_run else "terminated"
    lines = [(one.name, one.state, one.effect) for one in plan.included]
    lines += [(one.name, one.state, f"left alone: {one.effect}") for one in plan.excluded]
    said = f"{len(plan.included)} task instances {does}, {len(plan.excluded)} left alone"
    return f"{table(('TASK', 'WAS', 'THEN'), lines)}\n\n{said}"
