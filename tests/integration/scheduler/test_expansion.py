"""Mapped tasks by ticks: expanded, shrunk, grown, in batches, across a lost lease."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from scheduler_app.models import Run, TaskInstance
from scheduler_app.operations import clear
from scheduler_app.queries.scope import EVERYTHING
from scheduler_app.queries.why import why_of
from scheduler_app.rules.clear import Options
from scheduler_app.rules.definition import GroupDefinition, TaskDefinition
from scheduler_app.rules.mapping import Argument, Kind, MapOver, Source
from scheduler_app.scheduler import expansion
from scheduler_app.scheduler.tick import Ticker
from tests.factories import make_job

if TYPE_CHECKING:
    from tests.world import World

pytestmark = pytest.mark.django_db(transaction=True)


def over(task_id: str, name: str = "x") -> MapOver:
    """What ``.map(<task>())`` maps over."""
    source = Source(kind=Kind.RESULT, task_id=task_id)
    return MapOver(arguments=(Argument(name=name, source=source),))


def literal(*items: Any) -> MapOver:
    return MapOver(arguments=(Argument(name="x", source=Source(kind=Kind.LITERAL, items=items)),))


def line(**options: Any) -> tuple[TaskDefinition, ...]:
    """Rows, something for each of them, and something with all of it."""
    return (
        TaskDefinition(task_id="rows"),
        TaskDefinition(task_id="each", upstream=("rows",), mapped=over("rows"), **options),
        TaskDefinition(task_id="all", upstream=("each",)),
    )


def instances(run_id: int, task_id: str = "each") -> dict[int, str]:
    """State by map index."""
    rows = TaskInstance.objects.filter(run_id=run_id, task_id=task_id)
    return dict(sorted(rows.values_list("map_index", "state")))


def until(world: World, run_id: int, results: dict[str, Any], condition: Any) -> None:
    """Ticks and finished work, until the condition holds."""
    for _ in range(60):
        if condition():
            return
        world.tick(run_id)
        world.serve(results=results)
    raise AssertionError(f"it did not come to that: {instances(run_id)}")


def clear_task(run_id: int, task_id: str, **options: Any) -> None:
    """A person clears the task, everything after it with it unless told otherwise."""
    ids = list(
        TaskInstance.objects.filter(run_id=run_id, task_id=task_id).values_list("id", flat=True)
    )
    clear.clear_task_instances(
        ti_ids=ids,
        actor="ana",
        reason="again",
        options=Options(**{"include_downstream": True, **options}),
        dry_run=False,
    )


def test_a_task_is_run_once_for_each_element_and_what_follows_waits_for_all(world: World) -> None:
    run_id = world.run(world.flow("f", line(map_label="row {x}")))
    until(world, run_id, {"rows": ["a", "b", "c"]}, lambda: len(instances(run_id)) == 3)
    assert instances(run_id) == dict.fromkeys(range(3), "none")
    labels = TaskInstance.objects.filter(run_id=run_id, task_id="each").order_by("map_index")
    assert list(labels.values_list("map_label", flat=True)) == ["row a", "row b", "row c"]
    world.tick(run_id)
    assert len(world.messages) == 3
    assert world.states(run_id)["all"] == "none"
    assert world.play(run_id).state == "success"
    assert instances(run_id) == dict.fromkeys(range(3), "success")
    assert world.states(run_id)["all"] == "success"


def test_an_empty_list_leaves_a_skipped_summary(world: World) -> None:
    run_id = world.run(world.flow("f", line()))
    assert world.play(run_id, results={"rows": []}).state == "success"
    assert instances(run_id) == {-1: "skipped"}
    assert world.states(run_id)["all"] == "skipped"


def test_a_list_that_is_written_in_the_flow_needs_no_task(world: World) -> None:
    run_id = world.run(world.flow("f", [TaskDefinition(task_id="each", mapped=literal(1, 2))]))
    assert world.play(run_id).state == "success"
    assert instances(run_id) == {0: "success", 1: "success"}


@pytest.mark.parametrize("rule", ["all_success", "all_done", "always", "one_failed"])
def test_without_its_input_a_task_cannot_be_expanded_whatever_its_rule(
    world: World, rule: str
) -> None:
    run_id = world.run(world.flow("f", line(trigger_rule=rule)))
    assert world.play(run_id, failing=["rows"]).state == "failed"
    assert instances(run_id) == {-1: "upstream_failed"}


def test_an_input_that_left_no_list_gives_the_task_up_and_says_why(world: World) -> None:
    run_id = world.run(world.flow("f", line()))
    assert world.play(run_id, results={"rows": None}).state == "failed"
    row = TaskInstance.objects.get(run_id=run_id, task_id="each")
    assert (row.state, row.map_index) == ("upstream_failed", -1)
    assert "rows left no list" in (row.stop_reason or "")


def test_a_product_beyond_the_limit_gives_the_task_up_and_names_the_numbers(world: World) -> None:
    source = Source(kind=Kind.RESULT, task_id="rows")
    product = MapOver(arguments=tuple(Argument(name=n, source=source) for n in "ab"))
    tasks = [
        TaskDefinition(task_id="rows"),
        TaskDefinition(task_id="each", upstream=("rows",), mapped=product),
    ]
    run_id = world.run(world.flow("f", tasks))
    assert world.play(run_id, results={"rows": [0] * 1000}).state == "failed"
    row = TaskInstance.objects.get(run_id=run_id, task_id="each")
    assert "1,000 x 1,000 = 1,000,000" in (row.stop_reason or "")
    assert "100,000" in (row.stop_reason or "")


def test_mapping_over_a_mapped_task_counts_what_it_returned(world: World) -> None:
    tasks = (
        *line()[:2],
        TaskDefinition(
            task_id="again", upstream=("each",), mapped=over("each"), trigger_rule="all_done"
        ),
    )
    run_id = world.run(world.flow("f", tasks))
    until(world, run_id, {"rows": [1, 2, 3]}, lambda: len(instances(run_id)) == 3)
    world.tick(run_id)
    messages, world.messages = world.messages, []
    for number, message in enumerate(messages):
        assert world.claim(message) is not None
        world.finish(message, ok=number != 1, result=7)
    until(world, run_id, {}, lambda: -1 not in instances(run_id, "again"))
    assert len(instances(run_id, "again")) == 2


def test_one_failing_instance_is_retried_alone(world: World) -> None:
    run_id = world.run(world.flow("f", line(retries=1, retry_delay_s=0.0)))
    until(world, run_id, {"rows": [1, 2, 3]}, lambda: len(instances(run_id)) == 3)
    world.tick(run_id)
    messages, world.messages = world.messages, []
    for number, message in enumerate(messages):
        assert world.claim(message) is not None
        world.finish(message, ok=number != 1, retry_after_s=0.0 if number == 1 else None)
    assert Counter(instances(run_id).values()) == {"success": 2, "up_for_retry": 1}
    assert world.play(run_id).state == "success"
    tries = TaskInstance.objects.filter(run_id=run_id, task_id="each")
    assert sorted(tries.values_list("try_number", flat=True)) == [1, 1, 2]


def test_a_mapped_instance_is_deferred_and_resumed_alone(world: World) -> None:
    run_id = world.run(world.flow("f", line()))
    until(world, run_id, {"rows": [1, 2]}, lambda: len(instances(run_id)) == 2)
    world.tick(run_id)
    first, second = world.messages
    world.messages = []
    assert world.claim(first)
    trigger_id = world.defer(first)
    assert world.claim(second)
    world.finish(second)
    world.tick(run_id)
    assert sorted(instances(run_id).values()) == ["deferred", "success"]
    assert world.fire(trigger_id) == "moved"
    assert world.play(run_id).state == "success"


class TestAfterAClear:
    @pytest.fixture
    def run_id(self, world: World) -> int:
        run_id = world.run(world.flow("f", line()))
        assert world.play(run_id, results={"rows": [1, 2, 3, 4]}).state == "success"
        return run_id

    def test_a_shorter_input_removes_the_surplus(self, world: World, run_id: int) -> None:
        clear_task(run_id, "rows")
        assert world.play(run_id, results={"rows": [1, 2]}).state == "success"
        assert instances(run_id) == {0: "success", 1: "success", 2: "removed", 3: "removed"}
        assert world.states(run_id)["all"] == "success"
        tries = TaskInstance.objects.filter(run_id=run_id, task_id="each").order_by("map_index")
        assert list(tries.values_list("try_number", flat=True)) == [2, 2, 1, 1]

    def test_a_longer_input_adds_instances(self, world: World, run_id: int) -> None:
        clear_task(run_id, "rows")
        assert world.play(run_id, results={"rows": list(range(6))}).state == "success"
        assert instances(run_id) == dict.fromkeys(range(6), "success")

    def test_what_was_removed_comes_back(self, world: World, run_id: int) -> None:
        clear_task(run_id, "rows")
        world.play(run_id, results={"rows": [1]})
        clear_task(run_id, "rows")
        assert world.play(run_id, results={"rows": [1, 2, 3]}).state == "success"
        assert instances(run_id) == {0: "success", 1: "success", 2: "success", 3: "removed"}

    def test_nothing_left_is_told_by_a_skipped_summary(self, world: World, run_id: int) -> None:
        clear_task(run_id, "rows")
        assert world.play(run_id, results={"rows": []}).state == "success"
        assert instances(run_id) == {-1: "skipped", **dict.fromkeys(range(4), "removed")}
        assert world.states(run_id)["all"] == "skipped", "what follows sees a skip"
        clear_task(run_id, "rows")
        assert world.play(run_id, results={"rows": [5]}).state == "success"
        assert instances(run_id)[0] == "success"

    def test_nothing_changes_before_the_new_length_is_known(
        self, world: World, run_id: int
    ) -> None:
        clear_task(run_id, "rows", include_downstream=False)
        world.tick(run_id)
        world.tick(run_id)
        assert instances(run_id) == dict.fromkeys(range(4), "success")
        (message,) = world.messages
        world.messages = []
        assert world.claim(message)
        world.finish(message, result=[1])
        world.tick(run_id)
        assert instances(run_id) == {0: "success", **dict.fromkeys(range(1, 4), "removed")}

    def test_a_surplus_instance_that_runs_is_stopped_before_it_is_removed(
        self, world: World, run_id: int
    ) -> None:
        clear_task(run_id, "each")
        world.tick(run_id)
        world.tick(run_id)
        running = world.messages
        world.messages = []
        for message in running:
            assert world.claim(message)
        clear_task(run_id, "rows", include_downstream=False)
        until(world, run_id, {"rows": [1]}, lambda: world.states(run_id)["rows"] == "success")
        world.tick(run_id)
        assert set(instances(run_id).values()) == {"running"}
        asked = TaskInstance.objects.filter(run_id=run_id, stop_requested_at__isnull=False)
        assert sorted(asked.values_list("map_index", flat=True)) == [1, 2, 3]
        for message in running:
            world.finish(message)
        assert instances(run_id) == {0: "success", **dict.fromkeys(range(1, 4), "removed")}
        assert world.play(run_id).state == "success"


class TestGroups:
    def tasks(self) -> tuple[TaskDefinition, ...]:
        return (
            TaskDefinition(task_id="rows"),
            TaskDefinition(task_id="g.p", upstream=("rows",), group="g"),
            TaskDefinition(task_id="g.q", upstream=("g.p",), group="g"),
            TaskDefinition(task_id="end", upstream=("g.q",), trigger_rule="all_done"),
        )

    def run(self, world: World) -> int:
        group = GroupDefinition(group_id="g", mapped=over("rows"))
        return world.run(world.flow("f", self.tasks(), groups=(group,)))

    def test_inside_each_waits_for_its_own_index(self, world: World) -> None:
        run_id = self.run(world)
        until(world, run_id, {"rows": [1, 2, 3]}, lambda: len(instances(run_id, "g.p")) == 3)
        assert len(instances(run_id, "g.q")) == 3, "all of the group is expanded at once"
        world.tick(run_id)
        index = dict(TaskInstance.objects.filter(task_id="g.p").values_list("id", "map_index"))
        first, second, third = sorted(world.messages, key=lambda one: index[one.ti_id])
        world.messages = []
        for message, is_ok in ((first, True), (second, False)):
            assert world.claim(message)
            world.finish(message, ok=is_ok)
        make_job(id=world.leases.holder, kind="scheduler")
        of = {n: TaskInstance.objects.get(task_id="g.q", map_index=n).pk for n in (0, 2)}
        assert why_of(EVERYTHING, of[0]).sentence.startswith("Its upstream has ended as its rule")
        assert "waits for g.p [2] (queued)" in why_of(EVERYTHING, of[2]).sentence
        world.tick(run_id)
        assert instances(run_id, "g.q") == {0: "queued", 1: "upstream_failed", 2: "none"}
        assert world.claim(third)
        world.finish(third)
        assert world.play(run_id).state == "success"
        assert world.states(run_id)["end"] == "success"
        assert instances(run_id, "g.q") == {0: "success", 1: "upstream_failed", 2: "success"}

    def test_an_empty_group_is_skipped(self, world: World) -> None:
        run_id = self.run(world)
        assert world.play(run_id, results={"rows": []}).state == "success"
        assert instances(run_id, "g.p") == instances(run_id, "g.q") == {-1: "skipped"}
        assert world.states(run_id)["end"] == "success"


class TestInBatches:
    @pytest.fixture(autouse=True)
    def small(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(expansion, "INSTANCES_ADDED_MAX", 10)

    def test_the_summary_stays_until_the_last_batch(self, world: World) -> None:
        run_id = world.run(world.flow("f", line()))
        until(world, run_id, {"rows": list(range(35))}, lambda: len(instances(run_id)) > 1)
        assert sorted(instances(run_id)) == [-1, *range(1, 11)]
        # Another process goes on where this one died.
        world.ticker = Ticker(world.leases)
        world.tick(run_id)
        assert sorted(instances(run_id)) == [-1, *range(1, 21)]
        world.tick(run_id)
        world.tick(run_id)
        assert sorted(instances(run_id)) == list(range(35))
        assert world.play(run_id).state == "success"
        assert set(instances(run_id).values()) == {"success"}

    def test_growth_in_batches_starts_nothing_before_it_is_whole(self, world: World) -> None:
        run_id = world.run(world.flow("f", line()))
        assert world.play(run_id, results={"rows": [1]}).state == "success"
        clear_task(run_id, "rows")
        until(world, run_id, {"rows": list(range(25))}, lambda: len(instances(run_id)) > 1)
        world.ticker = Ticker(world.leases)
        until(world, run_id, {}, lambda: len(instances(run_id)) == 25)
        assert world.play(run_id).state == "success"
        assert instances(run_id) == dict.fromkeys(range(25), "success")


def test_ten_thousand_are_expanded_while_another_flow_goes_on(world: World) -> None:
    big = world.run(world.flow("big", line()))
    small = world.run(world.flow("small", line()[:1]), "s")
    until(world, big, {"rows": list(range(10_000))}, lambda: len(instances(big)) > 1)
    world.tick(big, small)
    (message,) = [one for one in world.messages if one.run_id == small]
    assert -1 in instances(big), "the expansion is under way"
    assert world.claim(message)
    world.finish(message)
    world.tick(big, small)
    assert Run.objects.get(pk=small).state == "success"
    assert -1 in instances(big)
    for _ in range(12):
        world.tick(big)
    assert sorted(instances(big)) == list(range(10_000))
