"""The leases that this process holds: taken, renewed while the loop gets on, given up."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Any, Final

import psycopg
from psycopg.rows import tuple_row

from scheduler_app.processes import database
from scheduler_app.rules import leadership
from scheduler_app.transitions.lease import (
    acquire,
    prove,
    record_demotion,
    record_fenced_writes,
    release,
    renew,
    still_named,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime
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
    succeeded; past that it is given up and must be acquired anew, with a new token and a take-over.
    The proof in each deciding transaction is what keeps a stale decision out.
    """

    def __init__(
        self,
        *,
        holder: UUID,
        ttl_s: float,
        renew_interval_s: float,
        deadline_s: float,
        on_copied: Callable[[], None] | None = None,
    ) -> None:
        self.holder = holder
        self._ttl_s = ttl_s
        self._renew_interval_s = renew_interval_s
        self._deadline_s = deadline_s
        self._on_copied = on_copied
        self._terms: dict[int, int] = {}
        self._trusted_from: dict[int, float] = {}
        self._seen: dict[int, datetime] = {}  # our last renewal, as the database wrote it
        # Of others' leases: the renewal that was seen last, and since when by our own clock.
        self._watched: dict[int, tuple[datetime, float]] = {}
        self._untold: list[tuple[dict[int, int], str]] = []  # demotions that wait for the database
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
        self,
        connection: psycopg.Connection[Any],
        *,
        dead_after_s: float,
        is_drained: bool = False,
    ) -> dict[int, int]:
        """Toward the fair share: newly acquired terms, if any. Called by the loop, at a safe point.

        A drained scheduler gives up what it holds, and its share is nothing.
        """
        with self._lock:
            held = dict(self._terms)
        if is_drained:
            self.give_up(connection, held, why="the scheduler is drained")
            return {}
        silent = self._silent(connection)
        shards, free, long_free, peers = self._look(connection, held, dead_after_s, silent)
        plan = leadership.balance(
            shards=shards, held=len(held), peers=peers, free=free, long_free=long_free
        )
        if plan.give_up:
            extra = sorted(held)[-plan.give_up :]
            why = (
                f"{shards} shards among {len(peers) + 1} schedulers are {plan.share} each,"
                f" and this one had {len(held)}"
            )
            self.give_up(connection, {shard: held[shard] for shard in extra}, why=why)
            return {}
        if not plan.want:
            return {}
        sent = boot_clock_s()
        new = acquire(
            connection,
            holder=self.holder,
            want=plan.want,
            ttl_s=self._ttl_s,
            held=held,
            silent=silent,
        )
        with self._lock:
            self._terms.update(new)
            self._trusted_from.update(dict.fromkeys(new, sent))
            for shard in new:
                self._seen.pop(shard, None)
        if new:
            logger.info("leases acquired", extra={"shards": sorted(new), "share": plan.share})
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
            self.give_up(connection, held, why="the scheduler stopped")

    def _silent(self, connection: psycopg.Connection[Any]) -> dict[int, datetime]:
        """Others' leases whose end lies beyond any ttl from now, and that nobody renews for a ttl.

        The database's clock was set back, and their holder is gone: by that clock they would not run
        out for as long as it was set back. By our own they have.
        """
        with connection.cursor(row_factory=tuple_row) as cursor:
            cursor.execute(
                "SELECT shard, renewed_at FROM lease WHERE holder IS NOT NULL AND holder <> %s"
                " AND renewed_at > clock_timestamp()",
                [self.holder],
            )
            rows: dict[int, datetime] = dict(cursor.fetchall())
        now = boot_clock_s()
        watched = {}
        for shard, renewed_at in rows.items():
            before = self._watched.get(shard)
            is_same = before is not None and before[0] == renewed_at
            watched[shard] = before if before is not None and is_same else (renewed_at, now)
        self._watched = watched
        return {s: at for s, (at, since) in watched.items() if now - since > self._ttl_s}

    def _look(
        self,
        connection: psycopg.Connection[Any],
        held: dict[int, int],
        dead_after_s: float,
        silent: dict[int, datetime],
    ) -> tuple[int, int, int, list[leadership.Peer]]:
        """Shards there are, can be had, could be had for a ttl; and the other schedulers.

        A peer is one that gets on: its loop moves, and no lease of its ran out.
        """
        with connection.cursor(row_factory=tuple_row) as cursor:
            cursor.execute(
                _LOOK,
                {
                    "me": self.holder,
                    "held": sorted(held),
                    "silent": sorted(silent),
                    "dead_after_s": dead_after_s,
                    "ttl_s": self._ttl_s,
                },
            )
            row = cursor.fetchone()
        assert row is not None, "a SELECT without FROM gives one row"
        shards, free, long_free, peers = row
        return shards, free, long_free, [leadership.Peer(held=number) for number in peers]

    def _drop(self, shard: int) -> None:
        self._terms.pop(shard, None)
        self._trusted_from.pop(shard, None)
        self._seen.pop(shard, None)

    # -- the thread ---------------------------------------------------------------------------

    def _renew_forever(self) -> None:
        connection: psycopg.Connection[Any] | None = None
        while not self._stop.wait(self._renew_interval_s):
            if boot_clock_s() - self._loop_progress > self._deadline_s:
                self._demote(
                    f"its loop made no progress for more than {self._deadline_s:.1f} s",
                    stale_only=False,
                )
            try:
                if connection is None or connection.closed:
                    connection = database.connect("lease", name="renewal")
                self._renew_once(connection)
                self._tell(connection)
            except psycopg.Error as error:
                logger.warning("renewal failed", extra={"error": str(error)})
                if connection is not None:
                    connection.close()
                connection = None
                with self._lock:
                    # What the last statement did is not known.
                    self._seen.clear()
            self._demote(
                f"no renewal that began in the last {self._deadline_s:.1f} s was answered",
                stale_only=True,
            )
        if connection is not None:
            connection.close()

    def _renew_once(self, connection: psycopg.Connection[Any]) -> None:
        sent = boot_clock_s()
        with self._lock:
            terms, seen = dict(self._terms), dict(self._seen)
        if not terms:
            return
        renewed = renew(connection, holder=self.holder, terms=terms, ttl_s=self._ttl_s, seen=seen)
        lost: dict[int, int] = {}
        with self._lock:
            for shard, token in terms.items():
                if self._terms.get(shard) != token:
                    continue  # given up, or acquired anew, meanwhile
                if shard in renewed:
                    self._trusted_from[shard] = sent
                    self._seen[shard] = renewed[shard]
                else:
                    lost[shard] = token
                    self._drop(shard)
        if lost:
            self._lost(connection, lost)

    def _lost(self, connection: psycopg.Connection[Any], lost: dict[int, int]) -> None:
        logger.warning("leases were lost", extra={"shards": sorted(lost)})
        if still_named(connection, holder=self.holder, terms=lost):
            # A fork or a restored image of this process: only one of the two may go on.
            with self._lock:
                for shard in list(self._terms):
                    self._drop(shard)
            why = "another process renews under its id; this copy of it ends"
            record_demotion(connection, holder=self.holder, terms=lost, why=why)
            if self._on_copied is not None:
                self._on_copied()
            return
        why = "its renewal found that the lease is its own no longer"
        record_demotion(connection, holder=self.holder, terms=lost, why=why)

    def _demote(self, why: str, *, stale_only: bool) -> None:
        """All terms, or those that are not to be trusted any more, are dropped; told when it can be."""
        limit = boot_clock_s() - self._deadline_s
        with self._lock:
            terms = {
                shard: token
                for shard, token in self._terms.items()
                if not stale_only or self._trusted_from[shard] <= limit
            }
            for shard in terms:
                self._drop(shard)
        if terms:
            logger.warning("demoted", extra={"why": why, "shards": sorted(terms)})
            self._untold.append((terms, why))

    def _tell(self, connection: psycopg.Connection[Any]) -> None:
        """Demotions that nobody could be told of until now are lease events."""
        while self._untold:
            terms, why = self._untold[0]
            record_demotion(connection, holder=self.holder, terms=terms, why=why)
            self._untold.pop(0)


_LOOK: Final = """
WITH peer AS (
  SELECT j.id, count(l.shard) FILTER (WHERE l.expires_at >= clock_timestamp()) AS held,
         count(l.shard) FILTER (WHERE l.expires_at < clock_timestamp()
                                   OR l.shard = ANY(%(silent)s::int[])) AS expired
    FROM job j LEFT JOIN lease l ON l.holder = j.id
   WHERE j.kind = 'scheduler' AND j.ended_at IS NULL AND j.drain_requested_at IS NULL
     AND j.id <> %(me)s
     AND least(j.heartbeat_at, j.progress_at)
         > clock_timestamp() - make_interval(secs => %(dead_after_s)s::float8)
   GROUP BY j.id),
free AS (
  SELECT expires_at FROM lease
   WHERE holder IS NULL OR expires_at < clock_timestamp() OR shard = ANY(%(silent)s::int[])
      OR holder = %(me)s AND shard <> ALL(%(held)s::int[]))
SELECT (SELECT count(*) FROM lease)::int, (SELECT count(*) FROM free)::int,
       (SELECT count(*) FROM free
         WHERE expires_at < clock_timestamp() - make_interval(secs => %(ttl_s)s::float8))::int,
       (SELECT coalesce(array_agg(held::int), '{}') FROM peer WHERE expired = 0)
"""
