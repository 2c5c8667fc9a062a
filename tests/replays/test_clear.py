"""Reports on clearing."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from scheduler_app.models import Attempt, Flow, FlowVersion, Run, TaskInstance
from scheduler_app.operations.clear import clear_run, clear_task_instances
from scheduler_app.operations.clear_batch import carry_out_batch, plan_batch
from scheduler_app.operations.reaching import of_run
from scheduler_app.rules.clear import Options
from scheduler_app.rules.definition import GroupDefinition, TaskDefinition, from_dict, to_dict
from scheduler_app.rules.states import AttemptOutcome, TaskState
from scheduler_app.transitions import attempt as moves
from tests.replays import saying
from tests.world import chain

if TYPE_CHECKING:
    import psycopg
    from django.test import Client

    from tests.world import World


def clear(*ti_ids: int, dry_run: bool = False) -> Any:
    return clear_task_instances(ti_ids=ti_ids, actor="ana", reason="once more", dry_run=dry_run)


def test_b083_a_running_task_without_retries_left_runs_again_when_it_is_cleared(
    world: World, raw: psycopg.Connection[Any]
) -> None:
    """Its old attempt is stopped and set aside; no failure is told to anybody."""
    task = chain("a", callbacks={"on_failure": ("told",)})
    run_id = world.run(world.flow("f", task))
    world.tick(run_id)
    first = world.messages.pop()
    assert world.claim(first) is not None
    clear(first.ti_id)
    saying.say(raw, first.attempt_id, "exit_killed")
    world.judge()
    world.tick(run_id)
    second = world.messages.pop()
    assert Attempt.objects.get(pk=second.attempt_id).try_number == 2
    assert Attempt.objects.get(pk=first.attempt_id).filter_code == "superseded_by_clear"
    assert not Attempt.objects.filter(kind="callback").exists()
    assert world.claim(second) is not None
    world.finish(second)
    assert world.play(run_id).state == "success"
    saying.assert_nothing_hidden()


def test_b085_the_old_worker_of_a_cleared_task_is_told_by_whom_and_why(world: World) -> None:
    """Its heartbeat answers with the clear; its result is refused, and changes nothing."""
    run_id = world.run(world.flow("f", chain("a")))
    world.tick(run_id)
    message = world.messages.pop()
    assert world.claim(message) is not None
    clear(message.ti_id)
    (beat,) = moves.beat(
        world.connection, attempt_ids=[message.attempt_id], worker_job_id=world.worker
    )
    assert beat.stop_reason == "ana cleared it: once more"
    refused = moves.finish(
        world.connection,
        ti_id=message.ti_id,
        attempt_id=message.attempt_id,
        nonce=uuid.UUID(int=message.attempt_id.int),
        state=TaskState.SUCCESS,
        is_open=False,
        outcome=AttemptOutcome.SUCCESS,
    )
    assert refused is None
    assert world.states(run_id) == {"a": "restarting"}


def test_b087_clearing_one_of_several_manual_runs_is_about_that_one_alone(world: World) -> None:
    flow = world.flow("f", chain("a"))
    run_ids = [world.run(flow, f"r{number}") for number in range(3)]
    for run_id in run_ids:
        world.play(run_id)
    plan = clear_run(run_id=run_ids[2], actor="ana")
    own = set(TaskInstance.objects.filter(run_id=run_ids[2]).values_list("id", flat=True))
    assert {one.id for one in plan.included + plan.excluded} == own
    clear_run(run_id=run_ids[2], actor="ana", reason="r", dry_run=False)
    assert [world.states(run_id) for run_id in run_ids[:2]] == [{"a": "success"}] * 2


def test_b089_clearing_the_failed_parent_alone_leaves_its_children_and_the_run_says_so(
    world: World,
) -> None:
    """They are neither in the plan's list nor touched; taken along, they run."""
    run_id = world.run(world.flow("f", chain("a", "b")))
    world.play(run_id, failing=["a"])
    a = TaskInstance.objects.get(run_id=run_id, task_id="a")
    assert [one.task_id for one in clear(a.pk, dry_run=True).included] == ["a"]
    clear(a.pk)
    run = world.play(run_id)
    assert world.states(run_id) == {"a": "success", "b": "upstream_failed"}
    assert (run.state, run.state_reason) == ("failed", "b could not run.")
    clear_run(run_id=run_id, actor="ana", reason="r", dry_run=False)
    assert world.play(run_id).state == "success"
    saying.assert_nothing_hidden()


def test_b091_a_group_and_its_run_are_cleared_of_the_same_failed_tasks(world: World) -> None:
    """Eight tasks, five of them failed: both plans name those five."""
    names = [f"g.t{number}" for number in range(8)]
    tasks = [TaskDefinition(task_id=name, group="g") for name in names]
    flow = world.flow("f", tasks, groups=(GroupDefinition(group_id="g"),))
    run_id = world.run(flow)
    world.play(run_id, failing=names[:5])
    options = Options(only_failed=True)
    whole = clear_run(run_id=run_id, actor="ana", options=options)
    group = clear_task_instances(ti_ids=of_run(run_id, group="g"), actor="ana", options=options)
    assert {one.task_id for one in whole.included} == set(names[:5])
    assert {one.task_id for one in group.included} == set(names[:5])


def test_b093_a_task_is_cleared_in_later_runs_from_its_own_run_on(world: World) -> None:
    flow = world.flow("f", chain("a"), max_active_runs=9)
    runs = [world.run(flow, f"r{number}") for number in range(3)]
    for run_id in runs:
        world.play(run_id)
    ti = TaskInstance.objects.get(run_id=runs[1], task_id="a")
    plan = plan_batch(actor="ana", ti_ids=[ti.pk], future=True)
    assert [part.run_id for part in plan.parts] == runs[1:]
    carry_out_batch(plan.batch_id, actor="ana", reason="r")
    assert [world.states(run_id)["a"] for run_id in runs] == ["success", "none", "none"]


def test_b095_a_row_that_cannot_be_cleared_keeps_no_other_from_it(world: World) -> None:
    """Ten tasks; one is of a run that was set aside: nine are cleared, one is told with the reason.

    A flow whose file is gone is no obstacle: its runs keep their version.
    """
    gone = world.flow("gone", chain("a"), max_active_runs=99)
    other = world.flow("f", chain("a"), max_active_runs=99)
    runs = [world.run(gone, "r0"), *(world.run(other, f"r{number}") for number in range(1, 10))]
    for run_id in runs:
        world.play(run_id, failing=["a"])
    aside = {"filter_code": "ghost_run", "filtered_at": "2026-01-01T00:00Z", "filter_detail": {}}
    Flow.objects.filter(pk="gone").update(current_version=None)
    Run.objects.filter(pk=runs[9]).update(**aside)
    ti_ids = TaskInstance.objects.filter(run_id__in=runs).values_list("id", flat=True)
    plan = plan_batch(actor="ana", ti_ids=list(ti_ids))
    done = carry_out_batch(plan.batch_id, actor="ana", reason="r")
    assert done.number("done") == 9
    (refused,) = (part for part in plan.parts if part.state == "refused")
    assert (refused.run_id, "set aside" in str(refused.refusal)) == (runs[9], True)


def test_b097_after_a_clear_there_are_as_many_retries_as_before(world: World) -> None:
    """Two retries: three executions, and after the clear three again."""
    run_id = world.run(world.flow("f", chain("a", retries=2, retry_delay_s=0)))

    def three() -> list[int]:
        tries = []
        for retry_after_s in (0.0, 0.0, None):
            world.tick(run_id)
            message = world.messages.pop()
            claim = world.claim(message)
            assert claim is not None
            is_last = claim.try_number > claim.max_tries
            assert is_last == (retry_after_s is None), "as a worker counts"
            world.finish(message, ok=retry_after_s is None, retry_after_s=retry_after_s)
            tries.append(claim.try_number)
        return tries

    assert three() == [1, 2, 3]
    clear(TaskInstance.objects.get(run_id=run_id).pk)
    assert three() == [4, 5, 6]
    saying.assert_nothing_hidden()


def test_b099_looking_at_a_task_writes_nothing(world: World, api: Client) -> None:
    """Retries changed in the definition change no row that is only read, nor does a preview."""
    flow = world.flow("f", chain("a", retries=1))
    run_id = world.run(flow)
    world.play(run_id)
    version = FlowVersion.objects.get(flow=flow)
    version.definition = to_dict(from_dict({**version.definition, "tasks": to_dict_of(5)}))
    version.save()
    before = list(TaskInstance.objects.values())
    ti = before[0]["id"]
    for address in (f"task-instances/{ti}/", f"runs/{run_id}/", f"attempts/?ti={ti}"):
        assert api.get(f"/api/v1/{address}").status_code == 200
    clear(ti, dry_run=True)
    assert list(TaskInstance.objects.values()) == before


def to_dict_of(retries: int) -> list[dict[str, Any]]:
    return [{"task_id": "a", "retries": retries}]


def test_b101_a_cleared_task_that_looks_again_and_again_has_its_whole_time_anew(
    world: World,
) -> None:
    """The time of a try begins with the first claim of that try."""
    run_id = world.run(world.flow("f", chain("a")))
    world.tick(run_id)
    first = world.messages.pop()
    assert world.claim(first) is not None
    world.connection.execute(
        "UPDATE task_instance SET started_at = clock_timestamp() - interval '50 minutes'"
    )
    moves.finish(
        world.connection,
        ti_id=first.ti_id,
        attempt_id=first.attempt_id,
        nonce=uuid.UUID(int=first.attempt_id.int),
        state=TaskState.UP_FOR_RESCHEDULE,
        is_open=True,
        outcome=AttemptOutcome.RESCHEDULED,
        retry_after_s=0,
    )
    world.tick(run_id)
    again = world.messages.pop()
    claim = world.claim(again)
    assert claim is not None
    assert claim.elapsed_s > 2999, "looked again: the same time goes on"
    world.finish(again, ok=False)
    clear(first.ti_id)
    world.tick(run_id)
    anew = world.claim(world.messages.pop())
    assert anew is not None
    assert anew.elapsed_s < 600
