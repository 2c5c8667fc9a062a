"""Notifiers as callbacks: sent from a real child, each call an attempt with its log."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from scheduler_app.operations.variables import set_variable
from scheduler_app.rules.callbacks import Call
from scheduler_app.transitions.callback import GroupCallbacks, NewCallbacks, issue_for_groups
from tests import receivers
from tests.integration.worker.test_callbacks import callbacks_of, message_of
from tests.workshop import TOKEN

if TYPE_CHECKING:
    from tests.workshop import Workshop

FLOW = """
from scheduler_app.authoring import Notifier, Secret, SlackNotifier, WebhookNotifier, flow, task

hook = WebhookNotifier({url!r}, key=Secret("hook_key"), subject="{{ti.task_id}} of {{run.run_id}}: {{exception}}")

class Own(Notifier):
    def notify(self, context):
        print("own:", context["ti"].log_url)

@task(on_failure_callback=[hook, SlackNotifier(Secret("team_hook")), Own()])
def t():
    raise OSError("no page 7")

@flow
def f():
    t()
"""


def test_a_failure_is_told_by_webhook_and_slack_from_a_worker(
    workshop: Workshop, settings: Any
) -> None:
    settings.NOTIFIER_NETWORKS = ["127.0.0.0/8"]
    settings.NOTIFIER_SECRETS = {"HOOK_KEY": "canary-key-0123456789"}
    settings.BASE_URL = "https://daylight.example"
    with receivers.web_server() as web:
        set_variable(
            key="team_hook",
            value=web.url("/services/canary-path"),
            is_secret=True,
            actor="ada",
            reason="x",
        )
        message = workshop.issue_one(FLOW.format(url=web.url("/hook")))
        workshop.deliver(message)
        hook, slack, own = callbacks_of(message.run_id)
        assert [c.callback["name"] for c in (hook, slack, own) if c.callback] == [
            "WebhookNotifier",
            "SlackNotifier",
            "Own",
        ]
        web.answers = [(503, {})]
        for row in (hook, slack, own):
            assert workshop.deliver(message_of(row)).outcome == "success"
        first, again, third = web.taken
        run_id = hook.run.run_key if hook.run else ""
        body = json.loads(first.body)
        assert (body["event"], body["subject"]) == ("on_failure", f"t of {run_id}: no page 7")
        assert body["exception"] == {"type": "OSError", "message": "no page 7"}
        assert body["url"] == f"https://daylight.example/task-instances/{message.ti_id}/"
        # A second try within the call, and a second call after a loss, have the same key.
        assert first.headers["Daylight-Key"] == again.headers["Daylight-Key"] == hook.callback_key
        assert third.path == "/services/canary-path"
    log = workshop.printed(message_of(hook))
    assert "Try 1 of 3: 127.0.0.1 answered 503" in log
    assert "127.0.0.1 answered 204" in log
    assert f"own: {body['url']}" in workshop.printed(message_of(own))
    for row in (hook, slack, own):
        row.refresh_from_db()
        said = workshop.printed(message_of(row)) + str(row.error) + str(row.outcome_reason)
        assert "canary" not in said


def test_what_cannot_be_sent_is_a_failed_callback_that_says_why_and_touches_nothing(
    workshop: Workshop, settings: Any
) -> None:
    settings.NOTIFIER_NETWORKS = []
    message = workshop.issue_one(FLOW.format(url="http://127.0.0.1:1/hook"))
    workshop.deliver(message)
    hook, slack, _ = callbacks_of(message.run_id)
    for row in (hook, slack):
        assert workshop.deliver(message_of(row)).outcome == "failed"
        row.refresh_from_db()
    assert hook.outcome_reason is not None
    assert "There is no secret 'hook_key'" in hook.outcome_reason
    settings.NOTIFIER_SECRETS = {"HOOK_KEY": "k", "TEAM_HOOK": "http://169.254.169.254/latest"}
    assert slack.run is not None
    message = workshop.issue(workshop.run(slack.run.version))
    workshop.deliver(message)
    for row in callbacks_of(message.run_id)[:2]:
        assert workshop.deliver(message_of(row)).outcome == "failed"
        row.refresh_from_db()
        assert row.outcome_reason is not None
        assert "DAYLIGHT_NOTIFIER_NETWORKS" in row.outcome_reason
    assert workshop.ti(message).state == "failed"


OF_GROUP = """
from scheduler_app.authoring import GroupRetry, group, flow, task

def tell(context):
    error = context["exception"]
    print(context["callback"], context["group"], context["ti"], context["run"].state, error)

@task
def t():
    raise OSError("no page 7")

@flow
def f():
    with group("pay", prefix=False, retry=GroupRetry(max_attempts=1), on_failure_callback=tell):
        t()
"""


def test_a_callback_of_a_group_is_called_with_the_group_and_the_run(
    workshop: Workshop,
) -> None:
    message = workshop.issue_one(OF_GROUP)
    workshop.deliver(message)
    new = NewCallbacks.of(
        [Call(on="on_failure", index=0, name="tell")], state="failed", reason="a failed."
    )
    moved = GroupCallbacks(
        run_id=message.run_id, group_id="pay", number=1, token=TOKEN, queue="default", new=new
    )
    for _ in range(2):  # the same move again is not a second call
        issue_for_groups(
            workshop.connection,
            moved=[
                replace(moved, new=NewCallbacks.of(new.calls, state="failed", reason=new.reason))
            ],
        )
    (row,) = callbacks_of(message.run_id)
    assert workshop.deliver(message_of(row)).outcome == "success"
    assert workshop.printed(message_of(row)) == "on_failure pay None running a failed.\n"
