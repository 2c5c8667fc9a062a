"""Handlers of signals, set and asked for before each delivery.

Python's own ``signal`` looks for an enumeration's member in each handler that it gives back, and where it
finds none, as in a function, raises and catches: that takes ten times as long as all else.
"""

from __future__ import annotations

import signal
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

try:
    _beneath: Any = import_module("_signal")  # what ``signal`` adds the enumerations to
except ImportError:
    _beneath = signal

set_handler: Final[Callable[[int, Any], Any]] = _beneath.signal
handler_of: Final[Callable[[int], Any]] = _beneath.getsignal
