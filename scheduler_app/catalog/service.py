"""The catalog's loop: look at file times, load what changed, store it, say how it went."""

from __future__ import annotations

import logging
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final

from django.conf import settings

from scheduler_app.catalog import discover
from scheduler_app.catalog.load import Loaded, load_all
from scheduler_app.catalog.store import store
from scheduler_app.processes import database
from scheduler_app.transitions.flow import remove_flow_files, remove_flows

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Sequence
    from pathlib import Path

    import psycopg

ERROR_PAUSE_S: Final = 2.0

logger = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class ScanReport:
    """What one scan saw and did. Counts of files and flows."""

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

    def has_changed(self, files: dict[str, discover.Signature]) -> bool:
        """Whether loading it again may give something else."""
        if not self.is_loaded and self.depends_on.keys() != files.keys():
            return True
        return discover.has_changed(self.depends_on, files)


@dataclass(slots=True)
class _Folder:
    files: dict[str, discover.Signature] = field(default_factory=dict)
    flow_files: dict[str, _Seen] = field(default_factory=dict)
    others: dict[str, discover.Signature] = field(default_factory=dict)  # not worth loading


class Catalog:
    """Keeps versions in step with the flow folders."""

    def __init__(
        self, folders: Sequence[Path], *, on_scan: Callable[[dict[str, Any]], None] | None = None
    ) -> None:
        self._folders = {folder.absolute(): _Folder() for folder in folders}
        self._on_scan = on_scan
        self._connection: psycopg.Connection[Any] | None = None

    def run_forever(self, stop: threading.Event) -> None:
        """Scans until stopped; a fault of one scan is logged and the next one starts afresh."""
        is_first = True
        while not stop.is_set():
            pause_s = settings.FLOW_SCAN_INTERVAL_S
            try:
                report = self.scan_once()
                # The first scan is told even if it found nothing: the stack waits for it.
                if self._on_scan is not None and (is_first or report.loaded or report.changed):
                    self._on_scan(asdict(report))
                is_first = False
            except Exception:
                logger.exception("a scan of the flow folders failed")
                self.close()
                pause_s = ERROR_PAUSE_S
            stop.wait(pause_s)
        self.close()

    def scan_once(self) -> ScanReport:
        """Every file that is new or changed since the last scan was loaded and stored."""
        report = ScanReport()
        to_load: list[tuple[Path, str]] = []
        for folder, seen in self._folders.items():
            self._look(folder, seen, report, to_load)
        results = load_all(to_load, limit_s=settings.FLOW_FILE_TIMEOUT_S)
        report.loaded = len(results)
        self._store(results, report)
        for seen in self._folders.values():
            report.files += len(seen.flow_files)
            report.flows += sum(len(file.flow_ids) for file in seen.flow_files.values())
            report.faults += sum(file.faults for file in seen.flow_files.values())
        return report

    def _look(
        self, folder: Path, seen: _Folder, report: ScanReport, to_load: list[tuple[Path, str]]
    ) -> None:
        is_first = not seen.files
        seen.files = discover.python_files(folder)
        for path, signature in seen.files.items():
            known = seen.flow_files.get(path)
            if known is not None:
                if known.has_changed(seen.files):
                    to_load.append((folder, path))
            elif seen.others.get(path) != signature:
                if discover.may_define_flows(folder / path):
                    to_load.append((folder, path))
                else:
                    seen.others[path] = signature
        gone = [path for path in seen.flow_files if path not in seen.files]
        if gone or is_first:
            self._remove(folder, seen, gone, report)

    def _remove(self, folder: Path, seen: _Folder, gone: list[str], report: ScanReport) -> None:
        """Also what went away while nobody looked, at the first scan."""
        connection = self._connect()
        for path in gone:
            del seen.flow_files[path]
        removed = remove_flow_files(connection, folder=str(folder), kept_paths=list(seen.files))
        for path in removed:
            flow_ids = remove_flows(connection, path=path)
            report.changed |= bool(flow_ids)
            if flow_ids:
                logger.info("flows were removed", extra={"path": path, "flow_ids": flow_ids})

    def _store(self, results: list[Loaded], report: ScanReport) -> None:
        if not results:
            return
        connection = self._connect()
        loading = {(result.folder, result.path) for result in results}
        taken = {
            flow_id: path
            for folder, seen in self._folders.items()
            for path, file in seen.flow_files.items()
            if (folder, path) not in loading
            for flow_id in file.flow_ids
        }
        for result in results:
            report.changed |= store(connection, result, taken=taken)
            self._note(result, taken)

    def _note(self, result: Loaded, taken: dict[str, str]) -> None:
        seen = self._folders[result.folder]
        before = seen.flow_files.get(result.path)
        names = set(result.sources) or set(before.depends_on if before else ())
        depends_on = {name: seen.files.get(name) for name in {*names, result.path}}
        if not result.is_loaded:
            depends_on = {**seen.files}
        flow_ids = tuple(d.flow_id for d in result.flows if taken.get(d.flow_id) == result.path)
        if not result.is_loaded and before is not None:
            flow_ids = before.flow_ids
        seen.flow_files[result.path] = _Seen(
            depends_on=depends_on,
            flow_ids=(*flow_ids, *result.faulty_flow_ids),
            faults=len(result.faults),
            is_loaded=result.is_loaded,
        )
        for fault in result.faults:
            logger.warning(
                "a flow file is faulty",
                extra={"path": result.path, "line": fault["line"], "fault": fault["message"]},
            )

    def _connect(self) -> psycopg.Connection[Any]:
        if self._connection is None or self._connection.closed:
            self._connection = database.connect("scheduler", name="catalog")
        return self._connection

    def close(self) -> None:
        """The connection is closed; a later scan makes a new one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
