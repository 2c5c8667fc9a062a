"""A world whose schedulers are the product's own stations: leases, ticks, judging, sweeps, publishing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import pytest

from scheduler_app.rules.errors import Fenced
from scheduler_app.rules.states import RUN_TERMINAL
from scheduler_app.scheduler import dispatch_attempts, orphans, sweep
from scheduler_app.scheduler.judge import judge_pending
from scheduler_app.scheduler.leases import Leases
from scheduler_app.scheduler.publish import Publisher
from scheduler_app.scheduler.take_over import follow_up, take_over
from scheduler_app.scheduler.tick import Ticker
from scheduler_app.transitions.inquiry import Holding, answer_inquiries, open_inquiries
from tests.integration.simulation.postgres import RUN_ID, message_of
from tests.integration.simulation.replay import PostgresWorld
from tests.simulation.database import DEAD_AFTER_S, TTL_S, UNPUBLISHED_AFTER_S
from tests.simulation.state import REPORTING, Broken

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import psycopg

    from scheduler_app.transitions.attempt import Message
    from tests.integration.simulation.clock import Clock
    from tests.integration.simulation.postgres import PostgresDatabase
    from tests.simulation.rows import Row
    from tests.simulation.state import Scheduler, Setup

TRUSTED_S: Final = 1e9  # a scheduler believes in its term until the database says otherwise


class Carrier:
    """Takes every message into the world's bag."""

    carrier = "celery"

    def __init__(self, world: ServiceWorld) -> None:
        self._world = world

    def publish(self, messages: Sequence[Message], *, identity: str) -> frozenset[UUID]:
        """All are taken."""
        del identity
        taken = sorted(map(message_of, messages))
        self._world.bag += taken
        self._world.messages_seen += taken
        return frozenset(message.attempt_id for message in messages)

    def queue_depth(self, queue: str) -> int | None:
        """How many lie in the bag."""
        del queue
        return len(self._world.bag)

    def waiting(self, queue: str, *, limit: int) -> None:
        """Shows nothing."""
        del queue, limit

    def close(self) -> None:
        """Nothing is open."""


class Station:
    """What one scheduler process holds in memory."""

    def __init__(self, boot: int) -> None:
        self.leases = Leases(
            holder=UUID(int=boot), ttl_s=TTL_S, renew_interval_s=3, deadline_s=TRUSTED_S
        )
        self.ticker = Ticker(self.leases)


class ServiceWorld(PostgresWorld):
    """Messages under way, workers and faults are the simulation's; schedulers are real."""

    def __init__(self, setup: Setup, clock: Clock) -> None:
        super().__init__(setup, clock)
        # The same acts make the same ids, so that a list of acts is always the same story.
        self._patch = pytest.MonkeyPatch()
        self._patch.setattr(dispatch_attempts, "uuid7", lambda: UUID(int=self.new_id()))
        self._carrier = Carrier(self)
        self._stations = {s.name: Station(s.boot) for s in self.schedulers}

    def close(self) -> None:
        """The product makes its own ids again."""
        self._patch.undo()
        self.db.close()

    @property
    def _connection(self) -> psycopg.Connection[Any]:
        return self.db.connection

    # -- leases -------------------------------------------------------------------------------

    def acquire(self, r: int) -> bool:
        """A scheduler without the lease tries to take it, and goes over what it finds there."""
        s = self.schedulers[r % 3]
        leases = self._stations[s.name].leases
        if s.token is not None:
            return False
        new = leases.balance(self._connection, dead_after_s=DEAD_AFTER_S)
        take_over(self._connection, leases=leases, new_terms=new)
        self._believe(s)
        return bool(new)

    def renew(self, r: int) -> bool:
        """A holder renews, or learns that it is none."""
        s = self._holder(r)
        if s is None:
            return False
        self._stations[s.name].leases._renew_once(self._connection)
        self._believe(s)
        return True

    def release(self, r: int) -> bool:
        """A holder gives the lease up."""
        s = self._holder(r)
        if s is None:
            return False
        leases = self._stations[s.name].leases
        leases.give_up(self._connection, leases.terms(), why="simulated")
        self._believe(s)
        return True

    def kill_scheduler(self, r: int) -> bool:
        """A scheduler dies, with all it remembers; another starts in its place."""
        super().kill_scheduler(r)
        s = self.schedulers[r % 3]
        self._stations[s.name] = Station(s.boot)
        return True

    def _believe(self, s: Scheduler) -> None:
        terms = self._stations[s.name].leases.terms()
        s.token = next(iter(terms.values()), None)
        self.db.look()

    def _deciding(self, r: int, step: Callable[[Station, dict[int, int]], None]) -> bool:
        """A holder takes the step; a fenced one learns that it is none.

        Raises ``Broken`` when one that is no longer the holder wrote something.
        """
        s = self._holder(r)
        if s is None:
            return False
        station = self._stations[s.name]
        terms = station.leases.terms()
        before = None if self._is_holder(s) else rows_of(self.db)
        try:
            step(station, terms)
        except Fenced as error:
            station.leases.refused(self._connection, error, terms, "simulated")
        self._believe(s)
        if before is not None and rows_of(self.db) != before:
            raise Broken(
                f"P6: scheduler {s.boot} wrote under terms {terms}; the lease is"
                f" {self.db.lease.holder}'s, with token {self.db.lease.token}"
            )
        return True

    def _is_holder(self, s: Scheduler) -> bool:
        return (self.db.lease.holder, self.db.lease.token) == (s.boot, s.token)

    # -- workers ------------------------------------------------------------------------------

    def beat(self, r: int) -> bool:
        """A worker beats, and answers which attempts it has in its hands."""
        worker = self.workers[r % 3]
        has_beaten = super().beat(r)
        if has_beaten:
            asked = open_inquiries(self._connection, worker_job_id=UUID(int=worker.job))
            answer_inquiries(
                self._connection,
                inquiry_ids=asked,
                holdings=[
                    Holding(
                        attempt_id=UUID(int=child.message.attempt_id),
                        pid=child.pid,
                        is_alive=True,
                        for_s=0.0,
                        report_waits=child.phase == REPORTING,
                    )
                    for child in worker.children
                ],
            )
        return has_beaten

    # -- decisions ----------------------------------------------------------------------------

    def tick(self, r: int) -> bool:
        """A holder ticks and, unless it dies before that, publishes."""

        def step(station: Station, terms: dict[int, int]) -> None:
            outcome = station.ticker.tick(
                self._connection, terms=terms, run_ids=[RUN_ID], queue_slots={"default": 8}
            )
            assert not outcome.broken
            if r >> 8 & 3 != 3:
                self._send(outcome.messages, dies_before_noting=r >> 10 & 3 == 3)

        return self.db.run.state not in RUN_TERMINAL and self._deciding(r, step)

    def judge(self, r: int) -> bool:
        """Every event that can be judged now is."""

        def step(station: Station, terms: dict[int, int]) -> None:
            judge_pending(self._connection, leases=station.leases, terms=terms)

        return bool(self.db.pending) and self._deciding(r, step)

    def lose(self, r: int) -> bool:
        """Attempts of silent workers are lost."""

        def step(station: Station, terms: dict[int, int]) -> None:
            follow_up(self._connection, leases=station.leases, terms=terms)
            sweep.lose_silent(self._connection, leases=station.leases, terms=terms)
            if orphans.heal(self._connection, leases=station.leases, terms=terms):
                raise Broken("rows: somebody lost an attempt that its task waits for")

        return bool(self.db.live) and self._deciding(r, step)

    def republish(self, r: int) -> bool:
        """Attempts whose message seems lost are published again."""

        def step(station: Station, terms: dict[int, int]) -> None:
            sweep.republish_unclaimed(
                self._connection,
                executor=self._carrier,
                identity="",
                leases=station.leases,
                terms=terms,
                served={"default"},
            )

        return bool(self.db.live) and self._deciding(r, step)

    def publish_unpublished(self, r: int) -> bool:
        """Issued attempts whose publication nobody noted are published."""

        s = self._holder(r)
        if s is None or not self.db.live:
            return False
        # No decision: whoever publishes what was issued does no harm, and need not prove anything.
        messages = sweep.unpublished(
            self._connection,
            terms=self._stations[s.name].leases.terms(),
            older_than_s=UNPUBLISHED_AFTER_S,
        )
        self._send(messages, is_first=False, dies_before_noting=False)
        self.db.look()
        return True

    def _send(
        self, messages: list[Message], *, is_first: bool = True, dies_before_noting: bool
    ) -> None:
        publisher = Publisher(self._carrier)
        publisher.publish(self._connection, identity="", messages=messages, is_first=is_first)
        if not dies_before_noting:
            publisher.note(self._connection, all_of_them=True)


def rows_of(db: PostgresDatabase) -> list[dict[str, Any]]:
    """What schedulers decide about."""
    rows: list[Row] = [db.run, *db.tis, *db.attempts.values(), *db.events]
    return [row.values() for row in rows]
