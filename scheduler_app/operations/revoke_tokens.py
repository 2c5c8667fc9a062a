"""End tokens of the API before their time."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from django.db import connection, transaction

from scheduler_app.models import ApiToken
from scheduler_app.operations.reasons import check_reason
from scheduler_app.rules.errors import InvalidInput, NotFound
from scheduler_app.transitions.api_token import delete_tokens
from scheduler_app.transitions.audit import record_audit

if TYPE_CHECKING:
    from collections.abc import Sequence


def revoke_tokens(
    *, actor: str, reason: str, token_ids: Sequence[int] = (), username: str | None = None
) -> int:
    """These tokens, or all of one account, open nothing any more; how many there were.

    Raises ``NotFound`` for a token that is not there, and ``InvalidInput`` where none is named.
    """
    why = check_reason(reason)
    if not token_ids and username is None:
        raise InvalidInput("Name tokens, or an account.", field="token")
    rows = ApiToken.objects.all()
    rows = rows.filter(pk__in=token_ids) if token_ids else rows
    rows = rows if username is None else rows.filter(user__username=username)
    with transaction.atomic():
        found = {row.pk: row for row in rows.select_related("user")}
        for token_id in token_ids:
            if token_id not in found:
                message = f"there is no token {token_id}"
                raise NotFound(message, field="token")
        delete_tokens(connection.connection, token_ids=sorted(found))
        for row in found.values():
            record_audit(
                connection.connection,
                actor=actor,
                action="token.revoke",
                object_kind="user",
                object_id=str(row.user_id),
                reason=why,
                before={"token": row.pk, "expires_at": row.expires_at.isoformat()},
            )
    return len(found)


def revoke_own(*, token: str, actor: str) -> int:
    """The token that somebody shows opens nothing any more; how many there were: one, or none."""
    digest = hashlib.sha256(token.encode(errors="replace")).hexdigest()
    ids = list(ApiToken.objects.filter(digest=digest).values_list("pk", flat=True))
    return revoke_tokens(actor=actor, reason="signed out", token_ids=ids) if ids else 0
