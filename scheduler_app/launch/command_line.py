"""Runs one ``manage.py`` command; failures that a person can mend become one line."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from scheduler_app.launch import run_tests

if TYPE_CHECKING:
    from collections.abc import Sequence

OWN_COMMANDS = """\
Start here:
  up     everything on this machine, servers included (manage.py up --help)
  test   the tests, with servers of their own (arguments are pytest's)
"""


def run(argv: Sequence[str]) -> int:
    """The command ran. The exit code, where the command does not end the process itself."""
    command = argv[1] if len(argv) > 1 else "help"
    # These two bring the servers that the settings name, so they come before the settings.
    if command == "up":
        from scheduler_app.launch import supervisor  # noqa: PLC0415 - no other command needs it

        return supervisor.main(argv[2:])
    if command == "test":
        return run_tests.main(argv[2:])
    if command in {"help", "--help", "-h"} and len(argv) <= 2:
        print(OWN_COMMANDS)  # noqa: T201 - help for a person
    return _run_django(argv)


def _run_django(argv: Sequence[str]) -> int:
    from django.conf import settings  # noqa: PLC0415 - `up` and `test` do without
    from django.core.exceptions import ImproperlyConfigured  # noqa: PLC0415 - likewise
    from django.core.management import execute_from_command_line  # noqa: PLC0415 - likewise
    from django.db import OperationalError, ProgrammingError  # noqa: PLC0415 - likewise
    from psycopg.errors import UndefinedTable  # noqa: PLC0415 - likewise

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
    except ProgrammingError as error:
        if not isinstance(error.__cause__, UndefinedTable):
            raise
        return _fail("The database lacks Daylight's tables: run `python3 manage.py migrate` first.")
    except BrokenPipeError:
        sys.stderr.close()  # who read our output went away
        return 1
    return 0


def _fail(line: str) -> int:
    sys.stderr.write(f"{line}\n")
    return 1


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
