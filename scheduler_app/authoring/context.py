"""What a running task knows of itself: the ``ctx`` argument."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol

from scheduler_app.authoring.artifacts import Artifacts, ArtifactServices
from scheduler_app.authoring.child_runs import (
    ChildRun,
    ChildRunServices,
    IfExists,
    OnStop,
    ask_for,
)
from scheduler_app.authoring.deferral import Defer
from scheduler_app.authoring.exclusive import TIMEOUT_S, Blocks, ExclusiveServices, held
from scheduler_app.authoring.retrying import RetryAfter
from scheduler_app.authoring.saving import Checkpoint, Progress, SavingServices, checked_key
from scheduler_app.authoring.skipping import Skip

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

    from scheduler_app.authoring.flow import Flow
    from scheduler_app.authoring.triggers import Trigger

RETURN_VALUE: Final = "return_value"  # the key under which a task's result is pulled
_LOG: Final = logging.getLogger("daylight.task")


class ContextServices(
    SavingServices, ArtifactServices, ExclusiveServices, ChildRunServices, Protocol
):
    """What the worker does for a task while it runs."""

    def still_mine(self) -> bool:
        """Whether the attempt is still the one whose result will be accepted."""

    def idempotency_key(self) -> str:
        """The same for every attempt of one logical execution."""

    def result(self, task_id: str, map_index: int = -1) -> Any:
        """The stored result of a task of the same run."""

    def push(self, key: str, value: Any) -> None:
        """The value is stored for the tasks of the same run."""

    def pull(
        self, task_id: str, key: str | None, *, map_index: int, include_prior_tries: bool
    ) -> tuple[bool, Any]:
        """Whether there is such a value, or result (key null), and the value."""


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
    services: ContextServices
    run_type: str = "manual"  # scheduled, manual or backfill
    elapsed_before: timedelta = (
        timedelta()
    )  # from the first start of this try to this attempt's start
    exclusive_blocks: Blocks = field(default_factory=Blocks, repr=False, compare=False)

    @property
    def idempotency_key(self) -> str:
        """The same for every attempt of one logical execution, and for no other."""
        return self.services.idempotency_key()

    @property
    def elapsed(self) -> timedelta:
        """How long ago this try began, whatever it waited for since."""
        return self.elapsed_before + self.services.here()

    @property
    def log(self) -> logging.Logger:
        """The logger whose lines go to the log of this attempt."""
        return _LOG

    @property
    def results(self) -> Results:
        """The results of tasks of the same run, by task id."""
        return Results(self.services)

    @property
    def checkpoint(self) -> Checkpoint:
        """What this task keeps for its next attempt: ``get``, ``set``, ``update``, ``flush``."""
        return Checkpoint(self.services)

    @property
    def artifacts(self) -> Artifacts:
        """What the task's page shows of its work: ``link``, ``table``, ``markdown``."""
        return Artifacts(self.services)

    @property
    def progress(self) -> Progress:
        """``for page in ctx.progress(pages)``, or ``ctx.progress.update(3, total=10)``."""
        return Progress(self.services)

    def push(self, key: str, value: Any) -> None:
        """The value is stored under the key; other tasks of the run, and later tries, may pull it.

        At once, not within an interval. Raises ``InvalidInput`` for what cannot be stored, and
        ``Superseded``.
        """
        self.services.push(checked_key(key), value)

    def pull(
        self,
        task_id: str | None = None,
        key: str = RETURN_VALUE,
        *,
        include_prior_tries: bool = False,
        map_index: int | None = None,
        default: Any = None,
    ) -> Any:
        """What a task of this run (by default this one) pushed under the key, or its result.

        Only what its present try pushed, or with ``include_prior_tries`` the newest of any try:
        then a task finds what its own earlier tries left. ``default`` if there is nothing.
        """
        if map_index is None:
            map_index = self.map_index if task_id in (None, self.task_id) else -1
        is_there, value = self.services.pull(
            task_id or self.task_id,
            None if key == RETURN_VALUE else checked_key(key),
            map_index=map_index,
            include_prior_tries=include_prior_tries,
        )
        return value if is_there else default

    def exclusive(
        self, key: str, timeout: timedelta | float = TIMEOUT_S
    ) -> AbstractContextManager[None]:
        """``with ctx.exclusive("customer-7"):`` no other execution of any flow holds the key inside.

        It is let go at the end of the block (of the last one, where blocks of this execution are inside
        one another or in threads), and when this attempt has ended, however it did. Waiting
        takes this worker's place; raises ``Busy`` after ``timeout``, and ``Superseded``. As with every
        lock, an execution that was paused may find that it is taken for lost: see ``fence``.
        """
        return held(self.services, self.exclusive_blocks, key, timeout)

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

    def trigger_flow(
        self,
        flow: Flow | str,
        *,
        conf: Mapping[str, Any] | None = None,
        logical_date: datetime | None = None,
        run_id: str | None = None,
        note: str = "",
        key: str | None = None,
        if_exists: str = IfExists.FAIL,
        fail_when_paused: bool = False,
        on_stop: str = OnStop.LEAVE,
        waits: bool = False,
    ) -> ChildRun:
        """There is a run of the flow for this task, queued at once; ``child.trigger()`` waits for it.

        Asked for again, after a lost worker or in a later try, it is the same run, unless that failed
        in an earlier try: then a new one. ``key`` says what is the same; by default, what is asked
        for. A clear of the task begins afresh. ``if_exists`` is about a ``run_id`` that is taken:
        fail, join, skip or reset. ``on_stop="terminate"`` ends the run when this task ends otherwise
        than by success; ``waits`` only says on pages that the task waits for it. Raises ``NotFound``, ``InvalidInput``, ``Conflict`` and ``Superseded``.
        """
        ask = ask_for(
            flow,
            conf=conf,
            logical_date=logical_date,
            run_id=run_id,
            note=note,
            key=key,
            if_exists=if_exists,
            fail_when_paused=fail_when_paused,
            on_stop=on_stop,
            waits=waits,
            services=self.services,
        )
        child = self.services.trigger_flow(ask)
        if child is None:
            raise Skip(f"Flow {ask.flow_id!r} has a run {ask.run_id!r} already.")
        self.log.info(
            "%s run %s of flow %s %s",
            {"created": "Triggered", "joined": "Found", "reset": "Began anew"}.get(
                child.how, "Has"
            ),
            child.run_id,
            child.flow_id,
            child.url,
        )
        if child.remark:
            self.log.warning("%s", child.remark)
        return child

    def retry_after(self, delay: timedelta | float, reason: str = "") -> NoReturn:
        """This try has failed; the next one begins after so long: see RetryAfter."""
        raise RetryAfter(delay, reason)
