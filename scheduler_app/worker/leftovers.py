"""What workers that are gone left on this host: reports are sent, logs are shipped, folders removed."""

from __future__ import annotations

import logging
import socket
from typing import TYPE_CHECKING, Any

import psycopg

from scheduler_app.processes import bundle_cache, database
from scheduler_app.worker import folder, report
from scheduler_app.worker.logs import ship_abandoned

if TYPE_CHECKING:
    from pathlib import Path
    from uuid import UUID

    from scheduler_app.hints.notices import Notices
    from scheduler_app.worker.folder import WorkerFolder

logger = logging.getLogger(__name__)


def send_all(spool: Path, *, job_id: UUID, notices: Notices) -> None:
    """Every report and log that a dead worker left is in the database, if that can be reached."""
    for left in folder.abandoned(spool):
        try:
            with database.connect("worker", name="leftovers") as connection:
                runs = send_reports(connection, left, job_id=job_id)
                logs = ship_abandoned(connection, left)
        except (psycopg.Error, OSError, ValueError, TypeError) as error:
            logger.warning("what a worker left stays on disk", extra={"error": str(error).strip()})
        else:
            logger.info(
                "what a worker left was sent",
                extra={"folder": left.path.name, "reports": len(runs), "logs": logs},
            )
            notices.both(runs=runs, topics=["runs", *(f"run:{run_id}" for run_id in runs)])
        finally:
            left.remove()


def tidy_sources(cache_dir: Path) -> None:
    """Unpacked sources that nobody needs are gone from this host's disk, if the database can be reached."""
    try:
        with database.connect("worker", name="tidy") as connection:
            bundle_cache.tidy(connection, cache_dir)
    except (psycopg.Error, OSError) as error:
        logger.warning("old sources stay on disk", extra={"error": str(error).strip()})


def send_reports(
    connection: psycopg.Connection[Any], left: WorkerFolder, *, job_id: UUID
) -> list[int]:
    """Each spooled report is accepted or recorded as too late; the runs that moved."""
    runs = []
    for attempt_id, suffix in left.attempts(folder.REPORT):
        content = left.read(attempt_id, suffix)
        if content is None:
            continue
        run_id = report.send(
            connection,
            report.Report(**content),
            source=report.signature(socket.gethostname()),
            job_id=job_id,
        )
        left.drop(attempt_id, suffix)
        if run_id is not None:
            runs.append(run_id)
    return runs
