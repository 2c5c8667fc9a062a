"""Which messages are deliveries."""

from __future__ import annotations

import json
import uuid
from types import SimpleNamespace
from typing import Any

import pytest

from scheduler_app.executors.celery import TASK_NAME
from scheduler_app.executors.delivery import arguments
from scheduler_app.transitions.attempt import Message
from scheduler_app.worker.tasks import JSON, arguments_of

ID = str(uuid.uuid4())
GOOD = [ID, 1, 2, 3, "identity"]


def _message(args: Any, *, task_id: Any = ID, kwargs: Any = None, parts: int = 3) -> Any:
    payload = [args, kwargs or {}, {}][:parts]
    return _holding(json.dumps(payload), headers={"id": task_id, "task": TASK_NAME})


def _holding(body: Any, *, headers: Any, content_type: str = JSON) -> Any:
    return SimpleNamespace(body=body, headers=headers, content_type=content_type)


WHOLE = json.dumps([GOOD, {}, {}])
NAMED = {"id": ID, "task": TASK_NAME}


def test_what_the_executor_sends_is_a_delivery() -> None:
    sent = Message(
        attempt_id=uuid.UUID(ID), ti_id=1, run_id=9, fence=2, lease_token=3, queue="default"
    )
    given = arguments(sent, identity="identity")
    assert arguments_of(_message(given)) == given
    for body in (WHOLE, WHOLE.encode(), memoryview(WHOLE.encode())):
        assert arguments_of(_holding(body, headers=NAMED)) == GOOD


@pytest.mark.parametrize(
    "message",
    [
        _message(GOOD[:4]),
        _message([*GOOD, 1]),
        _message(["no uuid", 1, 2, 3, "identity"], task_id="no uuid"),
        _message([7, 1, 2, 3, "identity"], task_id=7),
        _message([ID, "1", 2, 3, "identity"]),
        _message([ID, 1, 2, True, "identity"]),
        _message([ID, 1, -2, 3, "identity"]),
        _message([ID, 2**63, 2, 3, "identity"]),
        _message([ID, 1, 2, 3, None]),
        _message([ID, 1, 2, 3, "a\x00b"]),
        _message([f"{{{ID}}}", 1, 2, 3, "identity"], task_id=f"{{{ID}}}"),
        _message(GOOD, kwargs={"more": 1}),
        _message(GOOD, task_id=str(uuid.uuid4())),
        _message("text"),
        _message(None),
        _message(GOOD, parts=2),
        _holding(None, headers={}),
        _holding(None, headers=NAMED),
        _holding("{", headers=NAMED),
        _holding(WHOLE, headers=NAMED, content_type="application/x-python-serialize"),
        _holding(WHOLE, headers={"id": ID, "task": "another"}),
        _holding(WHOLE, headers={"id": ID}),
    ],
)
def test_anything_else_is_not(message: Any) -> None:
    assert arguments_of(message) is None
