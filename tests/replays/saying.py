"""Witnesses, silence and the carrier, in the test's hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scheduler_app.models import Attempt, ExecutorEvent
from scheduler_app.queries import audit_visibility
from scheduler_app.scheduler import sweep
from scheduler_app.transitions.executor_event import NewEvent, record_events
from scheduler_app.transitions.job import start_job
from scheduler_app.worker import refuse
from tests.world import World

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    import psycopg

    from scheduler_app.transitions.attempt import Message


class Carrier:
    """A broker, which stands at the process's edge, and keeps nothing."""

    carrier = "nowhere"

    def __init__(self) -> None:
        self.published: list[Message] = []

    def publish(self, messages: Sequence[Message], *, identity: str) -> frozenset[UUID]:
        """Takes everything."""
        del identity
        self.published += messages
        return frozenset(message.attempt_id for message in messages)

    def queue_depth(self, queue: str) -> int:
        """Nothing waits."""
        del queue
        return 0

    def waiting(self, queue: str, *, limit: int) -> None:
        """It cannot show them."""
        del queue, limit

    def close(self) -> None:
        """Nothing to close."""


def start_worker(raw: psycopg.Connection[Any], world: World) -> None:
    """The world's worker lives."""
    start_job(raw, job_id=world.worker, kind="worker", name="", hostname="host-1", pid=1, detail={})


def say(
    raw: psycopg.Connection[Any],
    attempt_id: UUID,
    kind: str,
    *,
    times: int = 1,
    age_s: float = 60.0,
) -> None:
    """A witness said so of the attempt, so long ago, and nobody judged it yet."""
    event = NewEvent(
        attempt_id=attempt_id,
        kind=kind,
        source="a witness",
        payload={"hostname": "host-1", "pid": 4711},
    )
    assert record_events(raw, events=[event] * times) == times
    # What a witness said cannot be changed, so the guard is lifted to let it lie in the past.
    with raw.transaction():
        raw.execute("ALTER TABLE executor_event DISABLE TRIGGER executor_event_is_judged_once")
        raw.execute(
            "UPDATE executor_event SET received_at = received_at - make_interval(secs => %s)"
            " WHERE verdict = 'pending'",
            [age_s],
        )
        raw.execute("ALTER TABLE executor_event ENABLE TRIGGER executor_event_is_judged_once")


def silence(raw: psycopg.Connection[Any], *, for_s: float = 3600.0) -> None:
    """Nothing was heard for so long of what runs, and of the workers that run it."""
    raw.execute(
        "UPDATE attempt SET started_at = started_at - make_interval(secs => %(s)s),"
        " heartbeat_at = heartbeat_at - make_interval(secs => %(s)s) WHERE state = 'running'",
        {"s": for_s},
    )
    raw.execute(
        "UPDATE job SET heartbeat_at = heartbeat_at - make_interval(secs => %s)"
        " WHERE kind = 'worker'",
        [for_s],
    )


def lose(raw: psycopg.Connection[Any], world: World) -> set[int]:
    """The heartbeat sweep; the runs that moved."""
    return sweep.lose_silent(raw, leases=world.leases, terms=world.leases.terms())


def republish(raw: psycopg.Connection[Any], world: World) -> list[Message]:
    """What the sweeps publish: what nobody noted as published, and what waits for too long."""
    carrier = Carrier()
    terms = world.leases.terms()
    carrier.published += sweep.unpublished(raw, terms=terms, older_than_s=0.0)
    sweep.republish_unclaimed(
        raw,
        executor=carrier,
        identity="",
        leases=world.leases,
        terms=terms,
        served={"default"},
    )
    return carrier.published


def refuse_delivery(
    raw: psycopg.Connection[Any], world: World, message: Message, nonce: UUID
) -> str:
    """A worker writes down why the claim of this delivery found nothing; the code."""
    delivery = refuse.Delivery(
        attempt_id=message.attempt_id,
        ti_id=message.ti_id,
        fence=message.fence,
        token=message.lease_token,
        identity="",
        nonce=nonce,
    )
    facts = refuse.read_facts(raw, delivery)
    code = refuse.refusal_code(delivery, facts)
    assert code is not None, "nothing stands against the claim"
    refuse.record_refusal(
        raw,
        delivery=delivery,
        code=code,
        facts=facts,
        identity="",
        source="worker: host-2",
        job_id=world.worker,
        hostname="host-2",
        pid=4712,
    )
    return code


def verdicts(attempt_id: UUID) -> list[tuple[str, str | None, str | None]]:
    """Kind, code and filter code of each event about the attempt, oldest first."""
    rows = ExecutorEvent.objects.filter(attempt_id=attempt_id).order_by("id")
    return list(rows.values_list("kind", "verdict_code", "filter_code"))


def outcomes(run_id: int) -> list[tuple[str | None, int | None, int | None, int | None]]:
    """Outcome, try, resume and dispatch number of each attempt of the run, oldest first."""
    rows = Attempt.objects.filter(run_id=run_id, kind="task").order_by("fence")
    return list(rows.values_list("outcome", "try_number", "resume_index", "dispatch_no"))


def callbacks(run_id: int) -> list[str]:
    """What each callback of the run was called for, in the order of issue."""
    rows = Attempt.objects.filter(run_id=run_id, kind="callback").order_by("fence")
    return [row.callback["on"] for row in rows if row.callback]


def assert_nothing_hidden() -> None:
    """Every row's standing is what the facts give."""
    assert [row for row in audit_visibility.compare() if row.differences] == []
