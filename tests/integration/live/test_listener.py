"""What the listener says of revisions while signals begin."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scheduler_app.live import listener as room
from scheduler_app.live.listener import Listener

if TYPE_CHECKING:
    import pytest


async def test_signals_that_begin_while_the_clock_is_read_are_not_unsaid(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = Listener("redis://nowhere.invalid")

    async def clock(*arguments: Any) -> int:
        del arguments
        one._floor, one._is_live = 7, True  # the listener hears again in just this moment
        return 9

    monkeypatch.setattr(room, "in_thread", clock)
    assert await one.revisions(["run:1"]) == ({"run:1": 7}, True)
