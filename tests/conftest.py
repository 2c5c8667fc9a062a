"""What every test gets: a mark by its folder, and the first rows in a database that it asks for.

``tests.servers`` has started the servers by then, under ``manage.py test`` and plain ``pytest``
alike.
"""

from __future__ import annotations

import os
import pkgutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from django.db import ProgrammingError, connection
from django.test import TransactionTestCase

from scheduler_app.launch import embedded

if TYPE_CHECKING:
    from collections.abc import Iterator


FOLDERS = {
    "unit": pytest.mark.unit,
    "simulation": pytest.mark.simulation,
    "integration": pytest.mark.integration,
    "replays": pytest.mark.integration,
    "acceptance": pytest.mark.acceptance,
    "benchmarks": pytest.mark.benchmark,
}
# Rows that Django keeps about the code; emptying them would only make it write them again.
KEPT_TABLES = frozenset({"django_migrations", "django_content_type", "auth_permission"})


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Each test has the mark of its folder."""
    tests = Path(__file__).parent
    for item in items:
        folder = item.path.relative_to(tests).parts[0]
        if folder in FOLDERS:
            item.add_marker(FOLDERS[folder])


@pytest.fixture(scope="session")
def database_url() -> str:
    """The address of a PostgreSQL whose databases tests may make and drop."""
    return os.environ["DATABASE_URL"]


@pytest.fixture(scope="session")
def broker_url() -> str:
    """The address of a Valkey that tests may empty."""
    return os.environ["BROKER_URL"]


@pytest.fixture(scope="session")
def django_db_modify_db_settings(
    django_db_modify_db_settings_parallel_suffix: None,
) -> None:
    """The database of the tests begins as a copy of one that has the schema."""
    del django_db_modify_db_settings_parallel_suffix
    connection.settings_dict["TEST"]["TEMPLATE"] = embedded.DATABASE


@pytest.fixture(autouse=True)
def _first_rows(request: pytest.FixtureRequest) -> None:
    """A test that uses the database finds the rows that the migrations made."""
    wants = {"db", "transactional_db", "django_db_setup"} & set(request.fixturenames)
    if not (wants or request.node.get_closest_marker("django_db")):
        return
    if request.node.get_closest_marker("unit"):
        pytest.fail("a unit test asks for the database: move it to tests/integration")
    request.getfixturevalue(
        "db" if "transactional_db" not in request.fixturenames else "transactional_db"
    )
    _restore_first_rows()


def _restore_first_rows() -> None:
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


def _empty_tables(case: Any) -> None:
    """Every table is empty, and its numbers begin at 1 again.

    By a function of the tests' own in the database: a tenth of the time of a TRUNCATE, which makes
    some 300 files anew, however few rows a test has written.
    """
    del case
    with connection.cursor() as cursor:
        try:
            cursor.execute("SELECT for_tests.start_over()")
        except ProgrammingError:
            cursor.execute(_start_over())
            cursor.execute("SELECT for_tests.start_over()")


def _start_over() -> str:
    """What makes the function that empties the tables, in whatever order they refer to each other."""
    tables = sorted(set(connection.introspection.table_names()) - KEPT_TABLES)
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_get_serial_sequence(quote_ident(table_name), column_name)"
            " FROM information_schema.columns WHERE table_name = ANY (%s)",
            [tables],
        )
        numbers = [name for (name,) in cursor.fetchall() if name]
    deletes = "".join(f"DELETE FROM {connection.ops.quote_name(table)};\n" for table in tables)
    return f"""
        CREATE SCHEMA IF NOT EXISTS for_tests;
        CREATE OR REPLACE FUNCTION for_tests.start_over() RETURNS void
        LANGUAGE plpgsql SET session_replication_role = replica AS $$
        BEGIN
            {deletes}
            PERFORM setval(numbers, 1, false) FROM unnest('{{{",".join(numbers)}}}'::regclass[])
                AS numbers WHERE pg_sequence_last_value(numbers) IS NOT NULL;
        END $$"""


@pytest.fixture(scope="session", autouse=True)
def _quick_emptying() -> Iterator[None]:
    """Tests that commit leave no rows behind."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TransactionTestCase, "_fixture_teardown", _empty_tables)
        yield
