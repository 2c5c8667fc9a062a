"""Times that Django reads."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from django.db import DataError, connection
from psycopg.pq import Format

from scheduler_app.models import Run
from scheduler_app.processes.times import UtcLoader
from tests import factories

pytestmark = pytest.mark.django_db


def read(text: str) -> datetime:
    with connection.cursor() as cursor:
        cursor.execute("SELECT %s::timestamptz", [text])
        (found,) = cursor.fetchone()
    assert isinstance(found, datetime)
    return found


def test_connections_of_django_read_times_with_the_quick_loader() -> None:
    with connection.cursor() as cursor:
        oid = cursor.connection.adapters.types["timestamptz"].oid
        assert cursor.cursor.adapters.get_loader(oid, Format.TEXT) is UtcLoader
        assert cursor.connection.adapters.get_loader(oid, Format.TEXT) is UtcLoader


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("2026-11-30 06:12:23.123456+00", datetime(2026, 11, 30, 6, 12, 23, 123456, UTC)),
        ("2026-11-30 06:12:23.1+00", datetime(2026, 11, 30, 6, 12, 23, 100000, UTC)),
        ("2026-11-30 08:12:23+05:30", datetime(2026, 11, 30, 2, 42, 23, 0, UTC)),
        ("0001-01-01 00:00:00+00", datetime(1, 1, 1, tzinfo=UTC)),
    ],
)
def test_a_time_is_aware_in_utc_to_the_microsecond(text: str, at: datetime) -> None:
    found = read(text)
    assert found == at
    assert found.tzinfo is UTC


@pytest.mark.parametrize("text", ["infinity", "44-03-15 00:00:00+00 BC", "12026-01-01 00:00+00"])
def test_a_time_that_python_cannot_have_is_refused(text: str) -> None:
    with pytest.raises(DataError):
        read(text)


def test_what_is_saved_is_read_again() -> None:
    at = datetime(2026, 2, 3, 4, 5, 6, 7, UTC)
    run = factories.make_run(logical_date=at)
    assert Run.objects.get(id=run.id).logical_date == at
