"""What the scheduler asks of an executor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from scheduler_app.rules.ghosts import Waiting
    from scheduler_app.transitions.attempt import Message


class Executor(Protocol):
    """Carries messages; never the truth."""

    @property
    def carrier(self) -> str:
        """What carries them, and where; a worker with the same words in its job row can be reached."""
        ...

    def publish(self, messages: Sequence[Message], *, identity: str) -> frozenset[UUID]:
        """The attempt ids that the carrier took; the others are published again by the sweep."""
        ...

    def queue_depth(self, queue: str) -> int | None:
        """How many deliveries wait in the queue; null when the carrier cannot tell."""
        ...

    def waiting(self, queue: str, *, limit: int) -> list[Waiting] | None:
        """The messages that wait in the queue, at most ``limit``, and stay there.

        Null when the carrier cannot show them without taking them.
        """
        ...

    def close(self) -> None:
        """Connections are closed."""
        ...
