"""Whose turn it is: of the runs that ask for a look, and of the lines that wait for the same room."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from scheduler_app.rules.capacity import Line

KEPT_MAX: Final = 20_000  # runs, and lines, that are remembered


class Turns:
    """What this process looked at and served last; of this process alone, and lost with it."""

    def __init__(self) -> None:
        self._tick = 0
        self._looked: dict[int, int] = {}  # run -> the tick that looked at it last
        self.served: dict[Line, datetime] = {}

    def runs(self, run_ids: Iterable[int], at_most: int) -> tuple[list[int], set[int]]:
        """Those to look at now, in order of id, and those whose turn comes later.

        Who was not looked at for longest comes first, so that no number of runs that wait for room
        keeps another from being looked at.
        """
        self._tick += 1
        wanted = set(run_ids)
        first = sorted(wanted)
        if len(first) > at_most:
            first = sorted(sorted(first, key=lambda run: self._looked.get(run, 0))[:at_most])
            if len(self._looked) > KEPT_MAX:
                self._looked.clear()
            self._looked.update(dict.fromkeys(first, self._tick))
        return first, wanted.difference(first)

    def serve(self, lines: Iterable[Line], now: datetime) -> None:
        """These lines were served; others come before them from now on."""
        if len(self.served) > KEPT_MAX:
            oldest = sorted(self.served, key=lambda line: self.served[line])
            for line in oldest[: KEPT_MAX // 2]:
                del self.served[line]
        self.served.update(dict.fromkeys(lines, now))
