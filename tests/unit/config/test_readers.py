from __future__ import annotations

from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured

from scheduler_app.config import readers


def test_an_absent_or_blank_variable_gives_the_default() -> None:
    for environ in ({}, {"X": ""}, {"X": "  "}):
        assert readers.text("X", "d", environ=environ) == "d"
        assert readers.number("X", 1.5, environ=environ) == 1.5
        assert readers.integer("X", 2, environ=environ) == 2
        assert readers.flag("X", True, environ=environ) is True
        assert readers.choice("X", "a", ("a", "b"), environ=environ) == "a"
        assert readers.words("X", ["w"], environ=environ) == ["w"]
        assert readers.folders("X", environ=environ) == []


def test_given_values_are_read() -> None:
    assert readers.number("X", 1, environ={"X": " 2.5 "}) == 2.5
    assert readers.integer("X", 1, environ={"X": "7"}) == 7
    assert readers.choice("X", "a", ("a", "b"), environ={"X": "b"}) == "b"
    assert readers.words("X", environ={"X": "a, b ,,c"}) == ["a", "b", "c"]
    assert [readers.flag("X", False, environ={"X": w}) for w in ("1", "yes", "True", "on")] == [
        True
    ] * 4
    assert [readers.flag("X", True, environ={"X": w}) for w in ("0", "no", "False", "off")] == [
        False
    ] * 4


def test_folders_are_absolute_and_must_exist(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").mkdir()
    monkeypatch.chdir(tmp_path)
    assert readers.folders("X", environ={"X": f"a:{tmp_path}"}) == [tmp_path / "a", tmp_path]
    with pytest.raises(ImproperlyConfigured, match=r"X: .*/b is not a folder"):
        readers.folders("X", environ={"X": "b"})


@pytest.mark.parametrize("raw", ["x", "nan", "inf", "-1", "11"])
def test_a_wrong_number_names_its_variable(raw: str) -> None:
    with pytest.raises(ImproperlyConfigured, match="DAYLIGHT_LEASE_TTL="):
        readers.number("DAYLIGHT_LEASE_TTL", 1, greatest=10, environ={"DAYLIGHT_LEASE_TTL": raw})


@pytest.mark.parametrize("raw", ["x", "1.5", "0", "11"])
def test_a_wrong_whole_number_names_its_variable(raw: str) -> None:
    with pytest.raises(ImproperlyConfigured, match="DAYLIGHT_N="):
        readers.integer("DAYLIGHT_N", 1, least=1, greatest=10, environ={"DAYLIGHT_N": raw})


def test_the_limits_are_told() -> None:
    with pytest.raises(ImproperlyConfigured, match="must be at least 3"):
        readers.integer("X", 5, least=3, environ={"X": "2"})
    with pytest.raises(ImproperlyConfigured, match="must be between 3 and 9"):
        readers.number("X", 5, least=3, greatest=9, environ={"X": "10"})


def test_a_wrong_flag_or_choice_names_its_variable() -> None:
    with pytest.raises(ImproperlyConfigured, match="X='perhaps' must be 1 or 0"):
        readers.flag("X", True, environ={"X": "perhaps"})
    with pytest.raises(ImproperlyConfigured, match="X='c' must be one of a, b"):
        readers.choice("X", "a", ("a", "b"), environ={"X": "c"})
