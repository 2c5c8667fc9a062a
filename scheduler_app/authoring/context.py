"""What a running task knows of itself: the ``ctx`` argument."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol

from scheduler_app.authoring.deferral import Defer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from scheduler_app.authoring.triggers import Trigger

_LOG: Final = logging.getLogger("daylight.task")


class ContextServices(Protocol):
    """What the worker does for a task while it runs."""

    def still_mine(self) -> bool:
        """Whether the attempt is still the one whose result will be accepted."""

    def result(self, task_id: str, map_index: int = -1) -> Any:
        """The stored result of a task of the same run."""


@dataclass(frozen=True, slots=True)
class Results:
    """The results of tasks of the same run, read when asked for: ``ctx.results["extract"]``."""

    services: ContextServices

    def __getitem__(self, task_id: str) -> Any:
        return self.services.result(task_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """One attempt of one task: its ids, its dates, its run's input, and what guards its writes.

    ``fence`` grows with every attempt of the task instance: a store that keeps the greatest fence
    it has seen, and refuses a smaller one, cannot be overwritten by an attempt that was replaced.
    ``idempotency_key`` is the same for every attempt of one logical execution.
    """

    flow_id: str
    run_id: str
    task_id: str
    map_index: int
    logical_date: datetime | None
    data_interval_start: datetime | None
    data_interval_end: datetime | None
    conf: Mapping[str, Any]  # as given to the run
    params: Mapping[str, Any]  # the flow's declared defaults, with conf laid over them
    try_number: int
    resume_index: int
    run_attempt: int
    attempt_id: str
    fence: int
    idempotency_key: str
    services: ContextServices
    elapsed: timedelta = timedelta()  # from the first start of this try to this attempt's start

    @property
    def log(self) -> logging.Logger:
        """The logger whose lines go to the log of this attempt."""
        return _LOG

    @property
    def results(self) -> Results:
        """The results of tasks of the same run, by task id."""
        return Results(self.services)

    def still_mine(self) -> bool:
        """Whether this attempt is still the one whose result will be accepted; asks the database."""
        return self.services.still_mine()

    def defer(
        self,
        trigger: Trigger,
        *,
        method: str | Callable[..., Any],
        kwargs: Mapping[str, Any] | None = None,
        timeout: timedelta | float | None = None,
    ) -> NoReturn:
        """Ends this attempt; the task waits for the trigger and resumes in ``method``: see Defer."""
        raise Defer(trigger, method=method, kwargs=kwargs, timeout=timeout)
