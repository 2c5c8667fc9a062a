"""What a worker wants of its consumer, the part that knows the carrier."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from uuid import UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class Duties:
    """What a consumer serves, and what it asks and tells its worker."""

    job_id: UUID
    name: str  # a label for people
    queues: tuple[str, ...]
    concurrency: int  # children; 0: one process per task, as many as there are deliveries
    turn: Callable[[], bool]  # to be called twice a second: whether children may start something
    give_back: Callable[[Sequence[UUID]], None]  # attempts whose deliveries nobody will start
    executing: Callable[[], int]  # children that have a delivery in their hands
    taken: Callable[[], int]  # deliveries that children were given since the start


class Consumer(Protocol):
    """Takes deliveries and passes each to a child, and tells the witness of each step.

    Children run ``execute.execute_delivery``. A child that dies is told to the witness within a
    second and replaced.
    """

    @property
    def carrier(self) -> str:
        """The words that the executor on the other side has in ``Executor.carrier``."""
        ...

    def run(self, duties: Duties) -> int:
        """Consumes until ``stop``, and on until every child has ended; the exit code.

        Called once, in the main thread: children end with the thread that forked them.
        """
        ...

    def stop(self) -> None:
        """No more deliveries are taken. Callable from a signal handler or a thread, and before ``run``."""
        ...
