"""The main process beats for its attempts, and stops those that are no longer wanted or too long.

Stopping has three steps: the reason is put down and the child signalled, which raises in its user
code; after a grace the attempt is seized, so that its child cannot go on to another; then the
child's process group is killed.
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
from psycopg.rows import dict_row

from scheduler_app.rules import callbacks
from scheduler_app.rules.definition import from_dict
from scheduler_app.rules.states import AttemptState, TaskState
from scheduler_app.transitions.attempt import Beat, beat, fail_killed
from scheduler_app.transitions.callback import NewCallbacks, end_killed_callback
from scheduler_app.worker.folder import REPORT, STOP
from scheduler_app.worker.ghosts import haunts, report_inventory
from scheduler_app.worker.guard import seize
from scheduler_app.worker.link import KeptConnection
from scheduler_app.worker.report import after_failure

if TYPE_CHECKING:
    from scheduler_app.hints.notices import Notices
    from scheduler_app.worker.station import Station
    from scheduler_app.worker.witness import Execution, Witness

LOOK_INTERVAL_S: Final = 0.25  # for executions that are past a limit
STOP_GRACE_S: Final = 5.0  # between the polite request and the kill
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
        """The child's user code gets an exception; it is killed if it has not ended after the grace."""
        if execution.stop_why:
            return
        execution.stop_at = time.monotonic() + grace_s
        self._interrupt(execution, why=why)

    def ask_to_give_back(self, execution: Execution, *, why: str) -> None:
        """The child's user code gets an exception and makes no report; who asks for it kills it."""
        if execution.stop_why:
            return  # it ends for another reason already, and not to be executed elsewhere
        execution.is_handed_back = True
        self._interrupt(execution, why=why)

    def _interrupt(self, execution: Execution, *, why: str) -> None:
        execution.stop_why = why
        self._at.folder.write(
            execution.attempt_id, STOP, {"why": why, "hand_back": execution.is_handed_back}
        )
        with contextlib.suppress(ProcessLookupError):
            os.kill(execution.pid, signal.SIGTERM)

    def _work_forever(self) -> None:
        pause_s = LOOK_INTERVAL_S
        while not self._stopping.wait(pause_s):
            pause_s = LOOK_INTERVAL_S
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
        """Executions that had their grace are killed."""
        for execution in self._witness.executions():
            if execution.stop_at is not None and now >= execution.stop_at:
                self._kill(execution, may_retry=False)
            elif execution.limit_at is not None and now >= execution.limit_at + STOP_GRACE_S:
                execution.stop_why = (
                    f"it did not stop within {STOP_GRACE_S:g} s of its time limit of "
                    f"{execution.limit_s:g} s"
                )
                self._kill(execution, may_retry=True)

    def _kill(self, execution: Execution, *, may_retry: bool) -> None:
        """The child and what it started are killed, unless it is through with the attempt."""
        if not self._witness.still_executes(execution):
            return
        if self._at.folder.read(execution.attempt_id, REPORT) is not None:
            return  # its user code is over; only its report waits for the database
        if not seize(self._at.folder, str(execution.attempt_id)):
            return
        logger.warning(
            "an execution is killed",
            extra={
                "attempt_id": str(execution.attempt_id),
                "pid": execution.pid,
                "why": execution.stop_why,
            },
        )
        kill_group(execution.pid)
        execution.stop_at = execution.limit_at = None
        self._record_kill(execution, may_retry=may_retry)

    def _record_kill(self, execution: Execution, *, may_retry: bool) -> None:
        """The attempt is terminated if it was still the current one, and the killed child's.

        A child that hung with a second delivery in its hands takes nothing away from the first.
        """
        connection = self._kept.get()
        with connection.cursor(row_factory=dict_row) as cursor:
            cursor.execute(_KILLED, [execution.attempt_id, self._at.job_id, execution.pid])
            row = cursor.fetchone()
        reason = f"Killed by its worker: {execution.stop_why}."
        if row is None:
            end_killed_callback(
                connection,
                attempt_id=execution.attempt_id,
                worker_job_id=self._at.job_id,
                pid=execution.pid,
                reason=reason,
            )
            return
        task = from_dict(row["definition"]).task(row["task_id"])
        state, delay_s = TaskState.FAILED, None
        if may_retry:
            state, delay_s = after_failure(
                task,
                try_number=row["try_number"],
                max_tries=row["max_tries"],
                budget_start=row["budget_start"],
                jitter_key=f"{row['run_key']}:{row['task_id']}:{row['map_index']}",
            )
        # A stop was asked for by a person, who knows; a limit is the task's own failure.
        calls = callbacks.due(task.callbacks, state) if may_retry else ()
        with connection.transaction():
            run_id = fail_killed(
                connection,
                attempt_id=execution.attempt_id,
                state=state,
                is_open=state is TaskState.UP_FOR_RETRY,
                retry_after_s=delay_s,
                reason=reason,
                callbacks=NewCallbacks.of(calls, state=state),
            )
        if run_id is not None:
            self._notices.both(
                runs=[run_id],
                topics=[f"run:{run_id}", f"ti:{row['ti_id']}", "runs"],
                callbacks=bool(calls),
            )


_KILLED: Final = """
SELECT i.id AS ti_id, i.task_id, i.map_index, i.try_number, i.max_tries, i.budget_start, r.run_key,
       v.definition
  FROM attempt p JOIN task_instance i ON i.id = p.ti_id AND i.attempt_id = p.id
  JOIN run r ON r.id = i.run_id JOIN flow_version v ON v.id = r.version_id
 WHERE p.id = %s AND p.worker_job_id = %s AND p.pid = %s
"""


def kill_group(pid: int) -> None:
    """The child is killed, and so is everything in its process group."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:  # so young that it leads no group yet
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
