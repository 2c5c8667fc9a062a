"""Replays move a scheduler by hand over real rows, as the integration tests do."""

from __future__ import annotations

from tests.integration.conftest import leases, raw, recording, world

__all__ = ["leases", "raw", "recording", "world"]
