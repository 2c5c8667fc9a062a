"""Connections: what the server plans once, and what Django's own cursors do besides."""

from __future__ import annotations

import os
import tempfile
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from django.db import OperationalError, connection
from django.db.backends.postgresql.base import DatabaseWrapper

from scheduler_app.launch import web
from scheduler_app.processes import database

if TYPE_CHECKING:
    from collections.abc import Iterator

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


def test_errors_of_the_driver_are_those_of_django_outside() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL statement_timeout = 10")
    with pytest.raises(OperationalError), database.prepared(connection) as raw:
        raw.execute("SELECT pg_sleep(5)")


@pytest.fixture
def pooled() -> Iterator[DatabaseWrapper]:
    """The database as a web process has it."""
    ours = connection.settings_dict
    options = {**ours["OPTIONS"], "pool": {"min_size": 1, "max_size": 1}}
    changed = {"OPTIONS": options, "CONN_HEALTH_CHECKS": True}
    made = DatabaseWrapper({**ours, **changed}, alias="pooled")
    web.look_before_use(made)
    yield made
    made.close()
    made.close_pool()


def said(raw: Any, ask: Any) -> bytes:
    """What goes over the connection while ``ask`` is called, as the driver notes it."""
    with tempfile.TemporaryFile() as notes:
        raw.pgconn.trace(notes.fileno())
        ask()
        raw.pgconn.untrace()
        os.lseek(notes.fileno(), 0, os.SEEK_SET)
        return notes.read()


def test_a_connection_that_is_quiet_is_used_without_a_question(pooled: DatabaseWrapper) -> None:
    pooled.ensure_connection()
    raw = pooled.connection
    assert b"SELECT 1" in said(raw, lambda: raw.execute("SELECT 1")), "questions are noted"
    pooled.close()
    assert said(raw, pooled.ensure_connection) == b""
    assert pooled.connection is raw


def test_a_connection_that_the_server_ended_is_replaced(pooled: DatabaseWrapper) -> None:
    pooled.ensure_connection()
    raw = pooled.connection
    (pid,) = raw.execute("SELECT pg_backend_pid()").fetchone()
    pooled.close()
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])
    pooled.ensure_connection()
    assert pooled.connection is not raw
    assert pooled.connection.execute("SELECT 2").fetchone() == (2,)


def test_a_connection_on_which_the_server_said_something_is_asked(pooled: DatabaseWrapper) -> None:
    pooled.ensure_connection()
    raw = pooled.connection
    raw.execute("LISTEN something")
    pooled.close()
    with psycopg.connect(raw.info.dsn, password=raw.info.password, autocommit=True) as other:
        other.execute("NOTIFY something")
        other.execute("NOTIFY something")
    assert b"Query" in said(raw, pooled.ensure_connection)
    assert pooled.connection is raw, "it is good, for all that it said"
