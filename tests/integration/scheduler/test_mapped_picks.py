"""Branches and gates in mapped groups in real ticks: what they decide, what a rehearsal says, what acts do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

from scheduler_app.authoring import (
    GroupRetry,
    branch,
    flow,
    group,
    latest_only,
    short_circuit,
    task,
)
from scheduler_app.models import TaskInstance
from scheduler_app.operations import clear, mark
from scheduler_app.queries.scope import EVERYTHING
from scheduler_app.queries.why import why_of
from scheduler_app.rules.clear import Options
from scheduler_app.rules.run_retry import RunRetryPolicy
from scheduler_app.rules.states import TaskState
from scheduler_app.scheduler.run_retries import begin_due
from scheduler_app.scheduler.tick import Ticker
from scheduler_app.scheduler.versions import Versions
from tests.factories import make_job

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler_app.authoring import Flow
    from scheduler_app.authoring.context import Context
    from scheduler_app.rules.why import Why
    from scheduler_app.transitions.attempt import Message
    from tests.world import World

pytestmark = pytest.mark.django_db(transaction=True)

JOIN = "none_failed_min_one_success"
ANSWERS: dict[str, Any] = {}  # what each task instance returns; an exception is raised


def answer(ctx: Context) -> Any:
    name = ctx.task_id if ctx.map_index < 0 else f"{ctx.task_id}[{ctx.map_index}]"
    found = ANSWERS.get(name, ANSWERS.get(ctx.task_id))
    if isinstance(found, Exception):
        raise found
    return found


@task
def rows(ctx: Context) -> Any:
    return answer(ctx)


@task
def step(ctx: Context) -> Any:
    return answer(ctx)


@task
def after(ctx: Context, choices: Any) -> Any:
    return answer(ctx)


@branch
def choose(ctx: Context, row: Any) -> Any:
    return answer(ctx)


@short_circuit
def gate(ctx: Context, row: Any) -> Any:
    return answer(ctx)


@short_circuit(ignore_downstream_trigger_rules=False)
def near(ctx: Context, row: Any) -> Any:
    return answer(ctx)


@task.setup
def make(ctx: Context, row: Any) -> Any:
    return answer(ctx)


@task.teardown
def drop(ctx: Context) -> Any:
    return answer(ctx)


def named(task_id: str, rule: Any = "all_success") -> Any:
    return step.override(task_id=task_id, trigger_rule=rule)()


@flow
def two_ways() -> None:
    """A branch before a task and a plain group, which come together."""

    @group
    def g(row: Any) -> None:
        which = choose(row)
        a = named("a")
        with group("deep") as deep:
            named("first") >> named("second")
        which >> [a, deep] >> named("join", JOIN)

    g.map(rows()) >> named("end", "none_failed")


@flow
def resource() -> None:
    """A gate and a branch beside what is made and taken away again."""

    @group
    def g(row: Any) -> None:
        made = make(row)
        with drop().as_teardown(setups=made):
            shut = near(row)
            which = choose(row)
            shut >> named("work") >> named("tidy", "all_done")
            shut >> which >> [named("a"), named("b")]

    g.map(rows()) >> named("end", "all_done")


@flow
def reaching_out() -> None:
    """A branch and a gate that are before tasks outside too."""

    @group
    def g(row: Any) -> Any:
        which = choose(row)
        which >> named("a")
        gate(row) >> named("work")
        return which

    choices = g.map(rows())
    after.override(task_id="out")(choices)
    after.override(task_id="never", trigger_rule="all_done")(choices)


@flow
def all_or_nothing() -> None:
    """A mapped group with a branch, in a group that is one unit."""

    @group
    def g(row: Any) -> None:
        choose(row) >> [named("a"), named("b")]

    made = rows()
    with group("u", retry=GroupRetry(max_attempts=2)) as unit:
        g.map(made)
    unit >> named("out", "all_done")


@flow
def newest() -> None:
    """Latest-only in a mapped group: a run by hand goes on."""

    @group
    def g(row: Any) -> None:
        step.override(task_id="before")() >> latest_only() >> named("after")

    g.map(rows())


def run_of(world: World, made: Flow) -> int:
    definition = made.definition()
    return world.run(world.flow(definition.flow_id, definition.tasks, groups=definition.groups))


@pytest.fixture(autouse=True)
def _fresh() -> None:
    ANSWERS.clear()


@pytest.mark.parametrize(
    ("made", "answers", "expected"),
    [
        (
            two_ways,
            {"g.choose[0]": ["g.a"], "g.choose[1]": ["g.deep"], "g.choose[2]": []},
            {
                "g.a": "success skipped skipped",
                "g.deep.first": "skipped success skipped",
                "g.deep.second": "skipped success skipped",
                "g.join": "success success skipped",
                "end": "success",
            },
        ),
        (
            two_ways,
            {"g.choose": ["g.a", "g.deep"], "g.choose[1]": OSError(), "g.a[2]": OSError()},
            {
                "g.a": "success upstream_failed failed",
                "g.deep.second": "success upstream_failed success",
                "g.join": "success upstream_failed upstream_failed",
                "end": "upstream_failed",
            },
        ),
        (
            resource,
            {"g.near[0]": True, "g.near[1]": False, "g.near[2]": True, "g.choose": ["g.b"]},
            {
                "g.choose": "success skipped success",
                "g.work": "success skipped success",
                "g.tidy": "success success success",
                "g.a": "skipped skipped skipped",
                "g.b": "success skipped success",
                "g.drop": "success success success",
                "end": "success",
            },
        ),
        (
            resource,
            {"g.near": True, "g.choose": ["g.a"], "g.make[1]": OSError()},
            {
                "g.near": "success upstream_failed success",
                "g.tidy": "success upstream_failed success",
                "g.b": "skipped upstream_failed skipped",
                "g.drop": "success upstream_failed success",
            },
        ),
        (
            reaching_out,
            {"g.choose[0]": ["g.a"], "g.choose[1]": ["out"], "g.choose[2]": [], "g.gate": False},
            {
                "g.a": "success skipped skipped",
                "g.work": "skipped skipped skipped",
                "out": "success",
                "never": "skipped",
            },
        ),
        (newest, {}, {"g.after": "success success success"}),
    ],
)
def test_each_index_decides_for_itself_in_ticks_as_in_a_rehearsal(
    world: World, made: Flow, answers: Mapping[str, Any], expected: Mapping[str, str]
) -> None:
    ANSWERS.update({"rows": [1, 2, 3], **answers})
    rehearsed = made.test()
    run_id = run_of(world, made)
    failing = [name for name, said in ANSWERS.items() if isinstance(said, Exception)]
    results: dict[str, Any] = {k: v for k, v in ANSWERS.items() if k not in failing}
    run = world.play(run_id, failing=failing, results={"g.latest_only": True, **results})
    found = world.states_by_index(run_id)
    for task_id, states in expected.items():
        of_task = [state for name, state in found.items() if name.partition("[")[0] == task_id]
        assert " ".join(of_task) == states, task_id
    in_rehearsal = {name: state for name, state in rehearsed.states.items() if name in found}
    for (task_id, index), state in rehearsed.mapped_states.items():
        in_rehearsal[f"{task_id}[{index}]"] = state
    assert in_rehearsal == found
    assert rehearsed.state == run.state


def test_another_scheduler_reads_what_each_index_picked(world: World) -> None:
    run_id = run_of(world, two_ways)
    picked = {f"g.choose[{n}]": ["g.a" if n != 1 else "g.deep"] for n in range(3)}
    for _ in range(20):
        world.tick(run_id)
        world.serve(results={"rows": [1, 2, 3], **picked})
        world.ticker = Ticker(world.leases)
    found = world.states_by_index(run_id)
    assert [found[f"g.a[{n}]"] for n in range(3)] == ["success", "skipped", "success"]
    assert [found[f"g.join[{n}]"] for n in range(3)] == ["success"] * 3


class TestActs:
    """What a person does to one index leaves the others as they are."""

    PICKED: Final = {"g.choose[0]": ["g.a"], "g.choose[1]": ["g.a"], "g.choose[2]": ["g.deep"]}

    def ended(self, world: World) -> int:
        run_id = run_of(world, two_ways)
        run = world.play(run_id, results={"rows": [1, 2, 3], **self.PICKED})
        assert run.state == "success"
        return run_id

    def id_of(self, run_id: int, task_id: str, index: int) -> int:
        return TaskInstance.objects.get(run_id=run_id, task_id=task_id, map_index=index).pk

    def tries(self, run_id: int) -> dict[str, int]:
        rows = TaskInstance.objects.filter(run_id=run_id)
        found = rows.values_list("task_id", "map_index", "try_number")
        return {t if n < 0 else f"{t}[{n}]": tried for t, n, tried in found}

    def test_a_clear_of_one_index_takes_what_is_below_it_at_its_index_and_outside(
        self, world: World
    ) -> None:
        run_id = self.ended(world)
        clear.clear_task_instances(
            ti_ids=[self.id_of(run_id, "g.choose", 1)],
            actor="ana",
            reason="it chose wrongly",
            options=Options(include_downstream=True),
            dry_run=False,
        )
        cleared = {name for name, state in world.states_by_index(run_id).items() if state == "none"}
        inside = ("choose", "a", "deep.first", "deep.second", "join")
        assert cleared == {"end", *(f"g.{one}[1]" for one in inside)}
        run = world.play(run_id, results={"g.choose": ["g.deep"]})
        assert run.state == "success"
        found = world.states_by_index(run_id)
        assert [found[f"g.a[{n}]"] for n in range(3)] == ["success", "skipped", "skipped"]
        second = [found[f"g.deep.second[{n}]"] for n in range(3)]
        assert second == ["skipped", "success", "success"]
        tries = self.tries(run_id)
        assert [tries[f"g.choose[{n}]"] for n in range(3)] == [1, 2, 1]

    def test_one_that_is_marked_as_successful_lets_all_of_its_index_go_on(
        self, world: World
    ) -> None:
        run_id = run_of(world, two_ways)
        for _ in range(4):
            world.tick(run_id)
            if TaskInstance.objects.filter(run_id=run_id, task_id="g.choose", map_index=1).exists():
                break
            world.serve(results={"rows": [1, 2, 3]})
        mark.mark_task_instances(
            ti_ids=[self.id_of(run_id, "g.choose", 1)],
            state=TaskState.SUCCESS,
            actor="ana",
            reason="both, please",
            dry_run=False,
        )
        world.messages = [
            one for one in world.messages if one.ti_id != self.id_of(run_id, "g.choose", 1)
        ]
        assert world.play(run_id, results=self.PICKED).state == "success"
        found = world.states_by_index(run_id)
        assert [found[f"g.a[{n}]"] for n in range(3)] == ["success", "success", "skipped"]
        first = [found[f"g.deep.first[{n}]"] for n in range(3)]
        assert first == ["skipped", "success", "success"]

    def test_a_longer_list_brings_branches_that_pick_for_themselves(self, world: World) -> None:
        run_id = self.ended(world)
        clear.clear_task_instances(
            ti_ids=[self.id_of(run_id, "rows", -1)],
            actor="ana",
            reason="one more",
            options=Options(include_downstream=False),
            dry_run=False,
        )
        more = {"rows": [1, 2, 3, 4], "g.choose[3]": ["g.deep"]}
        assert world.play(run_id, results=more).state == "success"
        found = world.states_by_index(run_id)
        assert [found[f"g.a[{n}]"] for n in range(4)] == [
            "success",
            "success",
            "skipped",
            "skipped",
        ]
        assert self.tries(run_id)["g.choose[0]"] == 1


def test_a_group_that_is_one_unit_picks_anew_in_its_next_attempt(world: World) -> None:
    run_id = run_of(world, all_or_nothing)
    first = {"rows": [1, 2], "u.g.choose": ["u.g.a"]}
    begun_anew = TaskInstance.objects.filter(task_id="u.g.choose", state="none", try_number=1)
    for _ in range(20):
        world.tick(run_id)
        if begun_anew.exists():
            break
        world.serve(results=first, failing=["u.g.a[1]"])
    assert begun_anew.count() == 2
    assert TaskInstance.objects.get(run_id=run_id, task_id="out").state == "none"
    second = {"u.g.choose[0]": ["u.g.b"], "u.g.choose[1]": ["u.g.a", "u.g.b"]}
    assert world.play(run_id, results=second).state == "success"
    found = world.states_by_index(run_id)
    assert [found[f"u.g.a[{n}]"] for n in range(2)] == ["skipped", "success"]
    assert [found[f"u.g.b[{n}]"] for n in range(2)] == ["success", "success"]
    assert found["out"] == "success"
    tries = TaskInstance.objects.filter(run_id=run_id, task_id="u.g.choose")
    assert set(tries.values_list("try_number", flat=True)) == {2}


def test_a_run_retry_takes_up_the_branch_that_failed_and_what_waited_for_it(world: World) -> None:
    definition = two_ways.definition()
    flow_row = world.flow(
        "f",
        definition.tasks,
        groups=definition.groups,
        run_retry=RunRetryPolicy(max_attempts=2, scope="failed"),
    )
    run_id = world.run(flow_row)
    answers = {"rows": [1, 2], "g.choose[0]": ["g.a"]}
    assert world.play(run_id, results=answers, failing=["g.choose[1]"]).state == "failed"
    begun, _ = begin_due(
        world.connection, leases=world.leases, terms=world.leases.terms(), versions=Versions()
    )
    assert begun == {run_id}
    assert world.play(run_id, results={"g.choose": ["g.deep"]}).state == "success"
    found = world.states_by_index(run_id)
    assert [found[f"g.a[{n}]"] for n in range(2)] == ["success", "skipped"]
    assert [found[f"g.deep.second[{n}]"] for n in range(2)] == ["skipped", "success"]


class TestWhy:
    def told(self, run_id: int, task_id: str, index: int = -1) -> Why:
        ti = TaskInstance.objects.get(run_id=run_id, task_id=task_id, map_index=index)
        return why_of(EVERYTHING, ti.pk)

    def choosing(self, world: World, made: Flow) -> tuple[int, dict[int, Message]]:
        """A run whose branches wait for a worker; their messages by map index."""
        make_job(id=world.leases.holder, kind="scheduler")
        run_id = run_of(world, made)
        for _ in range(3):
            world.serve(results={"rows": [1, 2]})
            world.tick(run_id)
        index = dict(
            TaskInstance.objects.filter(run_id=run_id, task_id="g.choose").values_list(
                "id", "map_index"
            )
        )
        found = {index[one.ti_id]: one for one in world.messages if one.ti_id in index}
        world.messages = [one for one in world.messages if one.ti_id not in index]
        assert sorted(found) == [0, 1]
        return run_id, found

    def pick(self, world: World, message: Message, choice: Any) -> None:
        assert world.claim(message)
        world.finish(message, result=choice)

    def test_it_names_the_index_that_is_waited_for_or_did_not_let_it_go_on(
        self, world: World
    ) -> None:
        run_id, choosing = self.choosing(world, two_ways)
        self.pick(world, choosing[0], ["g.deep"])
        world.tick(run_id)
        assert self.told(run_id, "g.a", 1).sentence.startswith(
            "It waits for g.choose [1] (queued);"
        )
        barred = self.told(run_id, "g.a", 0)
        assert barred.rule == "picked"
        assert barred.sentence == "It was skipped since g.choose [0] did not let it go on."
        assert (
            "waits for g.deep.first [0] (queued)" in self.told(run_id, "g.deep.second", 0).sentence
        )
        world.messages.append(choosing[1])
        world.play(run_id, failing=["g.choose"])
        assert self.told(run_id, "g.join", 1).sentence.startswith(
            "It never started: g.a [1] and g.deep.second [1] could not start after g.choose [1] had"
            " failed"
        )

    def test_outside_of_the_group_it_names_the_branch_that_no_index_of_picked_it(
        self, world: World
    ) -> None:
        run_id, choosing = self.choosing(world, reaching_out)
        self.pick(world, choosing[1], ["g.a"])
        world.tick(run_id)
        waits = self.told(run_id, "never").sentence
        assert waits.startswith("It waits for g.choose (queued);")
        self.pick(world, choosing[0], ["out"])
        world.play(run_id, results={"g.gate": True})
        barred = self.told(run_id, "never")
        assert barred.rule == "picked"
        assert barred.sentence == "It was skipped since no instance of g.choose let it go on."

    def test_a_setup_of_its_own_index_is_named(self, world: World) -> None:
        make_job(id=world.leases.holder, kind="scheduler")
        run_id = run_of(world, resource)
        results = {"rows": [1, 2], "g.near": True, "g.choose": ["g.a"]}
        world.play(run_id, results=results, failing=["g.make[1]"])
        assert self.told(run_id, "g.a", 0).rule == "success"
        given_up = self.told(run_id, "g.tidy", 1)
        assert given_up.rule == "setup"
        assert given_up.sentence.startswith("It never started: g.make [1] failed, which it needs")
