"""What of the worker's environment reaches user code."""

from __future__ import annotations

import pytest

from scheduler_app.worker.child import is_kept_back


@pytest.mark.parametrize(
    "name",
    [
        "DATABASE_URL",
        "BROKER_URL",
        "CACHE_URL",
        "MY_SERVICE_URL",
        "PGPASSWORD",
        "PGHOST",
        "DAYLIGHT_SECRET_KEY",
        "DAYLIGHT_ADMIN_PASSWORD",
    ],
)
def test_addresses_and_secrets_are_kept_back(name: str) -> None:
    assert is_kept_back(name)


@pytest.mark.parametrize(
    "name", ["PATH", "HOME", "LANG", "DAYLIGHT_DATA_DIR", "DAYLIGHT_FLOWS", "MY_SETTING", "PAGER"]
)
def test_everything_else_reaches_user_code(name: str) -> None:
    assert not is_kept_back(name)
