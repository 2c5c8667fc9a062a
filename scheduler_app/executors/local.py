"""The local executor: hands each message to one worker of this machine, over that worker's socket."""

from __future__ import annotations

import contextlib
import logging
from collections import defaultdict
from typing import TYPE_CHECKING, Final
from uuid import UUID

from scheduler_app.executors import local_wire
from scheduler_app.executors.delivery import arguments
from scheduler_app.executors.local_peers import Gone, Peers, Silent
from scheduler_app.rules.ghosts import Waiting

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from scheduler_app.executors.local_peers import Load, Peer
    from scheduler_app.transitions.attempt import Message

ROUNDS: Final = 3  # over the workers that are left, while some turn out to be gone
NO_LIMIT: Final = 10**6  # room of a worker with a process per task

logger = logging.getLogger(__name__)


class LocalExecutor:
    """Keeps no message: what no worker takes now stays unpublished, and the sweep tries again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._peers = Peers(folder)

    @property
    def carrier(self) -> str:
        """See ``Executor.carrier``."""
        return local_wire.carrier(self._folder)

    def publish(self, messages: Sequence[Message], *, identity: str) -> frozenset[UUID]:
        """See ``Executor.publish``. Each message goes to the worker of its queue with the most room."""
        taken: set[UUID] = set()
        left = list(messages)
        for _ in range(ROUNDS):
            if not left:
                break
            plan, left = _share(left, self._loads())
            if not plan:
                break
            for peer, offered in plan.items():
                try:
                    taken |= _offer(peer, offered, identity=identity)
                except Silent:
                    # It may have them, and start them when it wakes: offered to nobody else now.
                    taken |= {message.attempt_id for message in offered}
                except Gone as error:
                    logger.info("a local worker is gone", extra={"error": str(error)})
                    left += offered
        return frozenset(taken)

    def queue_depth(self, queue: str) -> int | None:
        """See ``Executor.queue_depth``. What a worker holds that does not answer does not count."""
        depth = 0
        for peer in self._peers.awake():
            with contextlib.suppress(Gone, Silent):
                depth += peer.ask_load().waiting.get(queue, 0)
        return depth

    def waiting(self, queue: str, *, limit: int) -> list[Waiting] | None:
        """See ``Executor.waiting``. Null when a worker that may have some does not answer."""
        found: list[Waiting] = []
        for peer in self._peers.awake():
            if len(found) >= limit:
                break
            try:
                answer = peer.ask({"ask": "waiting", "queue": queue, "most": limit - len(found)})
                found += [
                    Waiting(queue=queue, attempt_id=UUID(attempt_id), identity=str(identity))
                    for attempt_id, identity in answer["waiting"]
                ]
            except Silent:
                return None
            except Gone:
                continue
        return found

    def close(self) -> None:
        """See ``Executor.close``."""
        self._peers.close()

    def _loads(self) -> dict[Peer, Load]:
        """The workers that answer, each with its load of now."""
        peers = self._peers.awake()
        if len(peers) == 1 and peers[0].load is not None:
            # There is no choice, and what it serves does not change.
            return {peers[0]: peers[0].load}
        loads = {}
        for peer in peers:
            with contextlib.suppress(Gone, Silent):
                loads[peer] = peer.ask_load()
        return loads


def _share(
    messages: Iterable[Message], loads: Mapping[Peer, Load]
) -> tuple[dict[Peer, list[Message]], list[Message]]:
    """Which worker is offered which messages, and the messages that no worker here serves."""
    room = {peer: _room(load) for peer, load in loads.items()}
    plan: dict[Peer, list[Message]] = defaultdict(list)
    unserved = []
    for message in messages:
        serving = [peer for peer, load in loads.items() if message.queue in load.queues]
        if not serving:
            unserved.append(message)
            continue
        roomiest = max(serving, key=lambda peer: room[peer])
        room[roomiest] -= 1
        plan[roomiest].append(message)
    return plan, unserved


def _room(load: Load) -> int:
    """How many more it could start now; negative where deliveries wait."""
    return (load.size or NO_LIMIT) - load.running - sum(load.waiting.values())


def _offer(peer: Peer, messages: Sequence[Message], *, identity: str) -> set[UUID]:
    """The attempt ids that the worker has now. Raises as ``Peer.ask``."""
    deliveries = [[message.queue, arguments(message, identity=identity)] for message in messages]
    answer = peer.ask({"take": deliveries})
    return {message.attempt_id for message in messages} & {
        UUID(attempt_id) for attempt_id in answer["taken"]
    }
