"""The watchdog: names the trigger whose code keeps the loop, and ends its step."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING, Final

import psycopg

from scheduler_app.processes import database
from scheduler_app.transitions.incident import raise_incident
from scheduler_app.transitions.job import end_job
from scheduler_app.transitions.trigger import note_blocked

if TYPE_CHECKING:
    from types import FrameType
    from uuid import UUID

    from scheduler_app.triggerer.steps import Step, Steps

LOOKS_A_LIMIT: Final = 10
INTERRUPTS_MAX: Final = 3  # of one step; then it is in code that no exception reaches
EXIT_CODE: Final = 70
SIGNAL: Final = signal.SIGUSR1

logger = logging.getLogger(__name__)


class Watchdog:
    """A thread that looks at the step the loop is at; it proves nothing about the loop's life."""

    def __init__(self, steps: Steps, *, job_id: UUID, limit_s: float) -> None:
        self._steps = steps
        self._job_id = job_id
        self._limit_s = limit_s
        self._main = threading.main_thread()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def start(self) -> None:
        """The loop's steps are watched. Call it from the main thread, which runs the loop."""
        signal.signal(SIGNAL, self._steps.on_signal)
        self._thread.start()

    def stop(self) -> None:
        """Nothing is watched any more."""
        self._ending.set()
        self._steps.begun.set()
        if self._thread.is_alive():
            self._thread.join(timeout=2)

    def _watch(self) -> None:
        told: tuple[int, int] = (0, 0)  # number of a step, and how often it was interrupted
        while not self._ending.wait(self._limit_s / LOOKS_A_LIMIT):
            step = self._steps.current
            if step is None:
                self._await_step()
                continue
            times = told[1] if told[0] == step.number else 0
            if time.monotonic() - step.since < self._limit_s * (times + 1):
                continue
            told = (step.number, times + 1)
            if times == 0:
                self._tell(step)
            if times >= INTERRUPTS_MAX:
                self._end_process(step)
            self._steps.interrupt(step)
            if self._main.ident is not None:
                signal.pthread_kill(self._main.ident, SIGNAL)

    def _await_step(self) -> None:
        """A step has begun, or there is nothing more to watch."""
        self._steps.begun.clear()
        if self._steps.current is None and not self._ending.is_set():
            self._steps.begun.wait()

    def _tell(self, step: Step) -> None:
        logger.warning(
            "a trigger blocks the loop",
            extra={
                "trigger_id": step.owner.trigger_id,
                "trigger": step.owner.label,
                "at": self._place(),
            },
        )

    def _place(self) -> str:
        frame: FrameType | None = sys._current_frames().get(self._main.ident or 0)  # noqa: SLF001 - the one way
        return "unknown" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"

    def _end_process(self, step: Step) -> None:
        """No exception reaches it: only the end of this process does. Others take over the rest."""
        message = (
            f"{step.owner.label} kept a triggerer's loop for {time.monotonic() - step.since:.1f} s "
            f"in {self._place()}, and could not be interrupted. That triggerer was ended; the "
            "trigger goes on in a process of its own. Await what takes long, or use a thread."
        )
        logger.error("the loop cannot be freed", extra={"reason": message})
        try:
            with database.connect("lease", name="watchdog") as connection:
                note_blocked(connection, trigger_id=step.owner.trigger_id)
                raise_incident(
                    connection,
                    kind="trigger_blocks",
                    subject=step.owner.subject,
                    message=message,
                )
                end_job(connection, job_id=self._job_id)  # the others need not wait
            self._steps.is_told()
        except psycopg.Error as error:
            logger.warning("the block was not recorded", extra={"error": str(error)})
        os._exit(EXIT_CODE)
