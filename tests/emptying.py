"""Empty tables for the next test, by a function of the tests' own in the database.

A tenth of the time of a TRUNCATE, which makes some 300 files anew however few rows there were.
"""

from __future__ import annotations

import hashlib
import pkgutil
from typing import Final

from django.db import ProgrammingError, connection

# Rows that Django keeps about the code; emptying them would only make it write them again.
KEPT_TABLES: Final = frozenset({"django_migrations", "django_content_type", "auth_permission"})


def empty_tables(*, kept: frozenset[str] = KEPT_TABLES) -> None:
    """Every table but the kept ones is empty, and its numbers begin at 1 again."""
    name = "for_tests.empty_" + hashlib.sha256(repr(sorted(kept)).encode()).hexdigest()[:8]
    with connection.cursor() as cursor:
        try:
            cursor.execute(f"SELECT {name}()")
        except ProgrammingError:  # the first time in this database
            cursor.execute(_function(name, kept))
            cursor.execute(f"SELECT {name}()")


def restore_first_rows() -> None:
    """The rows that the migrations made are there."""
    from importlib import import_module  # noqa: PLC0415 - the names start with a digit

    from scheduler_app import migrations  # noqa: PLC0415 - Django's set-up comes first

    with connection.cursor() as cursor:
        cursor.execute("SELECT NOT EXISTS (SELECT 1 FROM lease)")
        row = cursor.fetchone()
        if row is not None and row[0]:
            with connection.schema_editor() as editor:
                for module in pkgutil.iter_modules(migrations.__path__, f"{migrations.__name__}."):
                    made = import_module(module.name)
                    if hasattr(made, "first_rows"):
                        made.first_rows(None, editor)


def _function(name: str, kept: frozenset[str]) -> str:
    """What makes the function; the tables may refer to each other in whatever order."""
    tables = sorted(set(connection.introspection.table_names()) - kept)
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_get_serial_sequence(quote_ident(table_name), column_name)"
            " FROM information_schema.columns"
            " WHERE table_schema = 'public' AND table_name = ANY (%s)",
            [tables],
        )
        numbers = [number for (number,) in cursor.fetchall() if number]
    deletes = "".join(f"DELETE FROM {connection.ops.quote_name(table)};\n" for table in tables)
    return f"""
        CREATE SCHEMA IF NOT EXISTS for_tests;
        CREATE OR REPLACE FUNCTION {name}() RETURNS void
        LANGUAGE plpgsql SET session_replication_role = replica AS $$
        BEGIN
            {deletes}
            PERFORM setval(numbers, 1, false) FROM unnest('{{{",".join(numbers)}}}'::regclass[])
                AS numbers WHERE pg_sequence_last_value(numbers) IS NOT NULL;
        END $$"""
