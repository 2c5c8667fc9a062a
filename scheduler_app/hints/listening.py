"""Hears the hints of one channel, whichever carrier brings them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler_app.hints import postgres, valkey

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from scheduler_app.hints.carrier import Ear


def listen(url: str, channel: str) -> AbstractAsyncContextManager[Ear]:
    """A subscription that works; ``url`` is a Valkey's, or empty for the database itself.

    Raises ``HintsAway``. Hints that were sent while nobody listened are lost.
    """
    return valkey.listen(url, channel) if url else postgres.listen(channel)
