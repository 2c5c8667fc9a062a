"""Set, count up and delete variables, bring many in, and seal secrets under a new key."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from django.conf import settings
from django.db import connection, transaction

from scheduler_app.hints.notices import Notices
from scheduler_app.models import Connection, Variable
from scheduler_app.operations.reasons import check_reason
from scheduler_app.processes import connections, sealing
from scheduler_app.processes.variables import Draft, Written, write
from scheduler_app.rules import values, variables
from scheduler_app.rules.errors import Conflict, InvalidInput, NotFound
from scheduler_app.transitions import connection as connection_moves
from scheduler_app.transitions import variable as moves
from scheduler_app.transitions.audit import record_audit

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

TOPICS: Final = ("variables",)
IMPORTED_MAX: Final = 10_000  # variables of one import

_notices = Notices(settings.CACHE_URL)


class _Unset:
    """What was not said stays as it is."""


UNSET: Final = _Unset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """What an import did, by key."""

    created: tuple[str, ...]
    changed: tuple[str, ...]
    kept: tuple[str, ...]  # were there and were left alone, or were the same


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotated:
    """What a rotation did."""

    key_name: str  # of the key that all secrets are sealed under now
    resealed: int
    dropped: int  # older keys of the data folder that are gone


def set_variable(
    *,
    key: str,
    actor: str,
    reason: str,
    value: object = UNSET,
    description: str | None = None,
    is_secret: bool | None = None,
    expected: object = UNSET,
    expected_version: int | None = None,
    must_be_new: bool = False,
    must_exist: bool = False,
) -> Written:
    """The variable has the value; what is not said of it stays as it is.

    ``value`` is a JSON value. With ``expected`` or ``expected_version`` it is set only if that is
    what is there. Raises ``InvalidInput``, ``NotFound``, and ``Conflict``.
    """
    why = check_reason(reason)
    variables.check_key(key)
    if value is not UNSET:
        value = _given(key, value)

    def decide(before: Draft | None) -> Draft:
        if before is None:
            if must_exist:
                raise NotFound(f"there is no variable {key!r}", field="key")
            if value is UNSET:
                raise InvalidInput("A new variable needs a value.", field="value")
        elif must_be_new:
            raise Conflict(f"There is a variable {key!r} already.", field="key")
        _check_expected(key, before, expected, expected_version)
        start = before or Draft(value=None)
        after = replace(
            start,
            value=start.value if value is UNSET else value,
            description=start.description if description is None else description,
            is_secret=start.is_secret if is_secret is None else is_secret,
        )
        if before is not None and _is_same(before, after):
            return before
        return after

    return _write(key, decide, action="variable.set", actor=actor, reason=why)


def increment_variable(
    *, key: str, actor: str, reason: str, by: float = 1, start: float = 0
) -> Written:
    """The number is greater by ``by``; a variable that was not there begins at ``start``.

    Raises ``InvalidInput`` where the value is no number.
    """
    why = check_reason(reason)

    def decide(before: Draft | None) -> Draft:
        found = before or Draft(value=start)
        return replace(found, value=variables.incremented(key, found.value, by))

    return _write(key, decide, action="variable.increment", actor=actor, reason=why)


def delete_variable(*, key: str, actor: str, reason: str) -> Written:
    """The variable is gone; its history stays. Raises ``NotFound``."""
    why = check_reason(reason)

    def decide(before: Draft | None) -> None:
        if before is None:
            raise NotFound(f"there is no variable {key!r}", field="key")

    return _write(key, decide, action="variable.delete", actor=actor, reason=why, open_before=False)


def import_variables(
    *, given: Mapping[str, Any], actor: str, reason: str, existing: str = "overwrite"
) -> Imported:
    """The variables are there, all in one transaction.

    Each is its value, or an object with ``value`` and, if wanted, ``description`` and ``is_secret``.
    ``existing`` says what becomes of one that is there: overwrite, skip or fail. Raises
    ``InvalidInput`` and ``Conflict``; then nothing has changed.
    """
    if len(given) > IMPORTED_MAX:
        raise InvalidInput(f"{len(given)} variables; at most {IMPORTED_MAX} at a time.")
    done: dict[str, list[str]] = {"created": [], "changed": [], "kept": []}
    with transaction.atomic():
        there = set(Variable.objects.filter(key__in=list(given)).values_list("key", flat=True))
        for key in sorted(given):
            if key in there and existing == "skip":
                done["kept"].append(key)
                continue
            written = set_variable(
                key=key,
                actor=actor,
                reason=reason,
                must_be_new=existing == "fail",
                **_parts(given[key]),
            )
            if written.before is None:
                done["created"].append(key)
            else:
                done["changed" if written.has_changed else "kept"].append(key)
    return Imported(**{name: tuple(keys) for name, keys in done.items()})


def reveal_variables(
    *, keys: Collection[str], actor: str, reason: str
) -> dict[str, dict[str, Any]]:
    """The variables with their values in clear, as an import takes them; who saw them is audited.

    Raises ``NotFound`` and ``CannotOpen``.
    """
    why = check_reason(reason)
    found: dict[str, dict[str, Any]] = {}
    with transaction.atomic():
        connection.ensure_connection()
        for key in sorted(keys):
            row = moves.read_variable(connection.connection, key=key)
            if row is None:
                raise NotFound(f"there is no variable {key!r}", field="key")
            raw = row.value if row.sealed is None else sealing.open_sealed(key, row.sealed)
            found[key] = {"value": raw, "description": row.description, "is_secret": row.is_secret}
            record_audit(
                connection.connection,
                actor=actor,
                action="variable.reveal",
                object_kind="variable",
                object_id=key,
                reason=why,
            )
    return found


def rotate_keys(
    *, actor: str, reason: str, new_key: bool = True, drop_old: bool = False
) -> Rotated:
    """Every secret is sealed under the newest key; with ``new_key`` that is one made now.

    Other processes go on through it: they find the new key in the data folder. ``drop_old`` takes
    older keys out of the folder once nothing needs them. Raises ``CannotOpen``, ``NoKey`` and
    ``NotAllowed``; a second call goes on where a first one broke off.
    """
    why = check_reason(reason)
    if new_key:
        sealing.add_key()
    keys = sealing.ring()
    if not keys:
        raise sealing.NoKey("There is no key on this host. Set DAYLIGHT_VARIABLE_KEYS.")
    newest = keys[0].name
    stale = Variable.objects.filter(is_secret=True).exclude(sealed_with=newest)
    resealed = 0
    for key in list(stale.values_list("key", flat=True)):
        with transaction.atomic():
            row = moves.read_variable(connection.connection, key=key, lock=True)
            if row is None or not row.is_secret or row.sealed_with == newest:
                continue
            value = row.value if row.sealed is None else sealing.open_sealed(key, row.sealed)
            sealed = sealing.seal(key, value)
            moves.reseal_variable(
                connection.connection, key=key, sealed=sealed.text, sealed_with=sealed.key_name
            )
            resealed += 1
    stale_connections = Connection.objects.exclude(sealed="").exclude(sealed_with=newest)
    for key in list(stale_connections.values_list("connection_id", flat=True)):
        with transaction.atomic():
            found = connection_moves.read_connection(
                connection.connection, connection_id=key, lock=True
            )
            if found is None or not found.sealed or found.sealed_with == newest:
                continue
            again = connections.closed(key, connections.opened(found))
            connection_moves.reseal_connection(
                connection.connection,
                connection_id=key,
                sealed=again.sealed,
                sealed_with=again.sealed_with,
            )
            resealed += 1
    is_done = not stale.exists() and not stale_connections.exists()
    dropped = sealing.drop_old_keys() if drop_old and is_done else 0
    with transaction.atomic():
        record_audit(
            connection.connection,
            actor=actor,
            action="variable.rotate_keys",
            object_kind="variable",
            object_id="*",
            reason=why,
            after={"sealed_with": newest, "resealed": resealed, "dropped_keys": dropped},
        )
    return Rotated(key_name=newest, resealed=resealed, dropped=dropped)


def _write(
    key: str,
    decide: Callable[[Draft | None], Draft | None],
    *,
    action: str,
    actor: str,
    reason: str,
    open_before: bool = True,
) -> Written:
    with transaction.atomic():
        connection.ensure_connection()
        written = write(
            connection.connection,
            key=key,
            decide=decide,
            by=moves.Author(actor=actor, reason=reason),
            open_before=open_before,
        )
        if written.has_changed:
            record_audit(
                connection.connection,
                actor=actor,
                action=action,
                object_kind="variable",
                object_id=key,
                reason=reason,
                before=_told(written.before),
                after=_told(written.after),
            )
            transaction.on_commit(lambda: _notices.changed(TOPICS))
    return written


def _told(side: Draft | None) -> dict[str, Any] | None:
    """What the audit says: never a value, for a plain one may become a secret later."""
    if side is None:
        return None
    return {
        "version": side.version,
        "is_secret": side.is_secret,
        "description": side.description,
    }


def _given(key: str, value: object) -> object:
    """The Python value that the JSON value stands for, typed extensions included."""
    try:
        return values.decode(value)
    except InvalidInput as error:
        raise InvalidInput(f"Variable {key!r}: {error}", field="value") from None


def _check_expected(
    key: str, before: Draft | None, expected: object, expected_version: int | None
) -> None:
    version = 0 if before is None else before.version
    if expected_version is not None and expected_version != version:
        message = f"Variable {key!r} has moved: version {version}, not {expected_version}."
        raise Conflict(message, version=version)
    if expected is UNSET:
        return
    if before is None or not variables.are_equal(before.value, _given(key, expected)):
        raise Conflict(f"Variable {key!r} has another value than expected.", version=version)


def _is_same(before: Draft, after: Draft) -> bool:
    return (
        variables.are_equal(before.value, after.value)
        and before.description == after.description
        and before.is_secret == after.is_secret
    )


def _parts(given: Any) -> dict[str, Any]:
    known = {"value", "description", "is_secret"}
    if isinstance(given, dict) and "value" in given and set(given) <= known:
        if not isinstance(given.get("is_secret", False), bool):
            raise InvalidInput("is_secret must be true or false.", field="is_secret")
        parts = dict(given)
        if parts.get("description") is not None and not isinstance(parts["description"], str):
            raise InvalidInput("description must be a text.", field="description")
        return parts
    return {"value": given}
