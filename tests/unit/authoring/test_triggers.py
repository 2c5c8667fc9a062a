"""Triggers: what they take, how they are stored and made again, and what they look for."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from scheduler_app.authoring.triggers import (
    EventTrigger,
    FileTrigger,
    HttpTrigger,
    PollTrigger,
    RunTrigger,
    SqlTrigger,
    TimeTrigger,
    Trigger,
    classpath_of,
    from_environment,
    make_trigger,
)
from scheduler_app.rules import values
from scheduler_app.rules.errors import InvalidInput

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@dataclass(frozen=True)
class Own(Trigger):
    """A trigger as an author writes it."""

    name: str
    times: tuple[int, ...] = ()


class Plain(Trigger):
    """One without fields that are known."""


@dataclass(frozen=True)
class Third(PollTrigger):
    """True at the third look."""

    looks: list[int]

    def look(self) -> str | None:
        """The third look is the one."""
        self.looks.append(1)
        return "there" if len(self.looks) == 3 else None


@pytest.mark.parametrize(
    "trigger",
    [
        TimeTrigger(after=timedelta(minutes=5)),
        TimeTrigger(at=NOON),
        EventTrigger("approved"),
        RunTrigger("other", run_id="r1", task_id="load"),
        RunTrigger("other", logical_date=NOON),
        FileTrigger("/data/in.csv", poll_interval=timedelta(seconds=1)),
        HttpTrigger("https://example.org/ready", headers={"X-Key": "env:KEY"}, statuses=(200, 204)),
        SqlTrigger("select 1", "env:DSN", parameters=(NOON, 3), driver="sqlite3"),
        Own("a", times=(1, 2)),
    ],
    ids=repr,
)
def test_a_trigger_comes_back_from_what_is_stored_of_it(trigger: Trigger) -> None:
    stored = values.encode(trigger.kwargs())
    assert make_trigger(classpath_of(trigger), values.decode(stored)) == trigger


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (TimeTrigger, "either after"),
        (lambda: TimeTrigger(after=timedelta(1), at=NOON), "either after"),
        (lambda: TimeTrigger(at=datetime(2026, 1, 1)), "with a time zone"),  # noqa: DTZ001 - the fault
        (lambda: TimeTrigger(after=5), "timedelta"),  # type: ignore[arg-type] # the fault
        (lambda: EventTrigger(""), "1 to 250 characters"),
        (lambda: EventTrigger("a\nb"), "printable"),
        (lambda: RunTrigger("other"), "either run_id"),
        (lambda: RunTrigger("no such/id", run_id="r"), "no id of a flow"),
        (lambda: HttpTrigger("file:///etc/passwd"), "http or https"),
        (lambda: FileTrigger("/x", poll_interval=timedelta()), "0.1 s or more"),
        (lambda: Plain().kwargs(), "no dataclass"),
    ],
)
def test_what_a_trigger_cannot_be_is_refused_with_a_remedy(make: Any, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        make()


def test_a_class_that_its_name_does_not_lead_to_cannot_be_stored() -> None:
    class Hidden(Trigger):
        """Only this test knows it."""

    with pytest.raises(InvalidInput, match="cannot be found again"):
        classpath_of(Hidden())
    with pytest.raises(InvalidInput, match="no trigger class"):
        make_trigger("datetime:timedelta", {})
    with pytest.raises(InvalidInput, match="no trigger class"):
        make_trigger(f"{__name__}:Gone", {})


async def test_a_polling_trigger_looks_until_there_is_something() -> None:
    looks: list[int] = []
    assert await Third(looks, poll_interval=timedelta(seconds=0.1)).run() == "there"
    assert len(looks) == 3


def test_a_file_is_there_or_not(tmp_path: Path) -> None:
    trigger = FileTrigger(tmp_path / "in.csv")  # type: ignore[arg-type] # any path will do
    assert trigger.look() is None
    (tmp_path / "in.csv").touch()
    assert trigger.look() == str(tmp_path / "in.csv")
    assert values.encode(trigger.kwargs())


def test_a_statement_is_true_when_its_first_column_is(tmp_path: Path) -> None:
    path = str(tmp_path / "bank.db")
    with closing(sqlite3.connect(path)) as bank, bank:
        bank.execute("create table t (n integer, name text)")
    trigger = SqlTrigger("select count(*), max(name) from t where n > ?", path, (1,), "sqlite3")
    assert trigger.look() is None
    with closing(sqlite3.connect(path)) as bank, bank:
        bank.execute("insert into t values (2, 'two')")
    assert trigger.look() == [1, "two"]


def test_a_database_that_is_away_is_asked_again_and_a_wrong_statement_is_not(
    tmp_path: Path,
) -> None:
    away = SqlTrigger("select 1", str(tmp_path / "no" / "such.db"), driver="sqlite3")
    assert away.look() is None
    wrong = SqlTrigger("select 1", str(tmp_path / "x.db"), parameters=(1,), driver="sqlite3")
    with pytest.raises(sqlite3.ProgrammingError):
        wrong.look()


def test_secrets_are_named_and_not_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BANK_DSN", "secret")
    assert from_environment("env:BANK_DSN") == "secret"
    assert from_environment("plain") == "plain"
    monkeypatch.delenv("BANK_DSN")
    with pytest.raises(InvalidInput, match="'BANK_DSN' is not set"):
        from_environment("env:BANK_DSN")


def test_authoring_is_imported_without_a_framework() -> None:
    code = (
        "import sys, scheduler_app.authoring\n"
        "print(sorted({'django', 'psycopg', 'celery', 'redis'} & set(sys.modules)))"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"
