"""Whose token this is."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from django.utils.crypto import constant_time_compare

from scheduler_app.models import ApiToken
from scheduler_app.queries import shown

if TYPE_CHECKING:
    from django.contrib.auth.models import User


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
