"""Unpacked sources on this host's disk: those that nobody needs any more are removed."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from psycopg.rows import tuple_row

if TYPE_CHECKING:
    import psycopg

KEPT_DAYS: Final = 7  # after a version was made
USE_NOTED_S: Final = 3_600.0  # the time of last use may be off by so much
UNUSED_S: Final = 86_400.0  # since a process last asked for it

logger = logging.getLogger(__name__)


def is_used(folder: str | Path) -> bool:
    """Whether the folder is there; then it says that it is in use."""
    try:
        if time.time() - os.stat(folder).st_mtime > USE_NOTED_S:
            os.utime(folder)
    except FileNotFoundError:
        return False
    except OSError:  # a disk that is read-only is never tidied
        pass
    return True


def tidy(connection: psycopg.Connection[Any], cache_dir: Path) -> list[str]:
    """Digests of the bundles whose folders are gone from the disk; the database keeps each.

    Kept are those of versions that an unfinished run executes, that are current or were made lately, and
    what was asked for within a day. Whoever needs one again unpacks it again.
    """
    old = [one for one in _folders(cache_dir) if time.time() - one.stat().st_mtime > UNUSED_S]
    if not old:
        return []
    wanted = _wanted(connection)
    gone = []
    for folder in old:
        if folder.name in wanted:
            continue
        # Out of sight in one step, so that nobody finds half of it.
        away = Path(tempfile.mkdtemp(prefix=".old-", dir=cache_dir))
        try:
            folder.rename(away / folder.name)
        except OSError as error:
            logger.warning("sources stay on disk", extra={"error": str(error)})
        else:
            gone.append(folder.name)
        shutil.rmtree(away, ignore_errors=True)
    if gone:
        logger.info("sources that nobody needs were removed", extra={"bundles": len(gone)})
    return gone


def _folders(cache_dir: Path) -> list[Path]:
    """Bundles, and what a process that was killed left half made or half removed."""
    try:
        return sorted(one for one in cache_dir.iterdir() if one.is_dir())
    except FileNotFoundError:
        return []


def _wanted(connection: psycopg.Connection[Any]) -> frozenset[str]:
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(
            "SELECT v.bundle_id FROM run r JOIN flow_version v ON v.id = r.version_id WHERE r.is_active"
            " UNION SELECT v.bundle_id FROM flow f JOIN flow_version v ON v.id = f.current_version_id"
            "  WHERE f.removed_at IS NULL"
            " UNION SELECT bundle_id FROM flow_version"
            "  WHERE created_at > clock_timestamp() - make_interval(days => %s)",
            [KEPT_DAYS],
        )
        return frozenset(row[0] for row in cursor.fetchall())
