"""Connections in tests and in one line."""

from __future__ import annotations

import pytest

from scheduler_app.authoring import Connection, ConnectionsOutOfReach, NoSuchConnection


def test_a_test_brings_its_own() -> None:
    kept = Connection(conn_type="postgres", host="db", login="a@b", password="p:/?#")
    with Connection.given({"warehouse": kept}):
        assert Connection.get("warehouse") == kept
        with pytest.raises(NoSuchConnection):
            Connection.get("other")
    with pytest.raises(ConnectionsOutOfReach, match=r"Connection\.given"):
        Connection.get("warehouse")
    assert "p:/?#" not in repr(kept)


def test_one_line_quotes_everything() -> None:
    made = Connection(
        conn_type="postgres",
        host="db",
        port=5432,
        login="a@b",
        password="p:/?#",
        schema="s/x",
        extra={"sslmode": "require", "n": 1},
    )
    assert made.uri() == "postgres://a%40b:p%3A%2F%3F%23@db:5432/s%2Fx?sslmode=require&n=1"
    assert Connection(conn_type="http", host="x").uri() == "http://x"
