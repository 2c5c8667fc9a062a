"""Which addresses a request may go to.

Every address of a name is looked at, and one of just those is connected to; so a name that answers
otherwise a moment later changes nothing.
"""

from __future__ import annotations

import ipaddress
import socket
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from scheduler_app.couriers.errors import NotReached, NotSendable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    Address = ipaddress.IPv4Address | ipaddress.IPv6Address
    Network = ipaddress.IPv4Network | ipaddress.IPv6Network
    Resolve = Callable[..., list[Any]]

# Only another way to write an IPv4 address, which is where a router or the system would go.
_WRITTEN_SO: Final = (
    ipaddress.IPv6Network("::ffff:0:0/96"),
    ipaddress.IPv6Network("64:ff9b::/96"),
    ipaddress.IPv6Network("::/96"),
)
# Not public, whatever the library says of parts of them.
_REFUSED: Final = (
    ipaddress.IPv4Network("192.0.0.0/24"),
    ipaddress.IPv6Network("64:ff9b:1::/48"),
)


def check(address: str, *, allowed: Sequence[Network], is_encrypted: bool = True) -> None:
    """Nothing, if a request may go to this address. Raises ``NotSendable``.

    Public addresses, and what the installation allows; unencrypted only to the latter.
    """
    found = ipaddress.ip_address(address.partition("%")[0])
    meant = _meant(found)
    if _is_in(found, allowed) or all(_is_in(one, allowed) for one in meant):
        return
    if not all(_is_public(one) or _is_in(one, allowed) for one in meant):
        raise NotSendable(
            f"{found} is an address of this network or host, where notifiers do not go. Name its"
            " network in DAYLIGHT_NOTIFIER_NETWORKS if they shall."
        )
    if not is_encrypted:
        raise NotSendable(
            f"The request to {found} would not be encrypted. Use https://; plain http is only for"
            " the networks in DAYLIGHT_NOTIFIER_NETWORKS."
        )


def connect(
    host: str,
    port: int,
    *,
    timeout_s: float,
    allowed: Sequence[Network],
    is_encrypted: bool,
    resolve: Resolve = socket.getaddrinfo,
) -> socket.socket:
    """A connection to one of the host's addresses, all of which were checked.

    Raises ``NotSendable`` if a single one of them is refused, and ``NotReached``.
    """
    try:
        found = resolve(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise NotReached(f"The address of {host} was not found: {error}.") from error
    for _, _, _, _, place in found:
        check(str(place[0]), allowed=allowed, is_encrypted=is_encrypted)
    last: OSError | None = None
    for family, kind, protocol, _, place in found:
        made = socket.socket(family, kind, protocol)
        try:
            made.settimeout(timeout_s)
            made.connect(place)
        except OSError as error:
            made.close()
            last = error
            continue
        return made
    raise NotReached(f"{host}:{port} does not answer: {last or 'it has no address'}.")


_guarded: Final = threading.local()
_hook_lock: Final = threading.Lock()
_is_hooked = False


@contextmanager
def guarded(allowed: Sequence[Network]) -> Iterator[list[str]]:
    """In this thread no socket connects to an address that ``check`` refuses, whoever makes it.

    For libraries that make their own connections, redirects and all; to them it looks as if the
    system had refused. Yields what was refused, and why.
    """
    _hook()
    refused: list[str] = []
    _guarded.now = (allowed, refused)
    try:
        yield refused
    finally:
        _guarded.now = None


def _hook() -> None:
    global _is_hooked  # noqa: PLW0603 - the interpreter takes a hook for good
    with _hook_lock:
        if not _is_hooked:
            sys.addaudithook(_on_event)
            _is_hooked = True


def _on_event(event: str, arguments: tuple[Any, ...]) -> None:
    if event != "socket.connect":
        return
    now = getattr(_guarded, "now", None)
    if now is None:
        return
    allowed, refused = now
    try:
        _check_place(arguments[1], allowed)
    except NotSendable as error:
        refused.append(str(error))
        raise PermissionError(str(error)) from None


def _check_place(place: object, allowed: Sequence[Network]) -> None:
    if not isinstance(place, tuple):  # a socket of this host, or another kind of network
        raise NotSendable(f"A connection to {place!r} is none that a notifier makes.")
    try:
        ipaddress.ip_address(str(place[0]).partition("%")[0])
    except ValueError:
        raise NotSendable(f"{place[0]!r} was not looked up before it was connected to.") from None
    check(str(place[0]), allowed=allowed)


def _is_in(address: Address, networks: Sequence[Network]) -> bool:
    return any(address.version == one.version and address in one for one in networks)


def _is_public(address: Address) -> bool:
    return (
        address.is_global
        and not (address.is_multicast or address.is_reserved or address.is_unspecified)
        and not _is_in(address, _REFUSED)
    )


def _meant(address: Address) -> list[Address]:
    """Where a request to the address ends up, and what it passes on its way."""
    if isinstance(address, ipaddress.IPv4Address):
        return [address]
    if _is_in(address, _WRITTEN_SO):
        return [ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)]
    found: list[Address] = [address]
    if address.sixtofour is not None:
        found.append(address.sixtofour)
    if address.teredo is not None:
        found += address.teredo
    return found
