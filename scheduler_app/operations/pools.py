"""Create, change and delete pools."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from django.conf import settings
from django.db import connection, transaction

from scheduler_app.hints.notices import Notices
from scheduler_app.models import Flow, TaskInstance
from scheduler_app.operations.reasons import check_reason
from scheduler_app.rules.errors import Conflict, InvalidInput, NotAllowed, NotFound
from scheduler_app.transitions import pool as moves
from scheduler_app.transitions.audit import record_audit

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_POOL: Final = "default"
NAME_CHARACTERS_MAX: Final = 250
DESCRIPTION_CHARACTERS_MAX: Final = 1000
SLOTS_MAX: Final = 1_000_000
FLOWS_NAMED: Final = 5

_notices = Notices(settings.CACHE_URL)


def create_pool(
    *,
    name: str,
    slots: int,
    actor: str,
    reason: str,
    description: str = "",
    include_deferred: bool = False,
) -> None:
    """The pool is there. Raises ``InvalidInput``, and ``Conflict`` if it was there before."""
    why = check_reason(reason)
    _check_name(name)
    values = _checked(
        {"slots": slots, "description": description, "include_deferred": include_deferred}
    )
    with transaction.atomic():
        connection.ensure_connection()
        if not moves.create_pool(connection.connection, name=name, **values):
            raise Conflict(f"There is a pool {name!r} already.", field="name")
        _tell("pool.create", name, actor, why, before=None, after=values)
        transaction.on_commit(lambda: _notices.wake(room=1))


def change_pool(
    *,
    name: str,
    actor: str,
    reason: str,
    slots: int | None = None,
    description: str | None = None,
    include_deferred: bool | None = None,
) -> None:
    """The pool is as said; what is null stays. Raises ``InvalidInput`` and ``NotFound``.

    Fewer slots than are taken stop nothing: none starts until what runs has given enough back. Where
    there is more room, what waits for it is looked at at once.
    """
    why = check_reason(reason)
    said = {"slots": slots, "description": description, "include_deferred": include_deferred}
    changes = _checked({key: value for key, value in said.items() if value is not None})
    with transaction.atomic():
        connection.ensure_connection()
        before = moves.lock_pool(connection.connection, name=name)
        if before is None:
            raise NotFound(f"there is no pool {name!r}", field="name")
        after = {**before, **changes}
        if after == before:
            return
        moves.change_pool(connection.connection, name=name, **after)
        _tell("pool.change", name, actor, why, before=before, after=after)
        if after["slots"] > before["slots"] or before["include_deferred"]:
            transaction.on_commit(lambda: _notices.wake(room=1))


def delete_pool(*, name: str, actor: str, reason: str) -> None:
    """The pool is gone.

    Raises ``NotFound``, and ``NotAllowed`` while flows name it or unfinished tasks are in it.
    """
    why = check_reason(reason)
    if name == DEFAULT_POOL:
        raise NotAllowed("The default pool cannot be deleted.", field="name")
    with transaction.atomic():
        connection.ensure_connection()
        before = moves.lock_pool(connection.connection, name=name)
        if before is None:
            raise NotFound(f"there is no pool {name!r}", field="name")
        flows = _flows_with(name)
        if flows:
            shown = ", ".join(flows[:FLOWS_NAMED]) + (", ..." if len(flows) > FLOWS_NAMED else "")
            raise NotAllowed(
                f"{len(flows)} flows name pool {name!r} ({shown}): take it out of them first. Without"
                " their pool their tasks would never start.",
                field="name",
            )
        waiting = TaskInstance.objects.filter(is_open=True, pool=name)[:1000].count()
        if waiting:
            raise NotAllowed(
                f"{waiting} unfinished task instances are in pool {name!r}: let them end, or end them"
                " first. Without their pool they would never start.",
                field="name",
            )
        moves.delete_pool(connection.connection, name=name)
        _tell("pool.delete", name, actor, why, before=before, after=None)


def _flows_with(name: str) -> list[str]:
    """The flows whose current version has a task in the pool, by id."""
    found = Flow.objects.filter(
        removed_at__isnull=True, current_version__definition__tasks__contains=[{"pool": name}]
    )
    return list(found.order_by("flow_id").values_list("flow_id", flat=True))


def _check_name(name: str) -> None:
    if not (0 < len(name) <= NAME_CHARACTERS_MAX and name.isprintable() and name == name.strip()):
        raise InvalidInput(
            f"A pool's name has 1 to {NAME_CHARACTERS_MAX} printable characters, without blanks at"
            " its ends.",
            field="name",
        )


def _checked(values: dict[str, Any]) -> dict[str, Any]:
    slots = values.get("slots", 0)
    if not 0 <= slots <= SLOTS_MAX:
        raise InvalidInput(f"slots: {slots} is not from 0 to {SLOTS_MAX}.", field="slots")
    description = values.get("description", "")
    if len(description) > DESCRIPTION_CHARACTERS_MAX or "\x00" in description:
        raise InvalidInput(
            f"description: at most {DESCRIPTION_CHARACTERS_MAX} characters and no NUL.",
            field="description",
        )
    return values


def _tell(
    action: str,
    name: str,
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
        object_kind="pool",
        object_id=name,
        reason=reason,
        before=None if before is None else dict(before),
        after=None if after is None else dict(after),
    )
    transaction.on_commit(lambda: _notices.changed(["pools"]))
