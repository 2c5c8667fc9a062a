"""What a callback is told: the task instance, the run and the exception, as they were.

A callback runs in a process of its own, later than what it is about. So it gets pictures taken when
that happened, not the live objects; names that people know from Airflow hold the same things.
"""

from __future__ import annotations

import builtins
import sys
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

RETURN_VALUE: Final = "return_value"  # the one result that a task has


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPicture:
    """A run: ``context["run"]``, also as ``context["dag_run"]``. Times aware UTC."""

    flow_id: str
    run_id: str
    run_type: str
    state: str
    run_attempt: int
    logical_date: datetime | None
    data_interval_start: datetime | None
    data_interval_end: datetime | None
    conf: Mapping[str, Any]
    note: str
    queued_at: datetime | None
    start_date: datetime | None
    end_date: datetime | None

    @property
    def dag_id(self) -> str:
        """The flow's id."""
        return self.flow_id


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskInstancePicture:
    """A task instance: ``context["ti"]``, also as ``context["task_instance"]``. Times aware UTC.

    ``state`` is what it moved to: of a retry ``up_for_retry``, whatever became of it since.
    """

    flow_id: str
    run_id: str
    task_id: str
    map_index: int
    state: str
    try_number: int
    max_tries: int
    attempt_id: str | None  # of the attempt that moved it; null: none was made
    queue: str
    pool: str
    priority: int
    hostname: str | None
    pid: int | None
    start_date: datetime | None
    end_date: datetime | None
    result_of: Callable[[str, int], Any] = field(repr=False)
    log_url: str = ""  # of its page; empty: the installation has told no address

    @property
    def dag_id(self) -> str:
        """The flow's id."""
        return self.flow_id

    @property
    def duration(self) -> float | None:
        """Seconds from the attempt's start to its end; null while it runs."""
        if self.start_date is None or self.end_date is None:
            return None
        return (self.end_date - self.start_date).total_seconds()

    def xcom_pull(self, task_ids: str, *, key: str = RETURN_VALUE, map_indexes: int = -1) -> Any:
        """The result of a task of the same run; None where it has none."""
        return self.result_of(task_ids, map_indexes) if key == RETURN_VALUE else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """A flow or task where only its id is asked for: ``context["dag"].dag_id``."""

    dag_id: str
    task_id: str | None = None


class ReportedError(Exception):
    """Stands for an exception that was raised in another process: its text, not itself.

    Where the class of the original can be found, it is a subclass of that too, so that
    ``isinstance`` works. Attributes of the original's own are not there.
    """

    type: str = ""  # name of the original class, with its module
    traceback: str = ""

    def __init__(self, message: str) -> None:  # not the original's: it may want other arguments
        self.message = message
        self.args = (message,)

    def __str__(self) -> str:
        return self.message


# Where a name without a module is looked for, beside what is built in.
_PUBLIC: Final = ("scheduler_app.authoring", "scheduler_app.rules.errors")


def exception_of(error: Mapping[str, Any] | None, otherwise: str | None) -> ReportedError | None:
    """The exception of a failure; without an error of user code, one that says ``otherwise``."""
    if error is None:
        return None if otherwise is None else ReportedError(otherwise)
    name = str(error["type"])
    told = _kind_of(name)(str(error["message"]))
    told.type = name
    told.traceback = str(error.get("traceback", ""))
    return told


def _kind_of(name: str) -> type[ReportedError]:
    module, _, short = name.rpartition(".")
    homes = [sys.modules.get(module)] if module else [builtins, *map(sys.modules.get, _PUBLIC)]
    original = next((getattr(one, short) for one in homes if hasattr(one, short)), None)
    bases: tuple[type, ...] = (ReportedError,)
    if isinstance(original, type) and issubclass(original, Exception):
        bases = (ReportedError, original)
    try:
        return type(short, bases, {"__module__": module or "builtins"})
    except TypeError:  # a class that cannot be derived from so
        return type(short, (ReportedError,), {})


def context_of(
    *,
    on: str,
    run: RunPicture,
    ti: TaskInstancePicture | None,
    exception: ReportedError | None,
    reason: str | None,
    params: Mapping[str, Any],
    group_id: str | None = None,
    key: str = "",
    url: str = "",
) -> dict[str, Any]:
    """The mapping that a callback is called with.

    ``key`` is the same each time that this very callback is called; ``url`` is of the page that
    shows what it is about, empty where the installation has told no address.
    """
    date = run.logical_date
    utc = None if date is None else date.astimezone(UTC)
    return {
        "callback": on,
        "callback_key": key,
        "group": group_id,
        "url": url,
        "run": run,
        "dag_run": run,
        "ti": ti,
        "task_instance": ti,
        "dag": Named(dag_id=run.flow_id),
        "task": None if ti is None else Named(dag_id=run.flow_id, task_id=ti.task_id),
        "exception": exception,
        "reason": reason,
        "flow_id": run.flow_id,
        "run_id": run.run_id,
        "logical_date": date,
        "ds": None if utc is None else utc.strftime("%Y-%m-%d"),
        "ds_nodash": None if utc is None else utc.strftime("%Y%m%d"),
        "ts": None if utc is None else utc.isoformat(),
        "data_interval_start": run.data_interval_start,
        "data_interval_end": run.data_interval_end,
        "conf": run.conf,
        "params": params,
        "try_number": None if ti is None else ti.try_number,
        "map_index": None if ti is None else ti.map_index,
    }
