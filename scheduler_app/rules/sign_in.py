"""How many wrong passwords are borne, from where and for whom, before the next one has to wait."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address, ip_network
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

NETWORK_BITS: Final = 64  # of an IPv6 address: who has one has all of its network


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Failures that are borne within a window; what is past it counts no longer."""

    window_s: float
    own_max: int  # of one name from one address
    wide_max: int  # of one name from everywhere, and of one address for all names


@dataclass(frozen=True, slots=True, kw_only=True)
class Failures:
    """Ages in seconds of the failures within the window, newest first."""

    own: Sequence[float]
    of_name: Sequence[float]
    of_address: Sequence[float]
    is_known: bool  # this name has signed in from this address lately


def wait_s(seen: Failures, limits: Limits) -> float:
    """Seconds until a password is looked at again; 0: it is now.

    What has to wait is not looked at and not counted, so nobody waits longer than a window, however often
    they ask. Where a name has signed in lately, only its own failures there count: what strangers do
    keeps nobody out who comes from where they always come from.
    """
    waits = [_wait_s(seen.own, limits.own_max, limits.window_s)]
    if not seen.is_known:
        waits += [
            _wait_s(seen.of_name, limits.wide_max, limits.window_s),
            _wait_s(seen.of_address, limits.wide_max, limits.window_s),
        ]
    return max(waits)


def _wait_s(ages: Sequence[float], limit: int, window_s: float) -> float:
    return max(0.0, window_s - ages[limit - 1]) if len(ages) >= limit else 0.0


def name_of(username: str) -> str:
    """The name as failures are counted by it, whether such an account exists or not."""
    return username.casefold()


def address_of(address: str) -> str:
    """The address as failures are counted by it; empty where there is none."""
    try:
        found = ip_address(address)
    except ValueError:
        return ""
    if isinstance(found, IPv6Address):
        if found.ipv4_mapped is not None:
            return str(found.ipv4_mapped)
        return str(ip_network((int(found), NETWORK_BITS), strict=False))
    return str(found)
