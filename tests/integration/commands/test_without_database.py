"""Every command says in one line that the database is away, or was never prepared, and ends with 1."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import psycopg
import pytest
from django.core.management import get_commands

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.nurseries import Nurseries

WITHIN_S: Final = 60.0
# A call of each that asks the database. Long-lived processes have connections of their own.
CALLS: Final[dict[str, tuple[str, ...]]] = {
    "scheduler": (),
    "triggerer": (),
    "worker": (),
    "web": ("--port", "0"),
    "audit": ("visibility",),
    "backfills": ("list",),
    "connections": ("list",),
    "evidence": ("run", "1"),
    "export": ("runs",),
    "flows": ("list",),
    "ghosts": (),
    "guards": ("list",),
    "incidents": ("list",),
    "jobs": ("list",),
    "leases": (),
    "limits": ("list",),
    "pools": ("list",),
    "retention": ("--days", "1", "--dry-run"),
    "reviews": ("list",),
    "tasks": ("state", "f", "r"),
    "tokens": ("list",),
    "variables": ("list",),
}
OF_THEIR_OWN: Final = {
    "drill",  # has a stack of its own
    "notifiers",  # tells what the settings say
}
SERVICES: Final = ("scheduler", "triggerer", "worker", "web")


@pytest.fixture
def bare_database() -> Iterator[str]:
    """The address of a database without tables."""
    url = os.environ["DATABASE_URL"]
    name = f"bare_{os.getpid()}"
    bare = urlsplit(url)._replace(path=f"/{name}").geturl()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE template0")
        yield bare
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


def said(
    nurseries: Nurseries, place: Path, database_url: str, *words: str, log: Path
) -> tuple[int, list[str]]:
    """The exit code, and the lines that the command printed."""
    environ: dict[str, Any] = {
        **os.environ,
        "DAYLIGHT_DATA_DIR": str(place),
        "DAYLIGHT_SECRET_KEY": "of the tests, long enough that nobody has to warn of it",
        "DATABASE_URL": database_url,
    }
    environ.pop("DAYLIGHT_PROCESS", None)  # of a test that loaded what web serves
    log.unlink(missing_ok=True)
    code = nurseries.start(*words, environ=environ, log=log).wait(WITHIN_S)
    return code, log.read_text().splitlines()


def test_each_command_is_called_here() -> None:
    ours = {name for name, app in get_commands().items() if app == "scheduler_app"}
    assert {*CALLS, *OF_THEIR_OWN} == ours


def test_a_database_that_is_away_is_one_line(
    nurseries: Nurseries, place: Path, tmp_path: Path
) -> None:
    for name, words in CALLS.items():
        url = "postgresql://daylight:hidden@127.0.0.1:1/daylight"
        code, lines = said(nurseries, place, url, name, *words, log=tmp_path / "log")
        assert code == 1, (name, lines)
        assert len(lines) == 1, (name, lines)
        line = lines[0]
        assert line.startswith("The database does not answer: "), (name, line)
        assert '"127.0.0.1", port 1' in line, (name, line)
        assert line.endswith("Start it, or correct DATABASE_URL."), (name, line)
        assert "hidden" not in line


def test_a_database_without_tables_says_what_makes_them(
    nurseries: Nurseries, place: Path, tmp_path: Path, bare_database: str
) -> None:
    for name in (*SERVICES, "flows"):
        code, lines = said(
            nurseries, place, bare_database, name, *CALLS[name], log=tmp_path / "log"
        )
        assert code == 1, (name, lines)
        assert len(lines) == 1, (name, lines)
        line = lines[0]
        assert "run `python3 manage.py migrate` first" in line, (name, line)
