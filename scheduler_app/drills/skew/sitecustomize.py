"""A Python process whose wall clock is off by ``DRILL_CLOCK_OFF_S`` seconds.

Python imports this at its start when the folder is first in ``PYTHONPATH``. It covers what Python
code asks: ``time.time`` and its kin, and ``now``, ``utcnow`` and ``today`` of ``datetime``. Code in
C that asks the kernel by itself (libpq, OpenSSL, time stamps of files) sees the true time, and so
does everything that measures durations: those clocks are never off.
"""

from __future__ import annotations

import datetime
import os
import time
from typing import Any

_OFF_S = float(os.environ.get("DRILL_CLOCK_OFF_S", "0"))
_OFF_NS = round(_OFF_S * 1_000_000_000)

_date = datetime.date
_datetime = datetime.datetime
_time, _time_ns, _gettime = time.time, time.time_ns, time.clock_gettime
_gmtime, _localtime, _strftime, _ctime = time.gmtime, time.localtime, time.strftime, time.ctime


class _Like(type):
    """Values that others made are still what they are."""

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, _datetime if issubclass(cls, _datetime) else _date)


class OffDate(_date, metaclass=_Like):
    """``date`` with another today."""

    @classmethod
    def today(cls) -> Any:
        """The day that the clock shows."""
        return _date.fromtimestamp(time.time())


class OffDatetime(_datetime, metaclass=_Like):
    """``datetime`` with another now."""

    @classmethod
    def now(cls, tz: Any = None) -> Any:
        """The moment that the clock shows."""
        return _datetime.fromtimestamp(time.time(), tz)

    @classmethod
    def utcnow(cls) -> Any:
        """The moment that the clock shows, in UTC and without saying so."""
        return _datetime.fromtimestamp(time.time(), datetime.UTC).replace(tzinfo=None)

    @classmethod
    def today(cls) -> Any:
        """The local moment that the clock shows."""
        return _datetime.fromtimestamp(time.time())


def _shift() -> None:
    def clock_gettime(clock: int) -> float:
        return _gettime(clock) + (_OFF_S if clock == time.CLOCK_REALTIME else 0.0)

    put: dict[str, Any] = {
        "time": lambda: _time() + _OFF_S,
        "time_ns": lambda: _time_ns() + _OFF_NS,
        "clock_gettime": clock_gettime,
        "gmtime": lambda s=None: _gmtime(time.time() if s is None else s),
        "localtime": lambda s=None: _localtime(time.time() if s is None else s),
        "ctime": lambda s=None: _ctime(time.time() if s is None else s),
        "strftime": lambda form, when=None: _strftime(form, when or time.localtime()),
    }
    for name, function in put.items():
        setattr(time, name, function)
    setattr(datetime, "date", OffDate)  # noqa: B010 - the type checker knows better
    setattr(datetime, "datetime", OffDatetime)  # noqa: B010 - likewise


if _OFF_S:
    _shift()
