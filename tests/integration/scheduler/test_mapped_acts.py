"""What a run's policy, a freeze and a terminate do to mapped instances, before, amid and after an expansion."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from scheduler_app.models import Attempt, Run, TaskInstance
from scheduler_app.operations import clear
from scheduler_app.operations.freeze import freeze
from scheduler_app.operations.terminate import terminate_run, terminate_task_instance
from scheduler_app.operations.thaw import thaw
from scheduler_app.rules.clear import Options
from scheduler_app.rules.definition import GroupDefinition, TaskDefinition
from scheduler_app.rules.errors import NotAllowed
from scheduler_app.rules.run_retry import RunRetryPolicy
from scheduler_app.scheduler import expansion
from scheduler_app.scheduler.run_retries import begin_due
from scheduler_app.scheduler.tick import Ticker
from scheduler_app.scheduler.versions import Versions
from tests.integration.scheduler.test_expansion import (
    clear_task,
    instances,
    line,
    over,
    until,
)

if TYPE_CHECKING:
    from scheduler_app.transitions.attempt import Message
    from tests.world import World

pytestmark = pytest.mark.django_db(transaction=True)


def retrying(world: World, *, scope: str = "failed", siblings: str = "wait", **options: Any) -> int:
    """A run of ``line`` whose failure begins it again at once."""
    policy = RunRetryPolicy(max_attempts=3, scope=scope, siblings=siblings)
    tasks = options.pop("tasks", None) or line()
    return world.run(world.flow("f", tasks, run_retry=policy, **options))


def begin(world: World) -> set[int]:
    """One sweep of the scheduler over runs that are to begin again."""
    moved, _ = begin_due(
        world.connection, leases=world.leases, terms=world.leases.terms(), versions=Versions()
    )
    return moved


def started(world: World, run_id: int, *, task_id: str = "each") -> dict[int, Message]:
    """The messages of the task that wait for a worker, by map index, claimed."""
    world.tick(run_id)
    index = dict(
        TaskInstance.objects.filter(run_id=run_id, task_id=task_id).values_list("id", "map_index")
    )
    found = {index[one.ti_id]: one for one in world.messages if one.ti_id in index}
    world.messages = [one for one in world.messages if one.ti_id not in index]
    for message in found.values():
        assert world.claim(message) is not None
    return found


def tries(run_id: int, task_id: str = "each") -> dict[int, int]:
    """Try number by map index."""
    rows = TaskInstance.objects.filter(run_id=run_id, task_id=task_id)
    return dict(rows.values_list("map_index", "try_number"))


def id_of(run_id: int, task_id: str, map_index: int) -> int:
    return TaskInstance.objects.get(run_id=run_id, task_id=task_id, map_index=map_index).pk


def expanded(world: World, run_id: int, count: int = 4) -> None:
    """``each`` has its instances, of which none has begun."""
    until(
        world,
        run_id,
        {"rows": list(range(count))},
        lambda: sorted(instances(run_id)) == list(range(count)),
    )
    assert set(instances(run_id).values()) == {"none"}


# -- run retry -------------------------------------------------------------------------------------


class TestARunRetry:
    def test_takes_up_the_instance_that_failed_and_what_waited_for_all(self, world: World) -> None:
        run_id = retrying(world)
        expanded(world, run_id)
        for index, message in started(world, run_id).items():
            world.finish(message, ok=index != 1, result=index)
        run = world.play(run_id)
        assert run.state == "failed"
        assert run.retry_reason == "Go 2 of 3 follows because each failed."
        assert begin(world) == {run_id}
        assert instances(run_id) == {0: "success", 1: "none", 2: "success", 3: "success"}
        assert world.states(run_id)["all"] == "none"
        assert world.play(run_id).state == "success"
        assert tries(run_id) == {0: 1, 1: 2, 2: 1, 3: 1}

    def test_expands_what_could_not_be_expanded(self, world: World) -> None:
        run_id = retrying(world)
        assert world.play(run_id, failing=["rows"]).state == "failed"
        assert instances(run_id) == {-1: "upstream_failed"}
        assert begin(world) == {run_id}
        assert instances(run_id) == {-1: "none"}
        assert world.play(run_id, results={"rows": [1, 2]}).state == "success"
        assert instances(run_id) == {0: "success", 1: "success"}

    def test_of_a_longer_list_has_more_instances(self, world: World) -> None:
        run_id = retrying(world, scope="all")
        expanded(world, run_id, 2)
        for index, message in started(world, run_id).items():
            world.finish(message, ok=index != 1)
        assert world.play(run_id).state == "failed"
        assert begin(world) == {run_id}
        assert instances(run_id) == {0: "none", 1: "none"}
        assert world.play(run_id, results={"rows": [1, 2, 3]}).state == "success"
        assert instances(run_id) == dict.fromkeys(range(3), "success")

    def test_of_a_shorter_list_removes_the_failed_ones_that_are_too_many(
        self, world: World
    ) -> None:
        run_id = retrying(world, scope="all")
        expanded(world, run_id, 3)
        for index, message in started(world, run_id).items():
            world.finish(message, ok=index != 2)
        assert world.play(run_id).state == "failed"
        assert begin(world) == {run_id}
        assert world.play(run_id, results={"rows": [1]}).state == "success"
        assert instances(run_id) == {0: "success", 1: "removed", 2: "removed"}

    def test_takes_up_one_index_of_a_mapped_group(self, world: World) -> None:
        tasks = (
            TaskDefinition(task_id="rows"),
            TaskDefinition(task_id="g.p", upstream=("rows",), group="g"),
            TaskDefinition(task_id="g.q", upstream=("g.p",), group="g"),
            TaskDefinition(task_id="end", upstream=("g.q",)),
        )
        group = GroupDefinition(group_id="g", mapped=over("rows"))
        run_id = retrying(world, tasks=tasks, groups=(group,))
        until(world, run_id, {"rows": [1, 2, 3]}, lambda: len(instances(run_id, "g.p")) == 3)
        for index, message in started(world, run_id, task_id="g.p").items():
            world.finish(message, ok=index != 1)
        assert world.play(run_id).state == "failed"
        assert instances(run_id, "g.q") == {0: "success", 1: "upstream_failed", 2: "success"}
        assert begin(world) == {run_id}
        assert instances(run_id, "g.p") == {0: "success", 1: "none", 2: "success"}
        assert instances(run_id, "g.q") == {0: "success", 1: "none", 2: "success"}
        assert world.play(run_id).state == "success"
        assert tries(run_id, "g.q") == {0: 1, 1: 1, 2: 1}

    def test_stops_the_instances_that_run_on_where_its_policy_asks_for_it(
        self, world: World
    ) -> None:
        run_id = retrying(world, siblings="stop")
        expanded(world, run_id)
        running = started(world, run_id)
        world.finish(running[1], ok=False)
        world.tick(run_id)
        asked = TaskInstance.objects.filter(
            run_id=run_id, task_id="each", stop_requested_at__isnull=False
        )
        assert sorted(asked.values_list("map_index", flat=True)) == [0, 2, 3]
        for index in (0, 2, 3):
            world.finish(running[index], ok=False)
        assert world.play(run_id).state == "failed"
        assert begin(world) == {run_id}
        assert instances(run_id) == dict.fromkeys(range(4), "none")
        assert world.play(run_id).state == "success"

    def test_that_stops_siblings_amid_an_expansion_expands_the_rest_in_the_next_go(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(expansion, "INSTANCES_ADDED_MAX", 10)
        tasks = (*line(), TaskDefinition(task_id="bad"))
        run_id = retrying(world, siblings="stop", tasks=tasks)
        (bad,) = started(world, run_id, task_id="bad").values()
        until(world, run_id, {"rows": list(range(35))}, lambda: len(instances(run_id)) > 1)
        assert -1 in instances(run_id)
        world.finish(bad, ok=False)
        assert world.play(run_id).state == "failed"
        assert begin(world) == {run_id}
        world.ticker = Ticker(world.leases)
        assert world.play(run_id, results={"rows": list(range(35))}).state == "success"
        assert instances(run_id) == dict.fromkeys(range(35), "success")


# -- freeze ----------------------------------------------------------------------------------------


def hold(kind: str, scope_id: Any, **options: Any) -> Any:
    return freeze(scope_kind=kind, scope_id=scope_id, actor="ada", reason="look first", **options)


def go_on(kind: str, scope_id: Any) -> Any:
    return thaw(scope_kind=kind, scope_id=scope_id, actor="ada", reason="looked")


class TestAFreeze:
    def test_of_one_instance_lets_the_others_go_on_and_holds_what_waits_for_all(
        self, world: World
    ) -> None:
        run_id = world.run(world.flow("f", line()))
        expanded(world, run_id)
        hold("task_instance", id_of(run_id, "each", 2))
        assert world.play(run_id, rounds=6).state == "running"
        assert instances(run_id) == {0: "success", 1: "success", 2: "none", 3: "success"}
        assert world.states(run_id)["all"] == "none"
        go_on("task_instance", id_of(run_id, "each", 2))
        assert world.play(run_id).state == "success"
        assert world.states(run_id)["all"] == "success"

    def test_of_the_run_before_the_expansion_lets_nothing_be_added(self, world: World) -> None:
        run_id = world.run(world.flow("f", line()))
        (message,) = started(world, run_id, task_id="rows").values()
        hold("run", run_id)
        world.finish(message, result=[1, 2])
        assert world.play(run_id, rounds=4).state == "running"
        assert instances(run_id) == {-1: "none"}
        go_on("run", run_id)
        assert world.play(run_id).state == "success"
        assert instances(run_id) == {0: "success", 1: "success"}

    @pytest.mark.parametrize("kind", ["run", "flow", "task"])
    def test_amid_an_expansion_stops_it_and_starts_nothing_until_the_thaw(
        self, world: World, monkeypatch: pytest.MonkeyPatch, kind: str
    ) -> None:
        monkeypatch.setattr(expansion, "INSTANCES_ADDED_MAX", 10)
        run_id = world.run(world.flow("f", line()))
        until(world, run_id, {"rows": list(range(35))}, lambda: len(instances(run_id)) > 1)
        scope_id = {"run": run_id, "flow": "f", "task": f"{run_id}:each"}[kind]
        hold(kind, scope_id)
        world.ticker = Ticker(world.leases)
        assert world.play(run_id, rounds=6).state == "running"
        assert sorted(instances(run_id)) == [-1, *range(1, 11)]
        assert set(instances(run_id).values()) == {"none"}
        go_on(kind, scope_id)
        assert world.play(run_id).state == "success"
        assert instances(run_id) == dict.fromkeys(range(35), "success")

    def test_of_a_task_holds_the_instances_that_a_longer_list_adds(self, world: World) -> None:
        run_id = world.run(world.flow("f", line()))
        assert world.play(run_id, results={"rows": [1, 2]}).state == "success"
        clear_task(run_id, "rows")
        hold("task", f"{run_id}:each")
        assert world.play(run_id, results={"rows": [1, 2, 3]}, rounds=6).state == "running"
        assert instances(run_id) == {0: "none", 1: "none", 2: "none"}, "nothing of it starts"
        go_on("task", f"{run_id}:each")
        assert world.play(run_id).state == "success"
        assert instances(run_id) == dict.fromkeys(range(3), "success")

    def test_of_a_task_holds_the_instances_that_come_back(self, world: World) -> None:
        run_id = world.run(world.flow("f", line()))
        assert world.play(run_id, results={"rows": [1, 2]}).state == "success"
        clear_task(run_id, "rows", include_downstream=False)
        assert world.play(run_id, results={"rows": [1]}).state == "success"
        assert instances(run_id) == {0: "success", 1: "removed"}
        clear_task(run_id, "rows")
        hold("task", f"{run_id}:each")
        assert world.play(run_id, results={"rows": [1, 2]}, rounds=6).state == "running"
        assert instances(run_id) == {0: "none", 1: "none"}, "nothing of it starts"
        go_on("task", f"{run_id}:each")
        assert world.play(run_id).state == "success"
        assert instances(run_id) == {0: "success", 1: "success"}

    def test_of_a_task_lets_nobody_begin_one_of_its_ended_instances_anew(
        self, world: World
    ) -> None:
        run_id = world.run(world.flow("f", line()))
        expanded(world, run_id)
        running = started(world, run_id)
        world.finish(running[0])
        hold("task", f"{run_id}:each")
        ti_id = id_of(run_id, "each", 0)
        with pytest.raises(NotAllowed, match=r"freeze \d+ holds it: thaw it before you clear it"):
            clear.clear_task_instances(
                ti_ids=[ti_id], actor="ana", reason="again", options=Options(), dry_run=False
            )
        clear_task(run_id, "rows")
        assert instances(run_id)[0] == "success", "left out of what the clear reaches"
        go_on("task", f"{run_id}:each")
        for index in (1, 2, 3):
            world.finish(running[index])
        clear_task(run_id, "each")
        assert world.play(run_id, results={"rows": [1, 2, 3, 4]}).state == "success"
        assert tries(run_id)[0] == 2

    def test_that_is_hard_stops_instances_and_they_begin_again_in_the_same_try(
        self, world: World
    ) -> None:
        run_id = world.run(world.flow("f", line()))
        expanded(world, run_id)
        running = started(world, run_id)
        hold("run", run_id, mode="hard")
        asked = Attempt.objects.filter(run_id=run_id, stop_requested_at__isnull=False)
        assert {one.pk for one in asked} == {one.attempt_id for one in running.values()}
        go_on("run", run_id)
        assert instances(run_id) == dict.fromkeys(range(4), "running")
        for message in running.values():
            world.finish(message)
        assert world.play(run_id).state == "success"
        assert tries(run_id) == dict.fromkeys(range(4), 1)


# -- terminate -------------------------------------------------------------------------------------


def end_run(run_id: int) -> None:
    terminate_run(run_id=run_id, actor="ada", reason="bad data")


def end(run_id: int, task_id: str, map_index: int) -> None:
    terminate_task_instance(ti_id=id_of(run_id, task_id, map_index), actor="ada", reason="bad data")


class TestATermination:
    def test_of_one_instance_lets_the_others_end(self, world: World) -> None:
        run_id = world.run(world.flow("f", line()))
        expanded(world, run_id)
        end(run_id, "each", 2)
        assert world.play(run_id).state == "failed"
        assert instances(run_id) == {0: "success", 1: "success", 2: "failed", 3: "success"}
        assert world.states(run_id)["all"] == "upstream_failed"

    def test_of_a_summary_leaves_nothing_to_expand(self, world: World) -> None:
        run_id = world.run(world.flow("f", line()))
        (message,) = started(world, run_id, task_id="rows").values()
        end(run_id, "each", -1)
        world.finish(message, result=[1, 2])
        assert world.play(run_id).state == "failed"
        assert instances(run_id) == {-1: "failed"}

    def test_of_the_run_amid_an_expansion_adds_nothing_more(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(expansion, "INSTANCES_ADDED_MAX", 10)
        run_id = world.run(world.flow("f", line()))
        until(world, run_id, {"rows": list(range(35))}, lambda: len(instances(run_id)) > 1)
        end_run(run_id)
        world.ticker = Ticker(world.leases)
        assert world.play(run_id).state == "failed"
        assert instances(run_id) == dict.fromkeys([-1, *range(1, 11)], "failed")
        clear_task(run_id, "each")
        assert world.play(run_id, results={"rows": list(range(35))}).state == "success"
        assert instances(run_id) == dict.fromkeys(range(35), "success")

    def test_of_the_run_asks_each_running_instance_and_ends_the_others(self, world: World) -> None:
        run_id = world.run(world.flow("f", line(retries=2, retry_delay_s=600.0)))
        expanded(world, run_id)
        running = started(world, run_id)
        trigger_id = world.defer(running[1])
        world.finish(running[2], ok=False, retry_after_s=600)
        end_run(run_id)
        assert instances(run_id) == {0: "running", 1: "failed", 2: "failed", 3: "running"}
        assert world.fire(trigger_id) == "late"
        for index in (0, 3):
            world.finish(running[index], ok=False, retry_after_s=600)
        assert world.play(run_id).state == "failed"
        assert instances(run_id) == dict.fromkeys(range(4), "failed")
        assert Run.objects.get(pk=run_id).retry_at is None
