"""Clears of several runs: a batch of plans, one a run; and undoing a clear while nothing has started."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from django.db.models import F

from scheduler_app.management.keeper import Keeper
from scheduler_app.models import (
    Attempt,
    Audit,
    Checkpoint,
    ClearBatch,
    ClearPlan,
    Pool,
    Run,
    RunAttempt,
    TaskInstance,
)
from scheduler_app.operations import clear_batch as batches
from scheduler_app.operations.clear import clear_run, clear_task_instances
from scheduler_app.operations.clear_batch import (
    batch,
    carry_out_batch,
    go_on,
    go_on_with_left,
    plan_batch,
)
from scheduler_app.operations.freeze import freeze
from scheduler_app.operations.mark import mark_task_instances
from scheduler_app.operations.reaching import of_run
from scheduler_app.operations.undo_clear import undo_clear
from scheduler_app.queries.audit_visibility import compare
from scheduler_app.rules.clear import Options
from scheduler_app.rules.errors import Conflict, InvalidInput, NotAllowed, NotFound
from scheduler_app.transitions import clear_batch as moves
from tests.stack import wait_for
from tests.world import chain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.world import World


def ended(world: World, *keys: str, failing: Sequence[str] = ()) -> list[int]:
    """Runs of a flow of three, each played to its end."""
    flow = world.flow("f", chain("a", "b", "c"), max_active_runs=99)
    runs = [world.run(flow, key) for key in keys]
    for run_id in runs:
        world.play(run_id, failing=failing)
    return runs


def ti(run_id: int, task_id: str) -> int:
    return TaskInstance.objects.get(run_id=run_id, task_id=task_id).pk


def plan(**asked: Any) -> Any:
    chosen = {key: asked.pop(key) for key in list(asked) if key in Options.__dataclass_fields__}
    return plan_batch(actor="ada", options=Options(**chosen), **asked)


def carry(batch_id: Any, **asked: Any) -> Any:
    return carry_out_batch(batch_id, **{"actor": "ada", "reason": "bad data", **asked})


def nothing_is_hidden() -> bool:
    return [one for one in compare() if one.differences] == []


# -- batches -------------------------------------------------------------------------------------


def test_several_runs_are_planned_together_and_carried_out_one_by_one(world: World) -> None:
    runs = ended(world, "r1", "r2", "r3", failing=["b"])
    made = plan(run_ids=runs, only_failed=True, asked={"address": "here"})
    assert (made.state, made.number("planned"), made.included) == ("planned", 3, 6)
    assert made.worst_case_executions == 6
    assert {part.new_run_attempt for part in made.parts} == {2}
    assert Run.objects.filter(state="failed").count() == 3
    assert not Audit.objects.filter(action__startswith="clear").exists()
    done = carry(made.batch_id, note="again")
    assert (done.state, done.number("done"), done.reason) == ("ended", 3, "bad data")
    for run_id in runs:
        run = Run.objects.get(pk=run_id)
        assert (run.state, run.run_attempt, run.note) == ("queued", 2, "again")
        assert world.play(run_id).state == "success"
    assert Audit.objects.filter(action="clear").count() == 3, "one entry a run, and one of the act"
    entry = Audit.objects.get(action="clear_batch")
    assert (entry.object_id, entry.reason) == (str(made.batch_id), "bad data")
    assert nothing_is_hidden()


def test_a_batch_is_refused_with_the_difference_when_one_run_has_moved(world: World) -> None:
    runs = ended(world, "r1", "r2")
    made = plan(run_ids=runs)
    mark_task_instances(ti_ids=[ti(runs[1], "a")], state="failed", actor="bo", reason="r")
    with pytest.raises(Conflict, match="1 run is not as it was") as refused:
        carry(made.batch_id)
    difference: Any = refused.value.extra["difference"]
    (moved,) = difference
    assert moved["run"] == runs[1]
    assert moved["difference"][0]["planned"]["state"] == "success"
    assert moved["difference"][0]["now"]["state"] == "failed"
    assert {Run.objects.get(pk=run_id).run_attempt for run_id in runs} == {1}, "nothing was done"
    assert ClearBatch.objects.get().begun_at is None


def test_a_run_in_which_nothing_can_be_cleared_keeps_no_other_from_it(world: World) -> None:
    flow = world.flow("f", chain("a"), max_active_runs=99)
    runs = [world.run(flow, key) for key in ("r1", "r2")]
    world.play(runs[0])
    freeze(scope_kind="run", scope_id=runs[1], actor="bo", reason="look")
    made = plan(run_ids=runs)
    assert [part.state for part in made.parts] == ["planned", "refused"]
    assert "frozen" in str(made.parts[1].refusal)
    assert carry(made.batch_id).number("done") == 1


def test_a_long_batch_is_gone_on_with_and_each_run_is_done_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = ended(world, *(f"r{number}" for number in range(5)))
    monkeypatch.setattr(batches, "CHUNK", 2)
    made = plan(run_ids=runs)
    half = carry(made.batch_id, within_s=0)
    assert (half.state, half.number("done")) == ("under_way", 1), "its time was up after one"
    with pytest.raises(Conflict, match="begun before"):
        carry(made.batch_id)
    # Meanwhile one of the others moves: it is refused, and says why; however old the batch, it goes on.
    mark_task_instances(ti_ids=[ti(runs[2], "a")], state="failed", actor="bo", reason="r")
    ClearBatch.objects.update(expires_at="2026-01-01T00:00Z")
    ClearPlan.objects.update(expires_at="2026-01-01T00:00Z")
    told: list[int] = []
    done = go_on(made.batch_id, actor="bo", told=lambda seen: told.append(seen.number("done")))
    assert (done.state, done.number("done"), done.number("refused")) == ("ended", 4, 1)
    (refused,) = (part for part in done.parts if part.state == "refused")
    assert (refused.run_id, "no longer holds" in str(refused.refusal)) == (runs[2], True)
    assert told == sorted(told)
    assert go_on(made.batch_id, actor="bo").number("done") == 4
    assert {one.run_attempt for one in Run.objects.exclude(pk=runs[2])} == {2}
    entries = Audit.objects.filter(action="clear")
    assert {entry.actor for entry in entries} == {"ada"}, (
        "whose batch it is, whoever went on with it"
    )


def test_task_instances_of_other_dates_and_of_several_runs(world: World) -> None:
    runs = ended(world, "r1", "r2", "r3")
    past = plan(ti_ids=[ti(runs[1], "b")], past=True, include_downstream=True)
    assert [(part.run_id, part.included) for part in past.parts] == [(runs[0], 2), (runs[1], 2)]
    both = plan(ti_ids=[ti(runs[1], "b")], past=True, future=True)
    assert [part.run_id for part in both.parts] == runs
    some = plan(ti_ids=[ti(runs[0], "a"), ti(runs[2], "c")])
    assert [(part.run_id, part.new_run_attempt) for part in some.parts] == [
        (runs[0], None),
        (runs[2], None),
    ]
    carry(both.batch_id)
    assert [world.states(run)["b"] for run in runs] == ["none"] * 3
    Run.objects.filter(pk=runs[1]).update(logical_date=None)
    with pytest.raises(InvalidInput, match="no past"):
        plan(ti_ids=[ti(runs[1], "b")], past=True)


def test_what_cannot_be_a_batch_is_told(world: World) -> None:
    runs = ended(world, "r1")
    for asked in ({}, {"run_ids": runs, "ti_ids": [1]}, {"run_ids": runs, "past": True}):
        with pytest.raises(InvalidInput):
            plan(**asked)
    with pytest.raises(NotFound):
        plan(run_ids=[987654])
    with pytest.raises(InvalidInput, match="exclude each other"):
        plan(run_ids=runs, only_failed=True, only_running=True)
    made = plan(run_ids=runs)
    with pytest.raises(InvalidInput, match="Say why"):
        carry(made.batch_id, reason=" ")
    with pytest.raises(NotAllowed, match="not begun"):
        go_on(made.batch_id, actor="ada")
    ClearBatch.objects.update(expires_at="2026-01-01T00:00Z")
    with pytest.raises(Conflict, match="expired"):
        carry(made.batch_id)
    assert batch(made.batch_id).state == "planned"


def test_tasks_are_named_by_id_by_index_or_by_group(world: World) -> None:
    (run_id,) = ended(world, "r1")
    assert of_run(run_id, tasks=[("b", None)]) == [ti(run_id, "b")]
    assert of_run(run_id, tasks=[("b", -1), ("a", None)]) == [ti(run_id, "a"), ti(run_id, "b")]
    with pytest.raises(NotFound, match=r"b \[9\]"):
        of_run(run_id, tasks=[("b", 9)])
    with pytest.raises(NotFound, match="no group"):
        of_run(run_id, group="g")


# -- undo ----------------------------------------------------------------------------------------


def everything() -> dict[str, list[dict[str, Any]]]:
    """Every row that a clear may change."""
    kinds: list[Any] = [TaskInstance, Attempt, Run, RunAttempt, Checkpoint]
    found = {kind.__name__: list(kind.objects.order_by("pk").values()) for kind in kinds}
    for run in found["Run"]:
        del run["revision"]  # never goes back: whoever keeps the run in memory has to look again
    return found


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("ticks", [0, 1])
def test_a_clear_of_which_nothing_has_started_is_undone_to_the_letter(
    world: World, whole: bool, ticks: int
) -> None:
    (run_id,) = ended(world, "r1", failing=["b"])
    Checkpoint.objects.create(
        scope="task",
        owner=str(ti(run_id, "a")),
        key="page",
        value=7,
        version=1,
        flow_id="f",
        ti_id=ti(run_id, "a"),
        attempt_id=world.attempts(run_id)[0].pk,
        try_number=1,
        saved_at="2026-01-01T00:00Z",
    )
    before = everything()
    asked: dict[str, Any] = {
        "actor": "ada",
        "reason": "r",
        "dry_run": False,
        "options": Options(keep_checkpoints=False),
    }
    made = (
        clear_run(run_id=run_id, **asked)
        if whole
        else clear_task_instances(ti_ids=[ti(run_id, "a"), ti(run_id, "b")], **asked)
    )
    assert made.can_be_undone
    if ticks:
        Pool.objects.update(slots=0)
        world.tick(run_id)
        assert Run.objects.get(pk=run_id).state == "running", "and nothing of it has started"
    assert everything() != before
    preview = undo_clear(plan_id=made.plan_id, actor="bo", dry_run=True)
    assert preview.task_instances == (3 if whole else 2)
    undo_clear(plan_id=made.plan_id, actor="bo", reason="wrong run")
    after = everything()
    for name, rows in before.items():
        assert after[name] == rows, name
    assert ClearPlan.objects.get(pk=made.plan_id).undone_by == "bo"
    assert Audit.objects.get(action="undo_clear").reason == "wrong run"
    with pytest.raises(Conflict, match="undone before"):
        undo_clear(plan_id=made.plan_id, actor="bo", reason="again")
    assert nothing_is_hidden()


def test_what_has_started_since_or_had_to_be_stopped_is_not_undone(world: World) -> None:
    (run_id,) = ended(world, "r1")
    made = clear_run(run_id=run_id, actor="ada", reason="r", dry_run=False)
    world.tick(run_id)
    with pytest.raises(Conflict, match="cannot be undone any more"):
        undo_clear(plan_id=made.plan_id, actor="bo", reason="r")
    (message,), world.messages = world.messages, []
    assert world.claim(message) is not None
    stopped = clear_run(run_id=run_id, actor="ada", reason="r", dry_run=False)
    assert not stopped.can_be_undone
    with pytest.raises(NotAllowed, match="stopped work"):
        undo_clear(plan_id=stopped.plan_id, actor="bo", reason="r")
    planned = clear_run(run_id=run_id, actor="ada")
    with pytest.raises(Conflict, match="not carried out"):
        undo_clear(plan_id=planned.plan_id, actor="bo", reason="r")


def test_a_later_clear_stands_before_an_earlier_ones_undo(world: World) -> None:
    (run_id,) = ended(world, "r1")
    first = clear_task_instances(ti_ids=[ti(run_id, "c")], actor="ada", reason="r", dry_run=False)
    clear_run(run_id=run_id, actor="ada", reason="r", dry_run=False)
    with pytest.raises(Conflict, match="cleared or retried again"):
        undo_clear(plan_id=first.plan_id, actor="bo", reason="r")


# -- when nobody carries it on ---------------------------------------------------------------------


def left_behind(world: World, *keys: str) -> Any:
    """A batch whose request ended after its first run, long ago."""
    made = plan(run_ids=ended(world, *keys))
    left = carry(made.batch_id, within_s=0)
    assert (left.state, left.number("done")) == ("under_way", 1)
    ClearBatch.objects.update(begun_at=F("begun_at") - timedelta(minutes=5))
    return made.batch_id


def test_a_clear_that_its_request_left_is_gone_on_with_in_the_name_of_who_began_it(
    world: World,
) -> None:
    batch_id = left_behind(world, "r1", "r2", "r3")
    assert go_on_with_left(within_s=60) == 1
    found = batch(batch_id)
    assert (found.state, found.number("done")) == ("ended", 3)
    assert set(Audit.objects.filter(action="clear").values_list("actor", "reason")) == {
        ("ada", "bad data")
    }
    assert go_on_with_left(within_s=60) == 0
    assert nothing_is_hidden()


def test_what_was_begun_just_now_or_is_carried_on_already_is_left_alone(
    world: World, raw: Any
) -> None:
    batch_id = left_behind(world, "r1", "r2")
    assert go_on_with_left(within_s=60, idle_s=3600) == 0
    assert moves.take_batch(raw, batch_id=batch_id), "another process is at it"
    assert go_on_with_left(within_s=60) == 0
    moves.leave_batch(raw, batch_id=batch_id)
    assert go_on_with_left(within_s=60, is_stopping=lambda: True) == 0
    assert batch(batch_id).state == "under_way"


def test_the_keeper_of_a_scheduler_finds_it_by_itself(world: World) -> None:
    batch_id = left_behind(world, "r1", "r2", "r3")
    keeper = Keeper(turn_s=0.05)
    keeper.start()
    try:
        wait_for("the clear ended", lambda: batch(batch_id).state == "ended", within_s=60)
    finally:
        keeper.stop()
    assert batch(batch_id).number("done") == 3
