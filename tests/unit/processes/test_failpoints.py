"""Failpoints act at their turn, once where that is asked for, and only while they are armed."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from scheduler_app.processes import failpoints

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failpoints, "_reached", Counter())
    monkeypatch.delenv("DAYLIGHT_FAILPOINTS_ONCE", raising=False)


def _name(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(failpoints, "_POINTS", failpoints._parse(text))


def _acts(name: str) -> bool:
    try:
        failpoints.reach(name)
    except failpoints.FailpointReached:
        return True
    return False


def test_a_point_acts_at_the_time_that_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    _name(monkeypatch, "here=raise@2; there=raise")
    assert [_acts("here") for _ in range(4)] == [False, True, False, False]
    assert [_acts("there") for _ in range(2)] == [True, False]
    assert not _acts("elsewhere")


def test_a_star_acts_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    _name(monkeypatch, "here=raise@*")
    assert [_acts("here") for _ in range(3)] == [True, True, True]


def test_a_point_is_quiet_until_its_file_is_taken_away_and_then_acts_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _name(monkeypatch, "here=raise@*")
    monkeypatch.setenv("DAYLIGHT_FAILPOINTS_ONCE", str(tmp_path))
    (tmp_path / "here").touch()
    assert not _acts("here")
    (tmp_path / "here").unlink()
    assert [_acts("here") for _ in range(3)] == [True, False, False]
    assert (tmp_path / "here").exists()
