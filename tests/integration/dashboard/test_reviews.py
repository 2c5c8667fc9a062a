"""The review queue, the guards, and run retries on their pages."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from django.contrib.auth.models import User
from django.urls import reverse
from django.utils import timezone

from scheduler_app.models import AutomaticAction, Guard, Incident, Review, Run, RunAttempt
from scheduler_app.operations.clear import clear_run
from scheduler_app.rules.errors import HeldForReview
from tests.factories import make_flow, make_run, make_task_instance

if TYPE_CHECKING:
    from django.test import Client

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def ana(client: Client) -> Client:
    client.force_login(User.objects.create_superuser("ana", password="x"))
    return client


@pytest.fixture
def run() -> Run:
    made = make_run(flow=make_flow(flow_id="sales"), run_key="r1", state="failed")
    make_task_instance(run=made, task_id="first", state="success", try_number=1)
    make_task_instance(run=made, task_id="second", state="failed", try_number=1)
    return made


@pytest.fixture
def review(run: Run) -> Review:
    Guard.objects.create(
        flow_id="sales", actions_max=0, actor="ana", reason="slow", updated_at=timezone.now()
    )
    with pytest.raises(HeldForReview):
        clear_run(run_id=run.pk, dry_run=False, automated=True, actor="robot", reason="alert 7")
    return Review.objects.get()


def page(client: Client, name: str, *args: object, **query: str) -> str:
    answer = client.get(reverse(f"dashboard:{name}", args=args), query)
    assert answer.status_code == 200, answer.content
    return answer.content.decode()


def test_an_empty_queue_says_that_nothing_waits(ana: Client) -> None:
    assert "Nothing waits for a person." in page(ana, "review_list")
    assert "Nothing is set by hand." in page(ana, "guard_list")


def test_the_queue_shows_what_waits_and_decided_ones_under_their_own_view(
    ana: Client, review: Review
) -> None:
    listed = page(ana, "review_list")
    assert f"Clear of run {review.object_id}" in listed
    assert "0 are allowed" in listed
    Review.objects.update(state="dismissed", decided_by="bob", note="no need")
    assert "Nothing waits for a person." in page(ana, "review_list")
    dismissed = page(ana, "review_list", state="dismissed")
    assert "by bob" in dismissed


def test_a_review_shows_what_approving_it_does_and_is_approved_by_that_plan(
    ana: Client, review: Review, run: Run
) -> None:
    shown = page(ana, "review_detail", review.pk)
    assert "robot: alert 7" in shown
    assert "Approve: 2 tasks begin anew" in shown
    plan_id = shown.split('name="plan_id" value="')[1].split('"')[0]
    address = reverse("dashboard:review_approve", args=[review.pk])
    refused = ana.post(address, {"plan_id": plan_id, "reason": " "})
    assert (refused.status_code, b"Say why" in refused.content) == (400, True)
    done = ana.post(address, {"plan_id": plan_id, "reason": "looked at it"}, follow=True)
    assert "Approved: 2 tasks of the run begin anew." in done.content.decode()
    assert Run.objects.get(pk=run.pk).run_attempt == 2
    again = ana.post(address, {"plan_id": plan_id, "reason": "again"})
    assert (again.status_code, b"was approved by ana" in again.content) == (409, True)


def test_a_plan_that_no_longer_holds_is_shown_anew_with_the_difference(
    ana: Client, review: Review, run: Run
) -> None:
    shown = page(ana, "review_detail", review.pk)
    plan_id = shown.split('name="plan_id" value="')[1].split('"')[0]
    run.refresh_from_db()
    make_task_instance(run=run, task_id="third", state="failed", try_number=1)
    moved = ana.post(
        reverse("dashboard:review_approve", args=[review.pk]),
        {"plan_id": plan_id, "reason": "looked at it"},
    )
    assert moved.status_code == 409
    assert "The plan no longer holds" in moved.content.decode()
    assert Review.objects.get().state == "open"


def test_a_review_is_dismissed_and_only_by_who_has_the_right(ana: Client, review: Review) -> None:
    address = reverse("dashboard:review_dismiss", args=[review.pk])
    ana.force_login(User.objects.create_user("bob", password="x"))
    assert ana.post(address, {"reason": "no"}).status_code == 403
    assert "needs the right" in page(ana, "review_detail", review.pk)
    ana.force_login(User.objects.get(username="ana"))
    done = ana.post(address, {"reason": "no need"}, follow=True)
    assert "Dismissed: nothing of it is carried out." in done.content.decode()
    assert Incident.objects.get().resolved_at is not None


def test_the_kill_switch_is_thrown_and_shown(ana: Client, run: Run) -> None:
    del run
    sheet = page(ana, "guard_stop")
    assert "waits in the review queue" in sheet
    ana.post(reverse("dashboard:guard_stop"), {"reason": "the target is down"})
    assert Guard.objects.get().is_stopped
    assert "Nothing is done automatically." in page(ana, "guard_list")
    assert "stopped by ana" in page(ana, "flow_detail", "sales")
    ana.post(reverse("dashboard:guard_start"), {"reason": "it is back"})
    assert "Nothing is done automatically." not in page(ana, "guard_list")


def test_limits_of_a_flow_are_set_on_a_sheet(ana: Client, run: Run) -> None:
    AutomaticAction.objects.create(
        at=timezone.now(),
        flow_id="sales",
        kind="run_retry",
        run_id=run.pk,
        task_instance_count=1,
        actor="run retry",
        reason="Go 2 of 3",
    )
    form = {"flow_id": "sales", "kind": "clear", "actions_max": "5", "window_s": "600"}
    assert "Limit automatic actions of kind clear on flow sales" in page(
        ana, "guard_set", flow_id="sales", kind="clear"
    )
    address = reverse("dashboard:guard_set")
    assert ana.post(address, {**form, "reason": "x", "runs_max": "many"}).status_code == 400
    assert ana.post(address, {**form, "reason": "It is slow."}).status_code == 302
    row = Guard.objects.get()
    assert (row.flow_id, row.kind, row.actions_max, row.window_s, row.cooldown_s) == (
        "sales",
        "clear",
        5,
        600,
        None,
    )
    listed = page(ana, "guard_list")
    assert "5 in 10 m 0 s" in listed
    assert "Go 2 of 3" in listed


def test_a_waiting_run_shows_its_countdown_and_reason_and_can_be_begun_or_left(
    ana: Client, run: Run
) -> None:
    Run.objects.filter(pk=run.pk).update(
        retry_at=timezone.now() + timedelta(hours=1),
        retry_reason="Go 2 of 3 follows because second failed.",
    )
    shown = page(ana, "run_detail", run.pk)
    assert "Begins again" in shown
    assert "data-until=" in shown
    assert "Go 2 of 3 follows because second failed." in shown
    assert "begins again in" in page(ana, "run_list")
    assert "stays failed" in page(ana, "run_cancel_retry", run.pk)
    ana.post(reverse("dashboard:run_cancel_retry", args=[run.pk]), {"reason": "look first"})
    assert "ana cancelled its retry: look first" in page(ana, "run_detail", run.pk)
    assert "Begin run attempt 2" in page(ana, "run_retry", run.pk)
    ana.post(reverse("dashboard:run_retry", args=[run.pk]), {"reason": "it is back"})
    assert RunAttempt.objects.get(run=run, number=2).actor == "ana"
    details = page(ana, "run_detail", run.pk, tab="details")
    assert "run retry by ana" in details
    assert "it is back" in details
    sheet: Any = ana.get(reverse("dashboard:run_retry", args=[run.pk]))
    assert sheet.status_code == 409, "it has begun"


def test_the_page_of_a_run_leads_to_its_review(ana: Client, review: Review, run: Run) -> None:
    shown = page(ana, "run_detail", run.pk)
    assert reverse("dashboard:review_detail", args=[review.pk]) in shown
    assert "Waits for a person" in shown
