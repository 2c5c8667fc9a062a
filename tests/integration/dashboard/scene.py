"""A small installation with records of every standing, each made by the product's own moves."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scheduler_app.models import Attempt, Flow
from scheduler_app.rules.definition import TaskDefinition
from scheduler_app.rules.states import AttemptOutcome, TaskState
from scheduler_app.scheduler.take_over import follow_up, take_over
from scheduler_app.transitions import attempt as moves
from scheduler_app.transitions.attempt_log import LogChunk, append_log_chunks, log_length
from scheduler_app.transitions.executor_event import NewEvent, record_events
from scheduler_app.transitions.identity import database_identity
from scheduler_app.transitions.ids import uuid7
from scheduler_app.transitions.inquiry import Holding, answer_inquiries, open_inquiries
from scheduler_app.transitions.job import end_job, start_job
from scheduler_app.worker import refuse

if TYPE_CHECKING:
    from scheduler_app.transitions.attempt import Message
    from tests.world import World

SALES = (
    TaskDefinition(task_id="extract", retries=2, retry_delay_s=1, line=7),
    TaskDefinition(task_id="clean", upstream=("extract",)),
    TaskDefinition(task_id="exchange_rates", upstream=("extract",)),
    TaskDefinition(task_id="transform", upstream=("clean", "exchange_rates")),
    TaskDefinition(task_id="load_warehouse", upstream=("transform",)),
    TaskDefinition(task_id="report", upstream=("load_warehouse", "extract")),
)
ERROR = {
    "type": "OSError",
    "message": "disk quota exceeded on /srv/warehouse",
    "traceback": "Traceback (most recent call last):\n  File 'nightly_sales.py', line 31\nOSError: disk quota",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """The numbers of what was made."""

    healed: int  # a run that succeeded after a retry, with a late event and a refused delivery
    failed: int  # a run whose load failed
    running: int  # a run in the middle
    ghost: uuid.UUID  # an attempt that nobody issued
    retried: int  # the task instance that was retried in the healed run


def build(world: World) -> Scene:
    """The scene is in the database."""
    sales = world.flow("nightly_sales", SALES, schedule="0 2 * * *", owner="finance")
    world.flow("hourly_sync", (TaskDefinition(task_id="sync"),), schedule="0 * * * *")
    start_job(
        world.connection,
        job_id=world.worker,
        kind="worker",
        name="",
        hostname="host-1",
        pid=4700,
        detail={"queues": ["default"], "concurrency": 2},
    )
    gone = uuid7()
    start_job(
        world.connection,
        job_id=gone,
        kind="worker",
        name="",
        hostname="host-1",
        pid=3100,
        detail={},
    )
    end_job(world.connection, job_id=gone)
    healed = world.run(sales, "manual__healed")
    retried = _fail_once(world, healed)
    world.play(healed)
    _witness(world, healed)
    failed = world.run(sales, "manual__failed")
    _play_until(world, failed, "load_warehouse")
    world.play(failed)
    running = world.run(sales, "manual__running")
    world.tick(running)
    (first,) = world.messages
    world.messages = []
    world.claim(first)
    _print(world, first.attempt_id, b"page 1 of 10\n\x1b[32mrows 4096\x1b[0m\n")
    _change_leaders(world, first)
    return Scene(
        healed=healed, failed=failed, running=running, ghost=_ghost(world), retried=retried
    )


def _change_leaders(world: World, running: Message) -> None:
    """Every shard was given up and taken again; the worker, asked, runs what it ran."""
    world.leases.give_up(world.connection, world.leases.terms(), why="the scene changes")
    taken = world.leases.balance(world.connection, dead_after_s=60)
    take_over(world.connection, leases=world.leases, new_terms=taken)
    answer_inquiries(
        world.connection,
        inquiry_ids=open_inquiries(world.connection, worker_job_id=world.worker),
        holdings=[
            Holding(
                attempt_id=running.attempt_id,
                pid=4711,
                is_alive=True,
                for_s=2.0,
                report_waits=False,
            )
        ],
    )
    follow_up(world.connection, leases=world.leases, terms=world.leases.terms())


def _fail_once(world: World, run: int) -> int:
    """The first task failed once and was dispatched again; its first attempt is set aside."""
    world.tick(run)
    (message,) = world.messages
    world.messages = []
    world.claim(message)
    _print(
        world, message.attempt_id, b"connecting\nTraceback (most recent call last):\nTimeoutError\n"
    )
    _finish(world, message, TaskState.UP_FOR_RETRY, retry_after_s=0.0)
    return message.ti_id


def _play_until(world: World, run: int, failing: str) -> None:
    """Everything up to the failing task succeeded; that one failed with an error."""
    for _ in range(50):
        world.tick(run)
        messages, world.messages = world.messages, []
        for message in messages:
            claim = world.claim(message)
            assert claim is not None
            if claim.task_id == failing:
                _print(
                    world, message.attempt_id, b"copying 9 files\n\x1b[31mquota exceeded\x1b[0m\n"
                )
                _finish(world, message, TaskState.FAILED)
                return
            world.finish(message)
    raise AssertionError(failing)


def _finish(
    world: World, message: Message, state: TaskState, retry_after_s: float | None = None
) -> None:
    moved = moves.finish(
        world.connection,
        ti_id=message.ti_id,
        attempt_id=message.attempt_id,
        nonce=uuid.UUID(int=message.attempt_id.int),
        state=state,
        is_open=state is TaskState.UP_FOR_RETRY,
        outcome=AttemptOutcome.FAILED,
        retry_after_s=retry_after_s,
        reason="OSError: disk quota exceeded on /srv/warehouse",
        error=ERROR,
    )
    assert moved is not None


def _witness(world: World, run: int) -> None:
    """Exits are confirmed, one comes for a replaced attempt, one message is delivered twice."""
    attempts = list(Attempt.objects.filter(run_id=run).order_by("fence"))
    record_events(
        world.connection,
        events=[
            NewEvent(
                attempt_id=one.id,
                kind="exit_failed" if one.filter_code else "exit_success",
                source="host-1:4700",
                source_job_id=world.worker,
                payload={"exit_code": 1 if one.filter_code else 0},
            )
            for one in attempts
        ],
    )
    world.judge()
    last = attempts[-1]
    assert last.ti_id is not None
    assert last.fence is not None
    assert last.lease_token is not None
    _deliver_again(
        world,
        refuse.Delivery(
            attempt_id=last.id,
            ti_id=last.ti_id,
            fence=last.fence,
            token=last.lease_token,
            identity=database_identity(world.connection),
            nonce=uuid.uuid4(),
        ),
    )


def _ghost(world: World) -> uuid.UUID:
    """A message that nobody of this installation sent is delivered."""
    unknown = uuid7()
    _deliver_again(
        world,
        refuse.Delivery(
            attempt_id=unknown,
            ti_id=10**9,
            fence=1,
            token=1,
            identity=database_identity(world.connection),
            nonce=uuid.uuid4(),
        ),
    )
    return unknown


def _deliver_again(world: World, delivery: refuse.Delivery) -> None:
    """A worker refuses the delivery, as it must."""
    facts = refuse.read_facts(world.connection, delivery)
    code = refuse.refusal_code(delivery, facts)
    assert code is not None
    refuse.record_refusal(
        world.connection,
        delivery=delivery,
        code=code,
        facts=facts,
        identity=delivery.identity,
        source="host-1:4700",
        job_id=world.worker,
        hostname="host-1",
        pid=4700,
    )


def fail_again(world: World, run: int) -> None:
    """The running task of the run failed and is ready for its next try."""
    one = Attempt.objects.get(run_id=run, is_live=True)
    assert one.ti_id is not None
    moved = moves.finish(
        world.connection,
        ti_id=one.ti_id,
        attempt_id=one.id,
        nonce=uuid.UUID(int=one.id.int),
        state=TaskState.UP_FOR_RETRY,
        is_open=True,
        outcome=AttemptOutcome.FAILED,
        retry_after_s=0.0,
        reason="OSError: disk quota exceeded on /srv/warehouse",
    )
    assert moved is not None


def printing(scene: Scene) -> Attempt:
    """The attempt that runs and prints."""
    return Attempt.objects.get(run_id=scene.running, is_live=True)


def flow(flow_id: str) -> Flow:
    """The flow with its version."""
    return Flow.objects.select_related("current_version").get(flow_id=flow_id)


def print_more(world: World, one: Attempt, data: bytes) -> None:
    """The attempt has printed this, after what it printed before."""
    chunk = LogChunk(
        attempt_id=one.id,
        start_offset=log_length(world.connection, attempt_id=one.id),
        data=data,
    )
    append_log_chunks(world.connection, chunks=[chunk])


def _print(world: World, attempt_id: uuid.UUID, data: bytes) -> None:
    append_log_chunks(
        world.connection, chunks=[LogChunk(attempt_id=attempt_id, start_offset=0, data=data)]
    )
