"""An executor that is waited for only so long, so that a carrier that hangs holds up no decision.

A broker that refuses is no matter: the next sweep publishes again. One that takes connections and
answers nothing would stall whoever publishes, and a stalled decider rightly loses its leases: then
nobody decides anything, for as long as the broker hangs.
"""

from __future__ import annotations

import logging
import queue
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from uuid import UUID

    from scheduler_app.executors.interface import Executor
    from scheduler_app.rules.ghosts import Waiting
    from scheduler_app.transitions.attempt import Message

LATE_MAX: Final = 10_000  # attempts remembered as taken after nobody waited any more
CLOSE_WITHIN_S: Final = 2.0

logger = logging.getLogger(__name__)
T = TypeVar("T")


class PatientExecutor:
    """Asks ``executor`` in a thread, one thing after the other; see ``Executor``.

    What takes longer than ``patience_s`` goes on by itself, and meanwhile every other question is
    answered at once: nothing taken, not known. What the carrier takes late is remembered, so that
    those messages count as taken when they are brought again. One thread may call it.
    """

    def __init__(self, executor: Executor, *, patience_s: float) -> None:
        self._executor = executor
        self._patience_s = patience_s
        self._questions: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = (
            queue.SimpleQueue()
        )
        self._asked: Future[Any] | None = None
        self._late: set[UUID] = set()
        self._thread = threading.Thread(target=self._ask_for_ever, name="carrier", daemon=True)
        self._thread.start()

    @property
    def carrier(self) -> str:
        """See ``Executor.carrier``."""
        return self._executor.carrier

    def publish(self, messages: Sequence[Message], *, identity: str) -> frozenset[UUID]:
        """See ``Executor.publish``; nothing where the carrier has not answered in time."""
        self._heed_late()
        taken = self._late.intersection(message.attempt_id for message in messages)
        self._late -= taken
        rest = [message for message in messages if message.attempt_id not in taken]
        if rest:
            answer = self._ask(lambda: self._executor.publish(rest, identity=identity))
            taken |= answer or frozenset()
        return frozenset(taken)

    def queue_depth(self, queue: str) -> int | None:
        """See ``Executor.queue_depth``."""
        return self._ask(lambda: self._executor.queue_depth(queue))

    def waiting(self, queue: str, *, limit: int) -> list[Waiting] | None:
        """See ``Executor.waiting``."""
        return self._ask(lambda: self._executor.waiting(queue, limit=limit))

    def close(self) -> None:
        """See ``Executor.close``; a carrier that hangs is left as it is."""
        self._questions.put(None)
        self._thread.join(CLOSE_WITHIN_S)
        if not self._thread.is_alive():
            self._executor.close()

    def _ask(self, question: Callable[[], T]) -> T | None:
        """The answer; null when there is none in time, or while an earlier one is still awaited."""
        self._heed_late()
        if self._asked is not None:
            return None
        asked: Future[T] = Future()
        self._asked = asked
        self._questions.put((asked, question))
        try:
            answer = asked.result(self._patience_s)
        except TimeoutError:
            if asked.done():
                self._asked = None
                raise  # the carrier's own
            logger.warning(
                "the carrier does not answer; deciding goes on without it",
                extra={"waited_s": self._patience_s},
            )
            return None
        except BaseException:
            self._asked = None
            raise
        self._asked = None
        return answer

    def _heed_late(self) -> None:
        """What was taken after nobody waited any more is not brought a second time."""
        asked = self._asked
        if asked is None or not asked.done():
            return
        self._asked = None
        error = asked.exception()
        if error is not None:
            logger.warning("the carrier failed late", extra={"error": str(error)})
        elif isinstance(asked.result(), frozenset):
            if len(self._late) > LATE_MAX:
                self._late.clear()  # claimed long ago; a second delivery would be refused
            self._late |= asked.result()

    def _ask_for_ever(self) -> None:
        while (asked := self._questions.get()) is not None:
            future, question = asked
            try:
                future.set_result(question())
            except BaseException as error:  # noqa: BLE001 - raised where it is waited for
                future.set_exception(error)
