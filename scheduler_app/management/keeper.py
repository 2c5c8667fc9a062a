"""The keeper: a thread of every scheduler that goes on with clears which nobody carries on any more.

A clear of many runs is begun by a request or a command, which may end before it: a browser goes away,
a web process is stopped. Its plans stand in the database; one keeper at a time carries them out.
"""

from __future__ import annotations

import logging
import threading
from typing import Final

from django.db import DatabaseError, InterfaceError, close_old_connections, connection

from scheduler_app.operations.clear_batch import go_on_with_left

TURN_S: Final = 15.0  # between two looks: each makes a connection, which costs more than the look
CARRIED_S: Final = 5.0  # of one turn, so that it stops within that
STOP_S: Final = 10.0  # a run that is just being cleared is waited for

logger = logging.getLogger(__name__)


class Keeper:
    """Any number of them do no harm: a batch is carried on by one, and each run of it is cleared once."""

    def __init__(self, *, turn_s: float = TURN_S) -> None:
        self._turn_s = turn_s
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="keeper", daemon=True)

    def start(self) -> None:
        """Clears that were left are gone on with from now on."""
        self._thread.start()

    def stop(self) -> None:
        """No further run is cleared by it; what is left waits for another keeper."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(timeout=STOP_S)

    def _run(self) -> None:
        while not self._stopping.wait(self._turn_s):
            try:
                self.turn()
            except (DatabaseError, InterfaceError) as error:
                logger.warning("clears wait for the database", extra={"error": str(error).strip()})
            except Exception:  # the thread must outlive any single fault
                logger.exception("a turn of the keeper failed")
            finally:
                connection.close()  # its locks go with it

    def turn(self) -> int:
        """What was left is gone on with for some seconds; how many batches."""
        close_old_connections()
        done = go_on_with_left(within_s=CARRIED_S, is_stopping=self._stopping.is_set)
        if done:
            logger.info("clears were gone on with", extra={"batches": done})
        return done
