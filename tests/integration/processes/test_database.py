"""Connections: what the server plans once, and what Django's own cursors do besides."""

from __future__ import annotations

import psycopg
import pytest
from django.db import connection

from scheduler_app.processes import database

pytestmark = pytest.mark.django_db


def prepared() -> list[str]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT statement FROM pg_prepared_statements")
        return [row[0] for row in cursor.fetchall()]


def ask(value: str) -> str:
    with connection.cursor() as cursor:
        cursor.execute("SELECT %s::text AS asked", [value])
        (found,) = cursor.fetchone()
    return str(found)


def test_statements_are_planned_once_within_and_only_there() -> None:
    with database.prepared(connection):
        assert [ask("100%"), ask("'"), ask("")] == ["100%", "'", ""]
    assert prepared() == ["SELECT $1::text AS asked"]
    with connection.cursor() as cursor:
        assert isinstance(cursor.cursor, psycopg.ClientCursor), "Django's own write values"
    assert [ask("a"), ask("b"), len(prepared())] == ["a", "b", 1]


def test_a_fault_within_leaves_the_connection_as_it_was() -> None:
    with pytest.raises(ZeroDivisionError), database.prepared(connection):
        _ = 1 / 0
    assert (connection.connection.prepare_threshold, ask("a"), ask("b")) == (None, "a", "b")
    assert prepared() == []
