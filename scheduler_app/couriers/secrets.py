"""Secrets of notifiers: found by name where they are used, and hidden in what is said of it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from django.conf import settings

from scheduler_app.authoring.secret import KEY
from scheduler_app.couriers.errors import NotSendable
from scheduler_app.processes import variables
from scheduler_app.processes.sealing import CannotOpen

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import psycopg

MASK: Final = "***"
MASKED_CHARACTERS_MIN: Final = 4  # what is shorter would hide half of every text


class Secrets:
    """Finds secrets: the environment's, else ``variable`` of that name (``None``: there is none)."""

    def __init__(self, variable: Callable[[str], object]) -> None:
        self._variable = variable
        self._found: set[str] = set()

    def text(self, value: Any) -> str:
        """The value, or the secret that it names. Raises ``NotSendable`` if there is none."""
        if not isinstance(value, dict):
            return str(value)
        name = str(value[KEY])
        found: object = settings.NOTIFIER_SECRETS.get(environment_name(name))
        if found is None:
            found = self._variable(name)
        if not isinstance(found, str) or not found:
            raise NotSendable(
                f"There is no secret {name!r}: set DAYLIGHT_NOTIFIER_SECRET_"
                f"{environment_name(name)} where this is sent, or a variable {name!r} that is a text."
            )
        self._found |= {found, *_parts(found)}
        return found

    def texts(self, values: Mapping[str, Any]) -> dict[str, str]:
        """Each value, or the secret that it names."""
        return {name: self.text(value) for name, value in values.items()}

    def hidden(self, text: str) -> str:
        """The text without any secret that was found."""
        for secret in sorted(self._found, key=len, reverse=True):
            if len(secret) >= MASKED_CHARACTERS_MIN:
                text = text.replace(secret, MASK)
        return text


def of_variables(
    ask: Callable[[Callable[[psycopg.Connection[Any]], object]], object],
) -> Callable[[str], object]:
    """How secrets are found among the variables, over the connection that ``ask`` has."""

    def read(connection: psycopg.Connection[Any], name: str) -> object:
        try:
            found = variables.read(connection, name)
        except CannotOpen as error:
            raise NotSendable(f"The secret {name!r} cannot be opened here: {error}") from None
        return None if found is None else found.value

    return lambda name: ask(lambda connection: read(connection, name))


def environment_name(name: str) -> str:
    """The name as the end of an environment variable's."""
    return re.sub(r"[^A-Z0-9]", "_", name.upper())


def _parts(secret: str) -> set[str]:
    """What errors may quote of an address: the path alone, or user and password."""
    try:
        parts = urlsplit(secret)
    except ValueError:
        return set()
    if not parts.scheme or not parts.netloc:
        return set()
    query = f"{parts.path}?{parts.query}" if parts.query else parts.path
    words = {query, parts.path, parts.query, parts.password or "", parts.username or ""}
    return words | {word for word in parts.path.split("/") if len(word) > 7}
