"""Log lines: a constant message and its fields, as text for people or JSON for machines."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Any, Final

# What a record has of itself; everything else in it is a field that the caller gave.
_OWN: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class TextFormatter(logging.Formatter):
    """``2026-01-31T12:00:00.123Z INFO scheduler_app.x message key=value``."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, and the traceback below it if there is one."""
        line = f"{_time(record)} {record.levelname} {record.name} {record.getMessage()}"
        for key, value in _fields(record).items():
            line += f" {key}={value}" if _is_plain(value) else f" {key}={value!r}"
        return line + _trace(self, record)


class JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """The object's keys are ``at level logger message``, the fields, and ``traceback``."""
        entry: dict[str, Any] = {
            "at": _time(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **_fields(record),
        }
        trace = _trace(self, record)
        if trace:
            entry["traceback"] = trace.lstrip("\n")
        return json.dumps(entry, default=str)


def configuration(*, level: str, style: str) -> dict[str, Any]:
    """Settings of ``logging.config.dictConfig``: everything goes to standard error."""
    formatter = JsonFormatter if style == "json" else TextFormatter
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"line": {"()": formatter}},
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
        "root": {"handlers": ["stderr"], "level": "WARNING"},
        "loggers": {
            "scheduler_app": {"level": level},
            "dashboard": {"level": level},
            "daylight": {"level": level},
            "django.server": {"handlers": ["stderr"], "level": level, "propagate": False},
        },
    }


def _time(record: logging.LogRecord) -> str:
    at = datetime.fromtimestamp(record.created, tz=UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    return {key: value for key, value in vars(record).items() if key not in _OWN}


def _is_plain(value: object) -> bool:
    text = str(value)
    return bool(text) and not any(character.isspace() or character in "\"'=" for character in text)


def _trace(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    parts = []
    if record.exc_info:
        parts.append(formatter.formatException(record.exc_info))
    if record.stack_info:
        parts.append(formatter.formatStack(record.stack_info))
    return "".join(f"\n{part}" for part in parts)
