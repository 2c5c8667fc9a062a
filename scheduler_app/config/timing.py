"""Durations that contradict each other: a stack that could not be safe does not start."""

from __future__ import annotations


def contradictions(
    *,
    ttl_s: float,
    renew_interval_s: float,
    deadline_s: float,
    heartbeat_interval_s: float,
    dead_after_s: float,
) -> list[str]:
    """One line for each contradiction between the durations, all in seconds: what, why, the remedy."""
    faults: list[str] = []
    remedy = "Set only DAYLIGHT_LEASE_TTL; the rest derives from it."
    margin_s = ttl_s - deadline_s
    if renew_interval_s + max(margin_s, 0.0) >= ttl_s:
        faults.append(
            f"DAYLIGHT_LEASE_RENEW_INTERVAL_S={renew_interval_s:g} and the margin of"
            f" {max(margin_s, 0.0):g} s reach the lease of DAYLIGHT_LEASE_TTL={ttl_s:g}: it would run"
            f" out, or stop being trusted, before it is renewed. {remedy}"
        )
    elif renew_interval_s * 2 > deadline_s:
        faults.append(
            f"DAYLIGHT_LEASE_RENEW_INTERVAL_S={renew_interval_s:g} leaves no second chance to renew"
            f" before DAYLIGHT_LEASE_DEADLINE_S={deadline_s:g}: one slow answer would cost the lease."
            f" {remedy}"
        )
    if deadline_s >= ttl_s:
        faults.append(
            f"DAYLIGHT_LEASE_DEADLINE_S={deadline_s:g} is not shorter than the lease of"
            f" DAYLIGHT_LEASE_TTL={ttl_s:g}: a holder must stop before another may start. {remedy}"
        )
    if heartbeat_interval_s * 2 > dead_after_s:
        faults.append(
            f"DAYLIGHT_HEARTBEAT_INTERVAL_S={heartbeat_interval_s:g} is more than half of"
            f" DAYLIGHT_HEARTBEAT_DEAD_AFTER_S={dead_after_s:g}: one late beat is not a death. {remedy}"
        )
    return faults
