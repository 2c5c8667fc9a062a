"""What the database says of an attempt, in one read, as the rules want to hear it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from psycopg.rows import class_row

from scheduler_app.rules import reconcile
from scheduler_app.rules.states import (
    RUN_TERMINAL,
    AttemptKind,
    AttemptOutcome,
    AttemptState,
    TaskState,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    import psycopg

# One row per attempt that exists; the parents may be missing.
_READ = """
SELECT p.id AS attempt_id, p.kind, p.callback, p.state, p.outcome, p.nonce, p.lease_token, p.fence, p.is_accepted,
       p.superseded_by, p.filter_code, p.stop_reason, p.worker_job_id, p.hostname, p.pid,
       i.id AS ti_id, i.attempt_id AS current_attempt_id, i.state AS ti_state,
       i.try_number AS ti_try_number, i.next_method, i.held_by, i.infra_losses,
       r.id AS run_id, r.state AS run_state,
       r.frozen_at IS NOT NULL OR f.frozen_at IS NOT NULL AS is_run_frozen
  FROM attempt p
  LEFT JOIN task_instance i ON i.id = p.ti_id
  LEFT JOIN run r ON r.id = p.run_id
  LEFT JOIN flow f ON f.flow_id = r.flow_id
 WHERE p.id = ANY(%s)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """An attempt, its task instance and its run, as they are now."""

    attempt_id: UUID
    state: str
    outcome: str | None
    nonce: UUID | None
    lease_token: int | None
    fence: int | None
    is_accepted: bool
    superseded_by: str | None
    filter_code: str | None
    stop_reason: str | None
    worker_job_id: UUID | None
    hostname: str | None
    pid: int | None
    ti_id: int | None
    current_attempt_id: UUID | None
    ti_state: str | None
    ti_try_number: int | None
    next_method: str | None
    held_by: int | None
    infra_losses: int | None
    run_id: int | None
    run_state: str | None
    is_run_frozen: bool | None = None
    kind: str = AttemptKind.TASK
    callback: dict[str, Any] | None = None

    @property
    def is_callback(self) -> bool:
        """Whether it calls a callback; it is nobody's current attempt then."""
        return self.kind == AttemptKind.CALLBACK

    @property
    def is_current(self) -> bool:
        """Whether it is its task instance's current attempt, or the newest call of a callback."""
        if self.is_callback:
            return self.filter_code is None
        return self.current_attempt_id == self.attempt_id

    @property
    def is_held(self) -> bool:
        """Whether a freeze holds it."""
        return self.held_by is not None or (self.is_callback and bool(self.is_run_frozen))

    def may_be_finished(self) -> bool:
        """Whether a report of who claimed it would be accepted."""
        if self.is_callback:
            return self.state == AttemptState.RUNNING
        return self.is_current and self.ti_state == TaskState.RUNNING

    def is_run_over(self) -> bool:
        """Whether its run has ended."""
        return self.run_state in RUN_TERMINAL

    def of_attempt(self) -> reconcile.AttemptFacts:
        """The part that is about the attempt."""
        return reconcile.AttemptFacts(
            attempt_id=str(self.attempt_id),
            state=AttemptState(self.state),
            outcome=AttemptOutcome(self.outcome) if self.outcome else None,
            is_current=self.is_current,
            superseded_by=self.superseded_by,
            kind=AttemptKind(self.kind),
            held=self.is_held,
        )

    def of_task(self) -> reconcile.TaskFacts | None:
        """The part that is about the task instance."""
        if self.ti_state is None:
            return None
        return reconcile.TaskFacts(
            state=TaskState(self.ti_state),
            try_number=self.ti_try_number or 0,
            next_method=self.next_method,
            held=self.held_by is not None,
        )


def facts_of(connection: psycopg.Connection[Any], attempt_ids: Sequence[UUID]) -> dict[UUID, Facts]:
    """The facts of each attempt that has a row."""
    with connection.cursor(row_factory=class_row(Facts)) as cursor:
        cursor.execute(_READ, [list(attempt_ids)])
        return {facts.attempt_id: facts for facts in cursor.fetchall()}
