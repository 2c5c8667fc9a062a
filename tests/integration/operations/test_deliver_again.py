from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID, uuid4

import pytest
from django.db import connection

from scheduler_app.models import Audit
from scheduler_app.operations.deliver_again import deliver_again
from scheduler_app.rules.errors import NotAllowed, NotFound
from scheduler_app.rules.states import AttemptState, TaskState
from scheduler_app.transitions.attempt import Message
from scheduler_app.transitions.identity import database_identity
from tests.factories import make_attempt, make_ghost_attempt, make_task_instance

pytestmark = pytest.mark.django_db


class Carrier:
    """Takes every message, or none."""

    carrier = "test"

    def __init__(self, *, takes: bool = True) -> None:
        self.takes = takes
        self.sent: list[tuple[Message, str]] = []

    def publish(self, messages: Sequence[Message], *, identity: str) -> frozenset[UUID]:
        self.sent += [(message, identity) for message in messages]
        return frozenset(message.attempt_id for message in messages if self.takes)

    def queue_depth(self, queue: str) -> int | None:
        del queue
        return None

    def waiting(self, queue: str, *, limit: int) -> None:
        """Shows nothing."""
        del queue, limit

    def close(self) -> None:
        """Nothing to close."""


def again(attempt_id: UUID, carrier: Carrier) -> bool:
    return deliver_again(attempt_id=attempt_id, executor=carrier, actor="anna", reason="to see")


def test_the_very_same_message_goes_out_once_more_and_the_act_is_audited() -> None:
    attempt = make_attempt(fence=77, lease_token=5, queue="wide")
    carrier = Carrier()
    assert again(attempt.id, carrier)
    expected = Message(
        attempt_id=attempt.id,
        ti_id=attempt.ti_id or 0,
        run_id=attempt.run_id or 0,
        fence=77,
        lease_token=5,
        queue="wide",
    )
    assert carrier.sent == [(expected, database_identity(connection.connection))]
    entry = Audit.objects.get(action="deliver_again")
    assert (entry.actor, entry.reason, entry.object_id) == ("anna", "to see", str(attempt.id))
    assert entry.flow_id == attempt.run.flow_id if attempt.run else False


def test_a_carrier_that_takes_nothing_is_reported() -> None:
    assert not again(make_attempt().id, Carrier(takes=False))


def test_an_attempt_that_no_delivery_claimed_yet_is_left_alone() -> None:
    ti = make_task_instance(state=TaskState.QUEUED)
    attempt = make_attempt(ti=ti, state=AttemptState.ISSUED)
    carrier = Carrier()
    with pytest.raises(NotAllowed):
        again(attempt.id, carrier)
    assert carrier.sent == []
    assert not Audit.objects.exists()


def test_ghosts_and_unknown_ids_have_no_message() -> None:
    with pytest.raises(NotAllowed):
        again(make_ghost_attempt().id, Carrier())
    with pytest.raises(NotFound):
        again(uuid4(), Carrier())
