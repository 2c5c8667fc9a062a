"""Callbacks on the pages: their own tab, apart from the attempts of the task, with outcome and log."""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING

import pytest

from scheduler_app.models import Attempt
from scheduler_app.rules.states import AttemptOutcome
from scheduler_app.transitions.attempt_log import LogChunk, append_log_chunks
from scheduler_app.transitions.callback import (
    claim_callback,
    finish_callback,
    repeat_callbacks,
)
from tests.integration.dashboard.pages import Page
from tests.world import chain

if TYPE_CHECKING:
    from django.test import Client

    from tests.world import World


@pytest.fixture
def run(world: World) -> int:
    """A run whose task failed and whose callbacks were called: one lost once, one that raised."""
    flow = world.flow(
        "nightly",
        chain("load", callbacks={"on_failure": ("tell_people", "count")}),
        callbacks={"on_failure": ("page_somebody",)},
    )
    run_id = world.run(flow)
    world.tick(run_id)
    message = world.messages.pop()
    assert world.claim(message) is not None
    world.finish_with_callbacks(message, ok=False)
    tell, count = Attempt.objects.filter(kind="callback").order_by("fence")
    _claim(world, tell)
    repeat_callbacks(
        world.connection,
        attempt_ids=[tell.pk],
        outcome=AttemptOutcome.LOST,
        reason="Its worker was silent.",
    )
    _claim(world, count)
    append_log_chunks(
        world.connection,
        chunks=[LogChunk(attempt_id=count.pk, start_offset=0, data=b"counting to three\n")],
    )
    finish_callback(
        world.connection,
        attempt_id=count.pk,
        nonce=uuid.UUID(int=count.pk.int),
        outcome=AttemptOutcome.FAILED,
        reason="RuntimeError: the counter is full",
        error={"type": "RuntimeError", "message": "the counter is full", "traceback": "Trace"},
    )
    world.tick(run_id)
    return run_id


def _claim(world: World, row: Attempt) -> None:
    found = claim_callback(
        world.connection,
        attempt_id=row.pk,
        token=row.lease_token or 0,
        fence=row.fence or 0,
        nonce=uuid.UUID(int=row.pk.int),
        worker_job_id=world.worker,
        hostname="host-1",
        pid=4711,
    )
    assert found is not None


def _words(page: Page) -> str:
    """What a person reads, without the tags."""
    return " ".join("".join(page.root.itertext()).split())


def test_a_task_shows_its_callbacks_beside_its_attempts(reader: Client, run: int) -> None:
    ti = Attempt.objects.filter(run_id=run, kind="task").get().ti_id
    plain = Page(reader, f"/task-instances/{ti}/")
    assert "tell_people" not in plain.text
    assert "Callbacks" in plain.text
    tab = Page(reader, f"/task-instances/{ti}/?tab=callbacks")
    assert "tell_people" in tab.text
    assert "RuntimeError: the counter is full" in tab.text
    assert "page_somebody" not in tab.text, "that one is of the run"
    assert (tab.counts().shown, tab.counts().by_reason) == (2, {"callback_repeated": 1})
    aside = Page(reader, f"/task-instances/{ti}/?tab=callbacks&filtered=only")
    assert "Call 1 of tell_people (on_failure) ended as lost" in aside.text


def test_a_run_shows_its_own_callbacks_and_those_of_its_tasks(reader: Client, run: int) -> None:
    tab = Page(reader, f"/runs/{run}/?tab=callbacks")
    assert "page_somebody" in tab.text
    assert "the run" in tab.text
    assert "count" in tab.text
    some = Page(reader, f"/runs/{run}/?tab=callbacks&outcome=failed")
    assert "count" in some.text
    assert "page_somebody" not in some.text
    assert "on_failure" not in Page(reader, f"/runs/{run}/?tab=attempts").text


def test_a_callback_has_a_page_with_its_log_and_what_it_is_about(reader: Client, run: int) -> None:
    of_task = Attempt.objects.get(run_id=run, kind="callback", outcome="failed")
    page = Page(reader, f"/attempts/{of_task.pk}/")
    assert "counting to three" in page.text
    assert "count" in page.text
    assert "on_failure of load" in _words(page)
    about = Attempt.objects.get(run_id=run, kind="task")
    assert any(str(about.pk) in link for link in page.links())
    of_run = Attempt.objects.get(run_id=run, kind="callback", ti__isnull=True)
    page = Page(reader, f"/attempts/{of_run.pk}/")
    assert "on_failure of the run" in _words(page)
    assert "no attempt" in page.text


def test_the_list_of_attempts_tells_callbacks_from_tasks(reader: Client, run: int) -> None:
    every = Page(reader, "/attempts/")
    assert "callback page_somebody" in every.text
    assert "call 2" in every.text
    tasks = Page(reader, "/attempts/?kind=task")
    assert "page_somebody" not in tasks.text
    del run


def test_the_api_says_what_a_callback_is_about(reader: Client, run: int) -> None:
    answer = json.loads(
        reader.get("/api/v1/attempts/?kind=callback&filtered=1&order=fence").content
    )
    assert answer["counts"]["shown"] == 3
    assert answer["counts"]["by_reason"] == {"callback_repeated": 1}
    about = str(Attempt.objects.get(run_id=run, kind="task").pk)
    told = [
        (row["kind"], row["callback_on"], row["callback_name"], row["callback_of"], row["task_id"])
        for row in answer["results"]
    ]
    assert told == [
        ("callback", "on_failure", "tell_people", about, "load"),
        ("callback", "on_failure", "count", about, "load"),
        ("callback", "on_failure", "tell_people", about, "load"),
        ("callback", "on_failure", "page_somebody", None, None),
    ]
    of_runs = json.loads(reader.get("/api/v1/attempts/?callback_on=on_retry").content)
    assert of_runs["results"] == []
    tasks = json.loads(reader.get("/api/v1/attempts/?kind=task").content)
    assert [row["callback_on"] for row in tasks["results"]] == [None]
