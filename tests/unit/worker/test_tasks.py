"""Which messages are deliveries."""

from __future__ import annotations

import uuid
from types import SimpleNamespace
from typing import Any

import pytest

from scheduler_app.executors.celery import TASK_NAME
from scheduler_app.executors.delivery import arguments
from scheduler_app.transitions.attempt import Message
from scheduler_app.worker.tasks import is_delivery

ID = str(uuid.uuid4())
GOOD = [ID, 1, 2, 3, "identity"]


def _message(args: Any, *, task_id: Any = ID, kwargs: Any = None, parts: int = 3) -> Any:
    payload = [args, kwargs or {}, {}][:parts]
    return SimpleNamespace(payload=payload, headers={"id": task_id, "task": TASK_NAME})


def test_what_the_executor_sends_is_a_delivery() -> None:
    sent = Message(
        attempt_id=uuid.UUID(ID), ti_id=1, run_id=9, fence=2, lease_token=3, queue="default"
    )
    assert is_delivery(_message(arguments(sent, identity="identity")))


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
        SimpleNamespace(payload=None, headers={}),
        SimpleNamespace(payload=[GOOD, {}, {}], headers={"id": ID, "task": "another"}),
        SimpleNamespace(payload=[GOOD, {}, {}], headers={"id": ID}),
    ],
)
def test_anything_else_is_not(message: Any) -> None:
    assert not is_delivery(message)
