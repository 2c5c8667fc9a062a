"""Deliveries over Celery: its consumer and event loop, with our own way from message to child."""

from __future__ import annotations

import logging
import socket
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from celery import signals
from celery.worker import state
from celery.worker.worker import WorkController
from django.conf import settings

from scheduler_app.executors.celery import CARRIER, CeleryExecutor, broker_queue, is_pushed
from scheduler_app.worker import redis_many
from scheduler_app.worker.appetite import Appetite
from scheduler_app.worker.celery_pool import ChildPool
from scheduler_app.worker.mouth import Mouth, OneAtATime, mouth, set_mouth

if TYPE_CHECKING:
    from celery import Celery

    from scheduler_app.worker.consumer import Duties

TURN_S: Final = 0.5

logger = logging.getLogger(__name__)


class CeleryConsumer:
    """What waits stays in the broker, but for a few deliveries while all is quick, which a stop gives back."""

    def __init__(self, app: Celery) -> None:
        self._app = app
        self._is_stopping = False
        self._mouth: Mouth | None = None

    @property
    def carrier(self) -> str:
        """See ``Consumer.carrier``."""
        return CARRIER

    def stop(self) -> None:
        """See ``Consumer.stop``."""
        self._is_stopping = True
        if self._mouth is not None:
            self._mouth.close()
        setattr(state, "should_stop", 0)  # noqa: B010 - the stub says it is always None

    def run(self, duties: Duties) -> int:
        """See ``Consumer.run``."""
        self._duties = duties
        self._is_pushed = is_pushed(self._app)
        self._app.conf.worker_disable_prefetch = not self._is_pushed
        if urlsplit(str(self._app.conf.broker_url)).scheme in redis_many.SCHEMES:
            self._app.conf.broker_transport = redis_many.TRANSPORT
        signals.setup_logging.connect(_keep_logging, weak=False)
        self._mouth = Mouth(size=duties.concurrency, executing=duties.executing)
        set_mouth(self._mouth)
        controller = WorkController(
            app=self._app,
            hostname=f"{duties.name or 'worker'}-{duties.job_id}@{socket.gethostname()}",
            queues=[broker_queue(queue) for queue in duties.queues],
            concurrency=duties.concurrency,
            pool_cls=ChildPool,
            consumer_cls=OneAtATime,
            loglevel="WARNING",
            ready_callback=self._on_ready,
            without_gossip=True,
            without_mingle=True,
            without_heartbeat=True,
        )
        self._appetite = Appetite(
            waiting=self._waiting,
            has_room=self._has_room,
            taken=duties.taken,
            every_s=settings.HEARTBEAT_INTERVAL_S,
        )
        self._appetite.start()
        controller.start()
        self._appetite.stop()
        return int(controller.exitcode or 0)

    def _has_room(self) -> bool:
        if self._is_stopping or not mouth().may_eat:
            return False
        return self._duties.executing() < self._duties.concurrency

    def _waiting(self) -> int | None:
        """Deliveries that wait in the queues served; null where one cannot tell."""
        executor = CeleryExecutor(self._app)
        depths = [executor.queue_depth(queue) for queue in self._duties.queues]
        known = [depth for depth in depths if depth is not None]
        return sum(known) if known else None

    def _on_ready(self, consumer: Any) -> None:
        logger.info(
            "the worker takes deliveries",
            extra={"queues": self._duties.queues, "concurrency": self._duties.concurrency},
        )
        self._attend(consumer)
        consumer.hub.call_repeatedly(TURN_S, self._turn, consumer)

    def _turn(self, consumer: Any) -> None:
        """Part of the event loop: consumes exactly while children may start something.

        A loop that turns and consumes nothing does not get on, and does not say so.
        """
        if self._appetite.is_deaf:
            return
        may_start = self._duties.turn()
        messages = consumer.task_consumer
        if messages is None or self._is_stopping:
            return
        self._attend(consumer)
        mouth().let(may_start)

    def _attend(self, consumer: Any) -> None:
        """The connection of now is the one that is consumed from."""
        messages = consumer.task_consumer
        mouth().attend(messages, is_pushed=self._is_pushed)
        if isinstance(messages.channel, redis_many.ManyChannel):
            messages.channel.wanted = consumer.pool.wanted


def _keep_logging(**_: Any) -> None:
    """Celery leaves logging as Django has set it up."""
