"""The element that an instance maps over: one look by its index, and never what is no longer so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from scheduler_app.models import TaskInstance
from scheduler_app.operations import clear
from scheduler_app.rules.clear import Options
from scheduler_app.rules.definition import FlowDefinition, TaskDefinition
from scheduler_app.rules.mapping import Argument, Kind, MapOver, Source, mapped_tasks
from scheduler_app.worker.items import StoredItems, _orders

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import psycopg

    from tests.world import World

pytestmark = pytest.mark.django_db(transaction=True)


def over(task_id: str) -> MapOver:
    source = Source(kind=Kind.RESULT, task_id=task_id)
    return MapOver(arguments=(Argument(name="x", source=source),))


TASKS = (
    TaskDefinition(task_id="rows"),
    TaskDefinition(task_id="each", upstream=("rows",), mapped=over("rows")),
    TaskDefinition(
        task_id="again", upstream=("each",), mapped=over("each"), trigger_rule="all_done"
    ),
)


class Reader:
    """Reads as an attempt does; its statements are counted."""

    def __init__(self, world: World, run_id: int) -> None:
        self.statements = 0
        self._connection = world.connection
        self._run_id = run_id

    def _ask(self, question: Callable[[psycopg.Connection[Any]], Any]) -> Any:
        self.statements += 1
        return question(self._connection)

    @property
    def of_an_attempt(self) -> StoredItems:
        definition = FlowDefinition(flow_id="f", tasks=TASKS)
        return StoredItems(ask=self._ask, run_id=self._run_id, mapped=mapped_tasks(definition))

    def all(self, count: int) -> list[Any]:
        return [self.of_an_attempt.item("each", place) for place in range(count)]


@pytest.fixture(autouse=True)
def nothing_kept() -> Iterator[None]:
    """Each test begins as a new process."""
    _orders.clear()
    yield
    _orders.clear()


def run_of(world: World, count: int, *, failing: tuple[int, ...] = ()) -> int:
    """A run whose mapped task has ended; those in ``failing`` returned nothing."""
    run_id = world.run(world.flow("f", TASKS))
    world.tick(run_id)
    world.serve(results={"rows": list(range(count))})
    serve_each(world, run_id, failing=failing)
    return run_id


def serve_each(world: World, run_id: int, *, failing: tuple[int, ...] = (), by: int = 10) -> None:
    """Every instance of the mapped task that is due has ended, with its index times ``by``."""
    for _ in range(6):
        world.tick(run_id)
        index = dict(
            TaskInstance.objects.filter(run_id=run_id, task_id="each").values_list(
                "id", "map_index"
            )
        )
        mine = [one for one in world.messages if one.ti_id in index]
        world.messages = [one for one in world.messages if one.ti_id not in index]
        for message in mine:
            if world.claim(message) is None:
                continue
            place = index[message.ti_id]
            world.finish(message, ok=place not in failing, result=place * by)


def clear_one(run_id: int, map_index: int) -> None:
    ti = TaskInstance.objects.get(run_id=run_id, task_id="each", map_index=map_index)
    clear.clear_task_instances(
        ti_ids=[ti.pk], actor="ana", reason="again", options=Options(), dry_run=False
    )


def test_each_element_is_one_look_once_a_process_knows_who_returned_something(world: World) -> None:
    reader = Reader(world, run_of(world, 12))
    assert reader.all(12) == [10 * index for index in range(12)]
    assert reader.statements == 1 + 12, "the order once, and each element by its index"
    assert reader.of_an_attempt.length("each") == 12


def test_what_returned_nothing_is_left_out(world: World) -> None:
    reader = Reader(world, run_of(world, 5, failing=(0, 3)))
    assert reader.all(3) == [10, 20, 40]
    assert reader.of_an_attempt.length("each") == 3
    with pytest.raises(IndexError):
        reader.of_an_attempt.item("each", 3)


def test_a_gap_that_closes_moves_those_behind_it(world: World) -> None:
    run_id = run_of(world, 4, failing=(1,))
    reader = Reader(world, run_id)
    assert reader.all(3) == [0, 20, 30]
    clear_one(run_id, 1)
    serve_each(world, run_id)
    assert reader.all(4) == [0, 10, 20, 30]
    assert reader.of_an_attempt.length("each") == 4


def test_a_new_result_in_an_old_place_is_read(world: World) -> None:
    run_id = run_of(world, 3)
    reader = Reader(world, run_id)
    assert reader.all(3) == [0, 10, 20]
    clear_one(run_id, 2)
    serve_each(world, run_id, by=7)
    assert reader.all(3) == [0, 10, 14]


def test_what_is_under_way_is_not_kept(world: World) -> None:
    run_id = run_of(world, 3)
    clear_one(run_id, 0)
    reader = Reader(world, run_id)
    assert reader.of_an_attempt.item("each", 0) == 10
    serve_each(world, run_id)
    assert reader.of_an_attempt.item("each", 0) == 0
