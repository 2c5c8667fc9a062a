"""Whose token this is."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from django.db.models import F
from django.utils.crypto import constant_time_compare

from scheduler_app.models import ApiToken
from scheduler_app.queries import shown

if TYPE_CHECKING:
    from datetime import datetime

    from django.contrib.auth.models import User


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRow:
    """One token that is good now, but for the token itself."""

    id: int
    username: str
    created_at: datetime
    expires_at: datetime


def live() -> list[TokenRow]:
    """The tokens that have not run out, newest first."""
    rows = ApiToken.objects.filter(expires_at__gt=shown.CLOCK).order_by("-id")
    return [
        TokenRow(**row)
        for row in rows.values("id", "created_at", "expires_at", username=F("user__username"))
    ]


def user_of(token: str) -> User | None:
    """The user that the token acts for; none if it is unknown, expired or its password changed."""
    digest = hashlib.sha256(token.encode(errors="replace")).hexdigest()
    found = (
        ApiToken.objects.select_related("user")
        .filter(digest=digest, expires_at__gt=shown.CLOCK, user__is_active=True)
        .first()
    )
    if found is None or not constant_time_compare(found.stamp, found.user.get_session_auth_hash()):
        return None
    return found.user
