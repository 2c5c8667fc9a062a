"""``manage.py connections``, verb by verb."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from django.core.management import call_command

from scheduler_app.models import Audit

pytestmark = pytest.mark.django_db
WHY = ("--reason", "test")


def run(*arguments: str) -> str:
    out = io.StringIO()
    call_command("connections", *arguments, stdout=out)
    return out.getvalue()


def test_a_connection_is_made_shown_changed_and_deleted(monkeypatch: Any) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("hunter2-hunter2\n"))
    given = ("--type", "postgres", "--host", "db", "--port", "5432", "--extra", '{"sslmode": "x"}')
    assert (
        run("set", "warehouse", *given, "--password-stdin", *WHY) == "Connection warehouse made.\n"
    )
    shown = json.loads(run("get", "warehouse", "--json"))
    assert (shown["host"], shown["password"], shown["extra"]) == ("db", "***", {"sslmode": "***"})
    assert "hunter2" not in run("get", "warehouse")
    assert "hunter2" not in run("list")
    assert "1 connections" in run("list", "--type", "postgres")
    assert "0 connections" in run("list", "--type", "http")
    run("set", "warehouse", "--host", "", *WHY)
    revealed = json.loads(run("get", "warehouse", "--reveal", "--json", *WHY))
    assert (revealed["host"], revealed["password"]) == ("", "hunter2-hunter2")
    assert Audit.objects.filter(action="connection.reveal").count() == 1
    run("delete", "warehouse", *WHY)
    assert json.loads(run("list", "--json"))["results"] == []


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("get", "nowhere"), 1),
        (("delete", "nowhere", *WHY), 1),
        (("set", "a b", "--type", "http", *WHY), 1),
        (("set", "x", *WHY), 1),
        (("set", "x", "--type", "http"), 1),
        (("get", "nowhere", "--reveal"), 1),
    ],
)
def test_what_cannot_be_done_is_refused(arguments: tuple[str, ...], code: int, capsys: Any) -> None:
    with pytest.raises(SystemExit) as ended:
        run(*arguments)
    assert ended.value.code == code
    assert capsys.readouterr().err.strip()


def test_lists_are_ordered_as_they_are_asked_for(capsys: Any) -> None:
    for name, host in (("a", "y"), ("b", "x")):
        run("set", name, "--type", "http", "--host", host, *WHY)

    def ids(*arguments: str) -> list[str]:
        return [
            one["connection_id"] for one in json.loads(run("list", "--json", *arguments))["results"]
        ]

    assert ids() == ids("--order", "connection_id") == ["a", "b"]
    assert ids("--order", "host") == ids("--order=-connection_id") == ["b", "a"]
    with pytest.raises(SystemExit):
        run("list", "--order", "password")
    assert "connection_id, conn_type, host, updated_at" in capsys.readouterr().err
