"""The one Celery task, and how the main process of a worker passes its deliveries to the pool.

Celery's own tracing, results and retries are left out: the child calls ``execute_delivery`` and the
pool tells the witness of each step. So nothing of a task's fate hangs on Celery.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from celery import Task, shared_task
from celery.worker import state
from celery.worker.request import Request

from scheduler_app.executors import delivery
from scheduler_app.executors.celery import TASK_NAME
from scheduler_app.worker.execute import execute_delivery
from scheduler_app.worker.mouth import is_pushed

if TYPE_CHECKING:
    from collections.abc import Callable

    from celery import Celery

    from scheduler_app.worker.celery_pool import ChildPool
    from scheduler_app.worker.outcome import Outcome

STRATEGY: Final = f"{__name__}:strategy"

logger = logging.getLogger(__name__)


class AttemptTask(Task[Any, Any]):
    """Acknowledged early, without result or retry; its messages are handled by ``strategy``."""

    acks_late = False
    ignore_result = True
    max_retries = 0
    Strategy = STRATEGY


@shared_task(base=AttemptTask, name=TASK_NAME)
def execute_attempt(attempt_id: str, ti_id: int, fence: int, token: int, identity: str) -> Outcome:
    """The attempt was executed and reported, or refused. See ``execute_delivery``."""
    return execute_delivery(attempt_id, ti_id, fence, token, identity)


class WitnessedRequest(Request):
    """One delivery on its way through the pool; acknowledged as soon as a child has it."""

    def execute_using_pool(self, pool: Any, **_: Any) -> Any:
        """The delivery goes to a child, as soon as one is free."""
        children: ChildPool = pool
        children.execute(self)


def strategy(task: Task[Any, Any], app: Celery, consumer: Any, **_: Any) -> Callable[..., None]:
    """How the consumer handles a message of the task: checks it, and hands it to the pool."""
    # Where the broker keeps no book of what was taken, there is nothing to strike off.
    is_booked = is_pushed(app)

    def handle(message: Any, body: Any, ack: Any, reject: Any, callbacks: Any, **_: Any) -> None:
        if not is_delivery(message):
            # It would only come again.
            logger.error("a message is not a delivery", extra={"body": repr(message.body)[:200]})
            if is_booked:
                reject(logger, consumer.connection_errors, False)
            return
        request = WitnessedRequest(
            message,
            on_ack=ack if is_booked else _nothing,
            on_reject=reject if is_booked else _nothing,
            app=app,
            hostname=consumer.hostname,
            task=task,
            connection_errors=consumer.connection_errors,
            body=message.body,
            headers=message.headers,
            decoded=False,
        )
        state.task_reserved(request)
        for callback in callbacks or ():
            callback(request)
        consumer.on_task_request(request)

    return handle


def _nothing(*_: Any) -> None:
    return


def is_delivery(message: Any) -> bool:
    """Whether the message carries what a delivery carries, and nothing else."""
    try:
        args, kwargs, _ = message.payload
        return bool(delivery.is_delivery(args) and message.headers["id"] == args[0] and not kwargs)
    except Exception:  # noqa: BLE001 - whatever a stranger's message makes of this
        return False
