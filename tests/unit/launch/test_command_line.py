from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import django.core.management
import psycopg
import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import OperationalError, ProgrammingError
from psycopg.errors import AdminShutdown, QueryCanceled

from scheduler_app.launch import command_line, run_tests, supervisor
from scheduler_app.launch.addresses import Addresses, save


def failing(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def execute(argv: list[str]) -> None:
        raise error

    monkeypatch.setattr(django.core.management, "execute_from_command_line", execute)


def test_up_and_test_come_before_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, list[str]]] = []

    def taking(name: str, code: int) -> Callable[[list[str]], int]:
        def main(argv: list[str]) -> int:
            seen.append((name, argv))
            return code

        return main

    monkeypatch.setattr(supervisor, "main", taking("up", 1))
    monkeypatch.setattr(run_tests, "main", taking("test", 2))
    assert command_line.run(["manage.py", "up", "--port", "1"]) == 1
    assert command_line.run(["manage.py", "test", "-k", "x"]) == 2
    assert seen == [("up", ["--port", "1"]), ("test", ["-k", "x"])]


def test_only_the_whole_suite_runs_in_five_processes() -> None:
    assert run_tests.how_many([])[:4] == ("-n", "5", "--dist", "loadfile")
    assert run_tests.how_many(["tests/unit"]) == ()
    assert run_tests.how_many(["-x"]) == ()


def test_what_the_tests_load_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks Python to keep no bytecode means a tool's visit, not hundreds of processes."""
    seen: list[dict[str, str]] = []
    monkeypatch.setattr(os, "execv", lambda *_: seen.append({**os.environ}))
    monkeypatch.chdir(".")
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    run_tests.main(["tests/unit"])
    assert "PYTHONDONTWRITEBYTECODE" not in seen[0]


def test_wrong_settings_are_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failing(monkeypatch, ImproperlyConfigured("X='y' is not a number"))
    assert command_line.run(["manage.py", "flows"]) == 1
    assert capsys.readouterr().err == "Wrong settings: X='y' is not a number\n"


def test_without_a_stack_a_command_says_how_to_get_one(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    settings: Any,
) -> None:
    settings.DATABASE_URL = ""
    settings.DATA_DIR = "/data"
    failing(monkeypatch, OperationalError("no such file"))
    assert command_line.run(["manage.py", "flows"]) == 1
    line = capsys.readouterr().err
    assert line.startswith("No stack runs in /data: start one with `python3 manage.py up`")
    assert line.count("\n") == 1


REFUSED = "connection failed: connection refused\nIs the server running?"
BEGINNING = 'connection failed: FATAL:  password authentication failed for user "u"'


@pytest.mark.parametrize("kind", [OperationalError, psycopg.OperationalError])
@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            REFUSED,
            "The database does not answer: connection failed: connection refused."
            " Start it, or correct DATABASE_URL.\n",
        ),
        (
            BEGINNING,
            f"The database does not answer: {BEGINNING}. Correct DATABASE_URL; if it is starting"
            " or has no room, try again.\n",
        ),
    ],
)
def test_a_database_that_does_not_answer_is_one_line(
    kind: type[Exception],
    text: str,
    line: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    settings: Any,
    tmp_path: Path,
) -> None:
    """Whoever's connection it was: Django's, or one of a long-lived process's own."""
    settings.DATABASE_URL, settings.DATA_DIR = "postgresql://u@h/d", tmp_path
    failing(monkeypatch, kind(text))
    assert command_line.run(["manage.py", "flows"]) == 1
    assert capsys.readouterr().err == line


def test_a_stack_that_was_killed_is_to_be_started_again(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    settings: Any,
    tmp_path: Path,
) -> None:
    """Its addresses are still in its folder."""
    settings.DATABASE_URL, settings.DATA_DIR = "postgresql://u@h/d", tmp_path
    save(tmp_path, Addresses(database_url="postgresql://u@h/d", broker_url="", cache_url=""))
    failing(monkeypatch, psycopg.OperationalError(REFUSED))
    assert command_line.run(["manage.py", "scheduler"]) == 1
    line = capsys.readouterr().err
    assert line.endswith(f"Start the stack of {tmp_path} again with `python3 manage.py up`.\n")


def test_a_statement_that_was_broken_off_is_not_a_database_that_is_away(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    settings: Any,
    tmp_path: Path,
) -> None:
    settings.DATABASE_URL, settings.DATA_DIR = "postgresql://u@h/d", tmp_path
    for cause, beginning in (
        (QueryCanceled("canceling statement due to statement timeout"), "The database broke off a"),
        (AdminShutdown("terminating connection"), "The database does not answer: terminating"),
    ):
        error = OperationalError(str(cause))
        error.__cause__ = cause
        failing(monkeypatch, error)
        assert command_line.run(["manage.py", "flows"]) == 1
        line = capsys.readouterr().err
        assert line.startswith(beginning)
        assert line.count("\n") == 1


def test_a_fault_of_ours_is_not_made_into_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, ProgrammingError("syntax error"))
    with pytest.raises(ProgrammingError):
        command_line.run(["manage.py", "flows"])


@pytest.mark.parametrize("argv", [["manage.py"], ["manage.py", "help"], ["manage.py", "--help"]])
def test_help_begins_with_the_two_commands(
    argv: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(django.core.management, "execute_from_command_line", lambda argv: None)
    assert command_line.run(argv) == 0
    assert capsys.readouterr().out.startswith("Start here:\n  up ")
