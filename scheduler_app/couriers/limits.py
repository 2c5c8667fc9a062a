"""How far a courier goes: which networks it may reach, and how long it waits."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from django.conf import settings

if TYPE_CHECKING:
    from scheduler_app.couriers.destinations import Network

BODY_BYTES_MAX = 256 * 1024  # of a request
TRIES_MAX = 3  # of a callback's notifier, within the time that the callback has
PAUSES_S = (1.0, 4.0)  # between them


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The installation's, or a test's."""

    allowed: tuple[Network, ...] = ()  # networks that are not public
    timeout_s: float = 10.0  # of a whole request

    @classmethod
    def of_installation(cls) -> Limits:
        """As the settings say."""
        return cls(
            allowed=tuple(map(ipaddress.ip_network, settings.NOTIFIER_NETWORKS)),
            timeout_s=settings.NOTIFIER_TIMEOUT_S,
        )
