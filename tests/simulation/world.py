"""The whole simulated world: schedulers, workers, and what comes from outside them."""

from __future__ import annotations

from typing import Final

from scheduler_app.rules import reconcile
from scheduler_app.rules.states import TaskState
from tests.simulation.database import Fire, Message
from tests.simulation.schedulers import Schedulers
from tests.simulation.state import Exit
from tests.simulation.workers import Workers

EXTERNAL_MAX: Final = 3  # external events in one world
PAUSES_S: Final = (0.5, 1.0, 1.0, 2.0, 2.0, 4.0, 4.5, 6.0)
LEAPS_S: Final = (11.0, 16.0, 21.0, 31.0)
ECHOED: Final = (
    reconcile.EXIT_SUCCESS,
    reconcile.EXIT_FAILED,
    reconcile.EXIT_KILLED,
    reconcile.WORKER_LOST,
)


class World(Schedulers, Workers):
    """Time, triggers, freezes, the carrier, the server."""

    # -- time ---------------------------------------------------------------------------------

    def wait(self, r: int) -> bool:
        """A little time passes."""
        self._advance(PAUSES_S[r & 7])
        return True

    def leap(self, r: int) -> bool:
        """Everybody is slow: long enough for leases, heartbeats or deliveries to be overdue."""
        self._advance(LEAPS_S[r & 3])
        return True

    def _advance(self, seconds: float) -> None:
        self.db.advance(seconds)
        self.end_idle_transactions()

    # -- triggers -----------------------------------------------------------------------------

    def watch(self, r: int) -> bool:
        """What a watched trigger waits for happens, and some triggerer sees it."""
        watched = [g for g in self.db.waiting_triggers() if g.kind == "watched"]
        if not watched:
            return False
        trigger = watched[r % len(watched)]
        has_failed = r >> 8 & 7 == 0
        self.fires.append(
            Fire(trigger.id, *(("failed", "error") if has_failed else ("fired", "event")))
        )
        if r >> 12 & 3:
            self.fire(r)
        return True

    def fire(self, r: int) -> bool:
        """A fire that is under way reaches the database."""
        if not self.fires:
            return False
        place = r % len(self.fires)
        if self.may_abort and r >> 16 & 15 == 0:
            return False
        self._fire(self.fires[place])
        if not (self.may_lose_answers and r >> 16 & 15 == 1):
            self.fires.pop(place)
        return True

    def _fire(self, one: Fire) -> None:
        self.db.fire(one)

    def fire_again(self, r: int) -> bool:
        """A fire is doubled."""
        if not self.fires:
            return False
        self.fires.append(self.fires[r % len(self.fires)])
        return True

    def fire_due(self, r: int) -> bool:
        """A triggerer looks at what is due."""
        due, slept = self.db.due()
        if not due:
            return slept
        due.sort()
        if r >> 8 & 3:
            for one in due:
                self._fire(one)
        else:
            self.fires += due
        return True

    def tell(self, r: int) -> bool:
        """Something outside tells a task instance, perhaps before that waits for it."""
        listening = [i for i, kind in enumerate(self.setup.deferring) if kind == "event"]
        if not listening:
            return False
        if len(self.db.external) >= EXTERNAL_MAX and not any(
            g.kind == "event" for g in self.db.waiting_triggers()
        ):
            return False
        event_id, trigger_id = self.db.record_external(listening[r % len(listening)])
        if trigger_id is not None:
            self.fires.append(Fire(trigger_id, "fired", "event", event_id))
        return True

    # -- freeze and thaw ----------------------------------------------------------------------

    def freeze(self, r: int) -> bool:
        """The run, or one task instance, is frozen."""
        if self.db.run_lock is not None or self.db.run.frozen:
            return False
        if r & 1:
            held = [ti.id for ti in self.db.tis if ti.is_open]
            self.db.freeze_run()
        else:
            ti = self.db.tis[(r >> 8) % len(self.setup.tasks)]
            if not ti.is_open or ti.held:
                return False
            held = [ti.id]
            self.db.hold(held)
        self.truth.held.update(held)
        return True

    def thaw(self, r: int) -> bool:
        """Everything goes on; what was queued when it was frozen, as far as there is room."""
        del r
        if self.db.run_lock is not None or not (self.truth.held or self.db.run.frozen):
            return False
        held = [ti for ti in self.db.tis if ti.held]
        queued = [ti.id for ti in held if ti.state is TaskState.QUEUED]
        # Without waiting: a dead execution that nobody may give up would keep its slot for ever.
        going_on = [ti.id for ti in held if ti.id not in queued]
        going_on += queued[: max(0, self.slots - self.db.use())]
        if not going_on and not self.db.run.frozen:
            return False
        self.db.thaw(going_on)
        self.truth.held.difference_update(going_on)
        return True

    # -- the carrier --------------------------------------------------------------------------

    def double_message(self, r: int) -> bool:
        """A message is with the carrier once more, perhaps long after it was delivered."""
        seen = self.messages_seen
        if not seen:
            return False
        self.bag.append(seen[r % len(seen)])
        return True

    def drop_message(self, r: int) -> bool:
        """The carrier loses a message."""
        if not self.bag:
            return False
        self.bag.pop(r % len(self.bag))
        return True

    def flush_carrier(self, r: int) -> bool:
        """The carrier loses everything."""
        del r
        if not self.bag:
            return False
        self.bag.clear()
        return True

    def forge_message(self, r: int) -> bool:
        """A message of an attempt that was never issued, or with another fence."""
        if r & 1 or not self.messages_seen:
            self.bag.append(Message(self.new_id(), 0, 1, 1))
        else:
            real = self.messages_seen[r % len(self.messages_seen)]
            self.bag.append(real._replace(fence=real.fence + 1000))
        return True

    # -- witnesses ----------------------------------------------------------------------------

    def echo_event(self, r: int) -> bool:
        """Another witness says, late or twice, how an execution ended that did end."""
        if not self.exits_seen:
            return False
        exit_ = self.exits_seen[r % len(self.exits_seen)]
        kind = ECHOED[r >> 8 & 3] if r >> 12 & 3 == 0 else exit_.kind
        self._say(exit_, kind)
        return True

    def _say(self, exit_: Exit, kind: str) -> None:
        self.db.record_event(exit_.attempt_id, kind, None, None, worker=exit_.worker, pid=exit_.pid)

    def ghost_event(self, r: int) -> bool:
        """A witness names an attempt that was never issued."""
        del r
        self.db.record_event(self.new_id(), reconcile.EXIT_SUCCESS, None, None)
        return True

    # -- the server ---------------------------------------------------------------------------

    def restart_database(self, r: int) -> bool:
        """Open transactions are gone, and nothing else."""
        del r
        for scheduler in self.schedulers:
            if scheduler.stalled is not None and scheduler.stalled[0] == "tick":
                self.abort_tick(scheduler)
        self.db.restart()
        return True
