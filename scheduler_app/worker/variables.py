"""Variables for user code: over the connection of the child, one transaction a call."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

from scheduler_app.authoring.saving import Superseded
from scheduler_app.authoring.variables import ABSENT, VariablesOutOfReach
from scheduler_app.processes import connections
from scheduler_app.processes.variables import Draft, Written, read, write
from scheduler_app.rules import variables
from scheduler_app.transitions.variable import Author, is_running, was_called

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    import psycopg

    from scheduler_app.rules.connections import ConnectionParts
    from scheduler_app.worker.child import Child
    from scheduler_app.worker.refuse import Delivery
    from scheduler_app.worker.saver import Saver

T = TypeVar("T")


@dataclass(slots=True, kw_only=True)
class WorkerVariables:
    """What ``Variable`` and ``Connection`` do in one attempt. Of a task, a write proves that the attempt is current."""

    me: Child
    delivery: Delivery
    actor: str
    flow_id: str
    saver: Saver | None = None  # of a task; a callback has none
    _pid: int = field(default_factory=os.getpid)

    def variable(self, key: str) -> tuple[bool, Any]:
        """Whether the variable is there, and its value."""
        found = self._ask(lambda connection: read(connection, key))
        if found is None:
            return False, None
        if found.is_secret:
            self.me.masks.add(found.value)
        return True, found.value

    def connection(self, connection_id: str) -> ConnectionParts | None:
        """The connection in clear; none if there is none."""
        found = self._ask(lambda connection: connections.read(connection, connection_id))
        if found is not None:
            self.me.masks.add(found.masked())
        return found

    def set_variable(
        self,
        key: str,
        value: Any,
        *,
        description: str | None,
        is_secret: bool | None,
        expected: Any = ABSENT,
        is_compared: bool = False,
    ) -> bool:
        """Whether it was set. Raises ``InvalidInput`` and ``Superseded``."""
        if is_secret:
            self.me.masks.add(value)
        refused = False

        def decide(before: Draft | None) -> Draft | None:
            nonlocal refused
            there = ABSENT if before is None else before.value
            refused = is_compared and not (
                there is expected
                if ABSENT in (there, expected)
                else variables.are_equal(there, expected)
            )
            if refused:
                return before
            start = before or Draft(value=None)
            return replace(
                start,
                value=value,
                description=start.description if description is None else description,
                is_secret=start.is_secret if is_secret is None else is_secret,
            )

        written = self._write(key, decide, open_before=is_compared)
        return not refused or written.has_changed

    def increment_variable(self, key: str, by: float, start: float) -> float:
        """The new number. Raises ``InvalidInput`` and ``Superseded``."""

        def decide(before: Draft | None) -> Draft:
            found = before or Draft(value=start)
            return replace(found, value=variables.incremented(key, found.value, by))

        written = self._write(key, decide)
        assert written.after is not None, "it is there"
        number: float = written.after.value
        return number

    def delete_variable(self, key: str) -> bool:
        """Whether there was one. Raises ``Superseded``."""
        return self._write(key, lambda _: None, open_before=False).has_changed

    def _write(
        self,
        key: str,
        decide: Callable[[Draft | None], Draft | None],
        *,
        open_before: bool = True,
    ) -> Written:
        call_id = uuid4()

        def act(connection: psycopg.Connection[Any]) -> Written | None:
            with connection.transaction():
                if not self._is_mine(connection):
                    return None
                if was_called(connection, call_id=call_id):  # its answer was lost on the way
                    found = read(connection, key)
                    return Written(before=None, after=found, has_changed=True)
                return write(
                    connection,
                    key=key,
                    decide=decide,
                    by=self._author(call_id),
                    open_before=open_before,
                )

        written = self._ask(act)
        if written is None:
            raise Superseded(f"The variable {key!r}")
        if written.has_changed:
            self.me.notices.changed(["variables"])
        return written

    def _is_mine(self, connection: psycopg.Connection[Any]) -> bool:
        if self.saver is None:
            return True
        return is_running(
            connection,
            ti_id=self.delivery.ti_id,
            attempt_id=self.delivery.attempt_id,
            nonce=self.delivery.nonce,
        )

    def _author(self, call_id: UUID) -> Author:
        return Author(
            actor=self.actor,
            flow_id=self.flow_id,
            attempt_id=self.delivery.attempt_id,
            call_id=call_id,
        )

    def _ask(self, question: Callable[[psycopg.Connection[Any]], T]) -> T:
        if os.getpid() != self._pid:
            raise VariablesOutOfReach("Variable")
        if self.saver is not None:
            return self.saver.ask(question)
        return self.me.link.ask(question, give_up=self.me.guard.asked_to_stop)
