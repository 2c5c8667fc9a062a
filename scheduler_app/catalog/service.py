"""The catalog's loop: look at file times, load what changed, store it, say how it went."""

from __future__ import annotations

import logging
import time
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final

import psycopg
from django.conf import settings

from scheduler_app.catalog import discover
from scheduler_app.catalog.load import Loaded, load_each
from scheduler_app.catalog.store import pools, store
from scheduler_app.processes import database
from scheduler_app.transitions.flow import (
    remove_flow_files,
    remove_flows,
    remove_unwatched,
    wrongly_removed,
)

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Sequence
    from pathlib import Path

ERROR_PAUSE_S: Final = 2.0
# A file that could not be loaded may have failed by something outside: it is tried again, each
# time after twice as long.
RETRY_FIRST_S: Final = 30.0
RETRY_LAST_S: Final = 3600.0
# How often the catalog looks for what changed in the database: pools, flows removed by others.
RECHECK_INTERVAL_S: Final = 10.0

logger = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class ScanReport:
    """What one scan saw and did. Counts of files and flows."""

    folders: list[str] = field(default_factory=list)
    files: int = 0  # that may define flows
    loaded: int = 0  # because they are new or changed
    flows: int = 0
    faults: int = 0
    changed: bool = False  # a flow has a new version, came or went


@dataclass(slots=True, kw_only=True)
class _Seen:
    """A flow file as it was loaded last: what the load depended on, and what it found."""

    depends_on: dict[str, discover.Signature | None]
    flow_ids: tuple[str, ...] = ()
    faults: int = 0
    is_loaded: bool = True  # false: any file of the folder may be what it failed by
    has_conflict: bool = False  # a flow of it belongs to another file
    unknown_pools: frozenset[str] = frozenset()
    retry_at: float | None = None  # monotonic
    retry_delay_s: float = 0.0

    def has_changed(self, files: dict[str, discover.Signature]) -> bool:
        """Whether loading it again may give something else."""
        if self.retry_at is not None and time.monotonic() >= self.retry_at:
            return True
        if not self.is_loaded and self.depends_on.keys() != files.keys():
            return True
        return discover.has_changed(self.depends_on, files)


@dataclass(slots=True)
class _Folder:
    files: dict[str, discover.Signature] = field(default_factory=dict)
    flow_files: dict[str, _Seen] = field(default_factory=dict)
    others: dict[str, discover.Signature] = field(default_factory=dict)  # not worth loading
    is_seen: bool = False  # what went away while nobody looked has been removed
    is_missing: bool = False


class Catalog:
    """Keeps versions in step with the flow folders."""

    def __init__(
        self, folders: Sequence[Path], *, on_scan: Callable[[dict[str, Any]], None] | None = None
    ) -> None:
        self._folders = {folder.absolute(): _Folder() for folder in folders}
        self._names = tuple(str(folder) for folder in self._folders)
        self._on_scan = on_scan
        self._connection: psycopg.Connection[Any] | None = None
        self._recheck_at = time.monotonic() + RECHECK_INTERVAL_S
        self._was_freed = False  # an owner gave a flow up: files that want it are loaded again

    def run_forever(self, stop: threading.Event) -> None:
        """Scans until stopped; a fault of one scan is logged and the next one starts afresh."""
        is_told = False
        while not stop.is_set():
            pause_s = settings.FLOW_SCAN_INTERVAL_S
            try:
                report = self.scan_once()
                # The first scan is told even if it found nothing: the stack waits for it.
                if self._on_scan is not None and (not is_told or report.loaded or report.changed):
                    self._on_scan(asdict(report))
                is_told = True
            except Exception:
                logger.exception("a scan of the flow folders failed")
                self.close()
                pause_s = ERROR_PAUSE_S
            stop.wait(pause_s)
        self.close()

    def scan_once(self) -> ScanReport:
        """Every file that is new or changed since the last scan was loaded and stored."""
        report = ScanReport(folders=list(self._names))
        freed, self._was_freed = self._was_freed, False
        if time.monotonic() >= self._recheck_at:
            self._recheck_at = time.monotonic() + RECHECK_INTERVAL_S
            self.recheck(report)
        to_load: list[tuple[Path, str]] = []
        for folder, seen in self._folders.items():
            to_load += [(folder, path) for path in self._look(folder, seen, report, freed=freed)]
        # Each is stored when it is ready: one that hangs keeps none of the others waiting.
        for result in load_each(to_load, limit_s=settings.FLOW_FILE_TIMEOUT_S):
            report.loaded += 1
            try:
                self._store(result, report)
            except psycopg.Error as error:  # of this file, unless the database is away
                self._store(self._refused(result, error), report)
        for seen in self._folders.values():
            report.files += len(seen.flow_files)
            report.flows += sum(len(file.flow_ids) for file in seen.flow_files.values())
            report.faults += sum(file.faults for file in seen.flow_files.values())
        return report

    def recheck(self, report: ScanReport) -> None:
        """What changed in the database under files that did not has its consequences.

        Flows of folders that no living scheduler watches any more are removed; a file whose missing
        pool was made, or whose flow another removed, is loaded again.
        """
        connection = self._connect()
        flow_ids = remove_unwatched(
            connection, folders=self._names, dead_after_s=settings.HEARTBEAT_DEAD_AFTER_S
        )
        self._note_removed("", flow_ids, report)
        files = [file for seen in self._folders.values() for file in seen.flow_files.values()]
        missing = {pool for file in files for pool in file.unknown_pools}
        made = missing & pools(connection) if missing else set()
        removed = wrongly_removed(connection, folders=self._names)
        for folder, seen in self._folders.items():
            for path, file in seen.flow_files.items():
                is_wrong = any((str(folder), path, flow_id) in removed for flow_id in file.flow_ids)
                if is_wrong or made & file.unknown_pools:
                    file.depends_on[path] = None

    def _look(self, folder: Path, seen: _Folder, report: ScanReport, *, freed: bool) -> list[str]:
        """The paths of the folder that are to be loaded; what went away is removed."""
        is_missing = not folder.is_dir()
        if is_missing != seen.is_missing:
            seen.is_missing = is_missing
            log = logger.warning if is_missing else logger.info
            log("a flow folder went or came", extra={"folder": str(folder), "gone": is_missing})
        if is_missing:
            return []  # unmounted, perhaps: its flows stay as they are
        seen.files = discover.python_files(folder)
        to_load = []
        for path, signature in seen.files.items():
            known = seen.flow_files.get(path)
            if known is not None:
                if known.has_changed(seen.files) or (freed and known.has_conflict):
                    to_load.append(path)
            elif seen.others.get(path) != signature:
                if discover.may_define_flows(folder / path):
                    to_load.append(path)
                else:
                    seen.others[path] = signature
        gone = [path for path in seen.flow_files if path not in seen.files]
        if gone or not seen.is_seen:
            self._remove(folder, seen, report)
            for path in gone:
                del seen.flow_files[path]
            seen.is_seen = True
        return to_load

    def _remove(self, folder: Path, seen: _Folder, report: ScanReport) -> None:
        """Files and flows of the folder are removed where the file is no longer there."""
        connection = self._connect()
        for path in remove_flow_files(connection, folder=str(folder), kept_paths=list(seen.files)):
            flow_ids = remove_flows(connection, folder=str(folder), path=path)
            self._note_removed(path, flow_ids, report)

    def _note_removed(self, path: str, flow_ids: Sequence[str], report: ScanReport) -> None:
        if flow_ids:
            report.changed = True
            self._was_freed = True
            logger.info("flows were removed", extra={"path": path, "flow_ids": list(flow_ids)})

    def _store(self, result: Loaded, report: ScanReport) -> None:
        stored = store(self._connect(), result, own_folders=self._names)
        report.changed |= stored.is_changed
        self._note_removed(result.path, stored.removed, report)
        seen = self._folders[result.folder]
        before = seen.flow_files.get(result.path)
        now = _Seen(
            depends_on=self._dependencies(result, seen, before),
            flow_ids=stored.flow_ids,
            faults=stored.faults,
            is_loaded=result.is_loaded,
            has_conflict=stored.has_conflict,
            unknown_pools=stored.unknown_pools,
        )
        if not result.is_loaded:
            last_delay_s = before.retry_delay_s if before is not None else 0.0
            now.retry_delay_s = min(max(last_delay_s * 2, RETRY_FIRST_S), RETRY_LAST_S)
            now.retry_at = time.monotonic() + now.retry_delay_s
        seen.flow_files[result.path] = now
        for fault in result.faults:
            logger.warning(
                "a flow file is faulty",
                extra={"path": result.path, "line": fault["line"], "fault": fault["message"]},
            )

    def _refused(self, result: Loaded, error: psycopg.Error) -> Loaded:
        """The file with the database's refusal as its fault; it is tried again, and keeps none of the others waiting."""
        logger.warning(
            "a flow file was not stored", extra={"path": result.path, "error": str(error)}
        )
        self.close()
        why = str(error).strip().partition("\n")[0]
        fault = {
            "file": result.path,
            "line": 1,
            "message": f"What it defines could not be stored: {why}.",
            "remedy": "It is tried again. If it is very large, divide it, or map a task over a list.",
        }
        return Loaded(
            folder=result.folder,
            path=result.path,
            faults=(*result.faults, fault),
            duration_s=result.duration_s,
            is_loaded=False,
        )

    @staticmethod
    def _dependencies(
        result: Loaded, seen: _Folder, before: _Seen | None
    ) -> dict[str, discover.Signature | None]:
        if not result.is_loaded:
            return {**seen.files}
        names = set(result.sources) or set(before.depends_on if before else ())
        return {name: seen.files.get(name) for name in {*names, result.path}}

    def _connect(self) -> psycopg.Connection[Any]:
        if self._connection is None or self._connection.closed:
            self._connection = database.connect("scheduler", name="catalog")
        return self._connection

    def close(self) -> None:
        """The connection is closed; a later scan makes a new one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
