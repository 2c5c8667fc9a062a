"""Settings of notifiers that need more than a reader: mail address, networks, secrets, alerts."""

from __future__ import annotations

import ipaddress
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs, unquote, urlsplit

from django.core.exceptions import ImproperlyConfigured

from scheduler_app.authoring import notifiers
from scheduler_app.config import readers

if TYPE_CHECKING:
    from collections.abc import Mapping

SECRET_PREFIX: Final = "DAYLIGHT_NOTIFIER_SECRET_"  # noqa: S105 - of names
_PORTS: Final[Mapping[str, int]] = {"smtp": 25, "smtps": 465}


def networks(name: str, *, environ: Mapping[str, str] = os.environ) -> list[str]:
    """The variable as networks, split at commas."""
    found = readers.words(name, environ=environ)
    for one in found:
        try:
            ipaddress.ip_network(one)
        except ValueError as error:
            raise ImproperlyConfigured(
                f"{name}: {error}; write 10.1.0.0/16, ::1/128, ..."
            ) from None
    return found


def secrets(*, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The secrets of notifiers that the environment has, by the end of their names."""
    return {
        name.removeprefix(SECRET_PREFIX): value
        for name, value in environ.items()
        if name.startswith(SECRET_PREFIX) and value
    }


def mail_server(name: str, *, environ: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """Django's settings for the mail server ``smtp[s]://[user:password@]host[:port][?tls=1]``."""
    parts = urlsplit(readers.text(name, environ=environ))
    if not parts.scheme:
        return {"host": "", "port": 25, "user": "", "password": "", "tls": False, "ssl": False}
    try:
        port = parts.port
    except ValueError:
        port = 0
    if parts.scheme not in _PORTS or not parts.hostname or port == 0:
        raise ImproperlyConfigured(
            f"{name} must be smtp://host:port?tls=1 or smtps://host:port, with user:password@ if the"
            " server asks for them"
        )
    tls = parse_qs(parts.query).get("tls", ["0"])[0] == "1"
    return {
        "host": parts.hostname,
        "port": port or (587 if tls else _PORTS[parts.scheme]),
        "user": unquote(parts.username or ""),
        "password": unquote(parts.password or ""),
        "tls": tls and parts.scheme == "smtp",
        "ssl": parts.scheme == "smtps",
    }


def alerts(name: str, *, environ: Mapping[str, str] = os.environ) -> list[dict[str, Any]]:
    """The installation's notifiers: a JSON list of them, or ``@`` and the file that has it."""
    raw = readers.text(name, environ=environ)
    if not raw:
        return []
    try:
        if raw.startswith("@"):
            raw = Path(raw[1:]).expanduser().read_text(encoding="utf-8")
        given = json.loads(raw)
        if not isinstance(given, list):
            raise ValueError("a list of notifiers is wanted")
        return [notifiers.from_description(one).described() for one in given]
    except (OSError, ValueError) as error:
        raise ImproperlyConfigured(
            f'{name}: {error}. Write [{{"kind": "email", "to": ["ops@example.com"]}}], or @FILE with'
            " the same (docs/alerts.md)."
        ) from None
