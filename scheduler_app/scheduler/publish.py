"""Committed attempts become messages; what the carrier did not take is published again by a sweep."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any, Final

from scheduler_app.processes import failpoints
from scheduler_app.transitions.attempt import Message, note_published
from scheduler_app.transitions.callback import NO_TI

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    import psycopg

    from scheduler_app.executors.interface import Executor

NOTED_AFTER_S: Final = 0.4  # well before a sweep takes the attempt for unpublished

logger = logging.getLogger(__name__)


class Publisher:
    """Publishes, and notes it in the rows of those attempts that are not claimed at once.

    A claim notes it by itself, so that most attempts are spared a version of their row. Until it is
    noted only this process knows of it: if it dies, a sweep publishes them again, and one claim passes.
    """

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._taken: dict[UUID, float] = {}  # monotonic moment of publishing, oldest first

    def publish(
        self,
        connection: psycopg.Connection[Any],
        *,
        identity: str,
        messages: Sequence[Message],
        is_first: bool = True,
    ) -> int:
        """The messages are with the carrier; how many. ``is_first``: as far as is known.

        Runs after the commit and outside any transaction: no transaction ever waits for a broker.
        """
        if not messages:
            return 0
        failpoints.reach("publish.before")
        taken = self._executor.publish(messages, identity=identity)
        failpoints.reach("publish.after")
        if is_first and all(message.ti_id != NO_TI for message in messages):
            self._taken |= dict.fromkeys(sorted(taken), time.monotonic())
            self.note(connection)
        else:  # each look for callbacks to publish counts those that are not noted
            ages_s = dict.fromkeys(sorted(taken), 0.0)
            note_published(connection, ages_s=ages_s, is_first=is_first)
        return len(taken)

    def due_at(self) -> float | None:
        """The monotonic moment at which something is to be noted; ``None``: nothing is."""
        return next((at + NOTED_AFTER_S for at in self._taken.values()), None)

    def note(self, connection: psycopg.Connection[Any], *, all_of_them: bool = False) -> None:
        """What was published a while ago, or all of it, is noted where no claim did so."""
        now = time.monotonic()
        due = {
            attempt_id: now - at
            for attempt_id, at in self._taken.items()
            if all_of_them or now - at >= NOTED_AFTER_S
        }
        if due:
            note_published(connection, ages_s=due)
            for attempt_id in due:
                del self._taken[attempt_id]
