"""Look at a name and a password, unless too many were wrong."""

from __future__ import annotations

import hashlib
import logging
import math
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.contrib.auth import authenticate, get_user_model
from django.db import connection, transaction

from scheduler_app.rules import sign_in as rules
from scheduler_app.rules.errors import NotAuthenticated, TooManyFailures
from scheduler_app.transitions import sign_in as moves
from scheduler_app.transitions.audit import record_audit

if TYPE_CHECKING:
    from django.contrib.auth.models import User

logger = logging.getLogger(__name__)


def sign_in(*, username: str, password: str, address: str = "", request: Any = None) -> User:
    """The account that this password opens; ``address`` is where it is asked from.

    Too many wrong ones of a name from an address, of a name or of an address within the window have to wait
    (``settings.SIGN_IN_LIMITS``); that one has to is audited. Raises ``NotAuthenticated`` and
    ``TooManyFailures``, which says for how long.
    """
    limits = settings.SIGN_IN_LIMITS
    digest = hashlib.sha256(rules.name_of(username).encode(errors="replace")).hexdigest()
    place = rules.address_of(address)
    with transaction.atomic():  # a connection is open, whoever asks
        counted, wait_s, is_last = moves.begin(
            connection.connection, name_digest=digest, address=place, limits=limits
        )
    if counted is None:
        raise _too_many(wait_s)
    user: User | None = authenticate(request, username=username, password=password)
    if user is not None:
        moves.succeed(connection.connection, sign_in=counted)
        return user
    if is_last:
        # What was given as a name may have been the password, so only names of accounts are kept.
        accounts = get_user_model().objects.filter(username=username)
        account = username if accounts.exists() else None
        logger.warning("too many failed sign-ins", extra={"account": account, "address": place})
        record_audit(
            connection.connection,
            actor="web",
            action="sign_in.throttle",
            object_kind="sign_in",
            object_id=place or "unknown",
            reason="Too many passwords were wrong; the next ones have to wait.",
            after={"account": account, "address": place, "window_s": limits.window_s},
        )
    raise NotAuthenticated


def _too_many(wait_s: float) -> TooManyFailures:
    whole_s = math.ceil(wait_s)
    wait = f"{whole_s} s" if whole_s < 60 else f"{math.ceil(whole_s / 60)} min"
    return TooManyFailures(
        f"Too many passwords were wrong, for this name or from this address. Try again in {wait}.",
        retry_after_s=whole_s,
    )
