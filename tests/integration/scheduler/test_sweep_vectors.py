"""Every vector of orphans and heartbeats, played by hand against a real database, or answered.

Where the product does otherwise on purpose the table of the section gives the reason and what it does.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any, Final

import psycopg
import pytest

from scheduler_app.models import Attempt, Counter, ExecutorEvent, Incident, Job, Run, Trigger
from scheduler_app.processes import database
from scheduler_app.rules.states import AttemptOutcome, TaskState
from scheduler_app.scheduler import orphans, sweep
from scheduler_app.scheduler.contact import Contact
from scheduler_app.scheduler.leases import Leases
from scheduler_app.scheduler.take_over import follow_up, take_over
from scheduler_app.transitions.attempt import beat
from scheduler_app.transitions.executor_event import NewEvent, record_events
from scheduler_app.transitions.ids import uuid7
from scheduler_app.transitions.job import bury_jobs, end_job
from scheduler_app.transitions.trigger import fire_due
from scheduler_app.worker import report
from tests.integration.scheduler.stage import HOST, LIVE_WITH_A_WORKER, Stage
from tests.integration.scheduler.test_replays import Carrier
from tests.together import together
from tests.vectors.cases import Case, cases, parameters
from tests.world import World, chain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

EVERY: Final = list(cases("orphans_heartbeats"))
# An age of exactly the limit does not exist against a running clock. Comparisons are strict; such
# a case is played this much below its limit.
JUST_BELOW_S: Final = 20.0


def when(*steps: Any) -> list[Case]:
    """The cases of one kind."""
    wanted = steps[0] if len(steps) == 1 else list(steps)
    return [one for one in EVERY if one.when == wanted]


def count(name: str) -> int:
    return Counter.objects.get(name=name).value


@pytest.fixture(autouse=True)
def _server_is_old(monkeypatch: pytest.MonkeyPatch, raw: psycopg.Connection[Any]) -> Iterator[None]:
    """Silences are longer than the tests' server lives, and its start would count as a beat."""
    path = "SET search_path = public, pg_catalog"
    connect = database.connect

    def as_if_old(*args: Any, **kwargs: Any) -> Any:
        connection = connect(*args, **kwargs)
        connection.execute(path)
        return connection

    monkeypatch.setattr(database, "connect", as_if_old)
    raw.execute(path)
    raw.execute(
        "CREATE OR REPLACE FUNCTION public.pg_postmaster_start_time() RETURNS timestamptz"
        " LANGUAGE sql AS $$ SELECT timestamptz '2020-01-01' $$"
    )
    yield
    raw.execute("DROP FUNCTION public.pg_postmaster_start_time()")


# -- processes --------------------------------------------------------------------------------


@parameters(when("sweep_scheduler_jobs"))
def test_a_scheduler_is_dead_when_its_heartbeat_is_too_old_and_never_if_it_ended(
    raw: psycopg.Connection[Any], world: World, case: Case
) -> None:
    given = case.given["scheduler_job"]
    stage = Stage(raw, world.leases)
    job = Job.objects.get(pk=stage.world.worker)
    if given["state"] != "running":
        # How a process ended is not told apart in its row: it has ended, once.
        end_job(raw, job_id=job.pk)
    ended_before = Job.objects.get(pk=job.pk).ended_at
    age_s = min(given["heartbeat_age_seconds"], 10_000)
    if age_s == case.given["threshold_seconds"]:
        age_s -= JUST_BELOW_S
    raw.execute(
        "UPDATE job SET heartbeat_at = clock_timestamp() - make_interval(secs => %s)", [age_s]
    )
    buried = bury_jobs(raw, silent_for_s=case.given["threshold_seconds"])
    job.refresh_from_db()
    assert buried == case.wanted["ended_counter"] == 0
    assert job.ended_at == ended_before
    assert job.state == ("running" if given["state"] == "running" else "ended")


# -- orphans ----------------------------------------------------------------------------------

_SAME_TRY = (
    "It is scheduled again rather than put back to none, in the same try: its upstream let it go once,"
    " and neither a try nor a retry is used up by what no execution has done."
)
_KEPT = (
    "What it deferred for has happened and is in the row: the next dispatch resumes where the lost one"
    " would have, instead of waiting for it again from the beginning."
)
_NO_RESULTS = (
    "There is no result backend to ask: an executor's word is an event, and one of an attempt that"
    " nobody claimed says that its delivery came to nothing; the same attempt is published again."
)
ORPHANS_DIFFER: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    **dict.fromkeys(
        (
            "orphan-reset-queued",
            "orphan-owner-dead_success",
            "orphan-owner-dead_failed",
            "orphan-no-owner",
            "orphan-owner-row-deleted",
        ),
        (_SAME_TRY, {"state": "scheduled", "try_number": 1, "max_tries": 2, "next_method": None}),
    ),
    "orphan-resume-trace-dropped": (
        _KEPT,
        {"state": "scheduled", "try_number": 1, "max_tries": 2, "next_method": "resume"},
    ),
    "orphan-reset-restarting": (
        "It was cleared: it begins anew with a whole budget from its try on.",
        {"state": "none", "try_number": 1, "max_tries": 3, "next_method": None},
    ),
}
ORPHANS_BY_THEMSELVES: Final = {
    "orphan-mixed-counters": "test_reset_and_adopted_tasks_are_counted_apart",
    "orphan-routed-per-executor": (
        "A stack has one executor; a task's queue says which workers may take it, and a message goes"
        " to its queue whoever dispatched it: test_a_queue_is_kept_by_who_takes_over"
    ),
    "orphan-row-locked": "test_an_orphan_that_somebody_has_locked_is_left",
    "celery-adopt-success": "test_what_a_broker_says_of_an_adopted_task_is_an_event",
    "celery-adopt-failure": "test_what_a_broker_says_of_an_adopted_task_is_an_event",
    "celery-adopt-none-have-handles": "test_tasks_that_no_executor_has_are_all_reset",
}


def heal(world: World) -> set[int]:
    return orphans.heal(world.connection, leases=world.leases, terms=world.leases.terms())


def put(stage: Stage, given: dict[str, Any], *, is_had: bool) -> None:
    """The instance of a vector; had by an executor exactly if its attempt is live."""
    stage.put(
        given["state"],
        is_given_up=not is_had and given["state"] in ("queued", "running", "restarting"),
        try_number=given["try_number"],
        max_tries=given["max_tries"],
        next_method=given["next_method"],
    )
    if given["last_heartbeat"] is None:
        Attempt.objects.filter(pk=stage.current).update(heartbeat_at=None)


@parameters([one for one in when("sweep_orphans") if one.id not in ORPHANS_BY_THEMSELVES])
def test_an_orphan_is_reset_or_adopted_as_the_vector_says(
    raw: psycopg.Connection[Any], leases: Leases, settings: Any, case: Case
) -> None:
    stage = Stage(raw, leases)
    given = case.given["instance"]
    is_had = (
        case.given.get("executor_can_adopt")
        or case.given.get("owner") == "alive"
        or "broker_result_state" in case.given
    )
    put(stage, given, is_had=bool(is_had))
    if case.given.get("run_state") in ("success", "failed"):
        raw.execute(
            "UPDATE run SET state = %s, is_active = false, ended_at = clock_timestamp()",
            [case.given["run_state"]],
        )
    if case.given.get("owner") == "row_missing":
        raw.execute("DELETE FROM job WHERE kind = 'scheduler'")
    before = stage.ti()
    moved = heal(stage.world)
    after = stage.ti()
    is_reset = case.wanted.get("outcome") == "reset"
    assert bool(moved) == is_reset
    if is_reset:
        wanted = ORPHANS_DIFFER[case.id][1]
        assert {key: getattr(after, key) for key in wanted} == wanted
        assert stage.attempt().outcome == "lost", "it is on record, with what became of it"
        assert ExecutorEvent.objects.get().verdict_code == "orphaned"
        return
    # Adopted, or not looked at: the row is as it was, and so is its attempt.
    assert vars(after) | {"_state": None} == vars(before) | {"_state": None}
    assert not ExecutorEvent.objects.exists()
    if is_had and given["state"] != "queued":
        settings.HEARTBEAT_DEAD_AFTER_S = 30.0
        assert sweep.lose_silent(raw, leases=leases, terms=leases.terms()) == set(), (
            "without a heartbeat its start counts"
        )


def test_reset_and_adopted_tasks_are_counted_apart(
    raw: psycopg.Connection[Any], leases: Leases
) -> None:
    """A scheduler died; one of three tasks is with nobody, a live worker runs the others."""
    stages = [Stage(raw, leases, flow_id=flow_id) for flow_id in ("f", "g", "h")]
    nobodys, first, second = stages
    nobodys.put("queued", is_given_up=True)
    for one in (first, second):
        one.put("running")
        Attempt.objects.filter(pk=one.current).update(worker_job_id=nobodys.world.worker)
    held = leases.terms()
    leases.give_up(raw, held, why="it died")
    successor = Leases(holder=uuid7(), ttl_s=60, renew_interval_s=12, deadline_s=40)
    new = successor.balance(raw, dead_after_s=60)
    take_over(raw, leases=successor, new_terms=new)
    adopted = [first.current, second.current]
    beat(raw, attempt_ids=adopted, worker_job_id=nobodys.world.worker)
    follow_up(raw, leases=successor, terms=successor.terms())
    moved = orphans.heal(raw, leases=successor, terms=successor.terms())
    wanted = cases_by_id["orphan-mixed-counters"].wanted["counters"]
    assert count("scheduler_orphaned_tasks_cleared_total") == wanted["orphans_cleared"] == 1
    assert count("scheduler_orphaned_tasks_adopted_total") == wanted["orphans_adopted"] == 2
    assert moved == {nobodys.row.run_id}
    assert {one.ti().state for one in (first, second)} == {"running"}


def test_a_queue_is_kept_by_who_takes_over(raw: psycopg.Connection[Any], leases: Leases) -> None:
    stage = Stage(raw, leases, queue="second")
    stage.put("queued", is_given_up=True)
    assert heal(stage.world) == {stage.row.run_id}
    (again,) = stage.world.tick(stage.row.run_id).messages
    assert (again.queue, again.attempt_id != stage.current) == ("second", True)


def test_an_orphan_that_somebody_has_locked_is_left(
    raw: psycopg.Connection[Any], leases: Leases
) -> None:
    stage = Stage(raw, leases)
    stage.put("running", is_given_up=True)
    with database.connect("scheduler") as other, other.transaction():
        other.execute("SELECT 1 FROM task_instance FOR UPDATE")
        assert heal(stage.world) == set()
    assert stage.ti().state == "running"


@pytest.mark.parametrize("kind", ["exit_success", "exit_failed"])
def test_what_a_broker_says_of_an_adopted_task_is_an_event(
    raw: psycopg.Connection[Any], leases: Leases, kind: str
) -> None:
    stage = Stage(raw, leases)
    stage.put("queued")
    assert heal(stage.world) == set()
    event = NewEvent(attempt_id=stage.current, kind=kind, source="executor: broker")
    record_events(raw, events=[event])
    assert stage.world.judge() == set()
    assert ExecutorEvent.objects.get().verdict_code == "never_claimed", _NO_RESULTS
    assert stage.ti().state == "queued"
    assert sweep.unpublished(raw, terms=leases.terms(), older_than_s=0.0), "published again"


def test_tasks_that_no_executor_has_are_all_reset(
    raw: psycopg.Connection[Any], leases: Leases
) -> None:
    stages = [Stage(raw, leases, flow_id=flow_id) for flow_id in ("f", "g")]
    for one, state in zip(stages, ("queued", "running"), strict=True):
        one.put(state, is_given_up=True)
    assert heal(stages[0].world) == {one.row.run_id for one in stages}
    assert {one.ti().state for one in stages} == {"scheduled"}


@parameters(when("sweep_orphans", "schedule"))
def test_an_orphan_is_dispatched_again_in_the_same_try(
    raw: psycopg.Connection[Any], leases: Leases, case: Case
) -> None:
    """The vector's next try would be used up by an execution that did nothing wrong."""
    stage = Stage(raw, leases)
    put(stage, case.given["instance"], is_had=False)
    heal(stage.world)
    stage.world.tick(stage.row.run_id)
    ti = stage.ti()
    assert case.expect["instance"]["try_number"] == 2
    assert (ti.state, ti.try_number, ti.dispatch_no) == ("queued", 1, 2)
    assert [a.try_number for a in stage.world.attempts(ti.run_id)] == [1, 1], "both are on record"


@parameters(when("sweep_orphans", "sweep_orphans"))
def test_a_second_sweep_finds_nothing(
    raw: psycopg.Connection[Any], leases: Leases, case: Case
) -> None:
    stage = Stage(raw, leases)
    put(stage, case.given["instance"], is_had=False)
    assert (len(heal(stage.world)), len(heal(stage.world))) == (1, 0)
    assert [a.try_number for a in stage.world.attempts(stage.row.run_id)] == (
        case.wanted["history_tries"]
    )
    assert ExecutorEvent.objects.count() == 1


@parameters(when("sweep_orphans_concurrently"))
def test_of_two_sweepers_exactly_one_finds_it(
    raw: psycopg.Connection[Any], leases: Leases, case: Case
) -> None:
    """An adopted one is found by nobody: it is as it should be, and only a lease's holder looks."""
    stage = Stage(raw, leases)
    put(stage, case.given["instance"], is_had=False)
    terms = leases.terms()
    found = together(
        [lambda connection: orphans.heal(connection, leases=leases, terms=terms)]
        * len(case.given["sweepers"])
    )
    assert sorted(map(len, found)) == [0, 1]
    assert case.wanted == {"adopted_by_exactly_one": True}


# -- handing out ------------------------------------------------------------------------------


def test_the_handle_is_stored_with_the_state_before_anything_is_sent(
    raw: psycopg.Connection[Any], leases: Leases
) -> None:
    """celery-handle-preassigned: the attempt's id is the message's, and is committed with queued."""
    stage = Stage(raw, leases)
    ti, attempt = stage.ti(), stage.attempt()
    assert (ti.state, ti.attempt_id) == ("queued", attempt.pk)
    assert attempt.published_at is None


def test_a_queued_run_hands_nothing_out(world: World) -> None:
    """enqueue-run-queued."""
    flow = world.flow("f", chain("a"), max_active_runs=1)
    first, second = world.run(flow, "r1"), world.run(flow, "r2")
    world.tick(first, second)
    assert world.states(second) == {"a": "none"}
    assert Run.objects.get(pk=second).state == "queued"


def test_a_run_that_has_ended_hands_nothing_out(
    raw: psycopg.Connection[Any], leases: Leases
) -> None:
    """enqueue-raced-run-success: its run is locked and looked at before a task is handed out."""
    stage = Stage(raw, leases)
    stage.put("scheduled", is_given_up=True)
    raw.execute("UPDATE run SET state = 'success', is_active = false, ended_at = clock_timestamp()")
    stage.world.ticker.forget([stage.row.run_id])
    assert stage.world.tick(stage.row.run_id).messages == []
    assert stage.ti().state == "scheduled", "a row that nobody looks at is not rewritten for it"


def test_a_run_whose_definition_cannot_be_read_is_told_and_fails_nothing(
    raw: psycopg.Connection[Any], leases: Leases
) -> None:
    """enqueue-definition-missing: a version is never deleted, so its definition is not missing.

    One that this version of the product cannot read is no fault of the tasks: they wait, somebody is
    told, and no other run waits with them.
    """
    stage = Stage(raw, leases)
    stage.put("scheduled", is_given_up=True)
    raw.execute("UPDATE flow_version SET definition = '{}'")
    fresh = World(raw, leases)
    healthy = fresh.run(fresh.flow("healthy", chain("a")))
    outcome = fresh.tick(stage.row.run_id, healthy)
    assert "the stored definition cannot be read" in outcome.broken[stage.row.run_id]
    assert [message.run_id for message in outcome.messages] == [healthy]
    assert stage.ti().state == "scheduled"


def test_a_paused_flow_starts_no_runs_and_goes_on_with_those_it_has(
    raw: psycopg.Connection[Any], leases: Leases
) -> None:
    """enqueue-paused-flow: here pause stops new runs alone; what stops the tasks of a run is freeze."""
    stage = Stage(raw, leases)
    stage.put("scheduled", is_given_up=True)
    raw.execute("UPDATE flow SET is_paused = true")
    assert len(stage.world.tick(stage.row.run_id).messages) == 1


# -- heartbeats -------------------------------------------------------------------------------

_OWN_BUDGET = (
    "A silent worker is no fault of the task: its loss has a budget of its own, within which the same"
    " try is dispatched again without a callback; past it the task fails with one callback."
)
_BY_SHARD = "Who leads the shard looks at every attempt in it, whoever dispatched them."
HEARTBEATS_DIFFER: Final = {
    "heartbeat-other-owner": (_BY_SHARD, True),
    # Of these the sweep itself moves the row, as the newer version of the vectors' source does; what
    # comes after it changes nothing. The other keys of every case are compared by _check_lost.
    **dict.fromkeys(
        ("heartbeat-retries-left", "heartbeat-no-retries", "heartbeat-no-retries-try0"),
        (_OWN_BUDGET, True),
    ),
}


def _silent(stage: Stage, given: dict[str, Any], settings: Any, limit_s: float) -> None:
    """The instance of a vector, its worker silent with it."""
    settings.HEARTBEAT_DEAD_AFTER_S = limit_s
    state = given["state"]
    stage.put(state, try_number=given["try_number"], max_tries=given["max_tries"])
    age_s = given.get("heartbeat_age_seconds", limit_s + 1)
    started_s = age_s if age_s is not None else limit_s + 1
    if started_s == limit_s:
        age_s = started_s = limit_s - JUST_BELOW_S
    stage.raw.execute(
        "UPDATE attempt SET heartbeat_at = clock_timestamp() - make_interval(secs => %(beat)s),"
        " started_at = clock_timestamp() - make_interval(secs => %(start)s) WHERE id = %(id)s",
        {"beat": age_s, "start": started_s, "id": stage.current},
    )
    stage.raw.execute("UPDATE job SET heartbeat_at = clock_timestamp() - interval '1 day'")


def _sweep(stage: Stage) -> set[int]:
    world = stage.world
    return sweep.lose_silent(stage.raw, leases=world.leases, terms=world.leases.terms())


def _check_lost(stage: Stage, was: str) -> None:
    """One transition, one event, one count; no try and no retry is used."""
    ti, attempt = stage.ti(), stage.attempt()
    assert ti.state == ("none" if was == "restarting" else "scheduled")
    assert (attempt.outcome, attempt.is_live) == ("lost", False)
    event = ExecutorEvent.objects.get()
    assert (event.kind, event.verdict, event.verdict_code) == (
        "worker_lost",
        "confirmed",
        "worker_lost",
    )
    assert count("scheduler_attempts_lost_total") == 1
    assert count("scheduler_tasks_killed_externally_total") == 0
    assert not Attempt.objects.filter(kind="callback").exists()


@parameters(when("sweep_heartbeats"))
def test_a_silent_attempt_is_lost_as_the_vector_says(
    raw: psycopg.Connection[Any], leases: Leases, settings: Any, case: Case
) -> None:
    given = case.given["instance"]
    stage = Stage(raw, leases)
    _silent(stage, given, settings, case.given.get("limit_seconds", 300))
    if "definition_version" in case.given:
        raw.execute("UPDATE flow_version SET definition = '{}'")
    _, is_lost = HEARTBEATS_DIFFER.get(case.id, ("", case.wanted.get("timed_out", True)))
    before = stage.ti()
    moved = _sweep(stage)
    assert bool(moved) == is_lost
    if is_lost:
        _check_lost(stage, given["state"])
    else:
        assert stage.ti().state == before.state
        assert not ExecutorEvent.objects.exists()
    assert _sweep(stage) == set(), "once"


@parameters(
    when("sweep_heartbeats", "process_executor_events")
    + when("sweep_heartbeats", "sweep_heartbeats")
)
def test_a_loss_makes_one_transition_and_at_most_one_callback(
    raw: psycopg.Connection[Any], leases: Leases, settings: Any, case: Case
) -> None:
    """Within the budget of losses none, past it one, whatever comes after the sweep."""
    for is_last in (False, True):
        stage = Stage(
            raw,
            leases,
            flow_id="g" if is_last else "f",
            callbacks={"on_failure": ("tell",), "on_retry": ("tell",)},
        )
        _silent(stage, case.given["instance"], settings, 300)
        if is_last:
            raw.execute(
                "UPDATE task_instance SET infra_losses = %s WHERE id = %s",
                [settings.INFRASTRUCTURE_BUDGET, stage.row.pk],
            )
        assert _sweep(stage) == {stage.row.run_id}
        record_events(
            raw,
            events=[
                NewEvent(attempt_id=stage.current, kind=kind, source="executor: x")
                for kind in ("exit_failed", "exit_killed", "worker_lost")
            ],
        )
        assert stage.world.judge() == set()
        assert _sweep(stage) == set()
        assert stage.ti().state == ("failed" if is_last else "scheduled")
        told = Attempt.objects.filter(kind="callback", run_id=stage.row.run_id).count()
        assert told == (1 if is_last else 0)
        moves = ExecutorEvent.objects.filter(attempt_id=stage.current, source__startswith="sched")
        assert moves.count() == 1
    assert case.wanted.get("callbacks_sent", 1) == 1


@parameters(
    [
        one
        for one in EVERY
        if one.id in ("heartbeat-revived-before-events", "heartbeat-worker-success-before-events")
    ]
)
def test_what_a_lost_worker_says_later_changes_nothing(
    raw: psycopg.Connection[Any], leases: Leases, settings: Any, case: Case
) -> None:
    """The sweep has moved the row: its worker is told so, and its result is on record as late."""
    stage = Stage(raw, leases)
    _silent(stage, case.given["instance"], settings, 300)
    assert _sweep(stage) == {stage.row.run_id}
    (answer,) = beat(raw, attempt_ids=[stage.current], worker_job_id=stage.world.worker)
    assert not answer.is_wanted
    assert _send(stage, "success") is None
    assert stage.ti().state == "scheduled"
    late = ExecutorEvent.objects.get(kind="late_report")
    assert (late.verdict, late.verdict_code) == ("ignored", "late_after_terminal")


def test_a_restart_of_the_database_counts_as_a_beat_of_everybody(
    raw: psycopg.Connection[Any], leases: Leases, settings: Any
) -> None:
    """No worker can beat while it is away; each has as long as ever from its return on."""
    stage = Stage(raw, leases)
    given = {"state": "running", "try_number": 1, "max_tries": 2, "heartbeat_age_seconds": 9_000}
    _silent(stage, given, settings, 300)
    for since_restart_s, is_lost in ((200, False), (301, True)):
        raw.execute(
            "CREATE OR REPLACE FUNCTION public.pg_postmaster_start_time() RETURNS timestamptz"
            f" LANGUAGE sql AS $$ SELECT clock_timestamp() - interval '{since_restart_s} s' $$".encode()
        )
        assert bool(_sweep(stage)) == is_lost
    _check_lost(stage, "running")


def test_a_scheduler_that_was_away_gives_each_its_whole_time_from_its_return_on(
    raw: psycopg.Connection[Any], leases: Leases, settings: Any
) -> None:
    """A server that recovers lets nobody in long after its start; of a cut network it knows nothing."""
    stage = Stage(raw, leases)
    given = {"state": "running", "try_number": 1, "max_tries": 2, "heartbeat_age_seconds": 9_000}
    _silent(stage, given, settings, 300)
    Contact(silence_max_s=60).tell(raw)
    assert not _sweep(stage)
    for since_return_s, is_lost in ((200, False), (301, True)):
        raw.execute(
            "SELECT set_config('daylight.in_touch_since',"
            "  (clock_timestamp() - make_interval(secs => %s))::text, false)",
            [since_return_s],
        )
        assert bool(_sweep(stage)) == is_lost
    _check_lost(stage, "running")


# -- what workers are answered ------------------------------------------------------------------


@parameters(when("worker_heartbeat"))
def test_a_heartbeat_is_answered_as_the_vector_says(
    raw: psycopg.Connection[Any], leases: Leases, case: Case
) -> None:
    stage = Stage(raw, leases)
    if case.given["state"] is None:
        assert beat(raw, attempt_ids=[uuid7()], worker_job_id=stage.world.worker) == []
        return
    stage.put(case.given["state"])
    worker = stage.world.worker if case.given.get("same_process", True) else uuid7()
    before = stage.attempt().heartbeat_at
    (answer,) = beat(raw, attempt_ids=[stage.current], worker_job_id=worker)
    assert case.wanted["answer"] == "conflict"
    assert not answer.is_wanted
    if case.wanted["reason"] == "running_elsewhere":
        assert stage.attempt().heartbeat_at == before


@parameters(when("worker_start"))
def test_a_start_is_answered_as_the_vector_says(
    raw: psycopg.Connection[Any], leases: Leases, case: Case
) -> None:
    stage = Stage(raw, leases)
    stage.put(case.given["state"], next_method=case.given.get("next_method"))
    if case.given["state"] in LIVE_WITH_A_WORKER or case.id == "worker-start-keeps-resume-trace":
        raw.execute("UPDATE task_instance SET started_at = clock_timestamp() - interval '1 h'")
    before = stage.ti()
    claim = stage.world.claim(stage.message, nonce=uuid.uuid4())
    ti = stage.ti()
    assert (claim is not None) == (case.wanted["answer"] == "ok")
    assert ti.state == case.wanted["state"]
    if case.id == "worker-start-keeps-resume-trace":
        assert (ti.next_method, ti.started_at) == ("resume", before.started_at)


def _send(stage: Stage, outcome: str) -> int | None:
    """A report of the stage's attempt, as its worker sends it; the run's id if it is accepted."""
    states = {
        "success": (TaskState.SUCCESS, AttemptOutcome.SUCCESS),
        "up_for_retry": (TaskState.UP_FOR_RETRY, AttemptOutcome.FAILED),
        "deferred": (TaskState.DEFERRED, AttemptOutcome.DEFERRED),
    }
    state, ended_as = states[outcome]
    wait = None
    if state is TaskState.DEFERRED:
        wait = {
            "next_method": "resumed",
            "next_kwargs": {},
            "kind": "watched",
            "classpath": "flow:Watched",
            "kwargs": {},
            "detail": "Watched()",
        }
    made = report.Report(
        ti_id=stage.row.pk,
        attempt_id=str(stage.current),
        nonce=str(uuid.UUID(int=stage.current.int)),
        state=state,
        is_open=state is not TaskState.SUCCESS,
        outcome=ended_as,
        retry_after_s=0.0 if state is TaskState.UP_FOR_RETRY else None,
        wait=wait,
    )
    return report.send(stage.raw, made, source=f"worker: {HOST}", job_id=stage.world.worker)


@parameters(when("worker_report"))
def test_a_report_is_answered_as_the_vector_says(
    raw: psycopg.Connection[Any], leases: Leases, case: Case
) -> None:
    stage = Stage(raw, leases)
    stage.put(case.given["state"])
    if case.wanted["answer"] == "already":
        # It was accepted, and its answer was lost.
        raw.execute(
            "UPDATE attempt SET nonce = %s WHERE id = %s",
            [uuid.UUID(int=stage.current.int), stage.current],
        )
    answer = _send(stage, case.given["report"])
    assert (answer is not None) == (case.wanted["answer"] in ("ok", "already"))
    assert stage.ti().state == case.wanted["state"]
    late = ExecutorEvent.objects.filter(kind="late_report")
    assert late.count() == (1 if case.wanted["answer"] == "conflict" else 0)


# -- queues -----------------------------------------------------------------------------------

_STUCK = (
    "The same attempt is published again, a bounded number of times, using up nothing; then there is"
    " an incident that names the queue. What nobody takes is no failure of the task, and a failed task"
    " would hide what is wrong: the task runs as soon as somebody listens."
)


def _play_stuck(stage: Stage, settings: Any, given: dict[str, Any]) -> tuple[int, Carrier]:
    instance = given["instance"]
    settings.QUEUED_TIMEOUT_S = given.get("timeout_seconds", 600.0)
    settings.REPUBLISH_MAX = given.get("allowed_requeues", 2)
    stage.put(
        instance["state"],
        try_number=instance.get("try_number", 1),
        max_tries=instance.get("max_tries", 3),
    )
    age_s = instance.get("queued_age_seconds", settings.QUEUED_TIMEOUT_S + 1)
    if age_s == settings.QUEUED_TIMEOUT_S:
        age_s -= JUST_BELOW_S
    log = given.get("attempt_log", [])
    since_it_ran = log[log.index("running") + 1 :] if "running" in log else log
    stage.raw.execute(
        "UPDATE attempt SET published_at = clock_timestamp() - make_interval(secs => %s),"
        " publish_count = %s WHERE id = %s",
        [age_s, 1 + len(since_it_ran), stage.current],
    )
    carrier = Carrier()
    number = sweep.republish_unclaimed(
        stage.raw,
        executor=carrier,
        identity="here",
        leases=stage.world.leases,
        terms=stage.world.leases.terms(),
        served={"default"},
    )
    return number, carrier


@parameters(when("sweep_stuck_in_queue"))
def test_what_nobody_takes_is_published_again_and_told_and_never_failed(
    raw: psycopg.Connection[Any], leases: Leases, settings: Any, case: Case
) -> None:
    stage = Stage(raw, leases)
    if case.given["definition"] == "missing":
        stage.lose_definition()
    number, carrier = _play_stuck(stage, settings, case.given)
    instance = case.given["instance"]
    is_overdue = instance["state"] == "queued" and (
        instance["queued_age_seconds"] > case.given["timeout_seconds"]
    )
    # Whoever leads the shard looks after it, whoever dispatched it (stuck-other-owner).
    assert case.wanted["selected"] == is_overdue or case.id == "stuck-other-owner"
    assert number == is_overdue
    ti = stage.ti()
    assert (ti.state, ti.try_number) == (instance["state"], instance["try_number"]), _STUCK
    told = Incident.objects.filter(kind="nobody_listens", subject="default", resolved_at=None)
    is_exceeded = case.wanted.get("outcome", "").startswith("failed")
    assert told.exists() == is_exceeded
    if is_overdue:
        assert [m.attempt_id for m in carrier.published] == [stage.current], "the same attempt"
        stage.world.queue_slots = {"default": 1}
        assert stage.world.claim(carrier.published[0]) is not None
        assert stage.ti().state == "running", "it runs as soon as somebody listens"


@parameters(
    [
        one
        for one in EVERY
        if one.id in ("stuck-then-late-executor-event", "stuck-late-event-after-requeued-again")
    ]
)
def test_a_late_event_of_the_first_message_kills_nothing(
    raw: psycopg.Connection[Any], leases: Leases, settings: Any, case: Case
) -> None:
    """It names the attempt, which nobody has claimed: the message came to nothing, that is all."""
    stage = Stage(raw, leases)
    assert _play_stuck(stage, settings, {"instance": {"state": "queued"}})[0] == 1
    event = NewEvent(attempt_id=stage.current, kind="exit_failed", source="executor: x")
    record_events(raw, events=[event])
    assert stage.world.judge() == set()
    assert stage.ti().state == "queued"
    assert ExecutorEvent.objects.get().verdict_code == "never_claimed"
    if case.wanted != case.expect:
        assert case.wanted["instance"]["state"] == "queued"


# -- waits ------------------------------------------------------------------------------------


@parameters(when("sweep_wait_timeouts"))
def test_a_wait_that_takes_too_long_ends_as_the_vector_says(
    raw: psycopg.Connection[Any], leases: Leases, case: Case
) -> None:
    """The error is laid beside the method's arguments, so that a method may take it (``error``);

    where it does not, a worker raises it there, with retries and callbacks as for any failure.
    """
    stage = Stage(raw, leases)
    assert stage.world.claim(stage.message) is not None
    past_s = case.given["instance"]["seconds_past_limit"]
    trigger_id = stage.world.defer(stage.message, timeout_s=None if past_s is None else 1000.0)
    if case.given["instance"]["state"] == "scheduled":
        assert stage.world.fire(trigger_id) == "moved"
    if past_s is not None:
        due_s = past_s if past_s > 0 else -JUST_BELOW_S
        raw.execute(
            "UPDATE trigger SET timeout_at = clock_timestamp() - make_interval(secs => %(s)s),"
            " wake_at = clock_timestamp() - make_interval(secs => %(s)s)",
            {"s": due_s},
        )
    fire_due(raw, limit=10)
    ti = stage.ti()
    wanted = case.wanted["instance"]
    assert (ti.state, ti.try_number) == (wanted["state"], wanted["try_number"])
    trigger = Trigger.objects.get(pk=trigger_id)
    if case.id == "wait-timeout-expired":
        assert (trigger.state, trigger.is_waiting) == ("timed_out", False)
        assert (ti.next_method, "error" in (ti.next_kwargs or {})) == ("resumed", True)


# -- the table --------------------------------------------------------------------------------

cases_by_id: Final = {one.id: one for one in EVERY}
_ONE_BY_ONE: Final[dict[str, Callable[..., None]]] = {
    "celery-handle-preassigned": test_the_handle_is_stored_with_the_state_before_anything_is_sent,
    "enqueue-run-queued": test_a_queued_run_hands_nothing_out,
    "enqueue-raced-run-success": test_a_run_that_has_ended_hands_nothing_out,
    "enqueue-definition-missing": test_a_run_whose_definition_cannot_be_read_is_told_and_fails_nothing,
    "enqueue-paused-flow": test_a_paused_flow_starts_no_runs_and_goes_on_with_those_it_has,
}


def test_every_vector_is_played_or_answered() -> None:
    played = {
        one.id
        for test in list(globals().values())
        for mark in getattr(test, "pytestmark", [])
        if mark.name == "parametrize" and mark.args[0] == "case"
        for one in mark.args[1]
    }
    answered = played | _ONE_BY_ONE.keys() | ORPHANS_BY_THEMSELVES.keys()
    assert answered == cases_by_id.keys()
    assert len(EVERY) == 104
    assert cases_by_id.keys() >= ORPHANS_DIFFER.keys() | HEARTBEATS_DIFFER.keys()
