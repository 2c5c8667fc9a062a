"""Looks that many triggers share."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest

from scheduler_app.authoring.triggers import FileTrigger, PollTrigger
from scheduler_app.triggerer import outcome
from scheduler_app.triggerer.looks import QuickLooks

SOON = timedelta(seconds=0.1)


@dataclass(frozen=True)
class Fails(PollTrigger):
    """Raises at its look."""

    def look(self) -> None:
        """Raises."""
        raise PermissionError("no")


async def test_each_trigger_gets_its_own_answer(tmp_path: Path) -> None:
    looks = QuickLooks()
    turning = asyncio.create_task(looks.run())
    waiting = [
        asyncio.create_task(looks.until(FileTrigger(str(tmp_path / str(n)), poll_interval=SOON)))
        for n in range(1200)
    ]
    failing = asyncio.create_task(looks.until(Fails(poll_interval=SOON)))
    await asyncio.sleep(0.3)
    assert not any(task.done() for task in waiting)
    with pytest.raises(PermissionError):
        await failing
    for n in (0, 1199):
        (tmp_path / str(n)).touch()
    waiting[5].cancel()
    assert await waiting[0] == str(tmp_path / "0")
    assert await waiting[1199] == str(tmp_path / "1199")
    assert not waiting[7].done()
    for task in (turning, *waiting):
        task.cancel()
    await asyncio.gather(turning, *waiting, return_exceptions=True)
    looks.close()


def test_an_outcome_is_always_something_that_can_be_stored() -> None:
    class Worse(Exception):
        def __str__(self) -> str:
            raise ValueError

    fire = outcome.failed(1, Worse())
    assert fire.payload is not None
    assert "cannot be shown" in fire.payload["error"]["message"]
    fire = outcome.failed(1, OSError("nul \x00 and \ud800"))
    assert fire.payload is not None
    assert fire.payload["error"]["type"] == "OSError"
    assert fire.payload["error"]["message"] == "nul \\x00 and \\ud800"
    fire = outcome.happened(1, "x" * 100, bytes_max=64)
    assert (fire.state, fire.payload and "limit" in fire.payload["error"]["message"]) == (
        "failed",
        True,
    )
    fire = outcome.happened(1, (1, 2), bytes_max=64)
    assert (fire.state, fire.payload) == (
        "fired",
        {"event": {"__daylight__": "tuple", "value": [1, 2]}},
    )
