from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from scheduler_app.launch import first_look
from scheduler_app.models import Run
from scheduler_app.rules.states import AttemptState, RunState, TaskState
from tests.factories import make_attempt, make_flow, make_run, make_task_instance

pytestmark = pytest.mark.django_db
EXAMPLES = Path("/examples")


def test_each_flow_of_the_folder_runs_once_however_often_it_starts() -> None:
    one = make_flow(folder="/examples")
    two = make_flow(folder="/examples")
    make_flow(folder="/own")
    make_flow(folder="/examples", removed_at=timezone.now())
    make_run(flow=one)  # its schedule was quicker; that is not the first look
    assert first_look.trigger_examples(EXAMPLES) == 2
    assert first_look.trigger_examples(EXAMPLES) == 0
    runs = Run.objects.filter(run_key=first_look.FIRST_RUN)
    assert {run.flow_id for run in runs} == {one.flow_id, two.flow_id}


def test_an_example_that_is_new_in_a_later_version_runs_at_its_first_start() -> None:
    make_flow(folder="/examples")
    first_look.trigger_examples(EXAMPLES)
    make_flow(folder="/examples")
    assert first_look.trigger_examples(EXAMPLES) == 1


def test_only_the_delivery_of_the_example_for_it_comes_twice_once_it_is_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    repeated: list[Any] = []

    def deliver_again(**arguments: Any) -> bool:
        repeated.append(arguments["attempt_id"])
        return True

    monkeypatch.setattr(first_look, "deliver_again", deliver_again)
    done = {"state": AttemptState.ENDED}
    flow = make_flow(flow_id=first_look.REPEATED_FLOW)
    for other in (
        make_run(flow=flow, state=RunState.SUCCESS),
        make_run(run_key=first_look.FIRST_RUN, state=RunState.SUCCESS),
    ):
        make_attempt(ti=make_task_instance(run=other, state=TaskState.SUCCESS), **done)
    first = make_run(flow=flow, run_key=first_look.FIRST_RUN)
    make_attempt(ti=make_task_instance(run=first, state=TaskState.RUNNING))
    assert not first_look.repeat_a_delivery()
    assert repeated == []
    ended = make_attempt(ti=make_task_instance(run=first, state=TaskState.SUCCESS), **done)
    assert first_look.repeat_a_delivery()
    assert repeated == [ended.id]
