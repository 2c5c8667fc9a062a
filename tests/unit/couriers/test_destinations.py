from __future__ import annotations

import ipaddress
import socket
from typing import Any

import pytest

from scheduler_app.couriers import destinations
from scheduler_app.couriers.errors import NotReached, NotSendable

PRIVATE = (
    "127.0.0.1",
    "127.8.8.8",
    "0.0.0.0",
    "10.0.0.1",
    "172.16.3.4",
    "192.168.1.1",
    "169.254.169.254",
    "100.64.0.1",
    "192.0.0.8",
    "198.18.0.1",
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "fe80::1",
    "fe80::1%eth0",
    "fc00::1",
    "fd00:ec2::254",
    "ff02::1",
    "::ffff:127.0.0.1",
    "::ffff:169.254.169.254",
    "::ffff:a00:1",
    "::127.0.0.1",
    "64:ff9b::7f00:1",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b:1::a00:1",
    "2002:7f00:1::",
    "2002:a9fe:a9fe::1",
    "2001:0:7f00:1::",
)
PUBLIC = ("8.8.8.8", "1.1.1.1", "2606:4700:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808")


@pytest.mark.parametrize("address", PRIVATE)
def test_an_address_of_this_network_is_refused_in_whatever_form(address: str) -> None:
    with pytest.raises(NotSendable, match="DAYLIGHT_NOTIFIER_NETWORKS"):
        destinations.check(address, allowed=())


@pytest.mark.parametrize("address", PUBLIC)
def test_a_public_address_is_allowed_over_https_alone(address: str) -> None:
    destinations.check(address, allowed=())
    with pytest.raises(NotSendable, match="not be encrypted"):
        destinations.check(address, allowed=(), is_encrypted=False)


@pytest.mark.parametrize("address", ["10.1.2.3", "::ffff:10.1.2.3"])
def test_a_network_that_the_installation_names_is_allowed_also_unencrypted(address: str) -> None:
    allowed = (ipaddress.ip_network("10.1.0.0/16"), ipaddress.ip_network("fd00::/8"))
    destinations.check(address, allowed=allowed, is_encrypted=False)
    with pytest.raises(NotSendable):
        destinations.check("10.2.0.1", allowed=allowed)


@pytest.mark.parametrize(
    "written", ["2130706433", "0x7f000001", "017700000001", "127.1", "0177.0.0.1", "127.0.0.1"]
)
def test_a_number_in_another_form_is_what_it_resolves_to(written: str) -> None:
    with pytest.raises(NotSendable, match=r"127\.0\.0\.1 is an address of this network"):
        destinations.connect(written, 443, timeout_s=1, allowed=(), is_encrypted=True)


def _answers(*addresses: str) -> Any:
    def resolve(host: str, port: int, **more: Any) -> list[Any]:
        del host, more
        return [
            (
                socket.AF_INET6 if ":" in one else socket.AF_INET,
                socket.SOCK_STREAM,
                6,
                "",
                (one, port, 0, 0) if ":" in one else (one, port),
            )
            for one in addresses
        ]

    return resolve


def test_one_bad_address_among_good_ones_refuses_the_name() -> None:
    with pytest.raises(NotSendable, match=r"169\.254\.169\.254"):
        destinations.connect(
            "two.example",
            443,
            timeout_s=1,
            allowed=(),
            is_encrypted=True,
            resolve=_answers("8.8.8.8", "169.254.169.254"),
        )


def test_the_connection_goes_to_the_address_that_was_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A name that answers otherwise a moment later is asked once only."""
    asked: list[str] = []
    gone: list[Any] = []

    def resolve(host: str, port: int, **more: Any) -> list[Any]:
        asked.append(host)
        found: list[Any] = _answers("8.8.8.8" if len(asked) == 1 else "127.0.0.1")(host, port)
        return found

    monkeypatch.setattr(socket.socket, "connect", lambda self, place: gone.append(place))
    destinations.connect(
        "rebinds.example", 443, timeout_s=1, allowed=(), is_encrypted=True, resolve=resolve
    ).close()
    assert (asked, gone) == (["rebinds.example"], [("8.8.8.8", 443)])


def test_a_name_that_is_not_found_may_be_tried_again() -> None:
    def resolve(*arguments: Any, **more: Any) -> list[Any]:
        raise socket.gaierror(8, "not known")

    with pytest.raises(NotReached, match=r"nowhere\.example was not found"):
        destinations.connect(
            "nowhere.example", 443, timeout_s=1, allowed=(), is_encrypted=True, resolve=resolve
        )
