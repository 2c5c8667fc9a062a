"""Which tasks of a version wait for the same room, so that looking at the most urgent of them will do."""

from __future__ import annotations

from scheduler_app.authoring import GroupRetry, flow, group, short_circuit, task
from scheduler_app.authoring.limits import Limit
from scheduler_app.rules.board import Graph
from scheduler_app.scheduler.versions import _version


@task
def plain() -> None:
    pass


@task
def other() -> None:
    pass


@task(slots=3)
def large() -> None:
    pass


@task(max_active_per_run=2)
def limited() -> None:
    pass


@task(limit=Limit("customer:{params[customer]}", slots=2))
def keyed() -> None:
    pass


@task(depends_on_past=True)
def patient() -> None:
    pass


@short_circuit
def gate(n: int) -> bool:
    return n > 1


@flow(params={"customer": "a"})
def lines() -> None:
    for one in (plain, other, large, limited, keyed, patient):
        one()


def _graph() -> Graph:
    graph = _version(1, lines.definition()).graph
    assert graph is not None
    return graph


def test_those_that_need_the_same_stand_in_one_line() -> None:
    found = _graph().lines
    assert found["plain"] == found["other"]
    assert len({found[one] for one in ("plain", "large", "limited", "keyed", "patient")}) == 5


def test_where_an_instance_may_wait_for_what_is_its_own_those_behind_it_are_looked_at_too() -> None:
    assert _graph().alike == {"plain", "other", "large", "limited"}


def test_a_board_keeps_every_run_but_those_with_groups_that_are_one_unit() -> None:
    @group
    def each(n: int) -> None:
        made = plain.override(task_id="made")().as_setup()
        with plain.override(task_id="gone")().as_teardown(setups=made):
            gate(n) >> other()

    @flow
    def tied() -> None:
        each.map([1, 2])

    @flow
    def whole() -> None:
        with group("g", retry=GroupRetry(max_attempts=2)):
            plain()

    assert _version(1, tied.definition()).graph is not None
    assert _version(2, whole.definition()).graph is None
