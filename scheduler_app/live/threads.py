"""Reads of the database from the event loop, each in a thread that keeps no connection."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from django.db import connections

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
ResultT = TypeVar("ResultT")


async def in_thread(read: Callable[P, ResultT], *args: P.args, **kwargs: P.kwargs) -> ResultT:
    """What ``read`` returns. A task that is cancelled meanwhile ends at once.

    Not ``database_sync_to_async``: that one may swallow the cancellation, and its reads stand in
    one line with those of every other socket.
    """

    def work() -> ResultT:
        try:
            return read(*args, **kwargs)
        finally:
            connections.close_all()

    return await asyncio.to_thread(work)
