"""Addresses of servers: what a database URL says, and where a running stack left its own."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

if TYPE_CHECKING:
    from pathlib import Path

SERVERS_FILE: Final = "servers.json"  # in the data folder, mode 0600, while a stack runs


class BadAddress(ValueError):
    """The address of a server cannot be understood."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Addresses:
    """What every process of a stack needs to find the others; the addresses contain passwords."""

    database_url: str
    broker_url: str  # empty: the executor needs none
    cache_url: str  # empty: the database carries the hints
    executor: str = "celery"


def database_settings(url: str) -> dict[str, Any]:
    """``postgresql://user:password@host:port/name?option=value`` as Django's database settings.

    ``?host=/folder`` names a socket folder. Other options (``sslmode``, ...) go to libpq as given.
    Raises ``BadAddress``, which does not repeat the password.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise BadAddress(f"the database URL cannot be read: {error}") from None
    if parts.scheme not in {"postgresql", "postgres"}:
        raise BadAddress(
            f"the database URL starts with {parts.scheme!r}; it must start with postgresql://"
        )
    options: dict[str, Any] = dict(parse_qsl(parts.query, keep_blank_values=True))
    name = unquote(parts.path.removeprefix("/"))
    if not name:
        raise BadAddress("the database URL names no database: postgresql://user@host:port/NAME")
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": name,
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": options.pop("host", None) or unquote(parts.hostname or ""),
        "PORT": str(options.pop("port", None) or port or ""),
        "OPTIONS": options,
    }


def save(data_dir: Path, addresses: Addresses) -> None:
    """Commands that are given the same data folder find the running stack."""
    write_private(data_dir / SERVERS_FILE, json.dumps(asdict(addresses), indent=1) + "\n")


def saved(data_dir: Path) -> Addresses | None:
    """The addresses of the stack that runs in this data folder; null when none does."""
    try:
        content = (data_dir / SERVERS_FILE).read_text(encoding="utf-8")
    except OSError:
        return None
    try:
        return Addresses(**json.loads(content))
    except (ValueError, TypeError):
        return None


def forget(data_dir: Path) -> None:
    """No stack is found in this data folder any more."""
    (data_dir / SERVERS_FILE).unlink(missing_ok=True)


def write_private(path: Path, content: str) -> None:
    """The file has this content and mode 0600, wholly or not at all."""
    new = path.with_name(f"{path.name}.{os.getpid()}.new")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(content)
    new.replace(path)
