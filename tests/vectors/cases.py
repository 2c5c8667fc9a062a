"""Reads the vectors, and says what the product is held to in each."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One vector."""

    id: str
    given: dict[str, Any]
    when: Any
    wanted: dict[str, Any]  # recommended where there is such, else expect
    expect: dict[str, Any]


def cases(name: str) -> tuple[Case, ...]:
    """Every vector of a file."""
    raw = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))["cases"]
    return tuple(
        Case(
            id=one["id"],
            given=one["given"],
            when=one["when"],
            wanted=one.get("recommended", one["expect"]),
            expect=one["expect"],
        )
        for one in raw
    )


def case(name: str, case_id: str) -> Case:
    """The vector with this id."""
    return next(one for one in cases(name) if one.id == case_id)


def parameters(found: list[Case]) -> pytest.MarkDecorator:
    """One test per vector, named after it."""
    return pytest.mark.parametrize("case", found, ids=[one.id for one in found])
