"""The web process: what it keeps is looked at by no collection, so that no request waits for one."""

from __future__ import annotations

import asyncio
import gc
from typing import TYPE_CHECKING, Any

import pytest
import uvicorn

from scheduler_app.launch import web

if TYPE_CHECKING:
    from collections.abc import Iterator


class Job:
    """Counts how often the loop got on."""

    def __init__(self) -> None:
        self.turns = 0

    def progressed(self) -> None:
        """One turn more."""
        self.turns += 1


async def application(*_: Any) -> None:
    """Answers nobody."""


@pytest.fixture(autouse=True)
def _thawed() -> Iterator[None]:
    yield
    gc.unfreeze()


def test_what_the_first_requests_make_is_kept_once_they_are_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(web, "TICK_S", 0.001)
    job = Job()
    server = web._Server(uvicorn.Config(application, log_config=None), job)  # type: ignore[arg-type]
    kept: list[int] = []
    made: list[list[int]] = []

    async def until(turn: int) -> None:
        while job.turns < turn:
            await asyncio.sleep(0.001)

    async def serve() -> None:
        loop = asyncio.create_task(server.main_loop())
        await until(2)
        kept.append(gc.get_freeze_count())
        made.extend([number] for number in range(5_000))
        server.server_state.total_requests = web.SETTLED_AFTER - 1
        await until(job.turns + 3)
        kept.append(gc.get_freeze_count())
        server.server_state.total_requests = web.SETTLED_AFTER
        await until(job.turns + 3)
        kept.append(gc.get_freeze_count())
        made.extend([number] for number in range(5_000))
        await until(job.turns + 3)
        kept.append(gc.get_freeze_count())
        server.stop()
        await loop

    asyncio.run(asyncio.wait_for(serve(), 30))
    loaded, before, settled, after = kept
    assert loaded > 1_000, "what is loaded"
    assert before <= loaded
    assert settled >= loaded + 4_000
    assert after <= settled, "once"
