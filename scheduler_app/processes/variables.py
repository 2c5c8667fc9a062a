"""Reading and writing variables over any connection: what tasks, callbacks and people share."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from scheduler_app.processes import sealing
from scheduler_app.rules import values, variables
from scheduler_app.rules.errors import Conflict
from scheduler_app.transitions import variable as moves

if TYPE_CHECKING:
    from collections.abc import Callable

    import psycopg

    from scheduler_app.transitions.variable import Author, StoredVariable

TRIES: Final = 5  # while others create and delete the same variable


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """What a variable is, or shall be; ``value`` is a Python value."""

    value: Any
    is_secret: bool = False
    description: str = ""
    version: int = 0  # of what was read


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What a write came to."""

    before: Draft | None
    after: Draft | None  # as it is now
    has_changed: bool


def read(connection: psycopg.Connection[Any], key: str) -> Draft | None:
    """The variable with its value in clear; none if there is none. Raises ``CannotOpen``."""
    row = moves.read_variable(connection, key=key)
    return None if row is None else opened(row)


def opened(row: StoredVariable) -> Draft:
    """The row with its value in clear. Raises ``CannotOpen``."""
    raw = row.value if row.sealed is None else sealing.open_sealed(row.key, row.sealed)
    return Draft(
        value=values.decode(raw),
        is_secret=row.is_secret,
        description=row.description,
        version=row.version,
    )


def write(
    connection: psycopg.Connection[Any],
    *,
    key: str,
    decide: Callable[[Draft | None], Draft | None],
    by: Author,
    open_before: bool = True,
) -> Written:
    """The variable is what ``decide`` makes of what is there. Call it in a transaction.

    ``decide`` gets the row as it is under its lock; without ``open_before`` the value of a secret is
    not opened for it. Raises ``InvalidInput``, ``CannotOpen``, ``NoKey``, and what ``decide`` raises.
    """
    variables.check_key(key)
    for _ in range(TRIES):
        row = moves.read_variable(connection, key=key, lock=True)
        before = None
        if row is not None:
            shown = row if open_before or row.sealed is None else replace(row, sealed=None)
            before = opened(shown)
        after = decide(before)
        if after is before or (after is None and row is None):
            return Written(before=before, after=before, has_changed=False)
        if after is None:
            assert row is not None, "there was nothing to delete"
            moves.delete_variable(connection, before=row, by=by)
            return Written(before=before, after=None, has_changed=True)
        new = _sealed(key, after)
        if row is not None:
            version = moves.change_variable(connection, before=row, after=new, by=by)
            return Written(before=before, after=replace(after, version=version), has_changed=True)
        if moves.create_variable(connection, new=new, by=by):
            return Written(before=None, after=replace(after, version=1), has_changed=True)
    raise Conflict(f"Variable {key!r} is made and deleted by others all the time; try again.")


def _sealed(key: str, draft: Draft) -> StoredVariable:
    value = variables.encode(key, draft.value)
    sealed = sealing.seal(key, value) if draft.is_secret else None
    return moves.StoredVariable(
        key=key,
        value=None if sealed else value,
        sealed=sealed.text if sealed else None,
        sealed_with=sealed.key_name if sealed else "",
        is_secret=draft.is_secret,
        description=variables.check_description(draft.description),
    )
