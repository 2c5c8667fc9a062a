"""The main process beats for its attempts, and stops those that are no longer wanted or too long.

Stopping has three stages, each after a grace: an exception in the user code; SIGTERM to the child and
what it started; SIGKILL to all of them. Before the second the attempt is seized, so that its child
cannot go on to another: from then on that process is given up.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
import time
from typing import TYPE_CHECKING, Final

import psycopg
from django.conf import settings

from scheduler_app.rules.states import AttemptState
from scheduler_app.rules.stopping import Stage, following
from scheduler_app.transitions.attempt import Beat, beat
from scheduler_app.worker.folder import REPORT, STOP
from scheduler_app.worker.ghosts import haunts, report_inventory
from scheduler_app.worker.guard import ASK, seize
from scheduler_app.worker.link import KeptConnection
from scheduler_app.worker.offspring import offspring, send

if TYPE_CHECKING:
    from scheduler_app.hints.notices import Notices
    from scheduler_app.worker.station import Station
    from scheduler_app.worker.witness import Execution, Witness

LOOK_INTERVAL_S: Final = 0.25  # for executions that are past a limit
IDLE_INTERVAL_S: Final = (
    1.0  # for executions at all: the first stage is their own, the next has a grace
)
STOP_GRACE_S: Final = 5.0  # between two stages of a stop
RETRY_MAX_S: Final = 2.0

logger = logging.getLogger(__name__)


class Beats:
    """One thread with a connection of its own; one statement for all long executions."""

    def __init__(self, at: Station, witness: Witness, *, notices: Notices) -> None:
        self._at = at
        self._witness = witness
        self._notices = notices
        self._kept = KeptConnection("beats")
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work_forever, name="beats", daemon=True)
        self._next_beat = 0.0
        self._unwanted: set[int] = set()  # ids of executions that the last beat did not want

    def start(self) -> None:
        """The thread runs."""
        self._thread.start()

    def stop(self, timeout_s: float) -> None:
        """No more beats."""
        self._stopping.set()
        self._thread.join(timeout_s)

    def ask_to_stop(self, execution: Execution, *, why: str, grace_s: float) -> None:
        """The child's user code gets an exception; the next stage follows after the grace."""
        if execution.stop_why:
            return
        execution.next_stage_at = time.monotonic() + grace_s
        self._interrupt(execution, why=why)

    def ask_to_give_back(self, execution: Execution, *, why: str) -> None:
        """The child's user code gets an exception and makes no report; who asks for it kills it."""
        if execution.stop_why:
            return  # it ends for another reason already, and not to be executed elsewhere
        execution.is_handed_back = True
        self._interrupt(execution, why=why)

    def _interrupt(self, execution: Execution, *, why: str) -> None:
        execution.stop_why = why
        execution.stage = Stage.EXCEPTION
        self._put_down(execution)
        with contextlib.suppress(ProcessLookupError):
            os.kill(execution.pid, ASK)

    def _put_down(self, execution: Execution) -> None:
        self._at.folder.write(
            execution.attempt_id,
            STOP,
            {
                "why": execution.stop_why,
                "hand_back": execution.is_handed_back,
                "stage": execution.stage,
            },
        )

    def _work_forever(self) -> None:
        pause_s = LOOK_INTERVAL_S
        while not self._stopping.wait(pause_s):
            pause_s = LOOK_INTERVAL_S if self._witness.executions() else IDLE_INTERVAL_S
            try:
                now = time.monotonic()
                if now >= self._next_beat:
                    self._beat_all(now)
                    self._next_beat = now + settings.HEARTBEAT_INTERVAL_S
                self._enforce(now)
            except psycopg.Error as error:
                logger.warning("heartbeats failed", extra={"error": str(error).strip()})
                self._kept.drop()
                pause_s = RETRY_MAX_S
            except Exception:  # the beats must outlive any single fault
                logger.exception("a turn of the heartbeats failed")
                pause_s = RETRY_MAX_S
        self._kept.drop()

    def _beat_all(self, now: float) -> None:
        executions = self._witness.executions()
        self._unwanted &= {id(execution) for execution in executions}
        report_inventory(self._kept.get(), self._at, executions)
        long = {
            execution.attempt_id: execution
            for execution in executions
            if now - execution.since >= settings.HEARTBEAT_INTERVAL_S
        }
        if not long:
            return
        answers = beat(self._kept.get(), attempt_ids=list(long), worker_job_id=self._at.job_id)
        for answer in answers:
            self._heed(answer, long[answer.attempt_id])
        for attempt_id in long.keys() - {answer.attempt_id for answer in answers}:
            self._doubt(long[attempt_id], why="this database never issued the attempt")

    def _heed(self, answer: Beat, execution: Execution) -> None:
        """What the answer asks for is done."""
        key = id(execution)
        if answer.stop_reason is not None:
            self.ask_to_stop(execution, why=answer.stop_reason, grace_s=STOP_GRACE_S)
        elif answer.is_wanted or answer.state == AttemptState.ISSUED:
            # Issued: its child still waits for the database.
            self._unwanted.discard(key)
        elif key not in self._unwanted:
            # Its child may be about to return from a report that was accepted: asked once more.
            self._unwanted.add(key)
        else:
            self._doubt(execution, why=f"the attempt is no longer wanted (it is {answer.state})")

    def _doubt(self, execution: Execution, *, why: str) -> None:
        """An execution that no live record acknowledges is recorded as a ghost, and stopped."""
        if not self._witness.still_executes(execution):
            self._unwanted.discard(id(execution))
        elif haunts(self._kept.get(), self._at, execution):
            self.ask_to_stop(execution, why=why, grace_s=STOP_GRACE_S)

    def _enforce(self, now: float) -> None:
        """Executions that had their grace come to the next stage."""
        for execution in self._witness.executions():
            limit_at = execution.limit_at
            if limit_at is not None and now >= limit_at + STOP_GRACE_S and not execution.stop_why:
                # The exception was its own alarm's.
                execution.stop_why = (
                    f"it did not stop within {STOP_GRACE_S:g} s of its time limit of "
                    f"{execution.limit_s:g} s"
                )
                execution.may_retry = True
                execution.next_stage_at = now
            if execution.next_stage_at is not None and now >= execution.next_stage_at:
                self._go_on(execution, now)

    def _go_on(self, execution: Execution, now: float) -> None:
        """The next stage begins, unless the child is through with the attempt."""
        if not self._witness.still_executes(execution):
            return
        if self._at.folder.read(execution.attempt_id, REPORT) is not None:
            return  # its user code is over; only its report waits for the database
        if execution.stage is Stage.EXCEPTION and not seize(
            self._at.folder, str(execution.attempt_id)
        ):
            return
        execution.stage = following(execution.stage)
        execution.next_stage_at = now + STOP_GRACE_S
        execution.offspring |= offspring(execution.pid)
        logger.warning(
            "an execution minds no request to stop",
            extra={
                "attempt_id": str(execution.attempt_id),
                "pid": execution.pid,
                "why": execution.stop_why,
                "stage": execution.stage,
            },
        )
        if execution.stage is Stage.SIGNAL:
            self._put_down(execution)
            send(execution.offspring, signal.SIGTERM)
            with contextlib.suppress(ProcessLookupError):
                os.kill(execution.pid, signal.SIGTERM)
        else:
            send(execution.offspring, signal.SIGKILL)
            kill_group(execution.pid)


def kill_group(pid: int) -> None:
    """The child is killed, and so is everything in its process group."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:  # so young that it leads no group yet
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
