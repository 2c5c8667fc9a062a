"""``manage.py tasks event`` tells a task what it waits for."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from scheduler_app.models import Audit, ExternalEvent, Run
from scheduler_app.rules.states import TaskState
from tests.factories import make_flow, make_run, make_task_instance

if TYPE_CHECKING:
    from tests.integration.commands.conftest import Call

pytestmark = pytest.mark.django_db
WHERE = ("nightly", "r1")


@pytest.fixture
def run() -> Run:
    return make_run(flow=make_flow(flow_id="nightly"), run_key="r1")


def test_an_event_is_kept_for_a_task_that_will_wait_for_it(call: Call, run: Run) -> None:
    ti = make_task_instance(run=run, task_id="one", state=TaskState.RUNNING)
    answer = call("tasks", "event", *WHERE, "one", "--key", "go", "--payload", '{"by": "anna"}')
    assert answer.code == 0
    kept = ExternalEvent.objects.get()
    assert (kept.ti_id, kept.key, kept.payload) == (ti.pk, "go", {"by": "anna"})
    assert f"Event {kept.pk} (go) is kept: the task is running" in answer.out
    assert Audit.objects.get(action="send_event").actor == kept.actor
    told = json.loads(call("tasks", "event", *WHERE, "one", "--json").out)
    assert (told["key"], told["trigger_id"], told["state"]) == ("event", None, "running")


def test_an_event_reaches_one_task_that_has_not_ended(call: Call, run: Run) -> None:
    make_task_instance(run=run, task_id="over", state=TaskState.SUCCESS)
    for index in range(2):
        make_task_instance(run=run, task_id="mapped", map_index=index)
    for task_id, words in (
        ("none", "has no task none"),
        ("over", "has ended as success"),
        ("mapped", "--map-index"),
    ):
        answer = call("tasks", "event", *WHERE, task_id)
        assert answer.code == 1
        assert words in answer.err
    assert not ExternalEvent.objects.exists()
    assert call("tasks", "event", *WHERE, "mapped", "--map-index", "1").code == 0
    assert ExternalEvent.objects.count() == 1


def test_a_payload_that_is_no_json_is_refused(call: Call, run: Run) -> None:
    make_task_instance(run=run, task_id="one")
    answer = call("tasks", "event", *WHERE, "one", "--payload", "yes")
    assert answer.code == 2
    assert "a text needs quotes" in answer.err
