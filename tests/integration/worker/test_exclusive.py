"""One at a time: keys that an execution holds, waits for, lets go of and loses with its attempt."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import psycopg

from scheduler_app.models import Attempt, Exclusive, PushedValue
from scheduler_app.transitions.attempt import lose
from scheduler_app.transitions.exclusive import let_go, take_exclusive
from tests.together import together
from tests.workshop import wait_until
from tests.world import chain

if TYPE_CHECKING:
    from scheduler_app.transitions.attempt import Message
    from tests.workshop import Workshop
    from tests.world import World

KEY = "customer-7"


def running(world: World, number: int) -> list[Message]:
    """So many claimed executions, each of a run of its own."""
    flow = world.flow("f", chain("a"))
    run_ids = [world.run(flow, f"r{n}") for n in range(number)]
    world.tick(*run_ids)
    messages, world.messages = world.messages, []
    for message in messages:
        assert world.claim(message) is not None
    return messages


def take(connection: psycopg.Connection[Any], message: Message) -> tuple[bool, str | None]:
    return take_exclusive(
        connection,
        key=KEY,
        ti_id=message.ti_id,
        attempt_id=message.attempt_id,
        nonce=uuid.UUID(int=message.attempt_id.int),
    )


def test_of_many_at_once_one_has_it(world: World) -> None:
    messages = running(world, 8)

    def asked(message: Message) -> Any:
        return lambda connection: take(connection, message)

    answers = together([asked(message) for message in messages])
    assert all(is_mine for is_mine, _ in answers)
    assert [holder for _, holder in answers].count(None) == 1
    (winner,) = [m for m, (_, holder) in zip(messages, answers, strict=True) if holder is None]
    assert Exclusive.objects.get().attempt_id == winner.attempt_id
    told = take(world.connection, next(m for m in messages if m is not winner))[1]
    assert told is not None
    assert told.startswith("f, r")
    assert "task a, since" in told
    assert take(world.connection, winner) == (True, None), "as often as it likes"


def test_it_is_had_again_once_it_is_let_go_or_its_holder_has_ended(world: World) -> None:
    one, two, three = running(world, 3)
    take(world.connection, one)
    let_go(world.connection, key=KEY, attempt_id=two.attempt_id)
    assert take(world.connection, two)[1] is not None, "nobody lets go for another"
    let_go(world.connection, key=KEY, attempt_id=one.attempt_id)
    assert take(world.connection, two) == (True, None)
    world.finish(two)
    assert take(world.connection, three) == (True, None), "an ended attempt holds nothing"
    lose(
        world.connection,
        attempt_ids=[three.attempt_id],
        dead_after_s=0.0,
        budget=0,
        source="test",
    )
    assert Attempt.objects.get(pk=three.attempt_id).outcome == "lost"
    assert take(world.connection, one) == (True, None)
    assert take(world.connection, three) == (False, None), "what was given up takes nothing"


def test_from_user_code(workshop: Workshop, tmp_path: Any) -> None:
    gate = tmp_path / "gate"
    source = f"""
import time
from pathlib import Path
from scheduler_app.authoring import Busy, flow, task

@task
def hold(ctx):
    with ctx.exclusive("{KEY}"):
        while not Path("{gate}").exists():
            time.sleep(0.01)

@task
def want(ctx):
    try:
        with ctx.exclusive("{KEY}", timeout=0):
            return "never"
    except Busy as busy:
        Path("{gate}").touch()
        with ctx.exclusive("{KEY}", timeout=60):
            return str(busy)

@flow
def f():
    hold()
    want()
"""
    version = workshop.flow(source)
    run_id = workshop.run(version)
    first, second = workshop.issue(run_id, "hold"), workshop.issue(run_id, "want")
    forked = workshop.start(first)
    wait_until(lambda: Exclusive.objects.filter(key=KEY).exists())
    workshop.deliver(second)
    forked.outcome()
    assert workshop.attempt(first).outcome == "success"
    assert "is held by f, " in str(workshop.attempt(second).result)
    assert not Exclusive.objects.exists()


def test_a_block_within_a_block_does_not_let_the_key_go(workshop: Workshop) -> None:
    source = f"""
import threading
from scheduler_app.authoring import flow, task

@task
def hold(ctx):
    with ctx.exclusive("{KEY}"):
        with ctx.exclusive("{KEY}", timeout=0):
            pass
        gate, began = threading.Event(), threading.Event()

        def beside():
            with ctx.exclusive("{KEY}", timeout=0):
                began.set()
                gate.wait()

        thread = threading.Thread(target=beside)
        thread.start()
        began.wait()
        ctx.push("within", [is_held(), sum(ctx.exclusive_blocks.inside.values())])
    ctx.push("beside", is_held())
    gate.set()
    thread.join()
    return is_held()

def is_held():
    from scheduler_app.models import Exclusive
    return Exclusive.objects.filter(key="{KEY}").exists()

@flow
def f():
    hold()
"""
    run_id = workshop.run(workshop.flow(source))
    workshop.deliver(workshop.issue(run_id, "hold"))
    attempt = Attempt.objects.get()
    assert (attempt.outcome, attempt.result) == ("success", False)
    assert dict(PushedValue.objects.values_list("key", "value")) == {
        "within": [True, 2],
        "beside": True,
    }
