"""The context of one attempt, and what the worker does for it while it runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid5

from psycopg.rows import tuple_row

from scheduler_app.authoring.context import Context
from scheduler_app.rules import values
from scheduler_app.rules.errors import NotFound

if TYPE_CHECKING:
    from collections.abc import Iterable

    import psycopg

    from scheduler_app.rules.definition import FlowDefinition
    from scheduler_app.transitions.attempt import Claim
    from scheduler_app.worker.link import Link
    from scheduler_app.worker.refuse import Delivery


def build_context(
    delivery: Delivery, claim: Claim, flow: FlowDefinition, services: Services
) -> Context:
    """What the task may know of itself."""
    return Context(
        flow_id=claim.flow_id,
        run_id=claim.run_key,
        task_id=claim.task_id,
        map_index=claim.map_index,
        logical_date=claim.logical_date,
        data_interval_start=claim.data_interval_start,
        data_interval_end=claim.data_interval_end,
        conf=claim.conf,
        params={**flow.params, **claim.conf},
        try_number=claim.try_number,
        resume_index=claim.resume_index,
        run_attempt=claim.run_attempt,
        attempt_id=str(delivery.attempt_id),
        fence=delivery.fence,
        idempotency_key=idempotency_key(delivery, claim),
        services=services,
        elapsed=timedelta(seconds=claim.elapsed_s),
    )


def idempotency_key(delivery: Delivery, claim: Claim) -> str:
    """The same for every attempt of a task instance, and for no other, in any installation."""
    installation = UUID(delivery.identity.rpartition(":")[2])
    return str(uuid5(installation, str(claim.ti_id)))


@dataclass(slots=True, kw_only=True)
class Services:
    """What user code may ask of the database while it runs."""

    link: Link
    delivery: Delivery
    run_id: int
    _results: dict[tuple[str, int], Any] = field(default_factory=dict)

    def still_mine(self) -> bool:
        """Whether this attempt's result would be accepted now. Raises if the database is away."""
        return self.link.once(self._is_mine)

    def result(self, task_id: str, map_index: int = -1) -> Any:
        """The result of a task of this run. Raises ``NotFound`` for a task that it does not have."""
        key = (task_id, map_index)
        if key not in self._results:
            self._results |= self.link.once(
                lambda connection: results_of(
                    connection, run_id=self.run_id, task_ids=[task_id], map_index=map_index
                )
            )
        if key not in self._results:
            message = f"This run has no task {task_id!r} with map index {map_index}."
            raise NotFound(message)
        return self._results[key]

    def _is_mine(self, connection: psycopg.Connection[Any]) -> bool:
        with connection.cursor(row_factory=tuple_row) as cursor:
            cursor.execute(
                "SELECT 1 FROM task_instance WHERE id = %s AND attempt_id = %s"
                " AND claim_nonce = %s AND state = 'running'",
                [self.delivery.ti_id, self.delivery.attempt_id, self.delivery.nonce],
            )
            return cursor.fetchone() is not None


def results_of(
    connection: psycopg.Connection[Any],
    *,
    run_id: int,
    task_ids: Iterable[str],
    map_index: int = -1,
) -> dict[tuple[str, int], Any]:
    """The results of these tasks of the run; ``None`` for one that has not succeeded.

    Walks ``task_instance_unique``.
    """
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(
            "SELECT i.task_id, i.map_index, p.result FROM task_instance i"
            " LEFT JOIN attempt p ON p.id = i.attempt_id AND i.state = 'success'"
            " WHERE i.run_id = %s AND i.task_id = ANY(%s) AND i.map_index = %s",
            [run_id, list(task_ids), map_index],
        )
        return {(row[0], row[1]): values.decode(row[2]) for row in cursor.fetchall()}
