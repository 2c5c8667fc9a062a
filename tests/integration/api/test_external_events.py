"""Events from outside: they wake the task that waits, or wait for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from scheduler_app.models import Audit, ExternalEvent, TaskInstance, Trigger
from scheduler_app.rules import values
from scheduler_app.rules.states import TaskState
from scheduler_app.transitions.trigger import fire_due
from tests.world import World, chain

if TYPE_CHECKING:
    from django.test import Client


def _send(client: Client, ti: int, body: Any) -> Any:
    return client.post(f"/api/v1/task-instances/{ti}/event/", body, content_type="application/json")


@pytest.fixture
def waiting(world: World) -> int:
    """A task instance that waits for the event ``go``."""
    run_id = world.run(world.flow("f", chain("a")))
    world.tick(run_id)
    (message,) = world.messages
    world.claim(message)
    world.defer(message, kind="event", event_key="go")
    return message.ti_id


def test_an_event_wakes_the_task_that_waits_for_its_key(api: Client, waiting: int) -> None:
    answer = _send(api, waiting, {"key": "other"})
    assert (answer.status_code, answer.json()["trigger_id"]) == (201, None)
    assert TaskInstance.objects.get(pk=waiting).state == "deferred"
    payload = {"approved": [True, None], "__daylight__": "not a tag"}
    answer = _send(api, waiting, {"key": "go", "payload": payload})
    assert answer.status_code == 201, answer.content
    assert answer.json() == {
        "id": ExternalEvent.objects.get(key="go").pk,
        "key": "go",
        "trigger_id": Trigger.objects.get().pk,
        "state": "scheduled",
    }
    ti = TaskInstance.objects.get(pk=waiting)
    assert ti.next_kwargs is not None
    assert values.decode(ti.next_kwargs["event"]) == payload
    assert Audit.objects.filter(action="send_event", actor="ana").count() == 2


def test_an_event_that_comes_before_its_task_waits_is_kept(api: Client, world: World) -> None:
    run_id = world.run(world.flow("f", chain("a")))
    world.tick(run_id)
    (message,) = world.messages
    answer = _send(api, message.ti_id, {"key": "go", "payload": 7})
    assert (answer.status_code, answer.json()["trigger_id"]) == (201, None)
    world.claim(message)
    world.defer(message, kind="event", event_key="go")
    assert [one.what for one in fire_due(world.connection, limit=10).fired] == ["moved"]


def test_an_event_for_a_task_that_has_ended_is_refused_and_not_kept(
    api: Client, waiting: int
) -> None:
    TaskInstance.objects.filter(pk=waiting).update(state=TaskState.SUCCESS, is_open=False)
    answer = _send(api, waiting, {"key": "go"})
    assert answer.status_code == 409
    assert "has ended as success" in answer.json()["detail"]
    assert not ExternalEvent.objects.exists()


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({"key": ""}, "key"),
        ({"key": "a\nb"}, "printable"),
        ({"key": "k" * 251}, "250 characters"),
        ({"payload": "\x00"}, "NUL"),
        ({"payload": "x" * 2_000_000}, "limit"),
        ({"paylaod": 1}, "no such field"),
    ],
)
def test_a_bad_event_is_told(api: Client, waiting: int, body: Any, told: str) -> None:
    answer = _send(api, waiting, body)
    assert answer.status_code == 400, answer.content
    assert told in answer.json()["detail"]


def test_strangers_and_unknown_tasks_are_turned_away(
    api: Client, stranger: Client, waiting: int
) -> None:
    assert _send(stranger, waiting, {}).status_code == 401
    assert _send(api, 4711, {}).status_code == 404
    assert not ExternalEvent.objects.exists()
