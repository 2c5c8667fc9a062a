"""One at a time: ``with ctx.exclusive("customer-7"): ...``."""

from __future__ import annotations

import threading
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from scheduler_app.authoring.options import BadOption, duration_s
from scheduler_app.authoring.saving import checked_key
from scheduler_app.rules.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import timedelta

LOOK_INTERVAL_S: Final = 0.5
TIMEOUT_S: Final = 60.0


class Busy(Exception):
    """Another execution holds the key, and did not let it go in time."""


class ExclusiveServices(Protocol):
    """What the worker does about keys."""

    def take(self, key: str) -> str | None:
        """``None`` once this attempt holds the key; else who does. Raises ``Superseded``."""

    def let_go(self, key: str) -> None:
        """This attempt does not hold the key any more."""


@dataclass(frozen=True, slots=True)
class Blocks:
    """How many blocks of this execution are inside a key: it is let go with the last of them."""

    inside: Counter[str] = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def enter(self, services: ExclusiveServices, key: str) -> str | None:
        """``None`` once another block is inside; else who holds the key. Raises ``Superseded``."""
        with self.lock:
            holder = services.take(key)
            if holder is None:
                self.inside[key] += 1
            return holder

    def leave(self, services: ExclusiveServices, key: str) -> None:
        """One block less is inside."""
        with self.lock:
            self.inside[key] -= 1
            if not self.inside[key]:
                services.let_go(key)


@contextmanager
def held(
    services: ExclusiveServices,
    blocks: Blocks,
    key: str,
    timeout: timedelta | float = TIMEOUT_S,
) -> Iterator[None]:
    """Inside the block no other execution holds the key. Raises ``Busy`` after the time limit.

    Blocks of one execution, within each other or in threads of its own, hold the key together.
    """
    name = checked_key(key, "exclusive key")
    try:
        limit_s = duration_s(timeout)
    except BadOption as wanted:
        raise InvalidInput(f"timeout={timeout!r}: give timeout {wanted}.") from None
    until = time.monotonic() + limit_s
    while (holder := blocks.enter(services, name)) is not None:
        left_s = until - time.monotonic()
        if left_s <= 0:
            raise Busy(f"The key {name!r} is held by {holder}; it was not let go in {limit_s:g} s.")
        time.sleep(min(LOOK_INTERVAL_S, left_s))
    try:
        yield
    finally:
        blocks.leave(services, name)
