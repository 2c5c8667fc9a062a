from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from django.contrib.auth.models import Group, Permission

from scheduler_app.models import Guard, Review, Run, TaskInstance
from scheduler_app.operations.clear import clear_run
from scheduler_app.operations.guards import set_guard
from scheduler_app.rules.errors import HeldForReview
from tests.factories import make_flow, make_run, make_task_instance

if TYPE_CHECKING:
    from django.contrib.auth.models import User

    from tests.integration.commands.conftest import Call

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def run() -> Run:
    made = make_run(flow=make_flow(flow_id="sales"), run_key="r1", state="failed")
    make_task_instance(run=made, task_id="first", state="success", try_number=1)
    make_task_instance(run=made, task_id="second", state="failed", try_number=1)
    return made


@pytest.fixture
def review(run: Run) -> Review:
    set_guard(flow_id="sales", limits={"actions_max": 0}, actor="ana", reason="It is slow.")
    with pytest.raises(HeldForReview):
        clear_run(run_id=run.pk, dry_run=False, automated=True, actor="robot", reason="alert 7")
    return Review.objects.get()


def test_what_waits_is_listed_shown_and_approved(call: Call, run: Run, review: Review) -> None:
    listed = call("reviews", "list")
    assert [str(review.pk), "open", "clear", "sales", str(run.pk)] == listed.lines()[1][:5]
    shown = call("reviews", "show", str(review.pk))
    assert "robot: alert 7" in shown.out
    assert "2 task instances would be cleared" in shown.out
    refused = call("reviews", "approve", str(review.pk))
    assert (refused.code, "Say why" in refused.err) == (1, True)
    before = call("reviews", "approve", str(review.pk), "--dry-run")
    assert "would be cleared" in before.out
    done = call("reviews", "approve", str(review.pk), "--reason", "looked at it")
    assert (done.code, "2 task instances cleared" in done.out) == (0, True)
    assert TaskInstance.objects.filter(run=run, state="none").count() == 2
    again = call("reviews", "dismiss", str(review.pk), "--reason", "no")
    assert (again.code, "was approved" in again.err) == (1, True)
    assert "0 reviews" in call("reviews", "list").out
    assert call("reviews", "list", "--state", "approved").lines()[1][0] == str(review.pk)


def test_what_waits_is_dismissed(call: Call, review: Review) -> None:
    done = call("reviews", "dismiss", str(review.pk), "--reason", "no need", "--json")
    assert json.loads(done.out)["state"] == "dismissed"
    assert call("reviews", "show", "999").code == 1


def test_guards_are_set_shown_and_stopped(call: Call, run: Run) -> None:
    del run
    assert call("guards", "set", "--actions-max", "3").code == 1, "it needs a reason"
    set_by_hand = call(
        "guards", "set", "--flow", "sales", "--actions-max", "3", "--reason", "It is slow."
    )
    assert set_by_hand.code == 0
    stopped = call("guards", "stop", "--reason", "the target is down")
    assert "everywhere: stopped" in stopped.out
    held = json.loads(call("guards", "show", "sales", "--json").out)
    assert {one["limits"]["actions_max"] for one in held} == {3}
    assert held[0]["stopped_by"]["reason"] == "the target is down"
    assert "stopped by" in call("guards", "show", "sales").out
    assert call("guards", "start", "--reason", "it is back").code == 0
    assert (
        call("guards", "set", "--flow", "sales", "--unset", "actions_max", "--reason", "x").code
        == 0
    )
    assert Guard.objects.get(flow_id="sales").actions_max is None
    assert "2 guards" in call("guards", "list").out
    assert call("guards", "set", "--flow", "nobody", "--reason", "x").code == 1


def test_a_failed_run_is_retried_and_a_retry_cancelled(call: Call, run: Run) -> None:
    assert "would be cleared" in call("flows", "retry", "sales", "r1", "--dry-run").out
    Run.objects.filter(pk=run.pk).update(retry_at="2030-01-01T00:00Z")
    cancelled = call("flows", "cancel-retry", "sales", "r1", "--reason", "look first")
    assert "stays failed" in cancelled.out
    done = call("flows", "retry", "sales", "r1", "--reason", "it is back")
    assert (done.code, "as run attempt 2" in done.out) == (0, True)
    assert TaskInstance.objects.get(run=run, task_id="second").state == "none"
    assert call("flows", "retry", "sales", "r1", "--reason", "again").code == 1


def test_an_account_that_may_not_decide_is_refused_by_its_name(
    call: Call, review: Review, settings: Any, django_user_model: type[User]
) -> None:
    ana = django_user_model.objects.create_user("ana")
    refused = call("reviews", "approve", str(review.pk), "--reason", "looked at it")
    assert (refused.code, "scheduler_app.change_review" in refused.err) == (1, True)
    assert call("reviews", "dismiss", str(review.pk), "--reason", "no").code == 1
    assert call("guards", "stop", "--reason", "stop it").code == 1
    ana.user_permissions.add(
        *Permission.objects.filter(codename__in=["change_review", "change_guard"])
    )
    ana.groups.add(Group.objects.create(name=settings.SERVICES_GROUP))
    assert "A service may not decide" in call("reviews", "dismiss", "1", "--reason", "no").err
    ana.groups.clear()
    assert call("guards", "stop", "--reason", "stop it").code == 0
    assert call("reviews", "dismiss", str(review.pk), "--reason", "no").code == 0
