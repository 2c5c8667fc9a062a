"""Checkpoints and progress on the pages, in the API, and on the command line."""

from __future__ import annotations

import io
import json
import uuid
from typing import TYPE_CHECKING, Any

import pytest
from django.core.management import call_command

from scheduler_app.models import Attempt, Checkpoint, Run
from scheduler_app.transitions.checkpoint import ProgressNow, Save, push, save
from tests.integration.dashboard.pages import Page
from tests.world import chain

if TYPE_CHECKING:
    from django.test import Client

    from tests.world import World


@pytest.fixture
def saving(world: World) -> Attempt:
    """A running attempt that has saved twice, told how far it is, and pushed a value."""
    run_id = world.run(world.flow("nightly", chain("load")))
    world.tick(run_id)
    message = world.messages.pop()
    assert world.claim(message) is not None
    attempt = Attempt.objects.get(pk=message.attempt_id)
    assert attempt.nonce is not None
    proof: dict[str, Any] = {
        "ti_id": message.ti_id,
        "attempt_id": message.attempt_id,
        "nonce": attempt.nonce,
    }
    for page in (1, 2):
        kept = save(
            world.connection,
            **proof,
            saves=[
                Save(scope="task", owner=None, key="page", value=page),
                Save(scope="name", owner="shared", key="<since>", value={"day": page}),
            ],
            progress=ProgressNow(done=page, total=8, note="<reading>"),
            kept=100,
        )
        assert kept == run_id
    assert push(world.connection, **proof, fence=attempt.fence or 0, key="rows", value=[1])
    return attempt


def test_the_bar_is_on_the_page_of_the_task_and_in_its_run(saving: Attempt, reader: Client) -> None:
    for address in (f"/task-instances/{saving.ti_id}/", f"/runs/{saving.run_id}/"):
        (bar,) = Page(reader, address).all("progress")
        assert (bar.get("max"), bar.get("value")) == ("8", "2")
        assert bar.get("aria-label") == "Progress of load"
        assert "2 of 8" in reader.get(address).content.decode()


def test_a_bar_without_a_total_is_a_number(saving: Attempt, world: World, reader: Client) -> None:
    assert saving.nonce is not None
    save(
        world.connection,
        ti_id=saving.ti_id or 0,
        attempt_id=saving.pk,
        nonce=saving.nonce,
        saves=[],
        progress=ProgressNow(done=12_345, total=None, note=""),
        kept=1,
    )
    page = Page(reader, f"/task-instances/{saving.ti_id}/")
    assert list(page.all("progress")) == []
    assert "12,345 so far" in page.text.replace("</span>", "")


def test_the_tab_shows_each_checkpoint_with_its_saves(saving: Attempt, reader: Client) -> None:
    page = Page(reader, f"/task-instances/{saving.ti_id}/?tab=checkpoints")
    assert page.faults == []
    assert "The newest saves of page" in page.text
    assert "name shared" in page.text
    assert "&lt;since&gt;" in page.text
    assert page.text.count("by try 1") == 4  # two saves of two checkpoints
    nothing = Page(reader, f"/task-instances/{saving.ti_id}/?tab=log")
    assert "No checkpoints yet" not in nothing.text


def test_what_a_clear_put_aside_is_shown_as_such(saving: Attempt, reader: Client) -> None:
    Checkpoint.objects.filter(scope="task").update(scope="cleared", owner=f"{saving.ti_id}:7")
    page = Page(reader, f"/task-instances/{saving.ti_id}/?tab=checkpoints")
    assert "this task, until it was cleared" in page.text


def test_a_task_without_checkpoints_says_how_to_make_one(world: World, reader: Client) -> None:
    run_id = world.run(world.flow("nightly", chain("load")))
    world.tick(run_id)
    (ti,) = Run.objects.get(pk=run_id).tis.all()
    page = Page(reader, f"/task-instances/{ti.pk}/?tab=checkpoints")
    assert "No checkpoints yet" in page.text


def test_the_api_has_progress_checkpoints_saves_and_pushed_values(
    saving: Attempt, reader: Client
) -> None:
    base = f"/api/v1/task-instances/{saving.ti_id}/"
    told = reader.get(base).json()
    assert {**told["progress"], "at": None} == {
        "done": 2,
        "total": 8,
        "note": "<reading>",
        "at": None,
    }
    assert [(c["scope"], c["key"], c["value"], c["version"]) for c in told["checkpoints"]] == [
        ("task", "page", 2, 2),
        ("name", "<since>", {"day": 2}, 2),
    ]
    saves = reader.get(f"{base}checkpoints/{told['checkpoints'][0]['id']}/").json()
    assert [(one["version"], one["value"], one["try_number"]) for one in saves] == [
        (2, 2, 1),
        (1, 1, 1),
    ]
    assert reader.get(f"{base}checkpoints/999999/").status_code == 404
    attempt = reader.get(f"/api/v1/attempts/{saving.pk}/").json()
    assert attempt["progress"]["done"] == 2
    assert [(one["key"], one["value"]) for one in attempt["pushed"]] == [("rows", [1])]
    (listed,) = reader.get("/api/v1/task-instances/").json()["results"]
    assert listed["progress"]["total"] == 8


def test_the_command_line_tells_the_progress(saving: Attempt) -> None:
    assert saving.run is not None
    told = io.StringIO()
    call_command("tasks", "state", "nightly", saving.run.run_key, stdout=told)
    assert "2 of 8 (25 %), <reading>" in told.getvalue()
    told = io.StringIO()
    call_command("tasks", "state", "nightly", saving.run.run_key, "--json", stdout=told)
    assert '"done": 2' in json.dumps(json.loads(told.getvalue()))


def test_of_each_checkpoint_only_the_newest_saves_are_kept(
    saving: Attempt, world: World, reader: Client
) -> None:
    assert saving.nonce is not None
    for page in range(3, 9):
        save(
            world.connection,
            ti_id=saving.ti_id or 0,
            attempt_id=saving.pk,
            nonce=saving.nonce,
            saves=[Save(scope="task", owner=None, key="page", value=page)],
            progress=None,
            kept=3,
        )
    told = reader.get(f"/api/v1/task-instances/{saving.ti_id}/").json()["checkpoints"][0]
    saves = reader.get(f"/api/v1/task-instances/{saving.ti_id}/checkpoints/{told['id']}/").json()
    assert [one["version"] for one in saves] == [8, 7, 6]


def test_another_nonce_saves_nothing(saving: Attempt, world: World) -> None:
    kept = save(
        world.connection,
        ti_id=saving.ti_id or 0,
        attempt_id=saving.pk,
        nonce=uuid.uuid4(),
        saves=[Save(scope="task", owner=None, key="page", value=99)],
        progress=None,
        kept=3,
    )
    assert kept is None
