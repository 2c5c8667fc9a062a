"""The Celery executor: one message per attempt, task id = attempt id, on one producer."""

from __future__ import annotations

import base64
import json
import logging
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from kombu.exceptions import OperationalError

from scheduler_app.executors.delivery import arguments
from scheduler_app.executors.redis_push import Letter, RedisPush, is_redis
from scheduler_app.rules.ghosts import Waiting

if TYPE_CHECKING:
    from collections.abc import Sequence

    import celery

    from scheduler_app.transitions.attempt import Message

TASK_NAME: Final = "scheduler_app.worker.tasks.execute_attempt"
QUEUE_PREFIX: Final = "daylight."
CARRIER: Final = "celery"
NO_SUCH_QUEUE: Final = "404"  # of AMQP, which every transport speaks here

_NO_CANVAS: Final = {"callbacks": None, "errbacks": None, "chain": None, "chord": None}

logger = logging.getLogger(__name__)


def broker_queue(queue: str) -> str:
    """The broker's name of a task queue."""
    return f"{QUEUE_PREFIX}{queue}"


class CeleryExecutor:
    """Publishes through Celery's own producer pool; sends nothing that a worker must trust."""

    def __init__(self, app: celery.Celery) -> None:
        self._app = app
        self._push: RedisPush | None = None

    @property
    def carrier(self) -> str:
        """See ``Executor.carrier``. Not the broker's address: hosts may name one differently."""
        return CARRIER

    def publish(self, messages: Sequence[Message], *, identity: str) -> frozenset[UUID]:
        """See ``Executor.publish``. Stops at the first refusal of the broker and logs it.

        Over Redis all go in one round trip; where that fails, nobody can tell which have arrived, and
        none counts as taken: they come again, and one claim passes.
        """
        if not messages:
            return frozenset()
        try:
            return self._publish_all(messages, identity)
        except _NotTold as error:
            logger.info("the broker may not have got a batch", extra={"error": str(error)})
        try:  # a connection that had died unseen: over a new one
            return self._publish_all(messages, identity)
        except _NotTold as error:
            logger.warning(
                "the broker took no messages",
                extra={"wanted": len(messages), "error": str(error)},
            )
            return frozenset()

    def send_back(self, messages: Sequence[Message], *, identity: str) -> None:
        """Deliveries that nobody began with are with the broker again, where it lets them before all others.

        What it does not take, the scheduler will miss.
        """
        try:
            self._publish_all(messages, identity, is_first=True)
        except _NotTold as error:
            logger.warning("deliveries did not go back", extra={"error": str(error)})

    def _publish_all(
        self, messages: Sequence[Message], identity: str, *, is_first: bool = False
    ) -> frozenset[UUID]:
        """What was taken. Raises ``_NotTold`` where nobody can tell."""
        try:
            with self._app.producer_or_acquire() as producer:
                # As publishing over kombu does: how often it tries to connect.
                connection = producer.connection
                connection.transport_options.update(self._app.conf.task_publish_retry_policy)
                faults = connection.connection_errors + connection.channel_errors
                try:
                    if not is_redis(producer.channel):
                        return self._publish_each(producer, messages, identity)
                    self._push_all(producer.channel, messages, identity, is_first=is_first)
                except faults as error:
                    raise _NotTold(str(error)) from error
        except (OperationalError, OSError) as error:
            raise _NotTold(str(error)) from error
        return frozenset(message.attempt_id for message in messages)

    def _publish_each(
        self, producer: Any, messages: Sequence[Message], identity: str
    ) -> frozenset[UUID]:
        """What was taken; where the broker refuses one, all before it."""
        taken: set[UUID] = set()
        declared: set[str] = set()
        try:
            for message in messages:
                # The same queue again, with each message, is a fifth of what a message costs.
                is_new = message.queue not in declared
                self._publish_one(producer, message, identity, declares=is_new)
                declared.add(message.queue)
                taken.add(message.attempt_id)
        except (OperationalError, OSError) as error:
            logger.warning(
                "the broker took no more messages",
                extra={"published": len(taken), "wanted": len(messages), "error": str(error)},
            )
        return frozenset(taken)

    def _push_all(
        self, channel: Any, messages: Sequence[Message], identity: str, *, is_first: bool
    ) -> None:
        if self._push is None or self._push.channel is not channel:
            self._push = RedisPush(channel, headers=_headers)
        self._push.push(
            (
                Letter(
                    broker_queue(message.queue),
                    str(message.attempt_id),
                    (arguments(message, identity=identity), {}, _NO_CANVAS),
                )
                for message in messages
            ),
            is_first=is_first,
        )

    def _publish_one(
        self, producer: Any, message: Message, identity: str, *, declares: bool
    ) -> None:
        """One message as Celery's protocol has it, with nothing in it that nobody reads.

        ``send_task`` makes the same in ten times the time: it looks up routes, options of the task
        and the origin of the call, for each message anew.
        """
        name, attempt_id = broker_queue(message.queue), str(message.attempt_id)
        producer.publish(
            (arguments(message, identity=identity), {}, _NO_CANVAS),
            exchange="",
            routing_key=name,
            serializer="json",
            headers=_headers(attempt_id),
            correlation_id=attempt_id,
            declare=[self._app.amqp.queues[name]] if declares else [],
            retry=True,
            retry_policy=self._app.conf.task_publish_retry_policy,
        )

    def queue_depth(self, queue: str) -> int | None:
        """See ``Executor.queue_depth``."""
        try:
            with self._app.connection_for_read() as connection:
                channel: Any = connection.default_channel
                return int(
                    channel.queue_declare(queue=broker_queue(queue), passive=True).message_count
                )
        except Exception as error:  # noqa: BLE001 - each transport has its own errors; a hint only
            if str(getattr(error, "reply_code", "")) == NO_SUCH_QUEUE:
                return 0  # Redis forgets a queue with its last message
            logger.info("queue depth unknown", extra={"queue": queue, "error": str(error)})
            return None

    def waiting(self, queue: str, *, limit: int) -> list[Waiting] | None:
        """See ``Executor.waiting``. Redis shows its lists; AMQP shows nothing without taking it."""
        try:
            with self._app.connection_for_read() as connection:
                channel: Any = connection.default_channel
                if not hasattr(channel, "priority_steps"):
                    return None
                found: list[Waiting] = []
                for step in channel.priority_steps:
                    key = channel._q_for_pri(broker_queue(queue), step)  # noqa: SLF001 - the list's name, for which there is no public way
                    for raw in channel.client.lrange(key, 0, limit - 1 - len(found)):
                        one = _waiting(queue, raw)
                        found += [one] if one else []
                    if len(found) >= limit:
                        break
                return found
        except Exception as error:  # noqa: BLE001 - each transport has its own errors; a hint only
            logger.info("queue cannot be read", extra={"queue": queue, "error": str(error)})
            return None

    def close(self) -> None:
        """See ``Executor.close``."""
        self._app.close()


class _NotTold(Exception):
    """The carrier may or may not have what was sent."""


def _headers(attempt_id: str) -> dict[str, Any]:
    return {"lang": "py", "task": TASK_NAME, "id": attempt_id, "root_id": attempt_id}


def is_pushed(app: celery.Celery) -> bool:
    """Whether the broker sends without being asked."""
    transport: Any = app.connection_for_read().transport
    return bool(transport.driver_type == "amqp")


def _waiting(queue: str, raw: bytes) -> Waiting | None:
    """The delivery that a stored message is; null for a stranger's."""
    try:
        message = json.loads(raw)
        (attempt_id, _, _, _, identity), _, _ = json.loads(base64.b64decode(message["body"]))
        return Waiting(queue=queue, attempt_id=UUID(attempt_id), identity=str(identity))
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
