"""Races: several connections at the same rows, started together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.workshop import Workshop

if TYPE_CHECKING:
    from pathlib import Path

    import psycopg


@pytest.fixture
def workshop(raw: psycopg.Connection[Any], tmp_path: Path) -> Workshop:
    """A worker by hand."""
    return Workshop(raw, tmp_path)
