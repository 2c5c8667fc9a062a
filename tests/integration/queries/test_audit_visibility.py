"""``audit visibility`` finds every row whose standing its facts do not support, and no other."""

from __future__ import annotations

from io import StringIO
from typing import TYPE_CHECKING, Any

import pytest
from django.core.management import call_command

from scheduler_app.models import Attempt, ExecutorEvent, Run, RunAttempt, TaskInstance
from scheduler_app.queries import audit_visibility
from tests import factories
from tests.world import chain

if TYPE_CHECKING:
    from django.db.models import Model

    from tests.world import World

WHEN = factories.at(1)


def differences() -> list[tuple[str, str, str, str | None, str | None]]:
    return [
        (each.noun, each.id, each.column, each.stored, each.derived)
        for compared in audit_visibility.compare()
        for each in compared.differences
    ]


def falsify(row: Model, code: str | None) -> None:
    """Another standing than the transitions gave."""
    aside = code is not None
    type(row).objects.filter(pk=row.pk).update(  # type: ignore[attr-defined]
        filter_code=code,
        filtered_at=WHEN if aside else None,
        filter_detail={} if aside else None,
    )


@pytest.mark.django_db
class TestFactsSay:
    def test_nothing_against_a_coherent_world(self) -> None:
        run = factories.make_run()
        ti = factories.make_task_instance(run=run, task_id="first", state="running")
        after = factories.make_attempt(ti=ti, try_number=2)
        factories.make_attempt(
            ti=ti,
            state="ended",
            outcome="failed",
            try_number=1,
            fence=0,
            filter_code="superseded_by_retry",
            superseded_by=str(after.id),
        )
        factories.make_event(attempt=after)
        factories.make_ghost_attempt()
        rows = [compared.noun for compared in audit_visibility.compare()]
        assert sorted(rows) == sorted(
            [
                "run",
                "run_attempt",
                "task_instance",
                "attempt",
                "attempt",
                "attempt",
                "executor_event",
            ]
        )
        assert differences() == []

    @pytest.mark.parametrize(
        ("code", "derived"),
        [(None, "superseded_by_retry"), ("lost_worker", "superseded_by_retry")],
    )
    def test_that_a_replaced_attempt_is_set_aside(self, code: str | None, derived: str) -> None:
        run = factories.make_run()
        ti = factories.make_task_instance(run=run, task_id="first", state="running")
        after = factories.make_attempt(ti=ti, try_number=2, kind="task")
        # The unique index on current attempts refuses two; a callback's standing it does not see.
        before = factories.make_attempt(
            ti=ti, state="ended", outcome="failed", try_number=1, fence=0,
            filter_code="superseded_by_retry", superseded_by=str(after.id),
        )  # fmt: skip
        if code is None:
            falsify(after, "lost_worker")
        falsify(before, code)
        assert ("attempt", str(before.id), "filter_code", code, derived) in differences()

    def test_who_replaced_an_attempt(self) -> None:
        run = factories.make_run()
        ti = factories.make_task_instance(run=run, task_id="first", state="running")
        after = factories.make_attempt(ti=ti, dispatch_no=1)
        before = factories.make_attempt(
            ti=ti, state="ended", outcome="lost", fence=0, filter_code="lost_worker"
        )
        told = ("attempt", str(before.id), "superseded_by", None, str(after.id))
        assert differences() == [told]

    def test_that_a_current_attempt_is_not_set_aside(self) -> None:
        run = factories.make_run()
        ti = factories.make_task_instance(run=run, task_id="first", state="running")
        attempt = factories.make_attempt(ti=ti)
        falsify(attempt, "superseded_by_retry")
        told = ("attempt", str(attempt.id), "filter_code", "superseded_by_retry", None)
        assert differences() == [told]

    def test_that_an_attempt_that_nothing_replaced_needs_a_reason(self) -> None:
        run = factories.make_run()
        ti = factories.make_task_instance(run=run, task_id="first", state="running")
        attempt = factories.make_attempt(ti=ti)
        TaskInstance.objects.filter(id=ti.id).update(attempt_id=None)
        told = ("attempt", str(attempt.id), "filter_code", None, "unexplained")
        assert differences() == [told]

    def test_that_an_attempt_without_parents_is_a_ghost(self) -> None:
        ghost = factories.make_ghost_attempt()
        falsify(ghost, None)
        told = ("attempt", str(ghost.id), "filter_code", None, "ghost_no_record")
        assert differences() == [told]

    def test_that_a_filtered_run_takes_what_is_below_along(self) -> None:
        run = factories.make_run(filter_code="ghost_run")
        ti = factories.make_task_instance(run=run, task_id="first", state="running")
        attempt = factories.make_attempt(ti=ti)
        assert set(differences()) == {
            ("run_attempt", str(run.attempts_of_run.get().pk), "filter_code", None, "ghost_run"),
            ("task_instance", str(ti.id), "filter_code", None, "ghost_run"),
            ("attempt", str(attempt.id), "filter_code", None, "ghost_run"),
        }

    def test_that_a_task_left_the_version(self) -> None:
        run = factories.make_run()
        ti = factories.make_task_instance(run=run, task_id="gone")
        told = ("task_instance", str(ti.id), "filter_code", None, "removed_from_flow")
        assert differences() == [told]

    def test_that_a_duplicate_needs_its_twin(self) -> None:
        run = factories.make_run(filter_code="duplicate_logical_date", run_type="scheduled")
        RunAttempt.objects.filter(run=run).update(
            filter_code="duplicate_logical_date", filtered_at=WHEN, filter_detail={}
        )
        told = ("run", str(run.id), "filter_code", "duplicate_logical_date", None)
        assert differences() == [told]
        factories.make_run(flow=run.flow, logical_date=run.logical_date, run_type="scheduled")
        assert differences() == []

    def test_that_an_older_run_attempt_is_superseded(self) -> None:
        run = factories.make_run()
        Run.objects.filter(id=run.id).update(run_attempt=2)
        old = run.attempts_of_run.get()
        told = ("run_attempt", str(old.pk), "filter_code", None, "superseded_by_run_attempt")
        assert differences() == [told]

    def test_that_an_event_stands_as_its_verdict(self) -> None:
        run = factories.make_run()
        ti = factories.make_task_instance(run=run, task_id="first", state="running")
        event = factories.make_event(
            attempt=factories.make_attempt(ti=ti), verdict="refused", verdict_code="refused_frozen"
        )
        told = ("executor_event", str(event.id), "filter_code", None, "refused_frozen")
        assert differences() == [told]

    def test_that_a_code_of_another_kind_of_row_is_wrong(self) -> None:
        run = factories.make_run()
        ti = factories.make_task_instance(run=run, task_id="first", state="running")
        event = factories.make_event(
            attempt=factories.make_attempt(ti=ti),
            verdict="ignored",
            verdict_code="ghost_run",
            filter_code="ghost_run",
        )
        assert [row[1] for row in differences()] == [str(event.id)]

    def test_the_command_what_was_compared(self) -> None:
        factories.make_run()
        out = StringIO()
        call_command("audit", "visibility", stdout=out)
        assert "1 run, 1 run_attempt, 0 task_instance" in out.getvalue()
        assert "0 differences" in out.getvalue()

    def test_the_command_each_difference_with_its_facts(self) -> None:
        factories.make_run(filter_code="ghost_run")
        out = StringIO()
        with pytest.raises(SystemExit) as ended:
            call_command("audit", "visibility", stdout=out)
        assert ended.value.code == 1
        assert "the facts say ghost_run" in out.getvalue()


def test_a_world_of_retries_and_losses_stands_as_its_facts_say(world: World) -> None:
    run_id = world.run(world.flow("f", chain("a", "b", retries=2, retry_delay_s=0)))
    world.tick(run_id)
    message = world.messages.pop()
    assert world.claim(message) is not None
    world.finish(message, ok=False, retry_after_s=0)
    world.play(run_id)
    assert Attempt.objects.filter(filter_code="superseded_by_retry").count() == 1
    assert differences() == []
    counted: dict[str, int] = {}
    for compared in audit_visibility.compare():
        counted[compared.noun] = counted.get(compared.noun, 0) + 1
    models: dict[str, Any] = {
        "run": Run,
        "run_attempt": RunAttempt,
        "task_instance": TaskInstance,
        "attempt": Attempt,
        "executor_event": ExecutorEvent,
    }
    assert counted == {
        noun: model.objects.count() for noun, model in models.items() if model.objects.exists()
    }
