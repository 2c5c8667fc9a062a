"""The teller: a thread that finds incidents to be told of, and sends their alerts.

Every scheduler and triggerer has one, and any number do no harm: what is due is planned once by a
law of the database, and claimed by one of them.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any, Final

import psycopg
from django.conf import settings

from scheduler_app.authoring import notifiers
from scheduler_app.couriers.alert_letters import letter_of
from scheduler_app.couriers.errors import NotSent
from scheduler_app.couriers.limits import Limits
from scheduler_app.couriers.secrets import Secrets, of_variables
from scheduler_app.couriers.send import send
from scheduler_app.processes import database
from scheduler_app.transitions.alert import (
    claim_alerts,
    due_tellings,
    note_not_sent,
    note_sent,
    plan_alerts,
)
from scheduler_app.transitions.counters import count
from scheduler_app.transitions.ids import uuid7

if TYPE_CHECKING:
    from collections.abc import Callable

TURN_S: Final = 2.0
LETTERS_MAX: Final = 20  # of one turn, so that what is new is planned in between
STOP_S: Final = 2.0  # a letter that is on its way is not waited for any longer

logger = logging.getLogger(__name__)


class Teller:
    """``look`` is called first in every turn, over the teller's connection."""

    def __init__(
        self,
        *,
        on_told: Callable[[], None],
        look: Callable[[psycopg.Connection[Any]], None] | None = None,
    ) -> None:
        self._on_told = on_told
        self._look = look
        self._stopping = threading.Event()
        self._connection: psycopg.Connection[Any] | None = None
        self._thread = threading.Thread(target=self._run, name="teller", daemon=True)

    def start(self) -> None:
        """Alerts are sent from now on."""
        self._thread.start()

    def stop(self) -> None:
        """No further alert is begun. One that is on its way may be sent again by another teller."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(timeout=STOP_S)

    def _run(self) -> None:
        while not self._stopping.wait(TURN_S):
            try:
                self.turn(self._connected())
            except psycopg.Error as error:
                logger.warning("alerts wait for the database", extra={"error": str(error).strip()})
                self._drop()
            except Exception:  # the thread must outlive any single fault
                logger.exception("a turn of the teller failed")
                self._drop()
        self._drop()

    def turn(self, connection: psycopg.Connection[Any]) -> None:
        """What is to be told now is planned, and what is due is sent. Raises ``psycopg.Error``."""
        if self._look is not None:
            self._look(connection)
        if plan(connection):
            self._on_told()
        for _ in range(LETTERS_MAX):
            if self._stopping.is_set() or not tell_one(connection):
                return
            self._on_told()

    def _connected(self) -> psycopg.Connection[Any]:
        if self._connection is None or self._connection.closed:
            self._connection = database.connect("scheduler", name="teller")
        return self._connection

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def plan(connection: psycopg.Connection[Any]) -> bool:
    """Each incident that is to be told of has its alerts; whether there were any incidents."""
    if not due_tellings(connection, remind_after_s=settings.ALERT_REMIND_AFTER_S):
        return False  # without a transaction, as nearly always
    with connection.transaction():
        tellings = due_tellings(connection, remind_after_s=settings.ALERT_REMIND_AFTER_S)
        if not tellings:
            return False
        plan_alerts(
            connection,
            tellings=tellings,
            notifiers={
                one["id"]: [
                    (notifiers.key_of(told), told) for told in one["alerts"] or settings.ALERTS
                ]
                for one in tellings
            },
        )
    return True


def tell_one(connection: psycopg.Connection[Any]) -> bool:
    """One letter went out, or its alerts wait for another try or were given up; false: none is due.

    No transaction is open while it is on its way.
    """
    claim = uuid7()
    alerts = claim_alerts(connection, claim=claim)
    if not alerts:
        return False
    notifier = alerts[0].notifier

    def ask(question: Callable[[psycopg.Connection[Any]], object]) -> object:
        return question(connection)

    try:
        said = send(
            notifier,
            letter_of(alerts, base=settings.BASE_URL),
            secrets=Secrets(of_variables(ask)),
            limits=Limits.of_installation(),
        )
    except NotSent as error:
        given_up = note_not_sent(
            connection,
            claim=claim,
            alerts=alerts,
            said=str(error),
            may_try_again=error.may_try_again,
        )
        count(connection, "scheduler_alerts_failed_total", given_up)
        logger.warning(
            "an alert was not sent",
            extra={
                "notifier": notifiers.shown(notifier),
                "alerts": len(alerts),
                "error": str(error),
            },
        )
    else:
        note_sent(connection, claim=claim, alerts=alerts, said=said)
        count(connection, "scheduler_alerts_sent_total", len(alerts))
    return True
