"""How a Celery worker takes no message that no child of its can start now.

Redis is asked for messages, so a full worker asks for none (but for a few while all that it does is quick:
``celery_pool``). AMQP pushes: a broker sends on as soon
as one is acknowledged, and what a full worker was sent waits with it, out of sight, while other
workers are idle. Here the broker may push one at a time, and is told to stop before the message that
fills the worker is acknowledged; in one channel it heeds both in this order.

Redis acknowledges nothing by itself: Celery keeps a second book of what was taken and struck off, four
writes a message. It is left out. A message that is lost on the few steps from there to a child is an
issued attempt that nobody claims, which the scheduler publishes again as soon as its queue is empty.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from celery.worker.consumer import Consumer

from scheduler_app.executors.celery import is_pushed
from scheduler_app.worker.tasks import taking

if TYPE_CHECKING:
    from collections.abc import Callable

AT_ONCE: Final = 1  # messages that the broker may push before one of them is acknowledged

logger = logging.getLogger(__name__)


class Mouth:
    """Consumes while it may, and while a child is free. Called by the event loop alone."""

    def __init__(self, *, size: int, executing: Callable[[], int]) -> None:
        self._size = size
        self._executing = executing
        self._may_eat = True
        self._messages: Any = None  # of the connection that is open now
        self._is_pushed = False
        self._is_shut = False
        self._tags: dict[str, str] = {}  # by queue: what the broker calls this consumer

    @property
    def may_eat(self) -> bool:
        """Whether anything may be started at all."""
        return self._may_eat

    def attend(self, messages: Any, *, is_pushed: bool) -> None:
        """``messages`` is consumed from now on: it is of a new connection, or the same as before."""
        if messages is self._messages:
            return
        self._messages, self._is_pushed, self._is_shut = messages, is_pushed, False
        self._tags = {}
        self._settle(self._executing())

    def let(self, may_eat: bool) -> None:
        """Whether anything may be started from now on."""
        self._may_eat = may_eat
        self._settle(self._executing())

    def close(self) -> None:
        """Nothing is consumed any more by its doing: the worker stops."""
        self._messages = None

    def swallows(self) -> None:
        """A child has a message that is about to be acknowledged."""
        self._settle(self._executing() + 1)

    def is_through(self) -> None:
        """A child has become free."""
        self._settle(self._executing())

    def _settle(self, executing: int) -> None:
        wants = self._may_eat and not (self._is_pushed and executing >= self._size)
        if self._messages is None or wants is not self._is_shut:
            return
        try:
            self._tell(wants=wants)
        except Exception as error:  # noqa: BLE001 - each transport has its own errors
            # The event loop finds out by itself, and comes with a new connection.
            logger.info("the broker is not told", extra={"wants": wants, "error": str(error)})
            return
        self._is_shut = not wants

    def _tell(self, *, wants: bool) -> None:
        messages = self._messages
        if not self._is_pushed:
            (messages.consume if wants else messages.cancel)()
        elif wants:
            for queue in messages.queues:
                # Under the tag of before, so that nothing grows with each time.
                tag = self._tags.get(queue.name)
                messages._basic_consume(queue, consumer_tag=tag, nowait=True)  # noqa: SLF001 - as below
        else:
            # The public ways wait for the broker's answer, and the event loop would wait with them:
            # results of children would lie unread. No answer is needed, only the order.
            tags = messages._active_tags  # noqa: SLF001 - see above
            for tag in tags.values():
                messages.channel.basic_cancel(tag, nowait=True)
            self._tags = {**tags}
            tags.clear()


class OneAtATime(Consumer):  # type: ignore[misc,unused-ignore] # the stubs differ by version
    """Celery's consumer: of AMQP with the least that it can ask for at once, of Redis without its book."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if is_pushed(self.app):
            self.initial_prefetch_count = AT_ONCE
        else:
            for queue in self.app.amqp.queues.consume_from.values():
                queue.no_ack = True

    def create_task_handler(self, *args: Any, **kwargs: Any) -> Any:
        """Deliveries go to the pool at once."""
        return taking(self, super().create_task_handler(*args, **kwargs))


_mouth: Mouth | None = None


def set_mouth(made: Mouth) -> None:
    """This process's."""
    global _mouth  # noqa: PLW0603 - one a process, as its witness
    _mouth = made


def mouth() -> Mouth:
    """See ``set_mouth``."""
    assert _mouth is not None, "the consumer runs"
    return _mouth
