"""What every test gets: a mark by its folder, and the first rows in a database that it asks for.

``tests.servers`` has started the servers by then, under ``manage.py test`` and plain ``pytest``
alike.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from django.db import connection
from django.test import TransactionTestCase
from hypothesis import HealthCheck, settings

from scheduler_app.launch import embedded
from tests import auditing
from tests.emptying import empty_tables, restore_first_rows

if TYPE_CHECKING:
    from collections.abc import Iterator


# How long an example takes says how busy the machine is, and nothing of what is tested.
settings.register_profile("tests", deadline=None, suppress_health_check=[HealthCheck.too_slow])
# More examples: --hypothesis-profile=thorough.
settings.register_profile("thorough", parent=settings.get_profile("tests"), max_examples=1500)
settings.load_profile("tests")

FOLDERS = {
    "unit": pytest.mark.unit,
    "simulation": pytest.mark.simulation,
    "integration": pytest.mark.integration,
    "replays": pytest.mark.integration,
    "acceptance": pytest.mark.acceptance,
    "benchmarks": pytest.mark.benchmark,
}


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
    restore_first_rows()


@pytest.fixture(scope="session", autouse=True)
def _audits_of_stacks(django_db_blocker: Any) -> None:
    """A stack's database may be audited by tests that use none of their own."""
    auditing.unblock = django_db_blocker.unblock


@pytest.fixture(scope="session", autouse=True)
def _quick_emptying() -> Iterator[None]:
    """Tests that commit leave no rows behind."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TransactionTestCase, "_fixture_teardown", lambda case: empty_tables())
        yield
