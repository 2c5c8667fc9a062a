"""Runs one ``manage.py`` command; failures that a person can mend become one line."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from scheduler_app.launch import run_tests
from scheduler_app.launch.addresses import saved

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
    import psycopg  # noqa: PLC0415 - `up` and `test` do without
    from django import db  # noqa: PLC0415 - likewise
    from django.core.exceptions import ImproperlyConfigured  # noqa: PLC0415 - likewise
    from django.core.management import execute_from_command_line  # noqa: PLC0415 - likewise

    try:
        execute_from_command_line(list(argv))
    except ImproperlyConfigured as error:
        return _fail(f"Wrong settings: {error}")
    # Long-lived processes have connections of their own beside Django's.
    except (db.OperationalError, psycopg.OperationalError) as error:
        return _fail(_unanswered(error))
    except (db.ProgrammingError, psycopg.ProgrammingError) as error:
        if not _is_unmigrated(error):
            raise
        return _fail(
            "The database lacks Daylight's tables, or has those of an older version:"
            " run `python3 manage.py migrate` first."
        )
    except BrokenPipeError:
        sys.stderr.close()  # who read our output went away
        return 1
    return 0


def _unanswered(error: Exception) -> str:
    """What the database did instead of answering, and what to do."""
    from django.conf import settings  # noqa: PLC0415 - as above

    if not settings.DATABASE_URL:
        return (
            f"No stack runs in {settings.DATA_DIR}: start one with `python3 manage.py up`,"
            " name its folder in DAYLIGHT_DATA_DIR, or set DATABASE_URL."
        )
    line = _first_line(error)
    state = getattr(error.__cause__ or error, "sqlstate", None)
    if state and not state.startswith(_GONE):
        return f"The database broke off a statement: {line}."
    stack = saved(settings.DATA_DIR)
    if stack is not None and stack.database_url == settings.DATABASE_URL:
        remedy = f"Start the stack of {settings.DATA_DIR} again with `python3 manage.py up`."
    elif _REFUSED in line:
        remedy = "Correct DATABASE_URL; if it is starting or has no room, try again."
    else:
        remedy = "Start it, or correct DATABASE_URL."
    return f"The database does not answer: {line}. {remedy}"


# Beginnings of codes: connections broken, and servers that stop or are not there yet.
_GONE: Final = ("08", "57P")
_REFUSED: Final = "FATAL:"


def _is_unmigrated(error: Exception) -> bool:
    """Whether the database lacks what the statement named since migrations were not run."""
    from django.db import DEFAULT_DB_ALIAS, connections  # noqa: PLC0415 - as above
    from django.db.migrations.executor import MigrationExecutor  # noqa: PLC0415 - likewise
    from psycopg import errors  # noqa: PLC0415 - likewise

    cause = error.__cause__ or error
    if not isinstance(
        cause, (errors.UndefinedTable, errors.UndefinedColumn, errors.UndefinedFunction)
    ):
        return False
    connection = connections[DEFAULT_DB_ALIAS]
    connection.close()  # what failed may have been in a transaction
    executor = MigrationExecutor(connection)
    return bool(executor.migration_plan(executor.loader.graph.leaf_nodes()))


def _fail(line: str) -> int:
    sys.stderr.write(f"{line}\n")
    return 1


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(" .:")
