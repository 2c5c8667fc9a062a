"""What docs/alerts.md shows is run: the flow, the check of a signature, the installation's notifiers."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest

from scheduler_app.authoring import notifiers
from scheduler_app.authoring.registry import collecting
from scheduler_app.config import notifying
from scheduler_app.couriers import webhook
from scheduler_app.rules import incidents

PAGE = (Path(__file__).parents[3] / "docs" / "alerts.md").read_text(encoding="utf-8")


def _block(language: str, containing: str) -> str:
    found = [
        block
        for block in re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
        if containing in block
    ]
    assert len(found) == 1, containing
    return str(found[0])


def test_the_flow_of_the_page_is_one(tmp_path: Path) -> None:
    source = tmp_path / "page.py"
    source.write_text(_block("python", "@flow("))
    names: dict[str, Any] = {"__name__": "page"}
    with collecting() as found:
        exec(compile(source.read_text(), str(source), "exec"), names)
    assert [made.faults for made in found.registrations] == [()]
    definition = names["nightly"].definition()
    assert (definition.deadline_s, definition.expected_within_s) == (10_800, 1800)
    assert [one["kind"] for one in definition.alerts] == ["slack", "webhook"]
    assert definition.callbacks == {"on_failure": ("EmailNotifier",)}
    assert definition.task("load").callbacks == {"on_failure": ("SlackNotifier", "WebhookNotifier")}


def test_the_check_of_the_page_knows_what_was_signed_from_what_was_not() -> None:
    names: dict[str, Any] = {}
    exec(_block("python", "def is_genuine"), names)
    body, key = b'{"event": "on_failure"}', "shared"
    now = int(time.time())
    sent = {
        "Daylight-Timestamp": str(now),
        "Daylight-Signature": webhook.signature(body, timestamp=now, key=key),
    }
    assert names["is_genuine"](sent, body, key)
    assert not names["is_genuine"](sent, body + b" ", key)
    assert not names["is_genuine"](sent, body, "other")
    old = now - 301
    sent = {
        "Daylight-Timestamp": str(old),
        "Daylight-Signature": webhook.signature(body, timestamp=old, key=key),
    }
    assert not names["is_genuine"](sent, body, key), "replayed"


def test_the_notifiers_of_the_page_are_read_from_a_variable_and_from_a_file(tmp_path: Path) -> None:
    raw = _block("json", "ops_hook")
    found = notifying.alerts("A", environ={"A": raw})
    assert [notifiers.shown(one) for one in found] == [
        "slack at secret ops_hook",
        "e-mail to ops@example.com",
    ]
    kept = tmp_path / "alerts.json"
    kept.write_text(raw)
    assert notifying.alerts("A", environ={"A": f"@{kept}"}) == found
    assert json.loads(raw) == found


@pytest.mark.parametrize("kind", incidents.KINDS)
def test_the_page_names_every_kind(kind: str) -> None:
    assert f"`{kind}`" in PAGE
