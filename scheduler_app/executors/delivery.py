"""What a delivery carries, the same over every carrier."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

if TYPE_CHECKING:
    from scheduler_app.transitions.attempt import Message

IDENTITY: Final = re.compile(r"[0-9A-Za-z:-]{1,250}")  # see transitions.identity
BIGINT_MAX: Final = 2**63 - 1


def arguments(message: Message, *, identity: str) -> list[Any]:
    """The delivery's arguments: attempt id, ti id, fence, lease token, database identity."""
    return [
        str(message.attempt_id),
        message.ti_id,
        message.fence,
        message.lease_token,
        identity,
    ]


def is_delivery(what: Any) -> bool:
    """Whether it is the arguments of a delivery, whatever a stranger's message makes of them."""
    try:
        attempt_id, ti_id, fence, token, identity = what
        return (
            attempt_id == str(UUID(attempt_id))
            and IDENTITY.fullmatch(identity) is not None
            and all(type(n) is int and 0 <= n <= BIGINT_MAX for n in (ti_id, fence, token))
        )
    except (TypeError, ValueError, AttributeError):
        return False
