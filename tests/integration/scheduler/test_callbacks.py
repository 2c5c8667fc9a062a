"""Callbacks that the scheduler issues, publishes and repeats: one a transition, whoever decides."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import pytest

from scheduler_app.models import Attempt, ExecutorEvent, Flow, Incident, Run, TaskInstance
from scheduler_app.operations.terminate import terminate_task_instance
from scheduler_app.queries import audit_visibility
from scheduler_app.rules.callbacks import CALLS_MAX, CallbackOn
from scheduler_app.rules.definition import TaskDefinition, TriggerRule
from scheduler_app.rules.states import AttemptOutcome
from scheduler_app.scheduler import callbacks, sweep
from scheduler_app.scheduler.judge import judge_pending
from scheduler_app.scheduler.tick import Ticker
from scheduler_app.transitions.attempt import Message
from scheduler_app.transitions.callback import claim_callback, finish_callback, repeat_callbacks
from scheduler_app.transitions.executor_event import NewEvent, record_events
from scheduler_app.transitions.job import start_job
from tests.recording import broken_laws
from tests.together import together
from tests.world import World, chain

if TYPE_CHECKING:
    import psycopg

    from scheduler_app.scheduler.leases import Leases
    from tests.recording import RecordingConnection

DEAD_AFTER_S = 0.5  # less than the time since the test's own server started, which counts as a sign
EVERY: dict[str, tuple[str, ...]] = {on.value: ("tell",) for on in CallbackOn}
DECIDERS = 6  # schedulers, or threads of one, that decide the same at once


@pytest.fixture(autouse=True)
def _dead_soon(settings: Any) -> None:
    settings.HEARTBEAT_DEAD_AFTER_S = DEAD_AFTER_S


def called(run_id: int) -> list[tuple[str | None, str]]:
    """Task and kind of each callback of the run, in the order of their issue."""
    rows = Attempt.objects.filter(run_id=run_id, kind="callback").order_by("fence")
    return [(row.task_id, row.callback["on"]) for row in rows if row.callback]


def start_worker(raw: psycopg.Connection[Any], world: World) -> None:
    """The world's worker lives, for as long as the test takes."""
    start_job(raw, job_id=world.worker, kind="worker", name="", hostname="host-1", pid=1, detail={})
    raw.execute("UPDATE job SET heartbeat_at = heartbeat_at + interval '10 minutes'")


def killed(raw: psycopg.Connection[Any], attempt_id: uuid.UUID) -> None:
    """A witness saw the attempt's process die, longer ago than the grace."""
    event = NewEvent(
        attempt_id=attempt_id,
        kind="exit_killed",
        source="worker: host-1",
        payload={"hostname": "host-1", "pid": 4711},
        dedupe_key=f"exit_killed:{attempt_id}",
    )
    assert record_events(raw, events=[event]) == 1
    with raw.transaction():
        raw.execute("ALTER TABLE executor_event DISABLE TRIGGER executor_event_is_judged_once")
        raw.execute(
            "UPDATE executor_event SET received_at = received_at - interval '1 minute'"
            " WHERE verdict = 'pending'"
        )
        raw.execute("ALTER TABLE executor_event ENABLE TRIGGER executor_event_is_judged_once")


def silence(raw: psycopg.Connection[Any]) -> None:
    """Every running attempt was last heard an hour ago; its worker too."""
    raw.execute(
        "UPDATE attempt SET started_at = started_at - interval '1 hour', heartbeat_at = NULL"
        " WHERE state = 'running'"
    )
    raw.execute("UPDATE job SET heartbeat_at = heartbeat_at - interval '1 hour'")


def claim(world: World, row: Attempt) -> bool:
    """Whether a delivery of the callback claimed."""
    found = claim_callback(
        world.connection,
        attempt_id=row.pk,
        token=row.lease_token or 0,
        fence=row.fence or 0,
        nonce=uuid.UUID(int=row.pk.int),
        worker_job_id=world.worker,
        hostname="host-1",
        pid=4711,
    )
    return found is not None


def assert_nothing_to_audit() -> None:
    """Each row stands as its facts ask for."""
    assert [d for compared in audit_visibility.compare() for d in compared.differences] == []


@pytest.mark.parametrize(("retries", "on"), [(1, "on_retry"), (0, "on_failure")])
def test_one_kill_makes_one_transition_and_one_callback_whoever_judges(
    world: World, raw: psycopg.Connection[Any], leases: Leases, retries: int, on: str
) -> None:
    start_worker(raw, world)
    tasks = chain("a", retries=retries, retry_delay_s=0, callbacks=EVERY)
    run_id = world.run(world.flow("f", tasks))
    world.tick(run_id)
    assert world.claim_with_callbacks(world.messages[0]) is not None
    assert called(run_id) == [("a", "on_execute")]
    killed(raw, world.messages[0].attempt_id)
    terms = leases.terms()
    together([lambda c: judge_pending(c, leases=leases, terms=terms)] * DECIDERS)
    assert called(run_id) == [("a", "on_execute"), ("a", on)]
    ti = TaskInstance.objects.get(run_id=run_id)
    assert (ti.state, ti.try_number) == ("up_for_retry" if retries else "failed", 1)
    (event,) = ExecutorEvent.objects.all()
    assert (event.verdict, event.verdict_code) == ("confirmed", "killed_externally")
    assert_nothing_to_audit()


def test_a_silent_attempt_calls_back_once_when_its_budget_is_used_up_however_many_sweep(
    world: World, raw: psycopg.Connection[Any], leases: Leases, settings: Any
) -> None:
    settings.INFRASTRUCTURE_BUDGET = 2
    run_id = world.run(world.flow("f", chain("a", callbacks={"on_failure": ("tell", "count")})))
    terms = leases.terms()
    for losses in range(1, 4):
        world.tick(run_id)
        assert world.claim(world.messages.pop()) is not None
        silence(raw)
        together([lambda c: sweep.lose_silent(c, leases=leases, terms=terms)] * DECIDERS)
        ti = TaskInstance.objects.get(run_id=run_id)
        assert ti.infra_losses == losses
        assert len(called(run_id)) == (2 if losses == 3 else 0)
    assert ti.state == "failed"
    assert called(run_id) == [("a", "on_failure")] * 2
    (event,) = ExecutorEvent.objects.filter(attempt_id=ti.attempt_id)
    assert event.verdict_code == "worker_lost"


def test_a_skip_calls_back_once_and_an_upstream_failure_does_not(
    world: World, leases: Leases
) -> None:
    tasks = (
        *chain("a", "b", callbacks=EVERY),
        TaskDefinition(
            task_id="alarm",
            upstream=("c",),
            trigger_rule=TriggerRule.ONE_FAILED,
            callbacks=EVERY,
        ),
        TaskDefinition(task_id="c"),
    )
    plain = [t if t.task_id != "a" else TaskDefinition(task_id="a") for t in tasks]
    run_id = world.run(world.flow("f", plain))
    world.tick(run_id)
    world.serve(failing=["a"])
    terms = leases.terms()
    outcomes = together(
        [lambda c: Ticker(leases).tick(c, terms=terms, run_ids=[run_id], queue_slots={})] * DECIDERS
    )
    world.play(run_id)
    assert world.states(run_id) == {
        "a": "failed",
        "b": "upstream_failed",
        "c": "success",
        "alarm": "skipped",
    }
    assert called(run_id) == [("alarm", "on_skipped")]
    assert sum(outcome.has_callbacks for outcome in outcomes) <= 1
    (row,) = Attempt.objects.filter(kind="callback")
    assert row.lease_token == terms[3], "the proved lease is what it was issued under"
    assert row.callback is not None
    assert (row.callback["of"], row.callback["state"]) == (None, "skipped")
    assert_nothing_to_audit()


@pytest.mark.parametrize(("failing", "on"), [(["a"], "on_failure"), ([], "on_success")])
def test_the_end_of_a_run_calls_back_once_and_does_not_wait_for_it(
    world: World, leases: Leases, failing: list[str], on: str
) -> None:
    of_run = {"on_failure": ("page",), "on_success": ("cheer",)}
    run_id = world.run(world.flow("f", chain("a"), callbacks=of_run))
    world.tick(run_id)
    world.serve(failing=failing)
    terms = leases.terms()
    for _ in range(3):
        together(
            [lambda c: Ticker(leases).tick(c, terms=terms, run_ids=[run_id], queue_slots={})]
            * DECIDERS
        )
    run = Run.objects.get(pk=run_id)
    assert run.state == ("failed" if failing else "success")
    assert called(run_id) == [(None, on)]
    (row,) = Attempt.objects.filter(kind="callback")
    assert (row.ti_id, row.state, row.is_live, row.queue) == (None, "issued", True, "default")
    assert row.callback is not None
    assert row.callback["reason"] == run.state_reason
    assert_nothing_to_audit()


@pytest.mark.parametrize("end", ["report", "kill", "loss"])
def test_what_a_person_ended_calls_nobody(
    world: World, raw: psycopg.Connection[Any], leases: Leases, settings: Any, end: str
) -> None:
    settings.INFRASTRUCTURE_BUDGET = 0
    start_worker(raw, world)
    run_id = world.run(
        world.flow("f", chain("a", "b", callbacks=EVERY), callbacks={"on_failure": ("page",)})
    )
    world.tick(run_id)
    message = world.messages.pop()
    assert world.claim_with_callbacks(message) is not None
    terminate_task_instance(ti_id=message.ti_id, actor="ada", reason="a wrong input")
    if end == "report":
        world.finish_with_callbacks(message, ok=False)
    elif end == "kill":
        killed(raw, message.attempt_id)
        world.judge()
    else:
        silence(raw)
        sweep.lose_silent(raw, leases=leases, terms=leases.terms())
    world.tick(run_id)
    world.tick(run_id)
    assert Run.objects.get(pk=run_id).state == "failed"
    assert called(run_id) == [("a", "on_execute")]


@pytest.mark.parametrize("is_frozen", [False, True])
def test_a_run_past_its_deadline_ends_and_calls_back_as_a_run(
    world: World, raw: psycopg.Connection[Any], is_frozen: bool
) -> None:
    tasks = [*chain("a", "b", callbacks=EVERY), *chain("c", callbacks=EVERY)]
    run_id = world.run(
        world.flow("f", tasks, run_timeout_s=5.0, callbacks={"on_failure": ("page",)})
    )
    world.tick(run_id)
    by_ti = {message.ti_id: message for message in world.messages}
    running = by_ti[TaskInstance.objects.get(run_id=run_id, task_id="a").pk]
    assert world.claim_with_callbacks(running) is not None
    run = Run.objects.get(pk=run_id)
    assert run.deadline_at is not None
    assert run.started_at is not None
    assert 4.9 < (run.deadline_at - run.started_at).total_seconds() < 5.1
    world.tick(run_id)
    assert world.states(run_id) == {"a": "running", "b": "none", "c": "queued"}
    raw.execute("UPDATE run SET deadline_at = clock_timestamp()")
    if is_frozen:
        raw.execute("UPDATE run SET frozen_at = clock_timestamp()")
    world.tick(run_id)
    if is_frozen:
        assert world.states(run_id) == {"a": "running", "b": "none", "c": "queued"}
        return
    assert world.states(run_id) == {"a": "running", "b": "failed", "c": "failed"}
    assert Run.objects.get(pk=run_id).state == "running", "not before its last attempt has ended"
    world.finish_with_callbacks(running, ok=False)
    world.tick(run_id)
    run.refresh_from_db()
    assert run.state == "failed"
    assert run.state_reason.startswith("It did not end within its run_timeout of 5 s.")
    assert called(run_id) == [("a", "on_execute"), (None, "on_failure")]
    assert_nothing_to_audit()


def test_a_run_that_failed_by_itself_too_calls_back(world: World) -> None:
    run_id = world.run(
        world.flow("f", [*chain("a"), *chain("b")], callbacks={"on_failure": ("page",)})
    )
    world.tick(run_id)
    by_person, by_itself = world.messages
    assert world.claim(by_itself) is not None
    world.finish(by_itself, ok=False)
    terminate_task_instance(ti_id=by_person.ti_id, actor="ada", reason="a wrong input")
    world.tick(run_id)
    assert called(run_id) == [(None, "on_failure")]


def test_a_run_calls_back_on_a_queue_that_its_workers_listen_on(world: World) -> None:
    run_id = world.run(
        world.flow("f", chain("a", queue="gpu"), callbacks={"on_success": ("cheer",)})
    )
    world.queue_slots = {"gpu": 4}
    world.play(run_id)
    assert Attempt.objects.get(kind="callback").queue == "gpu"


def test_each_end_of_a_run_is_a_transition_of_its_own(
    world: World, raw: psycopg.Connection[Any]
) -> None:
    run_id = world.run(world.flow("f", chain("a"), callbacks={"on_success": ("cheer",)}))
    world.play(run_id)
    # As a clear of its one task does.
    raw.execute(
        "UPDATE run SET state = 'running', is_active = true, ended_at = NULL WHERE id = %s",
        [run_id],
    )
    world.tick(run_id)
    assert called(run_id) == [(None, "on_success")] * 2


def issued_callback(world: World, **options: Any) -> Attempt:
    """The one callback of a task that succeeded."""
    run_id = world.run(world.flow("f", chain("a", callbacks={"on_success": ("tell",)}), **options))
    world.tick(run_id)
    message = world.messages.pop()
    assert world.claim(message) is not None
    world.finish_with_callbacks(message)
    return Attempt.objects.get(kind="callback")


def test_callbacks_are_published_until_they_are_claimed_and_never_as_tasks(
    world: World, raw: psycopg.Connection[Any], leases: Leases
) -> None:
    row = issued_callback(world)
    terms = leases.terms()
    wanted = Message(
        attempt_id=row.pk,
        ti_id=0,
        run_id=row.run_id or 0,
        fence=row.fence or 0,
        lease_token=row.lease_token or 0,
        queue="default",
    )
    assert callbacks.unpublished(raw, terms=terms, queue_slots={}) == [wanted]
    assert sweep.unpublished(raw, terms=terms, older_than_s=0) == []
    assert callbacks.any_live(raw, terms)
    raw.execute("UPDATE attempt SET published_at = clock_timestamp() - interval '1 hour'")
    assert callbacks.unpublished(raw, terms=terms, queue_slots={}) == []
    (late,) = callbacks.unclaimed(raw, terms)
    assert (late["attempt_id"], late["ti_id"]) == (row.pk, 0)
    assert claim(world, row)
    assert callbacks.unclaimed(raw, terms) == []
    assert [r["attempt_id"] for r in callbacks.running(raw, terms)] == [row.pk]
    finish_callback(
        raw,
        attempt_id=row.pk,
        nonce=uuid.UUID(int=row.pk.int),
        outcome=AttemptOutcome.SUCCESS,
        reason=None,
        error=None,
    )
    assert not callbacks.any_live(raw, terms)


def test_a_storm_of_callbacks_leaves_room_for_tasks(
    world: World, raw: psycopg.Connection[Any], leases: Leases
) -> None:
    tasks = [
        TaskDefinition(task_id=f"t{n}", callbacks={"on_success": ("tell",)}) for n in range(40)
    ]
    run_id = world.run(world.flow("f", tasks))
    world.queue_slots = {"default": 100}
    world.tick(run_id)
    for message in world.messages:
        assert world.claim(message) is not None
        world.finish_with_callbacks(message)
    terms = leases.terms()
    first = callbacks.unpublished(raw, terms=terms, queue_slots={"default": 10})
    assert len(first) == 20
    raw.execute(
        "UPDATE attempt SET published_at = clock_timestamp() WHERE id = ANY(%s)",
        [[message.attempt_id for message in first]],
    )
    assert callbacks.unpublished(raw, terms=terms, queue_slots={"default": 10}) == []
    assert len(callbacks.unpublished(raw, terms=terms, queue_slots={"default": 12})) == 4


@pytest.mark.parametrize("how", ["silent", "witnessed"])
def test_a_lost_callback_is_called_again_a_bounded_number_of_times_and_then_told(
    world: World, raw: psycopg.Connection[Any], leases: Leases, how: str
) -> None:
    row = issued_callback(world)
    terms = leases.terms()
    for number in range(1, CALLS_MAX + 1):
        row = Attempt.objects.get(kind="callback", is_live=True)
        assert row.dispatch_no == number
        assert claim(world, row)
        if how == "silent":
            silence(raw)
            together([lambda c: sweep.lose_silent(c, leases=leases, terms=terms)] * DECIDERS)
        else:
            if number == 1:
                start_worker(raw, world)
            killed(raw, row.pk)
            together([lambda c: judge_pending(c, leases=leases, terms=terms)] * DECIDERS)
        row.refresh_from_db()
        assert row.outcome == ("lost" if how == "silent" else "terminated")
        assert_nothing_to_audit()
    rows = list(Attempt.objects.filter(kind="callback").order_by("fence"))
    assert [r.filter_code for r in rows] == ["callback_repeated"] * (CALLS_MAX - 1) + [None]
    assert [r.superseded_by for r in rows] == [str(r.pk) for r in rows[1:]] + [None]
    assert len({r.callback_key for r in rows}) == 1
    incident = Incident.objects.get()
    assert (incident.kind, incident.subject) == ("callback_lost", str(rows[-1].pk))
    assert "tell (on_success of a" in incident.message
    ti = TaskInstance.objects.get()
    assert (ti.state, ti.infra_losses) == ("success", 0), "its task is untouched"
    assert {e.verdict for e in ExecutorEvent.objects.all()} == {"confirmed"}
    raw.execute("UPDATE incident SET raised_at = raised_at - interval '2 days'")
    callbacks.forget_lost(raw)
    assert Incident.objects.get().resolved_at is not None


def test_a_callback_that_beat_since_is_not_lost(world: World, raw: psycopg.Connection[Any]) -> None:
    row = issued_callback(world)
    assert claim(world, row)
    silence(raw)
    raw.execute("UPDATE attempt SET heartbeat_at = clock_timestamp() + interval '1 minute'")
    repeat = repeat_callbacks(
        raw,
        attempt_ids=[row.pk],
        outcome=AttemptOutcome.LOST,
        reason="silent",
        dead_after_s=DEAD_AFTER_S,
        source="test",
    )
    assert repeat == []
    row.refresh_from_db()
    assert row.state == "running"


@pytest.mark.parametrize("scope", ["ti", "run", "flow"])
def test_a_freeze_holds_what_would_become_of_a_callback(
    world: World, raw: psycopg.Connection[Any], leases: Leases, scope: str
) -> None:
    row = issued_callback(world)
    start_worker(raw, world)
    assert claim(world, row)
    killed(raw, row.pk)
    silence(raw)
    if scope == "ti":
        TaskInstance.objects.update(held_by=7)
    elif scope == "run":
        raw.execute("UPDATE run SET frozen_at = clock_timestamp()")
    else:
        raw.execute("UPDATE flow SET frozen_at = clock_timestamp()")
    world.judge()
    terms = leases.terms()
    sweep.lose_silent(raw, leases=leases, terms=terms)
    row.refresh_from_db()
    assert (row.state, ExecutorEvent.objects.get().verdict) == ("running", "pending")
    assert callbacks.running(raw, terms) == []
    TaskInstance.objects.update(held_by=None)
    Run.objects.update(frozen_at=None)
    Flow.objects.update(frozen_at=None)
    world.judge()
    row.refresh_from_db()
    assert (row.state, row.filter_code) == ("ended", "callback_repeated")


def test_transactions_with_callbacks_keep_the_lock_order_and_prove_first(
    recording: RecordingConnection, leases: Leases
) -> None:
    world = World(recording, leases)
    start_worker(recording, world)
    alarm = TaskDefinition(
        task_id="alarm", upstream=("a",), trigger_rule=TriggerRule.ONE_FAILED, callbacks=EVERY
    )
    run_id = world.run(
        world.flow(
            "f",
            (*chain("a", callbacks=EVERY), alarm, *chain("z", callbacks=EVERY)),
            callbacks={"on_success": ("cheer",), "on_failure": ("page",)},
        )
    )
    recording.transactions.clear()
    world.tick(run_id)
    by_task = {m.ti_id: m for m in world.messages}
    first, last = (
        by_task[TaskInstance.objects.get(run_id=run_id, task_id=task_id).pk]
        for task_id in ("a", "z")
    )
    assert broken_laws(recording.transactions, deciding=True) == []
    recording.transactions.clear()
    world.claim_with_callbacks(first)
    world.claim_with_callbacks(last)
    world.finish_with_callbacks(first)
    assert broken_laws(recording.transactions, deciding=False) == []
    killed(recording, last.attempt_id)
    recording.transactions.clear()
    world.judge()
    world.tick(run_id)
    world.tick(run_id)
    assert broken_laws(recording.transactions, deciding=True) == []
    assert [on for _, on in called(run_id)] == [
        "on_execute",
        "on_execute",
        "on_success",
        "on_failure",
        "on_skipped",
        "on_failure",
    ]
    # What is next decides about callbacks: their claim and what becomes of a lost one.
    for row in Attempt.objects.filter(kind="callback"):
        assert claim(world, row)
    silence(recording)
    recording.transactions.clear()
    sweep.lose_silent(recording, leases=leases, terms=leases.terms())
    assert broken_laws(recording.transactions[1:], deciding=True) == []
