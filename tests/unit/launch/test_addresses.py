from __future__ import annotations

import stat
from pathlib import Path

import pytest

from scheduler_app.launch import addresses


def test_a_database_address_is_taken_apart() -> None:
    assert addresses.database_settings("postgresql://me:p%40ss@db.example:5433/day%20light") == {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": "day light",
        "USER": "me",
        "PASSWORD": "p@ss",
        "HOST": "db.example",
        "PORT": "5433",
        "OPTIONS": {},
    }


def test_a_socket_folder_and_options_come_from_the_query() -> None:
    found = addresses.database_settings("postgres://me@/d?host=/run/pg&port=7&sslmode=require")
    assert (found["HOST"], found["PORT"]) == ("/run/pg", "7")
    assert found["OPTIONS"] == {"sslmode": "require"}


@pytest.mark.parametrize(
    ("url", "part"),
    [
        ("mysql://u:secret@h/d", "must start with postgresql://"),
        ("postgresql://u:secret@h", "names no database"),
        ("postgresql://u:secret@h:port/d", "cannot be read"),
        ("nonsense", "must start with postgresql://"),
    ],
)
def test_a_wrong_address_says_what_and_not_the_password(url: str, part: str) -> None:
    with pytest.raises(addresses.BadAddress, match=part) as caught:
        addresses.database_settings(url)
    assert "secret" not in str(caught.value)


def test_a_running_stack_is_found_by_its_data_folder_and_forgotten(tmp_path: Path) -> None:
    assert addresses.saved(tmp_path) is None
    given = addresses.Addresses(database_url="a", broker_url="b", cache_url="c")
    addresses.save(tmp_path, given)
    assert addresses.saved(tmp_path) == given
    assert stat.S_IMODE((tmp_path / addresses.SERVERS_FILE).stat().st_mode) == 0o600
    addresses.forget(tmp_path)
    addresses.forget(tmp_path)
    assert addresses.saved(tmp_path) is None


@pytest.mark.parametrize("content", ["", "{", "[]", '{"database_url": "x"}'])
def test_a_damaged_file_counts_as_no_stack(tmp_path: Path, content: str) -> None:
    (tmp_path / addresses.SERVERS_FILE).write_text(content)
    assert addresses.saved(tmp_path) is None
