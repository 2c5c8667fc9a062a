"""Histories of tasks, kept cheaply; and records that take longer than these explain."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from django.utils import timezone

from scheduler_app.models import Attempt, ExecutorEvent, Flow, Freeze, TaskInstance, TaskStats
from scheduler_app.rules import ghosts
from scheduler_app.scheduler.suspects import suspects
from scheduler_app.transitions.executor_event import Judgement, NewEvent, record_events
from scheduler_app.transitions.task_stats import learn
from tests.world import World, chain

if TYPE_CHECKING:
    from scheduler_app.transitions.attempt import Message

SHARDS = range(16)


class History:
    """A flow of one task, and executions of it that took as long as the test says."""

    def __init__(self, world: World, **options: Any) -> None:
        self.world = world
        self.flow: Flow = world.flow("sales", chain("load", retries=1, **options))
        self._runs = 0

    def claimed(self) -> Message:
        """A running attempt of a new run."""
        self._runs += 1
        run_id = self.world.run(self.flow, f"r{self._runs}")
        self.world.tick(run_id)
        message = self.world.messages.pop()
        assert self.world.claim(message)
        return message

    def success(self, seconds: float, *, queued_s: float = 1.0, is_confirmed: bool = True) -> None:
        """An accepted success that ran and waited so long, and the witness's word on it."""
        message = self.claimed()
        self.world.finish(message)
        end = timezone.now()
        start = end - timedelta(seconds=seconds)
        Attempt.objects.filter(pk=message.attempt_id).update(
            ended_at=end, started_at=start, issued_at=start - timedelta(seconds=queued_s)
        )
        if is_confirmed:
            self.exited(message)

    def exited(self, message: Message) -> None:
        """The witness saw it end well."""
        record_events(
            self.world.connection,
            events=[
                NewEvent(
                    attempt_id=message.attempt_id,
                    kind="exit_success",
                    source="worker: host-1",
                    judgement=Judgement(verdict="confirmed", code=None, reason="agrees"),
                )
            ],
        )

    def learn(self) -> int:
        return learn(self.world.connection, settled_after_s=0)

    def running_for(self, seconds: float) -> Message:
        """An attempt that has run so long."""
        message = self.claimed()
        began = timezone.now() - timedelta(seconds=seconds)
        Attempt.objects.filter(pk=message.attempt_id).update(started_at=began)
        return message

    def suspects(self) -> list[ghosts.Sighting]:
        return suspects(self.world.connection, shards=SHARDS)


@pytest.fixture
def history(world: World) -> History:
    return History(world)


def test_each_accepted_success_is_counted_once(history: History) -> None:
    for seconds in (10, 20, 30):
        history.success(seconds, queued_s=2)
    assert history.learn() == 3
    assert history.learn() == 0
    history.success(40)
    assert history.learn() == 1
    stats = TaskStats.objects.get()
    assert stats.run_p99_s is not None
    assert stats.queue_p99_s is not None
    assert stats.run_max_s is not None
    assert (stats.flow_id, stats.task_id, stats.successes) == ("sales", "load", 4)
    assert 40 <= stats.run_p99_s <= 44.1
    assert 2 <= stats.queue_p99_s <= 2.3
    assert round(stats.run_max_s) == 40


def test_failures_refused_reports_and_filtered_attempts_teach_nothing(
    history: History, world: World
) -> None:
    message = history.claimed()
    world.finish(message, ok=False)
    history.exited(message)
    history.success(10, is_confirmed=False)
    history.success(10)
    told = ExecutorEvent.objects.latest("id").attempt_id
    Attempt.objects.filter(pk__in=[told]).update(is_accepted=False)
    assert history.learn() == 0
    assert not TaskStats.objects.exists()


def test_an_event_that_is_too_young_waits_for_its_neighbours(
    history: History, world: World
) -> None:
    history.success(10)
    assert learn(world.connection, settled_after_s=60) == 0
    assert history.learn() == 1


def test_frozen_time_is_no_part_of_the_history_and_overlaps_count_once(history: History) -> None:
    history.success(100)
    attempt = Attempt.objects.get()
    assert attempt.started_at is not None
    for kind, scope, first, last in (
        ("flow", "sales", 10, 50),
        ("run", str(attempt.run_id), 30, 70),
        ("flow", "another", 0, 100),
    ):
        Freeze.objects.create(
            scope_kind=kind,
            scope_id=scope,
            actor="ana",
            reason="t",
            created_at=attempt.started_at + timedelta(seconds=first),
            ended_at=attempt.started_at + timedelta(seconds=last),
        )
    history.learn()
    p99_s = TaskStats.objects.get().run_p99_s
    assert p99_s is not None
    assert 40 <= p99_s <= 44.1


def test_a_record_beyond_its_own_history_is_suspect_and_lives_on(
    history: History, settings: Any
) -> None:
    settings.SUSPECT_SUCCESSES_MIN = 5
    for _ in range(5):
        history.success(40)
    history.learn()
    history.running_for(100)
    late = history.running_for(150)
    (seen,) = history.suspects()
    assert (seen.kind, seen.attempt_id) == (ghosts.SUSPECT_RUNNING, late.attempt_id)
    assert "the P99 of its 5 successes" in ghosts.explain(seen.kind, seen.detail)
    assert Attempt.objects.get(pk=late.attempt_id).state == "running"
    assert TaskInstance.objects.get(pk=late.ti_id).state == "running"


def test_the_time_under_a_freeze_does_not_count_against_a_record(
    history: History, settings: Any
) -> None:
    settings.SUSPECT_SUCCESSES_MIN = 1
    history.success(40)
    history.learn()
    history.running_for(150)
    assert len(history.suspects()) == 1
    Freeze.objects.create(
        scope_kind="all",
        actor="ana",
        reason="t",
        created_at=timezone.now() - timedelta(seconds=100),
    )
    assert history.suspects() == []


def test_a_task_says_its_own_factor(world: World, settings: Any) -> None:
    settings.SUSPECT_SUCCESSES_MIN = 1
    patient = History(world, suspect_factor=10.0)
    patient.success(40)
    patient.learn()
    patient.running_for(300)
    assert patient.suspects() == []
    patient.running_for(500)
    assert len(patient.suspects()) == 1


def test_a_task_says_itself_after_how_long_it_is_suspect(world: World) -> None:
    strict = History(world, suspect_after_s=120.0)
    strict.running_for(110)
    assert strict.suspects() == []
    strict.running_for(130)
    (seen,) = strict.suspects()
    assert "the task says suspect_after=120 s" in seen.detail["threshold_words"]


def test_nothing_is_suspect_before_the_floor_whatever_the_task_says(world: World) -> None:
    hasty = History(world, suspect_after_s=1.0)
    hasty.running_for(50)
    assert hasty.suspects() == []


def test_before_there_is_history_the_estimate_decides(history: History) -> None:
    history.running_for(1790)
    assert history.suspects() == []
    history.running_for(1810)
    (seen,) = history.suspects()
    assert "0 successes are no history yet" in seen.detail["threshold_words"]


def test_a_record_that_waits_too_long_is_suspect_by_the_history_of_waiting(
    history: History, world: World, settings: Any
) -> None:
    settings.SUSPECT_SUCCESSES_MIN = 1
    history.success(40, queued_s=30)
    history.learn()
    run_id = world.run(history.flow, "waits")
    world.tick(run_id)
    message = world.messages.pop()
    Attempt.objects.filter(pk=message.attempt_id).update(
        issued_at=timezone.now() - timedelta(seconds=120)
    )
    (seen,) = history.suspects()
    assert (seen.kind, seen.attempt_id) == (ghosts.SUSPECT_QUEUED, message.attempt_id)
