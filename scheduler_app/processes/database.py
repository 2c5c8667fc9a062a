"""Raw psycopg connections for the hot path, with each role's time limits as connection options.

Limits are options of the connection and never of the database role: migrations and exports need
longer ones.
"""

from __future__ import annotations

import select
from typing import TYPE_CHECKING, Any, Final

import psycopg
from django.conf import settings
from psycopg_pool import ConnectionPool

from scheduler_app.processes import lists

if TYPE_CHECKING:
    from types import TracebackType

    from django.db.backends.base.base import BaseDatabaseWrapper

# Milliseconds. A process that stalls inside a transaction blocks others no longer than this.
_LIMITS_MS: Final[dict[str, dict[str, int]]] = {
    "scheduler": {
        "statement_timeout": 5000,
        "lock_timeout": 2000,
        "idle_in_transaction_session_timeout": 4000,
    },
    "triggerer": {
        "statement_timeout": 5000,
        "lock_timeout": 2000,
        "idle_in_transaction_session_timeout": 4000,
    },
    "lease": {
        "statement_timeout": 3000,
        "lock_timeout": 2000,
        "idle_in_transaction_session_timeout": 3000,
    },
    "worker": {
        "statement_timeout": 15000,
        "lock_timeout": 5000,
        "idle_in_transaction_session_timeout": 5000,
    },
    "hints": {
        "statement_timeout": 2000,
        "lock_timeout": 1000,
        "idle_in_transaction_session_timeout": 2000,
    },
}
# Every statement of a worker looks up rows by their keys, so that its plan never depends on its values.
# Left alone, PostgreSQL would plan some claims anew each time, at more than what a claim costs itself. And a
# plan has to hold when tables have grown: while they are nearly empty, reading them whole looks cheaper.
_PLANS: Final = {
    "worker": " -c plan_cache_mode=force_generic_plan -c enable_seqscan=off -c enable_hashjoin=off"
    " -c enable_mergejoin=off",
    "scheduler": " -c enable_seqscan=off",
}

PREPARED_MAX: Final = 100  # statements of a connection, as psycopg has it


def connect(role: str, *, name: str = "") -> psycopg.Connection[Any]:
    """A new autocommit connection to the product's database.

    ``role`` is ``scheduler``, ``triggerer``, ``lease``, ``worker`` or ``hints`` and sets the time
    limits. Statements are prepared at their second use, and those of a worker planned once; ``jit`` is
    off, since every hot statement is short. Of which type a list is, the statement says. Raises
    ``psycopg.OperationalError``.
    """
    made = psycopg.connect(**_parameters(role, name), autocommit=True, prepare_threshold=1)
    lists.write_quickly(made)
    return made


async def connect_async(role: str, *, name: str = "") -> psycopg.AsyncConnection[Any]:
    """As ``connect``, for an event loop."""
    made = await psycopg.AsyncConnection.connect(
        **_parameters(role, name), autocommit=True, prepare_threshold=1
    )
    lists.write_quickly(made)
    return made


def prepared(django: BaseDatabaseWrapper, *, at_most: int = PREPARED_MAX) -> Prepared:
    """Within, the server plans statements over this connection of Django's once, as over our own.

    Django's cursors write values into a statement, which is then planned anew each time: for a hot one that
    costs more than to run it. Only for statements that say of which types their parameters are. With more
    than ``at_most`` of them, each that comes takes the place of the one that was used longest ago.
    Errors of the driver are Django's outside, as those of its own cursors.
    """
    return Prepared(django, at_most)


class Prepared:
    """See ``prepared``. No generator, since a call of the API makes several."""

    __slots__ = ("_at_most", "_before", "_django", "_raw")

    def __init__(self, django: BaseDatabaseWrapper, at_most: int) -> None:
        self._django = django
        self._at_most = at_most

    def __enter__(self) -> psycopg.Connection[Any]:
        """The connection beneath."""
        self._django.ensure_connection()
        raw: psycopg.Connection[Any] = self._django.connection
        self._raw = raw
        self._before = raw.cursor_factory, raw.prepare_threshold, raw.prepared_max
        raw.cursor_factory, raw.prepare_threshold, raw.prepared_max = (
            psycopg.Cursor,
            1,
            self._at_most,
        )
        return raw

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        raw = self._raw
        raw.cursor_factory, raw.prepare_threshold, raw.prepared_max = self._before
        if kind is not None:
            self._django.wrap_database_errors.__exit__(kind, error, trace)


def check(connection: psycopg.Connection[Any]) -> None:
    """The connection, which nobody uses now, is good; else it raises. Nothing is asked while nothing was said.

    A server that ends a connection says so, or its machine does: then there is something to be read.
    """
    if connection.closed:
        raise psycopg.OperationalError("the connection is closed")
    looked = select.poll()
    looked.register(connection.fileno(), select.POLLIN)
    if looked.poll(0):
        ConnectionPool.check_connection(connection)


def _parameters(role: str, name: str) -> dict[str, Any]:
    database = settings.DATABASES["default"]
    options = " ".join(f"-c {key}={value}" for key, value in _LIMITS_MS[role].items())
    options += _PLANS.get(role, "")
    # What the address says beyond the place, such as sslmode; the pool is Django's own option.
    extra = {k: v for k, v in database.get("OPTIONS", {}).items() if k not in ("pool", "options")}
    return {
        "connect_timeout": 3,
        "tcp_user_timeout": 8000,
        "keepalives_idle": 5,
        **extra,
        "dbname": database["NAME"],
        "user": database.get("USER") or None,
        "password": database.get("PASSWORD") or None,
        "host": database.get("HOST") or None,
        "port": database.get("PORT") or None,
        "application_name": f"daylight {role} {name}".strip(),
        "options": f"{options} -c jit=off -c timezone=UTC -c client_connection_check_interval=2000",
    }
