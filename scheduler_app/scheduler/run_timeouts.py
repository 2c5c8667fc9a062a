"""Runs past their deadline: what is unfinished in them is ended, and then they end as failed."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from scheduler_app.transitions.task_instance import lock_open, spared_teardowns, terminate

if TYPE_CHECKING:
    from collections.abc import Sequence

    import psycopg

    from scheduler_app.scheduler.versions import Version

logger = logging.getLogger(__name__)


def end_overdue(
    connection: psycopg.Connection[Any],
    *,
    runs: Sequence[dict[str, Any]],
    versions: dict[int, Version],
) -> dict[int, str]:
    """Of these locked runs, those past their deadline, each with the reason that it ends for.

    What has not started in them never starts; what runs is stopped by its worker and fails then; teardowns
    that have something to take away do that before the run ends. Task instances that a freeze holds stay as they are: their clocks stand still.
    """
    overdue = {}
    for run in runs:
        if not run["is_overdue"]:
            continue
        limit_s = versions[run["version_id"]].definition.run_timeout_s or 0.0
        overdue[run["id"]] = why = f"It did not end within its run_timeout of {limit_s:g} s."
        found = lock_open(connection, run_id=run["id"])
        ids = [one.id for one in found if one.held_by is None and not one.is_asked_to_stop]
        if ids:
            spared = spared_teardowns(connection, run_id=run["id"])
            ids = [one.id for one in found if one.id in ids and one.task_id not in spared]
        if ids:
            terminate(connection, ti_ids=ids, reason=f"Its run is over. {why}")
            logger.warning(
                "a run reached its time limit",
                extra={"run": run["id"], "flow_id": run["flow_id"], "unfinished": len(ids)},
            )
    return overdue
