"""Redis as Celery's carrier: deliveries go into the list of their queue by one command.

Kombu makes each message anew, through the layers that serve every broker, which was a fifth of what the
scheduler spends on a task. Here it makes one for each queue, as it is to be stored, and what differs from one
message to the next is put into that.
"""

from __future__ import annotations

import json
import re
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_BODY: Final = "@body@"
_ID: Final = "@id@"
_TAG: Final = "@tag@"
_PLACES: Final = re.compile(f"({_BODY}|{_ID}|{_TAG})")

_written: Final = json.JSONEncoder(separators=(",", ":")).encode


@dataclass(frozen=True, slots=True)
class Letter:
    """One message of this carrier."""

    queue: str  # the broker's name of it
    id: str
    body: Any  # JSON


@dataclass(frozen=True, slots=True)
class _Pattern:
    """How the messages of one queue are stored."""

    key: str  # of the list
    pieces: list[str]  # text and names of places, in turn


def is_redis(channel: Any) -> bool:
    """Whether the channel of kombu's keeps each queue in lists of Redis."""
    return hasattr(channel, "priority_steps")


class RedisPush:
    """Pushes over one channel of kombu's and the connections that it has. Errors are its transport's."""

    def __init__(self, channel: Any, *, headers: Callable[[str], dict[str, Any]]) -> None:
        """``headers``: those of a message with this id."""
        self.channel = channel
        self._headers = headers
        self._client = channel._create_client()  # noqa: SLF001 - of its pool, for which there is no public way
        self._patterns: dict[str, _Pattern] = {}

    def push(self, letters: Iterable[Letter], *, is_first: bool = False) -> None:
        """They are in their queues, behind all others, or before them; in their order, after one round trip.

        Where that fails nobody can tell which are.
        """
        by_key: dict[str, list[str]] = {}
        for letter in letters:
            pattern = self._patterns.get(letter.queue) or self._pattern(letter.queue)
            by_key.setdefault(pattern.key, []).append(self._stored(letter, pattern))
        with self._client.pipeline(transaction=False) as pipeline:
            for key, texts in by_key.items():
                if is_first:  # consumers take from the right
                    pipeline.rpush(key, *reversed(texts))
                else:
                    pipeline.lpush(key, *texts)
            pipeline.execute()

    def _stored(self, letter: Letter, pattern: _Pattern) -> str:
        body, _ = self.channel.encode_body(_written(letter.body), self.channel.body_encoding)
        places = {_BODY: body, _ID: letter.id, _TAG: str(uuid.uuid4())}
        return "".join(places.get(piece, piece) for piece in pattern.pieces)

    def _pattern(self, queue: str) -> _Pattern:
        """As kombu would store a message of the queue. It is kept."""
        message = self.channel.prepare_message(
            _BODY,
            content_type="application/json",
            content_encoding="utf-8",
            headers=self._headers(_ID),
            properties={"correlation_id": _ID, "delivery_mode": 2},
        )
        self.channel._inplace_augment_message(message, "", queue)  # noqa: SLF001 - what its own publishing does next
        message["body"], message["properties"]["delivery_tag"] = _BODY, _TAG
        key = self.channel._q_for_pri(queue, message["properties"]["priority"])  # noqa: SLF001 - the list's name
        made = _Pattern(key=key, pieces=_PLACES.split(json.dumps(message)))
        self._patterns[queue] = made
        return made
