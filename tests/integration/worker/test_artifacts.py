"""Artifacts from real children: stored at once, by the current attempt alone, shown everywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.contrib.auth import get_user_model
from django.test import Client

from scheduler_app.models import Artifact, ExecutorEvent
from scheduler_app.queries import artifacts, task_instances
from scheduler_app.queries.scope import EVERYTHING
from scheduler_app.transitions.checkpoint import publish

if TYPE_CHECKING:
    import pytest

    from tests.workshop import Workshop

FLOW = """
from scheduler_app.authoring import flow, task

@task(retries=1, retry_delay=0)
def t(ctx):
    ctx.artifacts.link("report", "https://example.org/r", title="The report")
    ctx.artifacts.markdown("note", f"# Try {ctx.try_number}\\n<script>alert(1)</script>")
    if ctx.try_number == 1:
        raise OSError("no")
    ctx.artifacts.table("counts", [{"island": "Biscoe", "rows": 168}])
    ctx.artifacts.table("none", [])

@flow
def f():
    t()
"""


def test_every_try_shows_what_it_published_and_the_newest_is_on_the_page(
    workshop: Workshop, capsys: pytest.CaptureFixture[str]
) -> None:
    first = workshop.issue_one(FLOW)
    workshop.deliver(first)
    second = workshop.issue(workshop.ti(first).run_id)
    workshop.deliver(second)
    assert workshop.attempt(second).outcome == "success", workshop.attempt(second).error
    row = task_instances.one(EVERYTHING, first.ti_id)
    found = artifacts.of_task(row)
    assert [(one.key, one.try_number, one.is_newest) for one in found] == [
        ("report", 2, True),
        ("note", 2, True),
        ("counts", 2, True),
        ("none", 2, True),
        ("report", 1, False),
        ("note", 1, False),
    ]
    reader = Client()
    reader.force_login(get_user_model().objects.create_superuser("ana", password="x"))
    page = reader.get(f"/task-instances/{first.ti_id}/").content.decode()
    assert 'href="https://example.org/r"' in page
    assert "Biscoe" in page
    assert "No rows." in page
    assert "<h3>Try 2</h3>" in page
    assert "<script>alert" not in page
    earlier = reader.get(f"/attempts/{first.attempt_id}/").content.decode()
    assert "<h3>Try 1</h3>" in earlier
    assert "Biscoe" not in earlier, "what its own attempt published, and nothing later"
    told = reader.get(f"/api/v1/task-instances/{first.ti_id}/")
    assert told.status_code == 200
    assert len(told.json()["artifacts"]) == 6


def test_an_attempt_that_was_replaced_shows_nothing_more(workshop: Workshop) -> None:
    source = FLOW.replace(
        "        raise OSError", "        ctx.retry_after(0)\n        raise OSError"
    )
    message = workshop.issue_one(source)
    workshop.deliver(message)
    attempt = workshop.attempt(message)
    assert attempt.nonce is not None
    before = Artifact.objects.count()
    is_stored = publish(
        workshop.connection,
        ti_id=message.ti_id,
        attempt_id=message.attempt_id,
        nonce=attempt.nonce,
        fence=message.fence,
        key="late",
        kind="markdown",
        title="",
        body={"text": "late"},
    )
    assert not is_stored
    assert Artifact.objects.count() == before
    assert not ExecutorEvent.objects.filter(kind="late_write").exists()


def test_an_address_that_somebody_stored_otherwise_leads_nowhere(workshop: Workshop) -> None:
    message = workshop.issue_one(FLOW)
    workshop.deliver(message)
    Artifact.objects.filter(kind="link").update(body={"url": "javascript:alert(1)"})
    reader = Client()
    reader.force_login(get_user_model().objects.create_superuser("ana", password="x"))
    page = reader.get(f"/task-instances/{message.ti_id}/").content.decode()
    assert 'href="javascript' not in page


def test_one_attempt_shows_no_more_than_it_may(workshop: Workshop) -> None:
    lines = "for n in range(101):\n        ctx.artifacts.markdown(f'k{n}', 'x')"
    source = FLOW.replace('if ctx.try_number == 1:\n        raise OSError("no")', lines)
    message = workshop.issue_one(source)
    workshop.deliver(message)
    error = workshop.attempt(message).error
    assert error is not None
    assert "published 100 artifacts" in error["message"]
    assert Artifact.objects.count() == 100
