"""The one Celery task, and how the main process of a worker passes its deliveries to the pool.

Celery's own requests, tracing, results and retries are left out: a message that is a delivery goes to the
pool as it comes, the child calls ``execute_delivery`` and the pool tells the witness of each step. So
nothing of a task's fate hangs on Celery.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from celery import Task, shared_task

from scheduler_app.executors import delivery
from scheduler_app.executors.celery import TASK_NAME, is_pushed
from scheduler_app.worker.execute import execute_delivery

if TYPE_CHECKING:
    from collections.abc import Callable

    from celery import Celery

    from scheduler_app.worker.celery_pool import ChildPool
    from scheduler_app.worker.outcome import Outcome

JSON: Final = "application/json"
STRATEGY: Final = f"{__name__}:strategy"

logger = logging.getLogger(__name__)


class AttemptTask(Task[Any, Any]):
    """Without result or retry. What comes as far as its ``strategy`` is no delivery."""

    acks_late = False
    ignore_result = True
    max_retries = 0
    Strategy = STRATEGY


@shared_task(base=AttemptTask, name=TASK_NAME)
def execute_attempt(attempt_id: str, ti_id: int, fence: int, token: int, identity: str) -> Outcome:
    """The attempt was executed and reported, or refused. See ``execute_delivery``."""
    return execute_delivery(attempt_id, ti_id, fence, token, identity)


@dataclass(slots=True, weakref_slot=True, eq=False)
class Taken:
    """One delivery on its way to a child; a Celery request, as far as Celery asks for one."""

    id: str  # of the attempt
    arguments: list[Any]
    queue: str  # the broker's name of it
    acknowledge: Callable[[], None]  # as soon as a child has it


def taking(consumer: Any, ordinary: Callable[[Any], None]) -> Callable[[Any], None]:
    """How a consumer handles a message: a delivery goes to the pool, anything else the ``ordinary`` way."""
    pool: ChildPool = consumer.pool
    # Where the broker keeps no book of what was taken, there is nothing to strike off.
    is_booked = is_pushed(consumer.app)

    def take(message: Any) -> None:
        arguments = arguments_of(message)
        if arguments is None:
            ordinary(message)
            return

        def acknowledge() -> None:
            if is_booked:
                message.ack_log_error(logger, consumer.connection_errors)

        queue = str(message.delivery_info["routing_key"])
        pool.execute(Taken(arguments[0], arguments, queue, acknowledge))

    return take


def strategy(task: Task[Any, Any], app: Celery, consumer: Any, **_: Any) -> Callable[..., None]:
    """How the consumer handles a message that bears the task's name and is no delivery: it is refused."""
    is_booked = is_pushed(app)

    def refuse(message: Any, body: Any, ack: Any, reject: Any, callbacks: Any, **_: Any) -> None:
        # It would only come again.
        logger.error("a message is not a delivery", extra={"body": repr(message.body)[:200]})
        if is_booked:
            reject(logger, consumer.connection_errors, False)

    return refuse


def arguments_of(message: Any) -> list[Any] | None:
    """The delivery that the message carries; null where it carries anything else."""
    try:
        headers = message.headers
        if headers["task"] != TASK_NAME or message.content_type != JSON:
            return None
        # A delivery is plain JSON: nothing of what Celery makes of more than that is looked for.
        body = message.body
        args, kwargs, _ = json.loads(body if isinstance(body, (str, bytes)) else bytes(body))
        is_one = delivery.is_delivery(args) and headers["id"] == args[0] and not kwargs
    except Exception:  # noqa: BLE001 - whatever a stranger's message makes of this
        return None
    return args if is_one else None
