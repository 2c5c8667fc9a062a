"""A psycopg connection that remembers what it ran, and the laws that its transactions must keep."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field
from typing import Any, Final

import psycopg

LOCK_ORDER: Final = (
    "lease",
    "flow",
    "pool",
    "run",
    "task_instance",
    "attempt",
    "trigger",
    "executor_event",
)
TRANSACTION_SECONDS_MAX: Final = 1.0

_TABLES: Final = "|".join(LOCK_ORDER)
_WRITES: Final = re.compile(rf"\b(?:UPDATE|INSERT INTO|DELETE FROM)\s+({_TABLES})\b")
# A locking read names its rows' table first; `OF x` narrows the lock to one alias.
_LOCKING_READ: Final = re.compile(
    rf"SELECT(?:(?!SELECT).)*?\bFROM\s+({_TABLES})\b(?:(?!SELECT).)*?"
    r"\bFOR\s+(?:NO KEY UPDATE|UPDATE|KEY SHARE|SHARE)\b",
    re.DOTALL,
)
_PROOF: Final = re.compile(r"FROM lease\b.*FOR KEY SHARE", re.DOTALL)


@dataclass(slots=True)
class Transaction:
    """The statements of one transaction, in order."""

    statements: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def first_locks(self) -> list[str]:
        """The tables in the order in which the transaction first locked a row of each."""
        order: list[str] = []
        for statement in self.statements:
            found = [(m.start(), m.group(1)) for m in _WRITES.finditer(statement)]
            found += [(m.start(1), m.group(1)) for m in _LOCKING_READ.finditer(statement)]
            for _, table in sorted(found):
                if table not in order:
                    order.append(table)
        return order

    def writes(self) -> bool:
        """Whether the transaction changes a row of the dispatch protocol."""
        return any(_WRITES.search(statement) for statement in self.statements)

    def starts_with_proof(self) -> bool:
        """Whether its first statement is the lease proof."""
        return bool(self.statements) and bool(_PROOF.search(self.statements[0]))


class RecordingCursor(psycopg.Cursor[Any]):
    """Tells its connection what it executes."""

    def execute(self, query: Any, *args: Any, **kwargs: Any) -> Any:
        """As psycopg's; recorded first."""
        connection = self.connection
        assert isinstance(connection, RecordingConnection)
        connection.note(str(query))
        return super().execute(query, *args, **kwargs)


class RecordingConnection(psycopg.Connection[Any]):
    """Groups what runs inside ``transaction()``; statements outside are one transaction each."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.cursor_factory = RecordingCursor
        self.transactions: list[Transaction] = []
        self._depth = 0

    def note(self, statement: str) -> None:
        """Remember a statement."""
        if self._depth == 0:
            self.transactions.append(Transaction())
        self.transactions[-1].statements.append(statement)

    def transaction(self, *args: Any, **kwargs: Any) -> Any:
        """As psycopg's; what runs inside is one recorded transaction."""
        return _Block(self, super().transaction(*args, **kwargs))

    def enter(self) -> None:
        """A transaction block starts."""
        if self._depth == 0:
            self.transactions.append(Transaction())
        self._depth += 1

    def leave(self, seconds: float) -> None:
        """A transaction block ended."""
        self._depth -= 1
        if self._depth == 0:
            self.transactions[-1].seconds = seconds


class _Block:
    def __init__(self, connection: RecordingConnection, inner: Any) -> None:
        self._connection = connection
        self._inner = inner
        self._began = 0.0

    def __enter__(self) -> Any:
        self._connection.enter()
        self._began = time.monotonic()
        return self._inner.__enter__()

    def __exit__(self, *error: Any) -> Any:
        try:
            return self._inner.__exit__(*error)
        finally:
            self._connection.leave(time.monotonic() - self._began)


def broken_laws(transactions: list[Transaction], *, deciding: bool) -> list[str]:
    """What the transactions did against the lock order, the proof or the time limit; empty if nothing."""
    faults = []
    for transaction in transactions:
        locks = transaction.first_locks()
        if locks != sorted(locks, key=LOCK_ORDER.index):
            faults.append(f"locks out of order: {locks} in {transaction.statements}")
        if deciding and transaction.writes() and not transaction.starts_with_proof():
            faults.append(f"no lease proof first: {transaction.statements}")
        if transaction.seconds > TRANSACTION_SECONDS_MAX:
            faults.append(f"open for {transaction.seconds:.2f} s: {transaction.statements}")
    return faults
