from __future__ import annotations

import json
import logging
import sys
from typing import Any

from scheduler_app.config.logging import JsonFormatter, TextFormatter


def record(message: str = "it moved", error: bool = False, **fields: Any) -> logging.LogRecord:
    made = logging.makeLogRecord(
        {"name": "scheduler_app.x", "levelname": "INFO", "msg": message, "created": 1.5, **fields}
    )
    if error:
        try:
            raise ValueError("broken")
        except ValueError:
            made.exc_info = sys.exc_info()
    return made


def test_a_text_line_has_the_fields_after_the_message() -> None:
    line = TextFormatter().format(record(run_id=12, why="a b", empty=""))
    assert line == (
        "1970-01-01T00:00:01.500Z INFO scheduler_app.x it moved run_id=12 why='a b' empty=''"
    )


def test_a_json_line_has_them_as_keys() -> None:
    entry = json.loads(JsonFormatter().format(record(run_id=12, odd={1})))
    assert entry == {
        "at": "1970-01-01T00:00:01.500Z",
        "level": "INFO",
        "logger": "scheduler_app.x",
        "message": "it moved",
        "run_id": 12,
        "odd": "{1}",
    }


def test_an_error_brings_its_traceback() -> None:
    assert TextFormatter().format(record(error=True)).splitlines()[-1] == "ValueError: broken"
    entry = json.loads(JsonFormatter().format(record(error=True)))
    assert entry["traceback"].splitlines()[-1] == "ValueError: broken"
