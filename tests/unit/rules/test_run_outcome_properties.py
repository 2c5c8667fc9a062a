"""What holds for every graph and every mixture of states."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import example, given
from hypothesis import strategies as st

from scheduler_app.rules import run_outcome
from scheduler_app.rules.definition import TriggerRule
from scheduler_app.rules.run_outcome import InstanceState, RunDecision
from scheduler_app.rules.states import RUN_TERMINAL, TASK_MOVES, TASK_TERMINAL, RunState, TaskState

Run = tuple[dict[str, tuple[str, ...]], dict[str, str], list[InstanceState]]

# t2 waits for a task of which there is no instance, so that the run stands still; its leaves ended well.
STUCK: Run = (
    {"t0": (), "t1": (), "t2": ("t0",), "t3": ("t2",)},
    dict.fromkeys(("t0", "t1", "t2", "t3"), TriggerRule.ALL_SUCCESS),
    [
        InstanceState(task_id="t2", map_index=0, state=TaskState.NONE, held=False),
        InstanceState(task_id="t3", map_index=0, state=TaskState.SUCCESS, held=False),
    ],
)


@st.composite
def runs(draw: st.DrawFn) -> Run:
    """A graph in any order, rules (one unknown), and instances in any states."""
    ids = [f"t{number}" for number in range(draw(st.integers(0, 7)))]
    edges = {
        task_id: tuple(sorted(draw(st.sets(st.sampled_from(ids[:place]))))) if place else ()
        for place, task_id in enumerate(ids)
    }
    upstream = {task_id: edges[task_id] for task_id in draw(st.permutations(ids))}
    rules = {task_id: draw(st.sampled_from([*TriggerRule, "of_tomorrow"])) for task_id in ids}
    instances = [
        InstanceState(
            task_id=task_id,
            map_index=index,
            state=draw(st.sampled_from(TaskState)),
            held=draw(st.integers(0, 9)) == 0,
        )
        for task_id in [*ids, "stranger"]
        for index in range(draw(st.integers(0, 2)))
    ]
    return upstream, rules, instances


def decide(run: Run) -> RunDecision:
    upstream, rules, instances = run
    return run_outcome.decide_run(upstream=upstream, trigger_rules=rules, instances=instances)


def with_marks(run: Run, decision: RunDecision) -> Run:
    upstream, rules, instances = run
    return (
        upstream,
        rules,
        [
            replace(one, state=decision.marks.get((one.task_id, one.map_index), one.state))
            for one in instances
        ],
    )


@given(runs())
def test_only_instances_that_never_started_and_are_not_held_are_touched(run: Run) -> None:
    decision = decide(run)
    free = {
        (one.task_id, one.map_index)
        for one in run[2]
        if one.state is TaskState.NONE and not one.held
    }
    assert decision.marks.keys() <= free
    assert decision.ready <= free
    assert not decision.ready & decision.marks.keys()


@given(runs())
def test_every_mark_is_terminal_and_a_move_that_is_allowed(run: Run) -> None:
    for state in decide(run).marks.values():
        assert state in TASK_TERMINAL
        assert state in TASK_MOVES[TaskState.NONE]


@given(runs())
@example(STUCK)
def test_with_the_marks_written_the_same_decision_comes_without_marks(run: Run) -> None:
    first = decide(run)
    again = decide(with_marks(run, first))
    assert again.marks == {}
    if first.code == "all_tasks_deadlocked":
        # It failed because it stood still, which is no longer to be seen once the marks are written.
        assert (again.state in RUN_TERMINAL, again.ready) == (True, frozenset())
        return
    assert (again.state, again.ready) == (first.state, first.ready)


@given(runs())
def test_a_run_ends_exactly_when_nothing_is_unfinished_once_the_marks_are_written(run: Run) -> None:
    decision = decide(run)
    _, _, instances = with_marks(run, decision)
    unfinished = [one for one in instances if one.held or one.state not in TASK_TERMINAL]
    assert (decision.state is RunState.RUNNING) == bool(unfinished)


@given(runs())
def test_a_run_that_goes_on_has_something_to_start_or_to_wait_for(run: Run) -> None:
    decision = decide(run)
    if decision.state is RunState.RUNNING:
        under_way = [
            one for one in run[2] if one.held or one.state not in TASK_TERMINAL | {TaskState.NONE}
        ]
        assert decision.ready or under_way


@given(runs(), st.randoms(use_true_random=False))
def test_the_order_of_rows_and_tasks_does_not_matter(run: Run, chance: object) -> None:
    upstream, rules, instances = run
    shuffled, order = list(instances), list(upstream)
    chance.shuffle(shuffled)  # type: ignore[attr-defined]  # a random.Random
    chance.shuffle(order)  # type: ignore[attr-defined]
    first, other = decide(run), decide(({t: upstream[t] for t in order}, rules, shuffled))
    assert (first.state, first.marks, first.ready) == (other.state, other.marks, other.ready)
