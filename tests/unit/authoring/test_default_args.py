"""``default_args`` of flows and groups take whatever a task takes, and refuse the rest where it stands."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from scheduler_app.authoring import Flow, Limit, Sensor, flow, group, retry, task
from scheduler_app.authoring.options import TASK_OPTIONS
from scheduler_app.rules.errors import DefinitionError

if TYPE_CHECKING:
    from scheduler_app.rules.definition import TaskDefinition


def told(context: Any) -> None:
    """A callback."""


GIVEN: dict[str, Any] = {
    "retries": 3,
    "retry_delay": timedelta(seconds=7),
    "backoff": 2.0,
    "max_retry_delay": 60,
    "jitter": 0.5,
    "retry_on": OSError,
    "fail_on": (KeyError,),
    "retry_policies": {ValueError: retry(retries=5)},
    "timeout": 90,
    "suspect_factor": 4,
    "suspect_after": timedelta(minutes=20),
    "pool": "narrow",
    "slots": 2,
    "priority": 9,
    "weight_rule": "upstream",
    "limit": Limit("customer", 2),
    "max_active_per_flow": 3,
    "max_active_per_run": 2,
    "queue": "big",
    "trigger_rule": "all_done",
    "depends_on_past": True,
    "wait_for_downstream": True,
    **{
        f"on_{when}_callback": told
        for when in ("execute", "retry", "success", "failure", "skipped")
    },
}
OF_ONE_TASK = {"task_id", "doc"}  # they would be the same for all
OF_MAPPED_TASKS = {"map_label", "max_map_length"}


class Asks(Sensor):
    """A class task takes them too."""

    def poke(self, ctx: Any) -> bool:
        """At once."""
        return True


def made(*, of_flow: dict[str, Any], of_group: dict[str, Any], own: dict[str, Any]) -> Flow:
    """A task function and a class task with these options, in a group."""

    @task(**own)
    def t() -> None: ...

    @flow(default_args=of_flow)
    def f() -> None:
        with group("g", default_args=of_group, prefix=False):
            t()
            Asks(task_id="asks", **own)

    return f


def told_of(one: Flow) -> list[TaskDefinition]:
    return [one.definition().task(name) for name in ("t", "asks")]


def test_every_option_of_a_task_is_one_of_its_defaults() -> None:
    assert set(GIVEN) == set(TASK_OPTIONS) - OF_ONE_TASK - OF_MAPPED_TASKS, (
        "a new option wants a line here"
    )


@pytest.mark.parametrize("option", sorted(GIVEN))
def test_a_default_is_as_good_as_the_tasks_own(option: str) -> None:
    given = {option: GIVEN[option]}
    plain = told_of(made(of_flow={}, of_group={}, own={}))
    own = told_of(made(of_flow={}, of_group={}, own=given))
    for of_flow, of_group in ((given, {}), ({}, given)):
        by_default = told_of(made(of_flow=of_flow, of_group=of_group, own={}))
        assert by_default == own, option
    assert own != plain, "it says something"


def test_the_task_outranks_its_group_and_that_its_flow() -> None:
    one = made(of_flow={"retries": 1, "queue": "a"}, of_group={"retries": 2}, own={})
    assert [(t.retries, t.queue) for t in told_of(one)] == [(2, "a"), (2, "a")]
    assert (
        told_of(made(of_flow={"retries": 1}, of_group={"retries": 2}, own={"retries": 0}))[
            0
        ].retries
        == 0
    )


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"retrys": 3}, "has no option 'retrys'. Did you mean 'retries'?"),
        ({"execution_timeout": 3}, "Write timeout=..."),
        ({"retries": -1}, "Give retries a whole number from 0 to 10000"),
        ({"task_id": "same"}, "has no option 'task_id'"),
    ],
)
@pytest.mark.parametrize("where", ["flow", "group"])
def test_what_is_no_default_is_refused_with_its_line(
    given: dict[str, Any], words: str, where: str
) -> None:
    with pytest.raises(DefinitionError, match=r"test_default_args\.py:\d+: ") as raised:
        made(
            of_flow=given if where == "flow" else {},
            of_group=given if where == "group" else {},
            own={},
        )
    assert words in str(raised.value)
