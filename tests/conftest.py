"""What every test gets: a mark by its folder, and a real PostgreSQL for those that ask for one.

``manage.py test`` starts the servers and names them in the environment; plain ``pytest`` starts
throw-away ones itself, the first time that a test needs them.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from django.conf import settings
from django.db import connection
from django.test import TransactionTestCase

from scheduler_app.launch import embedded
from scheduler_app.launch.addresses import database_settings

if TYPE_CHECKING:
    from collections.abc import Iterator


FOLDERS = {
    "unit": pytest.mark.unit,
    "integration": pytest.mark.integration,
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
def server_folder() -> Iterator[Path]:
    """A short folder for throw-away servers, which their unprivileged account can reach."""
    folder = Path(tempfile.mkdtemp(prefix="daylight-test-", dir="/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def database_url(server_folder: Path) -> Iterator[str]:
    """The address of a PostgreSQL whose databases tests may make and drop."""
    given = os.environ.get("DATABASE_URL")
    if given:
        yield given
        return
    server = embedded.start_postgres(server_folder, throw_away=True)
    yield server.url
    server.stop()


@pytest.fixture(scope="session")
def broker_url(server_folder: Path) -> Iterator[str]:
    """The address of a Valkey that tests may empty."""
    given = os.environ.get("CACHE_URL")
    if given:
        yield given
        return
    server = embedded.start_valkey(server_folder)
    yield server.url
    server.stop()


@pytest.fixture(scope="session")
def django_db_modify_db_settings(database_url: str) -> None:
    """Django's test database is made on that PostgreSQL."""
    # In place: Django's connection and `processes.database` share these settings.
    settings.DATABASES["default"].update(database_settings(database_url))


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
    from importlib import import_module  # noqa: PLC0415 - the name starts with a digit

    with connection.cursor() as cursor:
        cursor.execute("SELECT NOT EXISTS (SELECT 1 FROM lease)")
        row = cursor.fetchone()
        if row is not None and row[0]:
            laws = import_module("scheduler_app.migrations.0002_laws")
            with connection.schema_editor() as editor:
                laws.first_rows(None, editor)


def _empty_tables(case: Any) -> None:
    """Every table is empty; quicker than Django's flush, which writes permissions again."""
    del case
    tables = [
        connection.ops.quote_name(table)
        for table in connection.introspection.table_names()
        if table not in KEPT_TABLES
    ]
    with connection.cursor() as cursor:
        cursor.execute(f"TRUNCATE {', '.join(tables)} RESTART IDENTITY CASCADE")


@pytest.fixture(scope="session", autouse=True)
def _quick_emptying() -> Iterator[None]:
    """Tests that commit leave no rows behind."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TransactionTestCase, "_fixture_teardown", _empty_tables)
        yield
