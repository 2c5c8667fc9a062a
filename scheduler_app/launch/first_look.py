"""What the first start does so that there is something to look at: runs, and one refused delivery."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

from scheduler_app.executors.choice import chosen_executor
from scheduler_app.models import Attempt, Flow
from scheduler_app.operations.deliver_again import deliver_again
from scheduler_app.operations.trigger_run import trigger_run
from scheduler_app.rules.errors import Conflict

if TYPE_CHECKING:
    from pathlib import Path

ACTOR: Final = "up"
FIRST_RUN: Final = "first_up"  # run id of the run that the first start makes of each example
REPEATED_FLOW: Final = "example_delivered_twice"  # the example whose message comes twice


def trigger_examples(folder: Path) -> int:
    """Each flow of this folder has had its first run; how many were triggered just now."""
    triggered = 0
    new = Flow.objects.filter(folder=str(folder), removed_at__isnull=True).exclude(
        runs__run_key=FIRST_RUN
    )
    for flow_id in new.order_by("flow_id").values_list("flow_id", flat=True):
        with contextlib.suppress(Conflict):  # another `up` on this database was first
            trigger_run(
                flow_id=flow_id,
                actor=ACTOR,
                run_id=FIRST_RUN,
                note="Triggered by the first start, so that there is something to look at.",
            )
            triggered += 1
    return triggered


def repeat_a_delivery() -> bool:
    """The message of that example's first run was really sent twice; false while it is not done."""
    attempt_id = (
        Attempt.objects.filter(
            run__flow_id=REPEATED_FLOW,
            run__run_key=FIRST_RUN,
            started_at__isnull=False,
            is_live=False,
        )
        .order_by("started_at")
        .values_list("id", flat=True)
        .first()
    )
    if attempt_id is None:
        return False
    executor = chosen_executor()
    try:
        return deliver_again(
            attempt_id=attempt_id,
            executor=executor,
            actor=ACTOR,
            reason="To show what becomes of a delivery that comes twice.",
        )
    finally:
        executor.close()
