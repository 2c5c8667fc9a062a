"""Any sequence of failures, run retries and clears: no cap is exceeded and nothing is lost from view."""

from __future__ import annotations

import contextlib
import itertools
from typing import TYPE_CHECKING

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scheduler_app.models import Attempt, AutomaticAction, Run, RunAttempt
from scheduler_app.operations.clear import clear_run
from scheduler_app.operations.retry_run import cancel_retry, retry_run
from scheduler_app.operations.terminate import terminate_run
from scheduler_app.rules.clear import Options
from scheduler_app.rules.errors import Conflict, HeldForReview
from scheduler_app.rules.guards import GuardLimits
from scheduler_app.rules.run_retry import RunRetryPolicy
from scheduler_app.scheduler.run_retries import begin_due
from scheduler_app.scheduler.versions import Versions
from tests.replays import saying
from tests.world import chain

if TYPE_CHECKING:
    from tests.world import World

ACTS = ("fail", "fail", "sweep", "sweep", "succeed", "clear", "service", "retry", "cancel", "end")
CAP, ACTIONS_MAX = 3, 4
_names = itertools.count()


def act(world: World, run_id: int, what: str) -> None:
    """One thing happens to the run, if it can."""
    world.messages.clear()
    match what:
        case "fail":
            world.play(run_id, failing=["b"])
        case "succeed":
            world.play(run_id)
        case "sweep":
            begin_due(
                world.connection,
                leases=world.leases,
                terms=world.leases.terms(),
                versions=Versions(),
            )
        case "clear":
            clear_run(run_id=run_id, dry_run=False, actor="ana", reason="x")
        case "service":
            clear_run(
                run_id=run_id,
                dry_run=False,
                automated=True,
                actor="robot",
                reason="x",
                options=Options(only_failed=True),
            )
        case "retry":
            retry_run(run_id=run_id, actor="ana", reason="x")
        case "cancel":
            cancel_retry(run_id=run_id, actor="ana", reason="x")
        case "end":
            terminate_run(run_id=run_id, actor="ana", reason="x")


def policy_goes_since_a_person_cleared(run_id: int) -> int:
    goes = RunAttempt.objects.filter(run_id=run_id).order_by("number")
    number = 0
    for go in goes:
        if go.cause == "clear" and go.actor == "ana":
            number = 0
        number += go.cause == "run_retry" and go.actor == "policy"
    return number


def hold(run_id: int, attempts_before: int) -> None:
    """The laws."""
    run = Run.objects.get(pk=run_id)
    goes = list(RunAttempt.objects.filter(run_id=run_id).order_by("number"))
    assert [go.number for go in goes] == list(range(1, run.run_attempt + 1))
    assert [go.number for go in goes if go.filter_code is None] == [run.run_attempt]
    assert run.retry_count <= CAP - 1
    assert policy_goes_since_a_person_cleared(run_id) <= CAP - 1
    assert AutomaticAction.objects.filter(run_id=run_id, kind="clear").count() <= ACTIONS_MAX
    assert AutomaticAction.objects.filter(run_id=run_id, kind="run_retry").count() <= ACTIONS_MAX
    assert run.retry_at is None or run.state == "failed"
    assert Attempt.objects.filter(run_id=run_id).count() >= attempts_before


@settings(
    max_examples=15,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.lists(st.sampled_from(ACTS), min_size=4, max_size=12))
def test_no_sequence_exceeds_a_cap_or_hides_an_attempt(world: World, acts: list[str]) -> None:
    flow = world.flow(
        f"f{next(_names)}",
        chain("a", "b"),
        run_retry=RunRetryPolicy(max_attempts=CAP),
        guards=GuardLimits(actions_max=ACTIONS_MAX, window_s=3600),
    )
    run_id = world.run(flow)
    for what in acts:
        before = Attempt.objects.filter(run_id=run_id).count()
        # It may not be possible now, or a guard may hold it.
        with contextlib.suppress(Conflict, HeldForReview):
            act(world, run_id, what)
        world.ticker.forget([run_id])
        hold(run_id, before)
    saying.assert_nothing_hidden()
