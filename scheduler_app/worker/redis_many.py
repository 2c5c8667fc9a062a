"""Redis as Celery's carrier, asked for as many messages as the worker has a use for now.

Celery's own channel asks for one at a time: while tasks are quick, that is a third of what the main process
spends on each. Where the server does not know the command (Redis before 7.0), it is asked as Celery does.
"""

from __future__ import annotations

from queue import Empty
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from kombu.transport import redis as kombu_redis
from kombu.utils.encoding import bytes_to_str
from kombu.utils.json import loads
from redis.exceptions import ResponseError

if TYPE_CHECKING:
    from collections.abc import Callable

TRANSPORT: Final = f"{__name__}:ManyTransport"
SCHEMES: Final = ("redis", "rediss")


# The stubs know neither's inner side.
_Channel: Any = kombu_redis.Channel
_Transport: Any = kombu_redis.Transport


def _one() -> int:
    return 1


class ManyChannel(_Channel):  # type: ignore[misc]
    """As Celery's, but that one answer may bring several messages of a queue."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.wanted: Callable[[], int] = _one  # how many messages the next answer may bring
        self._knows_many = True  # the server
        self._asked_many = False
        super().__init__(*args, **kwargs)

    def _brpop_start(self, timeout: float | None = None) -> None:
        wanted = self.wanted() if self._knows_many and not self.global_keyprefix else 1
        self._asked_many = wanted > 1
        if not self._asked_many:
            super()._brpop_start(timeout)
            return
        queues = self._queue_cycle.consume(len(self.active_queues))
        if not queues:
            return
        keys = [
            self._q_for_pri(queue, priority) for priority in self.priority_steps for queue in queues
        ]
        self._in_poll = self.client.connection
        self._brpop_sent_at = monotonic()
        self.client.connection.send_command(
            "BLMPOP", timeout or self.brpop_timeout or 0, len(keys), *keys, "RIGHT", "COUNT", wanted
        )

    def _brpop_read(self, **options: Any) -> bool:
        if not self._asked_many:
            return bool(super()._brpop_read(**options))
        try:
            found = self._answer(options)
            if not found:
                raise Empty
            key, items = found
            queue = bytes_to_str(key).rsplit(self.sep, 1)[0]
            self._queue_cycle.rotate(queue)
            self._deliver_all(queue, items)
            return True
        finally:
            self._in_poll = None
            self._flush_brpop_reauth()

    def _answer(self, options: dict[str, Any]) -> Any:
        try:
            return self.client.parse_response(self.client.connection, "BLMPOP", **options)
        except self.connection_errors:
            self.client.connection.disconnect()  # the next turn connects anew
            raise
        except ResponseError:
            self._knows_many = False
            raise Empty from None

    def _deliver_all(self, queue: str, items: list[bytes]) -> None:
        """Each is with the worker, whatever becomes of those before it: the server has none of them any more."""
        faults = []
        for item in items:
            try:
                self.connection._deliver(loads(bytes_to_str(item)), queue)  # noqa: SLF001 - as Celery's own
            except Exception as fault:  # noqa: BLE001 - told below, as Celery tells of one
                faults.append(fault)
        if faults:
            raise faults[0]


class ManyTransport(_Transport):  # type: ignore[misc]
    """Celery's, with channels that may bring several messages at once."""

    Channel = ManyChannel
