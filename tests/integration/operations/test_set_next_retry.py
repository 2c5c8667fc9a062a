"""Moving the next try of a waiting task, and beginning it now; on real rows, against everybody else."""

from __future__ import annotations

import threading
import uuid
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from django.db import connection as django_connection
from django.utils import timezone

from scheduler_app.models import Attempt, Audit, TaskInstance
from scheduler_app.operations.clear import clear_task_instances
from scheduler_app.operations.freeze import freeze
from scheduler_app.operations.set_next_retry import set_next_retry
from scheduler_app.queries import task_instances, why
from scheduler_app.queries.scope import EVERYTHING
from scheduler_app.rules.errors import Conflict, InvalidInput, NotAllowed, NotFound
from scheduler_app.rules.states import AttemptOutcome, TaskState
from scheduler_app.transitions import attempt as moves
from tests.world import chain

if TYPE_CHECKING:
    import psycopg

    from scheduler_app.transitions.attempt import Message
    from tests.world import World

HOUR = timedelta(hours=1)
WHY = {"position": 1, "of": 3, "error": "OSError", "delay_s": 3600.0, "backoff": 2.0}


def fail(world: World, message: Message, *, after_s: float | None = 3600.0, **more: Any) -> None:
    """The claimed attempt fails; another try follows after so long, if any does."""
    state = TaskState.FAILED if after_s is None else TaskState.UP_FOR_RETRY
    moved = moves.finish(
        world.connection,
        ti_id=message.ti_id,
        attempt_id=message.attempt_id,
        nonce=_nonce(message),
        state=state,
        is_open=after_s is not None,
        outcome=AttemptOutcome.FAILED,
        retry_after_s=after_s,
        **{"retry_why": WHY, "reason": "OSError: no", **more},
    )
    assert moved is not None


def _nonce(message: Message) -> uuid.UUID:
    return uuid.UUID(int=message.attempt_id.int)


def waiting(world: World, **more: Any) -> tuple[int, Message]:
    """A run whose task failed and is tried again in an hour; its id and the first message."""
    run_id = world.run(world.flow("f", chain("a", retries=2)))
    world.tick(run_id)
    message = world.messages.pop()
    assert world.claim(message) is not None
    fail(world, message, **more)
    return run_id, message


def move(message: Message, **options: Any) -> Any:
    return set_next_retry(ti_id=message.ti_id, actor="ana", **{"reason": "hurry", **options})


def ti_of(message: Message) -> TaskInstance:
    return TaskInstance.objects.get(pk=message.ti_id)


def test_it_begins_now_as_the_try_that_it_would_have_been(world: World) -> None:
    run_id, message = waiting(world)
    assert not world.tick(run_id).messages, "it waits for an hour"
    moved = move(message)
    assert (moved.effect, moved.state) == ("The next try begins now.", "up_for_retry")
    (again,) = world.tick(run_id).messages
    assert Attempt.objects.get(pk=again.attempt_id).try_number == 2
    ti = ti_of(message)
    assert (ti.next_retry_at, ti.next_retry_why) == (None, None), "said and done"
    assert (ti.max_tries, ti.budget_start) == (2, 0), "no retry was given or taken"


def test_it_moves_to_any_time_and_the_page_says_who_moved_it_and_why(world: World) -> None:
    _, message = waiting(world)
    row = task_instances.one(EVERYTHING, message.ti_id)
    assert row.next_retry_reason == ("try 1 of 3 failed with OSError: retry in 60 min, backoff 2.0")
    at = timezone.now() + 48 * HOUR
    moved = move(message, at=at)
    assert (moved.next_retry_at, moved.was) == (at, row.next_retry_at)
    row = task_instances.one(EVERYTHING, message.ti_id)
    assert "; ana moved it at " in (row.next_retry_reason or "")
    told = why.explain(EVERYTHING, row)
    assert told.rule == "retry"
    assert "UTC. Retry in 60 min, backoff 2.0; ana moved" in told.sentence
    assert told.sentence.endswith("UTC: hurry.")


def test_it_is_audited_with_the_time_before_and_after(world: World) -> None:
    _, message = waiting(world)
    before = ti_of(message).next_retry_at
    moved = move(message, after=timedelta(minutes=5))
    entry = Audit.objects.get(action="set_next_retry")
    assert before is not None
    assert (entry.actor, entry.reason, entry.flow_id) == ("ana", "hurry", "f")
    assert entry.before == {"next_retry_at": before.isoformat(), "state": "up_for_retry"}
    at = moved.next_retry_at.isoformat()
    assert entry.after == {"next_retry_at": at, "state": "up_for_retry"}
    assert timedelta(minutes=4) < moved.next_retry_at - timezone.now() <= timedelta(minutes=5)


def test_a_preview_needs_no_reason_and_changes_nothing(world: World) -> None:
    _, message = waiting(world)
    before = TaskInstance.objects.values().get(pk=message.ti_id)
    preview = move(message, reason="", dry_run=True, after=timedelta(seconds=90))
    assert preview.effect == "The next try begins 90 s from now."
    assert TaskInstance.objects.values().get(pk=message.ti_id) == before
    assert not Audit.objects.exists()


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"reason": " "}, "Say why"),
        ({"at": datetime(2030, 1, 1), "after": HOUR}, "not both"),  # noqa: DTZ001 - a bad one
        ({"at": datetime(2030, 1, 1)}, "with its offset"),  # noqa: DTZ001 - a bad one
        ({"at": datetime(9000, 1, 1, tzinfo=UTC)}, "within ten years"),
        ({"after": timedelta(days=-1)}, "from 0 s to ten years"),
        ({"after": timedelta(days=9999)}, "from 0 s to ten years"),
    ],
)
def test_bad_input_is_told_and_changes_nothing(
    world: World, asked: dict[str, Any], told: str
) -> None:
    _, message = waiting(world)
    before = ti_of(message).next_retry_at
    with pytest.raises(InvalidInput, match=told):
        move(message, **asked)
    assert ti_of(message).next_retry_at == before


def test_what_does_not_wait_is_refused_with_what_to_do(world: World) -> None:
    run_id = world.run(world.flow("f", chain("a", "b", retries=0)))
    world.tick(run_id)
    message = world.messages.pop()
    with pytest.raises(Conflict, match="is queued; it does not wait"):
        move(message)
    world.claim(message)
    fail(world, message, after_s=None)
    with pytest.raises(Conflict, match="has ended as failed; to run it again, clear it"):
        move(message)
    with pytest.raises(NotFound, match="no task instance 999999"):
        set_next_retry(ti_id=999999, actor="ana", reason="r")


def test_what_is_frozen_stays_as_it_is(world: World) -> None:
    _, message = waiting(world)
    freeze(scope_kind="task_instance", scope_id=message.ti_id, actor="ana", reason="look first")
    before = ti_of(message).next_retry_at
    with pytest.raises(NotAllowed, match="thaw it"):
        move(message)
    assert ti_of(message).next_retry_at == before


def test_a_look_that_was_put_off_can_be_taken_now(world: World) -> None:
    run_id = world.run(world.flow("f", chain("a")))
    world.tick(run_id)
    message = world.messages.pop()
    world.claim(message)
    moves.finish(
        world.connection,
        ti_id=message.ti_id,
        attempt_id=message.attempt_id,
        nonce=_nonce(message),
        state=TaskState.UP_FOR_RESCHEDULE,
        is_open=True,
        outcome=AttemptOutcome.RESCHEDULED,
        retry_after_s=3600,
    )
    assert move(message).effect == "It looks again now."
    (again,) = world.tick(run_id).messages
    assert Attempt.objects.get(pk=again.attempt_id).try_number == 1


def test_a_rule_that_gives_more_tries_raises_the_bound_and_a_clear_forgets_it(
    world: World,
) -> None:
    """ "2 of 6" is told while the rule for the exception counts, never "4 of 3"."""
    run_id, message = waiting(world, max_tries=5, after_s=0.0)
    assert task_instances.one(EVERYTHING, message.ti_id).tries == "1 of 6"
    world.tick(run_id)
    again = world.messages.pop()
    world.claim(again)
    fail(world, again, max_tries=1, after_s=None)
    assert task_instances.one(EVERYTHING, message.ti_id).tries == "2 of 6", "never lowered"
    clear_task_instances(ti_ids=[message.ti_id], actor="ana", reason="anew", dry_run=False)
    ti = ti_of(message)
    assert (ti.max_tries, ti.budget_start, ti.next_retry_why) == (4, 2, None)


def test_why_no_try_follows_is_told_where_some_were_left(world: World) -> None:
    refused = {"position": 1, "of": 3, "error": "KeyError", "none": "retry_on"}
    _, message = waiting(world, after_s=None, retry_why=refused)
    told = why.explain(EVERYTHING, task_instances.one(EVERYTHING, message.ti_id))
    assert "no other try follows: its retry_on leaves KeyError out" in told.sentence


def test_moved_while_the_scheduler_dispatches_it_is_dispatched_once(
    world: World, raw: psycopg.Connection[Any]
) -> None:
    """Whoever is second finds it gone, or dispatches it at its new time."""
    del raw
    run_id, message = waiting(world)
    answers: list[str] = []
    start = threading.Barrier(4)

    def hurry() -> None:
        try:
            start.wait(timeout=60)
            move(message)
            answers.append("moved")
        except Conflict:
            answers.append("too late")
        finally:
            django_connection.close()

    threads = [threading.Thread(target=hurry) for _ in range(3)]
    for thread in threads:
        thread.start()
    start.wait(timeout=60)
    messages = [one for _ in range(20) for one in world.tick(run_id).messages]
    for thread in threads:
        thread.join(timeout=60)
    messages += world.tick(run_id).messages
    assert len(answers) == 3
    assert "moved" in answers
    assert len(messages) == 1
    assert Attempt.objects.filter(ti_id=message.ti_id, is_live=True).count() == 1
