"""Run ids that the product makes up, in the words that Airflow users know."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID, uuid5

from scheduler_app.rules.definition import RUN_ID, RUN_ID_RULE
from scheduler_app.rules.errors import InvalidInput

if TYPE_CHECKING:
    from datetime import datetime


def scheduled_run_key(logical_date: datetime) -> str:
    """``scheduled__2026-01-31T02:00:00+00:00``."""
    return f"scheduled__{logical_date.isoformat()}"


def manual_run_key(at: datetime) -> str:
    """``manual__2026-01-31T02:00:00.123456+00:00``."""
    return f"manual__{at.isoformat()}"


def backfill_run_key(logical_date: datetime) -> str:
    """``backfill__2026-01-31T02:00:00+00:00``."""
    return f"backfill__{logical_date.isoformat()}"


def triggered_run_key(idempotency_key: str, *, budget_start: int, key: str, try_number: int) -> str:
    """``triggered__0f3a...``: of one ask of one execution of a task, and of no other."""
    asked = f"{budget_start}/{try_number}/{key}"
    return f"triggered__{uuid5(UUID(idempotency_key), asked).hex[:16]}"


def check_run_key(run_key: str) -> str:
    """The same key. Raises ``InvalidInput`` with the rule if it is outside it."""
    if not isinstance(run_key, str) or not RUN_ID.fullmatch(run_key):
        message = f"run_id {run_key!r:.300} is not allowed: {RUN_ID_RULE}"
        raise InvalidInput(message, field="run_id")
    return run_key
