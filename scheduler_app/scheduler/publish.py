"""Committed attempts become messages; what the carrier did not take is published again by a sweep."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from scheduler_app.processes import failpoints
from scheduler_app.transitions.attempt import Message, note_published

if TYPE_CHECKING:
    from collections.abc import Sequence

    import psycopg

    from scheduler_app.executors.interface import Executor

logger = logging.getLogger(__name__)


def publish(
    connection: psycopg.Connection[Any],
    *,
    executor: Executor,
    identity: str,
    messages: Sequence[Message],
) -> int:
    """The messages are with the carrier and their attempts noted as published; how many.

    Runs after the commit and outside any transaction: no transaction ever waits for a broker.
    """
    if not messages:
        return 0
    failpoints.reach("publish.before")
    taken = executor.publish(messages, identity=identity)
    failpoints.reach("publish.after")
    note_published(connection, attempt_ids=sorted(taken))
    return len(taken)
