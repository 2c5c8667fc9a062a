"""The leases that this process holds: taken, renewed while the loop gets on, given up."""

from __future__ import annotations

import logging
import math
import threading
import time
from typing import TYPE_CHECKING, Any, Final

import psycopg
from psycopg.rows import tuple_row

from scheduler_app.processes import database
from scheduler_app.transitions.lease import (
    acquire,
    prove,
    record_demotion,
    record_fenced_writes,
    release,
    renew,
)

if TYPE_CHECKING:
    from uuid import UUID

    from scheduler_app.rules.errors import Fenced

logger = logging.getLogger(__name__)

# Counts suspended time too, unlike the monotonic clock.
_BOOT_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def boot_clock_s() -> float:
    """Seconds since boot, including suspension."""
    return time.clock_gettime(_BOOT_CLOCK)


class Leases:
    """Terms (shard to token) of one scheduler.

    Renewal runs in a thread that is gated on the loop's progress: a stalled decider loses its
    leases. Locally a term is trusted for ``deadline_s`` from the *start* of the last renewal that
    succeeded; the proof in each deciding transaction is what keeps a stale decision out.
    """

    def __init__(
        self, *, holder: UUID, ttl_s: float, renew_interval_s: float, deadline_s: float
    ) -> None:
        self.holder = holder
        self._ttl_s = ttl_s
        self._renew_interval_s = renew_interval_s
        self._deadline_s = deadline_s
        self._terms: dict[int, int] = {}
        self._trusted_from: dict[int, float] = {}
        self._lock = threading.Lock()
        self._loop_progress = boot_clock_s()
        self._stop = threading.Event()
        self._thread = threading.Thread(
            target=self._renew_forever, name="lease-renewal", daemon=True
        )

    def start(self) -> None:
        """The renewal thread runs."""
        self._thread.start()

    def loop_progressed(self) -> None:
        """The loop got on: renewals may go on for another deadline."""
        self._loop_progress = boot_clock_s()

    def terms(self) -> dict[int, int]:
        """The terms that may be relied on now: shard to token."""
        limit = boot_clock_s() - self._deadline_s
        with self._lock:
            return {s: t for s, t in self._terms.items() if self._trusted_from[s] > limit}

    def prove(self, connection: psycopg.Connection[Any], terms: dict[int, int]) -> None:
        """See ``transitions.lease.prove``."""
        prove(connection, holder=self.holder, terms=terms)

    def refused(
        self, connection: psycopg.Connection[Any], error: Fenced, terms: dict[int, int], step: str
    ) -> None:
        """The lost shards are given up, and a lease event each tells of the refused write."""
        shards = [int(shard) for shard in error.extra["shards"]]  # type: ignore[attr-defined] # list by prove
        with self._lock:
            for shard in shards:
                if self._terms.get(shard) == terms[shard]:
                    self._drop(shard)
        logger.warning("a write was fenced", extra={"shards": shards, "step": step})
        record_fenced_writes(connection, holder=self.holder, terms=terms, shards=shards, step=step)

    def balance(
        self, connection: psycopg.Connection[Any], *, dead_after_s: float
    ) -> dict[int, int]:
        """Toward the fair share: newly acquired terms, if any. Called by the loop, at a safe point."""
        with connection.cursor(row_factory=tuple_row) as cursor:
            cursor.execute(
                "SELECT (SELECT count(*) FROM lease), (SELECT count(*) FROM job"
                "  WHERE kind = 'scheduler' AND ended_at IS NULL AND id <> %s"
                "  AND heartbeat_at > clock_timestamp() - make_interval(secs => %s::float8))",
                [self.holder, dead_after_s],
            )
            row = cursor.fetchone()
        assert row is not None
        shards, others = int(row[0]), int(row[1])
        share = math.ceil(shards / (others + 1))
        with self._lock:
            held = dict(self._terms)
        if len(held) > share:
            shard = max(held)
            self.give_up(connection, {shard: held[shard]}, why="rebalanced to the fair share")
            return {}
        if len(held) == shards or len(held) >= share:
            return {}
        sent = boot_clock_s()
        new = acquire(connection, holder=self.holder, want=share - len(held), ttl_s=self._ttl_s)
        with self._lock:
            self._terms.update(new)
            self._trusted_from.update(dict.fromkeys(new, sent))
        if new:
            logger.info("leases acquired", extra={"shards": sorted(new), "share": share})
        return new

    def give_up(
        self, connection: psycopg.Connection[Any], terms: dict[int, int], *, why: str
    ) -> None:
        """The terms are released; a standby takes them at once."""
        with self._lock:
            for shard in terms:
                self._drop(shard)
        if terms:
            release(connection, holder=self.holder, terms=terms, why=why)

    def stop(self, connection: psycopg.Connection[Any] | None) -> None:
        """The thread ended and, with a connection, every term is released."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout=2)
        with self._lock:
            held = dict(self._terms)
        if connection is not None and held:
            self.give_up(connection, held, why="shutdown")

    def _drop(self, shard: int) -> None:
        self._terms.pop(shard, None)
        self._trusted_from.pop(shard, None)

    def _renew_forever(self) -> None:
        connection: psycopg.Connection[Any] | None = None
        while not self._stop.wait(self._renew_interval_s):
            if boot_clock_s() - self._loop_progress > self._deadline_s:
                self._demote(connection, "the loop made no progress")
                continue
            try:
                if connection is None or connection.closed:
                    connection = database.connect("lease", name="renewal")
                self._renew_once(connection)
            except psycopg.Error as error:
                logger.warning("renewal failed", extra={"error": str(error)})
                if connection is not None:
                    connection.close()
                connection = None
        if connection is not None:
            connection.close()

    def _renew_once(self, connection: psycopg.Connection[Any]) -> None:
        sent = boot_clock_s()
        with self._lock:
            terms = dict(self._terms)
        if not terms:
            return
        held = renew(connection, holder=self.holder, terms=terms, ttl_s=self._ttl_s)
        with self._lock:
            for shard, token in terms.items():
                if self._terms.get(shard) != token:
                    continue
                if shard in held:
                    self._trusted_from[shard] = sent
                else:
                    self._drop(shard)
        lost = {shard: terms[shard] for shard in terms if shard not in held}
        if lost:
            logger.warning("leases were lost", extra={"shards": sorted(lost)})
            record_demotion(
                connection, holder=self.holder, terms=lost, why="the renewal found another holder"
            )

    def _demote(self, connection: psycopg.Connection[Any] | None, why: str) -> None:
        with self._lock:
            terms = dict(self._terms)
            for shard in terms:
                self._drop(shard)
        if not terms:
            return
        logger.warning("demoted", extra={"why": why, "shards": sorted(terms)})
        try:
            if connection is not None:
                record_demotion(connection, holder=self.holder, terms=terms, why=why)
        except psycopg.Error as error:
            logger.warning("the demotion was not recorded", extra={"error": str(error)})
