"""Issue a token of the API to somebody who knows the password."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from django.conf import settings
from django.db import connection, transaction

from scheduler_app.operations.sign_in import sign_in
from scheduler_app.transitions.api_token import store_token
from scheduler_app.transitions.audit import record_audit

if TYPE_CHECKING:
    from datetime import datetime

TOKEN_BYTES: Final = 32  # of chance: 256 bits


@dataclass(frozen=True, slots=True, kw_only=True)
class IssuedToken:
    """A token as its holder gets it, once."""

    token: str
    expires_at: datetime


def issue_token(
    *, username: str, password: str, address: str = "", lifetime_s: float | None = None
) -> IssuedToken:
    """A new token acts as the user until it expires; only its digest is stored.

    A change of the password or the end of the account ends it at once.
    Raises ``NotAuthenticated`` and ``TooManyFailures``: see ``sign_in``.
    """
    user = sign_in(username=username, password=password, address=address)
    token = secrets.token_urlsafe(TOKEN_BYTES)
    with transaction.atomic():
        expires_at = store_token(
            connection.connection,
            user_id=user.pk,
            digest=hashlib.sha256(token.encode()).hexdigest(),
            stamp=user.get_session_auth_hash(),
            lifetime_s=settings.API_TOKEN_LIFETIME_S if lifetime_s is None else lifetime_s,
        )
        record_audit(
            connection.connection,
            actor=user.get_username(),
            action="token.issue",
            object_kind="user",
            object_id=str(user.pk),
            after={"expires_at": expires_at.isoformat()},
        )
    return IssuedToken(token=token, expires_at=expires_at)
