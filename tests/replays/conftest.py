"""Replays move a scheduler by hand over real rows, as the integration tests do."""

from __future__ import annotations

from tests.integration.api.conftest import ana, api, bearer
from tests.integration.conftest import leases, raw, recording, world

__all__ = ["ana", "api", "bearer", "leases", "raw", "recording", "world"]
