"""Failpoints: places where a test may kill, stop or break a process, named in the environment.

``DAYLIGHT_FAILPOINTS="dispatch.after_commit=kill@2;finish.before=raise"``: at the second time that
the point is reached the process kills itself (``stop`` stops it, ``fork`` makes a copy). Nothing is read when the variable is absent.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from typing import Final

EACH_TIME: Final = 0

_reached: Counter[str] = Counter()


def _parse(text: str) -> dict[str, tuple[str, int]]:
    points: dict[str, tuple[str, int]] = {}
    for part in filter(None, (piece.strip() for piece in text.split(";"))):
        name, _, action = part.partition("=")
        kind, _, at = action.partition("@")
        points[name] = (kind, EACH_TIME if at == "*" else int(at or 1))
    return points


_POINTS: Final = _parse(os.environ.get("DAYLIGHT_FAILPOINTS", ""))


class FailpointReached(RuntimeError):
    """A failpoint that was told to raise was reached."""


def _is_first(name: str) -> bool:
    folder = os.environ.get("DAYLIGHT_FAILPOINTS_ONCE")
    if not folder:
        return True
    try:
        os.close(os.open(f"{folder}/{name}", os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def reach(name: str) -> None:
    """Nothing happens, unless the environment names this point and it is its turn."""
    if name not in _POINTS:
        return
    kind, at = _POINTS[name]
    _reached[name] += 1
    if at not in (EACH_TIME, _reached[name]) or not _is_first(name):
        return
    if kind == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif kind == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif kind == "fork":
        os.fork()
    elif kind == "raise":
        raise FailpointReached(name)
