"""Raw psycopg connections for the hot path, with each role's time limits as connection options.

Limits are options of the connection and never of the database role: migrations and exports need
longer ones.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import psycopg
from django.conf import settings

from scheduler_app.processes import lists

if TYPE_CHECKING:
    from collections.abc import Iterator

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


@contextmanager
def prepared(django: BaseDatabaseWrapper, *, at_most: int = PREPARED_MAX) -> Iterator[None]:
    """Within, the server plans statements over this connection of Django's once, as over our own.

    Django's cursors write values into a statement, which is then planned anew each time: for a hot one that
    costs more than to run it. Only for statements that say of which types their parameters are. With more
    than ``at_most`` of them, each that comes takes the place of the one that was used longest ago.
    """
    django.ensure_connection()
    raw = django.connection
    before = raw.cursor_factory, raw.prepare_threshold, raw.prepared_max
    raw.cursor_factory, raw.prepare_threshold, raw.prepared_max = psycopg.Cursor, 1, at_most
    try:
        yield
    finally:
        raw.cursor_factory, raw.prepare_threshold, raw.prepared_max = before


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
