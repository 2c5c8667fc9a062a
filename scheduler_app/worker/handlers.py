"""Handlers of signals, set and asked for before each delivery.

Python's own ``signal`` looks for an enumeration's member in each handler that it gives back, and where it
finds none, as in a function, raises and catches: that takes ten times as long as all else.
"""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

# What stands beneath it, where this Python tells.
set_handler: Final[Callable[[int, Any], Any]] = getattr(signal.signal, "__wrapped__", signal.signal)
handler_of: Final[Callable[[int], Any]] = getattr(signal.getsignal, "__wrapped__", signal.getsignal)
