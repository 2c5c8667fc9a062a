"""Since when a scheduler has heard from the database, as its session tells the statements of sweeps."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import pytest

from scheduler_app.processes import database
from scheduler_app.scheduler.contact import Contact
from tests.stack import wait_for

if TYPE_CHECKING:
    import psycopg

pytestmark = pytest.mark.django_db(transaction=True)


def since(connection: psycopg.Connection[Any]) -> datetime:
    row = connection.execute("SELECT in_touch_since()").fetchone()
    assert row is not None
    assert isinstance(row[0], datetime)
    return row[0]


def now(connection: psycopg.Connection[Any]) -> datetime:
    row = connection.execute("SELECT clock_timestamp()").fetchone()
    assert row is not None
    assert isinstance(row[0], datetime)
    return row[0]


def test_who_tells_nothing_is_in_touch_since_the_server_started(
    raw: psycopg.Connection[Any],
) -> None:
    row = raw.execute("SELECT in_touch_since() = pg_postmaster_start_time()").fetchone()
    assert row == (True,)


def test_it_lasts_from_the_first_connection_on(raw: psycopg.Connection[Any]) -> None:
    contact, before = Contact(silence_max_s=60), now(raw)
    contact.tell(raw)
    first = since(raw)
    assert before <= first <= now(raw)
    contact.tell(raw)
    assert since(raw) == first


def test_a_new_connection_of_one_who_was_not_away_knows_the_same(
    raw: psycopg.Connection[Any],
) -> None:
    """As after a refused turn: a lock that was waited for too long is no outage."""
    contact = Contact(silence_max_s=60)
    contact.tell(raw)
    with database.connect("scheduler") as another:
        contact.tell(another)
        assert since(another) == since(raw)


def test_a_lost_connection_begins_it_anew(raw: psycopg.Connection[Any]) -> None:
    contact = Contact(silence_max_s=60)
    contact.tell(raw)
    first = since(raw)
    contact.broke()
    with database.connect("scheduler") as another:
        contact.tell(another)
        assert since(another) > first


def test_a_long_silence_begins_it_anew_though_the_connection_outlived_it(
    raw: psycopg.Connection[Any],
) -> None:
    contact = Contact(silence_max_s=0.05)
    contact.tell(raw)
    first = since(raw)

    def is_new() -> bool:
        contact.tell(raw)
        return since(raw) > first

    wait_for("a silence that is too long", is_new, within_s=10, every_s=0.1)
