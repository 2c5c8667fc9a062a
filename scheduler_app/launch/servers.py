"""The servers of a stack: those that were given by address, and embedded ones for the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from scheduler_app.launch import embedded
from scheduler_app.launch.addresses import Addresses
from scheduler_app.launch.components import ending

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from scheduler_app.launch.embedded import Server

POSTGRES: Final = "postgres"
VALKEY: Final = "valkey"
STOP_ORDER: Final = (VALKEY, POSTGRES)


class Servers:
    """PostgreSQL and Valkey as this stack needs them. Call it from the main thread."""

    def __init__(self, data_dir: Path, environ: Mapping[str, str], *, executor: str) -> None:
        self._data_dir = data_dir
        self._executor = executor
        self._given = {
            name: environ.get(name, "") for name in ("DATABASE_URL", "BROKER_URL", "CACHE_URL")
        }
        if executor == "local":
            self._given["BROKER_URL"] = ""  # nobody would use it
        self._embedded: dict[str, Server] = {}

    def start(self) -> list[str]:
        """What was not given runs embedded; a line on each. Raises ``EmbeddedFailed``."""
        lines = []
        if not self._given["DATABASE_URL"]:
            lines.append(self._start(POSTGRES))
        if self._executor != "local" and not (
            self._given["BROKER_URL"] and self._given["CACHE_URL"]
        ):
            lines.append(self._start(VALKEY))
        return lines

    def heal(self) -> list[str]:
        """What exited runs again; a line on each. Raises ``EmbeddedFailed``."""
        lines = []
        for name, server in [*self._embedded.items()]:
            code = server.process.poll()
            if code is not None:
                lines.append(f"{server.name} ended ({ending(code)}); it is started again")
                server.stop()  # takes its socket folder away
                lines.append(self._start(name))
        return lines

    def addresses(self) -> Addresses:
        """Where the servers are."""
        postgres, valkey = self._embedded.get(POSTGRES), self._embedded.get(VALKEY)
        return Addresses(
            database_url=self._given["DATABASE_URL"] or (postgres.url if postgres else ""),
            broker_url=self._given["BROKER_URL"] or (valkey.url if valkey else ""),
            cache_url=self._given["CACHE_URL"] or (valkey.url if valkey else ""),
            executor=self._executor,
        )

    def stop(self) -> None:
        """No embedded server runs: Valkey ended first, then PostgreSQL."""
        for name in STOP_ORDER:
            server = self._embedded.pop(name, None)
            if server is not None:
                server.stop()

    def _start(self, name: str) -> str:
        start = embedded.start_postgres if name == POSTGRES else embedded.start_valkey
        server = start(self._data_dir)
        self._embedded[name] = server
        line = f"{server.name} runs (process {server.process.pid})"
        if server.folder is not None and not server.folder.is_relative_to(self._data_dir):
            line += (
                f"; its account cannot reach {self._data_dir}, so its files are in {server.folder}"
            )
        return line
