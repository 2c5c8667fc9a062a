"""Say how many slots keys have, over what the flows say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from django.conf import settings
from django.db import connection, transaction

from scheduler_app.hints.notices import Notices
from scheduler_app.operations.reasons import check_reason
from scheduler_app.rules.errors import InvalidInput, NotFound
from scheduler_app.rules.limits import ANY, KEY_CHARACTERS_MAX
from scheduler_app.transitions import key_limit as moves
from scheduler_app.transitions.audit import record_audit

if TYPE_CHECKING:
    from collections.abc import Mapping

SLOTS_MAX: Final = 1_000_000
DESCRIPTION_CHARACTERS_MAX: Final = 1000

_notices = Notices(settings.CACHE_URL)


def set_limit(
    *, key: str, slots: int, actor: str, reason: str, description: str | None = None
) -> None:
    """The key has so many slots, from the next look of a scheduler on; 0 stops what has not begun.

    With ``*`` at its end, ``key`` stands for all that begin so. Fewer slots than are taken stop
    nothing. A description that is null stays. Raises ``InvalidInput``.
    """
    why = check_reason(reason)
    _check(key, slots, description or "")
    with transaction.atomic():
        connection.ensure_connection()
        before = moves.lock_key_limit(connection.connection, key=key)
        kept = (before or {}).get("description", "")
        after: dict[str, Any] = {
            "slots": slots,
            "description": kept if description is None else description,
        }
        if after == before:
            return
        moves.set_key_limit(connection.connection, key=key, **after)
        _tell("limit.set", key, actor, why, before=before, after=after)


def remove_limit(*, key: str, actor: str, reason: str) -> None:
    """Tasks have their own numbers again. Raises ``NotFound``."""
    why = check_reason(reason)
    with transaction.atomic():
        connection.ensure_connection()
        before = moves.lock_key_limit(connection.connection, key=key)
        if before is None:
            raise NotFound(f"there is no limit {key!r}", field="key")
        moves.delete_key_limit(connection.connection, key=key)
        _tell("limit.remove", key, actor, why, before=before, after=None)


def _check(key: str, slots: int, description: str) -> None:
    if (
        not (0 < len(key) <= KEY_CHARACTERS_MAX and key.isprintable() and key == key.strip())
        or ANY in key[:-1]
    ):
        raise InvalidInput(
            f"A key has 1 to {KEY_CHARACTERS_MAX} printable characters, without blanks at its ends;"
            f" {ANY!r} may stand at its end, for whatever follows.",
            field="key",
        )
    if not 0 <= slots <= SLOTS_MAX:
        raise InvalidInput(f"slots: {slots} is not from 0 to {SLOTS_MAX}.", field="slots")
    if len(description) > DESCRIPTION_CHARACTERS_MAX or "\x00" in description:
        raise InvalidInput(
            f"description: at most {DESCRIPTION_CHARACTERS_MAX} characters and no NUL.",
            field="description",
        )


def _tell(
    action: str,
    key: str,
    actor: str,
    reason: str,
    *,
    before: Mapping[str, Any] | None,
    after: Mapping[str, Any] | None,
) -> None:
    record_audit(
        connection.connection,
        actor=actor,
        action=action,
        object_kind="limit",
        object_id=key,
        reason=reason,
        before=None if before is None else dict(before),
        after=None if after is None else dict(after),
    )
    transaction.on_commit(lambda: _notices.wake(room=1))
    transaction.on_commit(lambda: _notices.changed(["pools"]))
