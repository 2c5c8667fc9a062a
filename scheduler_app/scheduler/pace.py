"""How fast deliveries leave the queues: so many may wait in one that its workers never run dry.

A queue that is fuller than that gains nothing: what lies in it is decided, and a task of a higher
priority that becomes ready has to wait behind it.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from itertools import takewhile
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

SEEN_FOR_S: Final = 0.5  # deliveries of so long say how fast a queue is
LEARNED_AFTER_S: Final = 0.1  # of deliveries in a row
LATELY_S: Final = 0.1  # of them say how fast a queue has become
GROWN_MAX: Final = (
    64  # deliveries that may wait where nothing but an empty queue says that it is fast
)
LEAD_S: Final = 0.25  # of work may wait in a queue; a scheduler looks several times in this time


class Pace:
    """Counts what one scheduler has issued by queue of late, which is what workers took."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._issued: deque[tuple[float, Counter[str]]] = deque()
        self._rates: Counter[str] = Counter()
        self._waiting: Counter[str] = Counter()
        self._grown: dict[str, int] = {}  # by queue: twice what was taken between two looks

    def found(self, waiting: Mapping[str, int]) -> None:
        """So many deliveries wait in each queue now.

        Where nearly all that was issued last has been taken since, twice as many may wait from now on: a
        pace that has only begun says less of the queue than that it has run dry.
        """
        self._waiting = Counter(waiting)
        if not self._issued or self._clock() - self._issued[-1][0] > SEEN_FOR_S:
            return
        for queue, number in self._issued[-1][1].items():
            if self._waiting[queue] * 4 <= number:
                grown = min(GROWN_MAX, 2 * number)
                self._grown[queue] = max(grown, self._grown.get(queue, 0))

    def issued(self, queues: Iterable[str]) -> None:
        """A delivery was issued now for each of these."""
        counts = Counter(queues)
        if counts:
            self._issued.append((self._clock(), counts))
            self._rates += counts
            self._waiting += counts
        self._forget()

    def lasts_s(self, free: Mapping[str, int]) -> float:
        """For how long the emptiest of these queues keeps its workers busy; each with their children.

        Nothing is said of a pace that has only begun: whoever asks looks again at once.
        """
        if not self._issued or self._clock() - self._issued[0][0] < LEARNED_AFTER_S:
            return 0.0
        lately = self._lately()
        return min(
            (
                max(0, self._waiting[queue] - children) / rate
                if (rate := max(self._rates[queue] / SEEN_FOR_S, lately[queue] / LATELY_S))
                else 0.0
                for queue, children in free.items()
            ),
            default=0.0,
        )

    def _lately(self) -> Counter[str]:
        """What was issued in the last moments: where a pace has just grown, this says so first."""
        oldest = self._clock() - LATELY_S
        return sum(
            (
                counts
                for _, counts in takewhile(lambda one: one[0] >= oldest, reversed(self._issued))
            ),
            Counter(),
        )

    def places(self, queue: str) -> int:
        """How many deliveries may wait in the queue for its pace."""
        self._forget()
        if not self._rates[queue]:
            self._grown.pop(queue, None)
        return max(int(self._rates[queue] * LEAD_S / SEEN_FOR_S), self._grown.get(queue, 0))

    def _forget(self) -> None:
        oldest = self._clock() - SEEN_FOR_S
        while self._issued and self._issued[0][0] < oldest:
            self._rates -= self._issued.popleft()[1]
