"""Runs one ``manage.py`` command; failures that a person can mend become one line."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.management import execute_from_command_line
from django.db import OperationalError

if TYPE_CHECKING:
    from collections.abc import Sequence


def run(argv: Sequence[str]) -> int:
    """The command ran. The exit code, where the command does not end the process itself."""
    try:
        execute_from_command_line(list(argv))
    except ImproperlyConfigured as error:
        return _fail(f"Wrong settings: {error}")
    except OperationalError as error:
        if settings.DATABASE_URL:
            return _fail(f"The database does not answer: {_first_line(error)}")
        return _fail(
            f"No stack runs in {settings.DATA_DIR}: start one with `python3 manage.py up`,"
            " name its folder in DAYLIGHT_DATA_DIR, or set DATABASE_URL."
        )
    except BrokenPipeError:
        sys.stderr.close()  # who read our output went away
        return 1
    return 0


def _fail(line: str) -> int:
    sys.stderr.write(f"{line}\n")
    return 1


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
