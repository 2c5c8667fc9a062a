"""Which records may be removed once they are old. Runs, attempts, events and the audit are none of them."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from scheduler_app.rules.errors import InvalidInput

DAYS_MIN: Final = 1
DAYS_MAX: Final = 36_500


class Kind(StrEnum):
    """What is removed by age, and by nothing else."""

    ARTIFACTS = "artifacts"  # of task instances whose run has ended
    EXCLUSIVE_KEYS = "exclusive-keys"  # that no live attempt holds
    INCIDENTS = "incidents"  # that were resolved, with their alerts


def check_days(days: int) -> int:
    """The age in days. Raises ``InvalidInput``."""
    if not DAYS_MIN <= days <= DAYS_MAX:
        message = f"An age of {days} days is none; give {DAYS_MIN} to {DAYS_MAX:,}."
        raise InvalidInput(message, field="days")
    return days
