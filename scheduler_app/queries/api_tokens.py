"""Whose token this is."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from django.contrib.auth.models import User
from django.db import connection
from django.utils.crypto import constant_time_compare

from scheduler_app.models import ApiToken
from scheduler_app.processes import database
from scheduler_app.queries import lens, shown

if TYPE_CHECKING:
    from datetime import datetime

    from django.db.models import QuerySet

    from scheduler_app.queries.filters import TokenFilter
    from scheduler_app.queries.scope import Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRow:
    """One token that is good now, but for the token itself."""

    id: int
    username: str
    created_at: datetime
    expires_at: datetime


def _rows(scope: Scope) -> QuerySet[ApiToken]:
    live = ApiToken.objects.filter(expires_at__gt=shown.CLOCK)
    return scope.shared(live.annotate(filter_code=lens.NEVER_FILTERED))


NOUN: Final[lens.Noun[TokenRow]] = lens.Noun(
    name="tokens",
    model=ApiToken,
    row=TokenRow,
    rows=_rows,
    columns={"username": "user__username"},
)


def page(asked: TokenFilter, scope: Scope) -> lens.Page[TokenRow]:
    """One page of the tokens that have not run out."""
    return lens.page(NOUN, asked, scope)


def user_of(token: str) -> User | None:
    """The user that the token acts for; none if it is unknown, expired or its password changed."""
    digest = hashlib.sha256(token.encode(errors="replace")).hexdigest()
    # Asked with every call of the API: to write the statement anew would cost more than all else here.
    with database.prepared(connection) as raw:
        row = raw.execute(_OWNER, [digest]).fetchone()
    if row is None:
        return None
    stamp, *values = row
    user = User.from_db(connection.alias, _COLUMNS, values)
    return user if constant_time_compare(stamp, user.get_session_auth_hash()) else None


_COLUMNS: Final = [field.attname for field in User._meta.concrete_fields]  # noqa: SLF001 - public, for all its name
_OWNER: Final = (
    f"SELECT t.stamp, {', '.join(f'u.{name}' for name in _COLUMNS)}"  # noqa: S608 - names of Django's
    " FROM api_token t JOIN auth_user u ON u.id = t.user_id"
    " WHERE t.digest = %s::text AND t.expires_at > clock_timestamp() AND u.is_active"
)
