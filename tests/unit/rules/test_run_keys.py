from __future__ import annotations

from datetime import UTC, datetime

import pytest

from scheduler_app.rules import run_keys
from scheduler_app.rules.errors import InvalidInput

AT = datetime(2026, 1, 31, 2, tzinfo=UTC)


def test_made_up_run_ids_tell_kind_and_time_and_keep_the_rule() -> None:
    assert run_keys.scheduled_run_key(AT) == "scheduled__2026-01-31T02:00:00+00:00"
    assert run_keys.manual_run_key(AT.replace(microsecond=123456)) == (
        "manual__2026-01-31T02:00:00.123456+00:00"
    )
    for made in (run_keys.scheduled_run_key(AT), run_keys.manual_run_key(AT)):
        assert run_keys.check_run_key(made) == made


@pytest.mark.parametrize("run_key", ["", "a b", "ä", "a/b", "x" * 251, "a\n"])
def test_a_run_id_outside_the_rule_is_refused_with_the_rule(run_key: str) -> None:
    with pytest.raises(InvalidInput, match="1 to 250 of A-Z"):
        run_keys.check_run_key(run_key)
