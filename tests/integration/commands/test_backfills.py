"""``manage.py backfills``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.factories import make_flow

if TYPE_CHECKING:
    from tests.integration.commands.conftest import Call

pytestmark = pytest.mark.django_db(transaction=True)

RANGE = ("--from", "2026-01-01T00:00:00Z", "--to", "2026-01-03T12:00:00Z")


def test_a_range_is_previewed_filled_shown_and_cancelled(call: Call) -> None:
    make_flow(flow_id="sales")
    before = call("backfills", "create", "sales", *RANGE, "--dry-run")
    assert (before.code, "3 dates would be 3 created" in before.out) == (0, True)
    refused = call("backfills", "create", "sales", *RANGE)
    assert (refused.code, "Say why" in refused.err) == (1, True)
    made = call("backfills", "create", "sales", *RANGE, "--reason", "late", "--json")
    number = str(json.loads(made.out)["id"])
    assert call("backfills", "list").lines()[1][:3] == [number, "running", "sales"]
    assert "0 of 3; 0 skipped" in call("backfills", "show", number).out
    first = call("backfills", "show", number, "--limit", "2", "--order", "id", "--json").json
    page = ("--limit", "2", "--order", "id", f"--cursor={first['next_cursor']}")
    rest = call("backfills", "show", number, *page, "--json").json
    assert (len(first["dates"]), len(rest["dates"]), rest["next_cursor"]) == (2, 1, None)
    told = call("backfills", "show", number, "--limit", "2").out
    assert "3 dates, none filtered\n2 are on this page; the next: --cursor=" in told
    assert "paused" in call("backfills", "pause", number, "--reason", "wait").out
    limited = call("backfills", "limit", number, "--max-active-runs", "3", "--reason", "more")
    assert limited.code == 0
    assert "cancelled" in call("backfills", "cancel", number, "--reason", "no need").out
    again = call("backfills", "cancel", number, "--reason", "no need")
    assert (again.code, "is over" in again.err) == (1, True)


def test_what_cannot_be_exits_with_one_and_says_why(call: Call) -> None:
    assert "no flow is called" in call("backfills", "create", "none", *RANGE, "--dry-run").err
    make_flow(flow_id="sales")
    wrong = call("backfills", "create", "sales", *RANGE, "--conf", "{")
    assert (wrong.code, "--conf is no JSON" in wrong.err) == (1, True)
    assert call("backfills", "show", "999").code == 1
