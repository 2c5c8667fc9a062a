"""System checks: settings that contradict each other stop a process before it starts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.core import checks

if TYPE_CHECKING:
    from collections.abc import Sequence


@checks.register("daylight")
def timing_makes_sense(app_configs: object, **more: Any) -> Sequence[checks.CheckMessage]:
    """The lease is renewed well before its holder stops trusting it, and that before it ends."""
    del app_configs, more
    return timing_faults(
        ttl_s=settings.LEASE_TTL_S,
        renew_interval_s=settings.LEASE_RENEW_INTERVAL_S,
        deadline_s=settings.LEASE_DEADLINE_S,
        heartbeat_interval_s=settings.HEARTBEAT_INTERVAL_S,
        dead_after_s=settings.HEARTBEAT_DEAD_AFTER_S,
    )


def timing_faults(
    *,
    ttl_s: float,
    renew_interval_s: float,
    deadline_s: float,
    heartbeat_interval_s: float,
    dead_after_s: float,
) -> list[checks.CheckMessage]:
    """One message for each contradiction between the durations, all in seconds."""
    faults: list[checks.CheckMessage] = []
    if renew_interval_s * 2 > deadline_s:
        faults.append(
            checks.Error(
                f"LEASE_RENEW_INTERVAL_S ({renew_interval_s:g}) leaves no second chance to renew"
                f" before LEASE_DEADLINE_S ({deadline_s:g}).",
                hint="Set only DAYLIGHT_LEASE_TTL; the rest derives from it.",
                id="daylight.E001",
            )
        )
    if deadline_s >= ttl_s:
        faults.append(
            checks.Error(
                f"LEASE_DEADLINE_S ({deadline_s:g}) must be shorter than the lease"
                f" (DAYLIGHT_LEASE_TTL={ttl_s:g}): a holder must stop before another may start.",
                hint="Set only DAYLIGHT_LEASE_TTL; the rest derives from it.",
                id="daylight.E002",
            )
        )
    if heartbeat_interval_s * 2 > dead_after_s:
        faults.append(
            checks.Error(
                f"HEARTBEAT_INTERVAL_S ({heartbeat_interval_s:g}) must be at most half of"
                f" HEARTBEAT_DEAD_AFTER_S ({dead_after_s:g}): one late beat is not a death.",
                hint="Set only DAYLIGHT_LEASE_TTL; the rest derives from it.",
                id="daylight.E003",
            )
        )
    return faults


@checks.register("daylight")
def secret_key_is_shared(app_configs: object, **more: Any) -> Sequence[checks.CheckMessage]:
    """The web processes of a stack sign with one key."""
    del app_configs, more
    if not (settings.IS_WEB and settings.SECRET_KEY_IS_OWN):
        return []
    return [
        checks.Warning(
            "This web process made its own secret key: logins end with it.",
            hint="Set DAYLIGHT_SECRET_KEY to the same long random text on every host.",
            id="daylight.W001",
        )
    ]
