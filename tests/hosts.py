"""Hosts of a test's own: network namespaces on one switch, each with a name, an address and a cable.

Nothing leads out of the switch: the addresses are of the range that is kept for documents. A process
of a host keeps its pid and its files, which all hosts share; its network and its host name are the
host's. What is cut here is cut in the kernel: packets vanish, and nobody is told.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
from contextlib import contextmanager
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

SUBNET: Final = "192.0.2"
NOBODY: Final = "02:00:00:00:00:fe"  # a network card that no host has
CLONE_NEWNET: Final = 0x40000000
_setns: Final = getattr(ctypes.CDLL(None, use_errno=True), "setns", None)


class NoHosts(RuntimeError):
    """The kernel, or the rights of this user, allow no namespaces; the text says which."""


class Network:
    """A switch and what hangs on it; all of it is gone after the block. Raises ``NoHosts``."""

    def __init__(self) -> None:
        if os.geteuid() != 0 or _setns is None:
            raise NoHosts("only root can make network namespaces")
        self._prefix = f"daylight-{os.getpid()}"
        self.switch = f"{self._prefix}-switch"
        self._namespaces: list[str] = []
        self.hosts: dict[str, Host] = {}

    def __enter__(self) -> Self:
        try:
            self.add_namespace(self.switch)
            _ip("-n", self.switch, "link", "add", "switch", "type", "bridge")
            _ip("-n", self.switch, "link", "set", "switch", "up")
        except (OSError, subprocess.CalledProcessError) as error:
            self._remove()
            said = getattr(error, "stderr", "") or str(error)
            raise NoHosts(f"no network namespaces can be made here: {said.strip()}") from None
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._remove()

    def add(self, name: str) -> Host:
        """One more host, connected to all others."""
        host = Host(self, name, number=len(self.hosts) + 1)
        self.hosts[name] = host
        return host

    def heal(self) -> None:
        """Every cable is in, every host reaches every other."""
        for host in self.hosts.values():
            host.plug()
            host.find_again()

    def add_namespace(self, name: str) -> None:
        """A namespace with nothing in it but its loopback."""
        _ip("netns", "add", name)
        self._namespaces.append(name)
        _ip("-n", name, "link", "set", "lo", "up")

    def namespace_of(self, host: str) -> str:
        """What the kernel calls the host."""
        return f"{self._prefix}-{host}"

    def _remove(self) -> None:
        for name in self._namespaces:
            with contextlib.suppress(subprocess.CalledProcessError):
                _ip("netns", "delete", name)  # cables go with their ends


class Host:
    """One host. Its processes are started with ``command``, and ended by whoever started them."""

    def __init__(self, network: Network, name: str, *, number: int) -> None:
        self.name = name
        self.address = f"{SUBNET}.{number}"
        self.namespace = network.namespace_of(name)
        self._switch = network.switch
        self._port = f"port-{number}"  # the cable's end at the switch
        self._lost: set[str] = set()
        network.add_namespace(self.namespace)
        _ip(
            *("-n", self._switch, "link", "add", self._port, "type", "veth"),
            *("peer", "name", "eth0", "netns", self.namespace),
        )
        _ip("-n", self._switch, "link", "set", self._port, "master", "switch", "up")
        _ip("-n", self.namespace, "address", "add", f"{self.address}/24", "dev", "eth0")
        _ip("-n", self.namespace, "link", "set", "eth0", "up")

    def command(self, *arguments: str, disk: tuple[Path, Path] | None = None) -> list[str]:
        """The command line that runs this one here, under the same pid from beginning to end.

        ``disk``: what the process finds at the second path is what everybody else has at the first.
        """
        mount = f"mount --bind {quote(str(disk[0]))} {quote(str(disk[1]))} && " if disk else ""
        return [
            # `ip netns exec` gives a table of mounts of its own, too.
            *("ip", "netns", "exec", self.namespace, "unshare", "--uts"),
            *("sh", "-c", f'hostname "$0" && {mount}exec "$@"', self.name, *arguments),
        ]

    @contextmanager
    def entered(self) -> Iterator[None]:
        """What this thread opens meanwhile belongs to the host, and goes on doing so."""
        assert _setns is not None, "the network was made"
        with (
            Path("/proc/thread-self/ns/net").open("rb") as home,
            Path(f"/run/netns/{self.namespace}").open("rb") as there,
        ):
            _enter(there.fileno())
            try:
                yield
            finally:
                _enter(home.fileno())

    # -- what a test does to it -----------------------------------------------------------------

    def unplug(self) -> None:
        """Its cable is out at the switch's end."""
        _ip("-n", self._switch, "link", "set", self._port, "down")

    def plug(self) -> None:
        """Its cable is in."""
        _ip("-n", self._switch, "link", "set", self._port, "up")

    def lose(self, other: Host) -> None:
        """What it sends to the other host reaches nobody; the other way is open."""
        _ip(
            *("-n", self.namespace, "neighbour", "replace", other.address, "lladdr", NOBODY),
            *("dev", "eth0", "nud", "permanent"),
        )
        self._lost.add(other.address)

    def part_from(self, other: Host) -> None:
        """The two reach each other no more; each reaches all others."""
        self.lose(other)
        other.lose(self)

    def find_again(self) -> None:
        """It reaches whom it has lost."""
        for address in self._lost:
            _ip("-n", self.namespace, "neighbour", "delete", address, "dev", "eth0")
        self._lost.clear()


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


def _enter(descriptor: int) -> None:
    assert _setns is not None
    if _setns(descriptor, CLONE_NEWNET) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
