"""What a worker remembers of an execution from its claim, in case the database forgets the attempt."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from scheduler_app.rules.ghosts import Record
from scheduler_app.rules.states import AttemptKind, AttemptState, RunState

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID


def remembered(attempt_id: UUID, claimed: Mapping[str, Any]) -> Record:
    """The attempt as it was when it was claimed; what a claim does not say is null."""
    return Record(
        attempt_id=attempt_id,
        kind=AttemptKind.TASK,
        state=AttemptState.RUNNING,
        outcome=None,
        filter_code=None,
        ended_at=None,
        ti_id=None,
        task_id=claimed["task_id"],
        map_index=claimed["map_index"],
        try_number=claimed["try_number"],
        shard=None,
        lease_token=claimed["lease_token"],
        current_attempt_id=None,
        run=claimed["run"],
        run_id=claimed["run_id"],
        flow_id=claimed["flow_id"],
        run_state=RunState.RUNNING,
        run_type=claimed["run_type"],
        run_created_at=_moment(claimed["run_created_at"]),
        run_ended_at=None,
        logical_date=_moment(claimed["logical_date"]),
    )


def _moment(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None
