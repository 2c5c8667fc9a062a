"""The events of a task instance as a story: in order, each verdict beside what it is about."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from scheduler_app.models import Attempt, ExecutorEvent
from scheduler_app.transitions.executor_event import NewEvent, record_events
from tests.integration.dashboard.pages import Page

if TYPE_CHECKING:
    import psycopg
    from django.test import Client

    from scheduler_app.transitions.attempt import Message
    from tests.world import World


@pytest.fixture
def deferred(world: World, raw: psycopg.Connection[Any], settings: Any) -> tuple[Message, Message]:
    """The attempts of a task that deferred and was resumed; each one's exit came, and a guess."""
    from tests.world import chain  # noqa: PLC0415 - a helper of this fixture alone

    settings.EXIT_GRACE_S = 0.0
    run_id = world.run(world.flow("f", chain("a")))
    world.tick(run_id)
    first = world.messages[0]
    assert world.claim(first) is not None
    trigger_id = world.defer(first)
    assert world.fire(trigger_id) == "moved"
    world.tick(run_id)
    second = world.messages[1]
    assert world.claim(second) is not None
    about: dict[str, dict[str, Any]] = {
        "by id": {"attempt_id": first.attempt_id},
        "by try": {"attempt_id": None, "ti_id": first.ti_id, "try_number": 1},
    }
    for one in about.values():
        event = NewEvent(
            kind="exit_success", source="executor: pod", payload={"info": "p-7"}, **one
        )
        record_events(raw, events=[event])
    world.judge()
    world.finish(second)
    return first, second


def _moments(page: Page) -> list[str]:
    (story,) = (e for e in page.all("ol") if "story" in e.get("class", "").split())
    return [re.sub(r"\s+", " ", "".join(li.itertext())).strip() for li in story.iter("li")]


def _in_order(moments: list[str], *wanted: str) -> None:
    places = [next(n for n, text in enumerate(moments) if one in text) for one in wanted]
    assert places == sorted(places), moments


def test_it_tells_what_was_done_and_what_was_said_of_it_in_order(
    reader: Client, deferred: tuple[Message, Message]
) -> None:
    first, second = (str(one.attempt_id)[-12:] for one in deferred)
    page = Page(reader, f"/task-instances/{deferred[0].ti_id}/?tab=events&filtered=1")
    moments = _moments(page)
    _in_order(
        moments,
        f"…{first} is issued Try 1 begins.",
        f"…{first} is claimed by host-1:4711",
        f"…{first} ends as deferred By its own report: Watched()",
        "Its trigger fires",
        f"…{second} is issued Try 1 goes on, resume 1.",
        f"…{second} is claimed",
        f"Exit with success of …{first} says executor: pod ignored STALE EVENT stale_after_defer",
        "Exit with success of try 1 (no attempt named) says executor: pod ignored STALE EVENT",
        f"…{second} ends as success",
    )
    by_try = next(text for text in moments if "no attempt named" in text)
    assert str(deferred[0].attempt_id) in by_try, "its reason names the attempt that deferred"
    for name, value in {
        "task state": "running",
        "next method": "resumed",
        "is resumed": "yes",
        "info": "p-7",
    }.items():
        assert re.search(rf"\b{name} ?{value}\b", by_try), "the compared values are there"
    links = set(page.links())
    assert {f"/attempts/{one.attempt_id}/?filtered=1" for one in deferred} <= links


def test_without_the_lens_it_tells_the_current_part_and_counts_the_rest(
    reader: Client, deferred: tuple[Message, Message]
) -> None:
    first, second = (str(one.attempt_id)[-12:] for one in deferred)
    page = Page(reader, f"/task-instances/{deferred[0].ti_id}/?tab=events")
    moments = _moments(page)
    assert not [text for text in moments if first in text or "Exit" in text]
    _in_order(moments, "Its trigger fires", f"…{second} is issued", f"…{second} ends as success")
    counts = page.counts()
    assert (counts.shown, counts.by_reason) == (0, {"stale_after_defer": 2})


def test_a_filter_leaves_what_was_said_alone(
    reader: Client, deferred: tuple[Message, Message]
) -> None:
    address = f"/task-instances/{deferred[0].ti_id}/?tab=events&filtered=1&verdict=ignored"
    moments = _moments(Page(reader, address))
    assert len(moments) == 2
    assert all("Exit with success" in text for text in moments)


def test_it_goes_on_over_pages_without_telling_anything_twice(
    reader: Client, deferred: tuple[Message, Message]
) -> None:
    whole = _moments(Page(reader, f"/task-instances/{deferred[0].ti_id}/?tab=events&filtered=1"))
    told: list[str] = []
    address = f"/task-instances/{deferred[0].ti_id}/?tab=events&filtered=1&limit=1"
    for _ in range(5):
        page = Page(reader, address)
        told += _moments(page)
        following = [link for link in page.links() if "cursor=" in link]
        if not following:
            break
        address = f"/task-instances/{deferred[0].ti_id}/{following[0]}"
    assert len(told) == len(whole)


def test_newest_first_is_the_same_story_backwards(
    reader: Client, deferred: tuple[Message, Message]
) -> None:
    address = f"/task-instances/{deferred[0].ti_id}/?tab=events&filtered=1"
    ids = [
        [e.get("id") for e in Page(reader, f"{address}{order}").all("li") if e.get("id")]
        for order in ("", "&order=-id")
    ]
    assert ids[0] == ids[1][::-1] != []


def test_a_pending_event_says_what_it_waits_for(
    reader: Client, world: World, raw: psycopg.Connection[Any], deferred: tuple[Message, Message]
) -> None:
    raw.execute("UPDATE task_instance SET held_by = 7, state = 'running', is_open = true")
    event = NewEvent(
        attempt_id=None, ti_id=deferred[0].ti_id, try_number=1, kind="exit_failed", source="x"
    )
    record_events(raw, events=[event])
    assert world.judge() == set()
    assert ExecutorEvent.objects.filter(verdict="pending").count() == 1
    moments = _moments(Page(reader, f"/task-instances/{deferred[0].ti_id}/?tab=events"))
    assert any("pending" in text and "a freeze holds the task" in text for text in moments)
    assert Attempt.objects.count() == 2
