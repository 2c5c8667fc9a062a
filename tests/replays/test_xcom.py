"""Reports on what tasks hand to each other."""

from __future__ import annotations

import json
import math
import sys
from typing import TYPE_CHECKING, Any

import pytest

from scheduler_app.models import Attempt, AttemptLogChunk
from scheduler_app.rules import values
from scheduler_app.rules.errors import InvalidInput

if TYPE_CHECKING:
    from pathlib import Path

    from django.test import Client

    from scheduler_app.transitions.attempt import Message
    from tests.workshop import Workshop


def flow_of(*lines: str, second: str = "return None") -> str:
    """A flow of t, with this body, and u, which gets its result."""
    body = "\n".join(f"    {line}" for line in lines)
    return (
        "from scheduler_app.authoring import flow, task\n\n"
        f"@task\ndef t(ctx):\n{body}\n\n"
        f"@task\ndef u(ctx, given):\n    {second}\n\n"
        "@flow\ndef f():\n    u(t())\n"
    )


def deliver(workshop: Workshop, source: str) -> list[Message]:
    """The messages of t and u, both executed."""
    first = workshop.issue_one(source)
    workshop.deliver(first)
    assert workshop.attempt(first).outcome == "success", workshop.attempt(first).error
    second = workshop.issue(workshop.ti(first).run_id, "u")
    workshop.deliver(second)
    return [first, second]


def read(api: Client, message: Message) -> Any:
    """The attempt as a strict reader of JSON gets it."""

    def refuse(name: str) -> float:
        raise AssertionError(f"{name} is no JSON")

    answer = api.get(f"/api/v1/attempts/{message.attempt_id}/")
    assert answer.status_code == 200
    return json.loads(answer.content, parse_constant=refuse)


def test_b189_not_a_number_is_stored_so_that_everybody_can_read_it(
    workshop: Workshop, api: Client
) -> None:
    """The next task gets the same floats; the API stays JSON, in results and pushed values."""
    source = flow_of(
        "values = [float('nan'), float('inf'), 1.5]",
        "ctx.push('rates', values)",
        "return values",
        second="return [given[0] != given[0], given[1:], ctx.pull('t', 'rates')[1:]]",
    )
    first, second = deliver(workshop, source)
    assert values.decode(workshop.attempt(second).result) == [
        True,
        [math.inf, 1.5],
        [math.inf, 1.5],
    ]
    told = read(api, first)
    assert [told["result"][2], told["pushed"][0]["value"][2]] == [1.5, 1.5]


def test_b191_keys_that_are_no_texts_are_shown_with_everything_beside_them(
    workshop: Workshop, api: Client
) -> None:
    source = flow_of(
        "ctx.push('pairs', {(1, 2): 3})",
        "ctx.push('plain', 'here')",
        "return {'by_pair': {(1, 2): 3}, 'rows': 7}",
        second="return given['by_pair'][1, 2] + ctx.pull('t', 'pairs')[1, 2]",
    )
    first, second = deliver(workshop, source)
    assert workshop.attempt(second).result == 6
    told = read(api, first)
    assert told["result"]["rows"] == 7
    assert {one["key"] for one in told["pushed"]} == {"pairs", "plain"}
    page = api_page(api, first)
    assert "rows" in page
    assert "here" in page


def api_page(client: Client, message: Message) -> str:
    """The attempt's page; the same reader is signed in there."""
    from django.contrib.auth import get_user_model  # noqa: PLC0415

    client.force_login(get_user_model().objects.get(username="ana"))
    answer = client.get(f"/attempts/{message.attempt_id}/")
    assert answer.status_code == 200
    return answer.content.decode()


def test_b193_a_nul_in_one_line_loses_no_line(workshop: Workshop, api: Client) -> None:
    source = flow_of(
        "for number in range(100):", r"    print(f'line {number}', 'a\x00b' * (number == 50))"
    )
    first, _ = deliver(workshop, source)
    stored = b"".join(
        bytes(chunk.data)
        for chunk in AttemptLogChunk.objects.filter(attempt_id=first.attempt_id).order_by(
            "start_offset"
        )
    )
    assert len(stored.splitlines()) == 100
    told = api.get(f"/api/v1/attempts/{first.attempt_id}/log/")
    assert told.status_code == 200
    assert b"line 99" in told.content


@pytest.mark.parametrize("is_forged", [False, True])
def test_b195_a_payload_that_names_a_class_is_shown_and_never_built(
    workshop: Workshop,
    api: Client,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    is_forged: bool,
) -> None:
    """Returned by a task, or written into the database: no page and no reader imports anything."""
    trap = tmp_path / "trap"
    trap.mkdir()
    (trap / "b195_evil.py").write_text("raise SystemExit('imported')\n", encoding="utf-8")
    monkeypatch.syspath_prepend(trap)
    payload = {
        values.TAG: "b195_evil.Thing",
        "__classname__": "b195_evil.Thing",
        "__type": "b195_evil",
        "value": "x",
    }
    first, second = deliver(workshop, flow_of(f"return {payload!r}", second="return given"))
    assert values.decode(workshop.attempt(second).result) == payload, "data, and the same data"
    if is_forged:
        Attempt.objects.filter(pk=first.attempt_id).update(result=payload)
        with pytest.raises(InvalidInput, match="does not know"):
            values.decode(workshop.attempt(first).result)
    assert "b195_evil.Thing" in json.dumps(read(api, first))
    assert "b195_evil.Thing" in api_page(api, first)
    assert api.get(f"/api/v1/attempts/?ti={first.ti_id}").status_code == 200
    assert "b195_evil" not in sys.modules
