"""Connections: which ids, addresses and extras they have, and how they are written in one line."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode

from scheduler_app.rules.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Mapping

MASK: Final = "***"
ID: Final = re.compile(r"(?!\.{1,2}\Z)[\w.-]{1,250}")
ID_RULE: Final = "1 to 250 letters, digits, '_', '.' or '-' (not '.' or '..' alone)"
TEXT_CHARACTERS_MAX: Final = 5000
EXTRA_BYTES_MAX: Final = 64 * 1024  # as JSON
PORT_MAX: Final = 65_535
_TELLING: Final = re.compile(
    r"pass|secret|token|key|credential|private|auth|cookie|certificate|signature", re.IGNORECASE
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionParts:
    """All that a connection says, in clear."""

    conn_type: str = ""
    host: str = ""
    login: str = ""
    schema: str = ""
    port: int | None = None
    description: str = ""
    password: str = field(default="", repr=False)
    extra: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def secrets(self) -> dict[str, Any]:
        """What is sealed of it."""
        return {"password": self.password, "extra": dict(self.extra)}

    def masked(self) -> list[Any]:
        """What is masked wherever it is printed: the password, and extras whose name says so.

        Not all of them: a log in which every "require" is hidden, for ``{"sslmode": "require"}``, tells
        nothing any more.
        """
        telling = [value for name, value in self.extra.items() if _TELLING.search(name)]
        return [self.password, *telling]


def check_id(connection_id: object) -> str:
    """The id of a connection. Raises ``InvalidInput``."""
    if isinstance(connection_id, str) and ID.fullmatch(connection_id):
        return connection_id
    raise InvalidInput(
        f"{connection_id!r:.300} is no id of a connection: {ID_RULE}.", field="connection_id"
    )


def check(parts: ConnectionParts) -> ConnectionParts:
    """The same. Raises ``InvalidInput``, which never quotes what is secret."""
    if not ID.fullmatch(parts.conn_type):
        raise InvalidInput(f"conn_type: {ID_RULE}.", field="conn_type")
    for name in ("host", "login", "schema", "description", "password"):
        text = getattr(parts, name)
        if len(text) > TEXT_CHARACTERS_MAX or not is_storable(text):
            raise InvalidInput(
                f"{name}: a text of at most {TEXT_CHARACTERS_MAX} characters without NUL.",
                field=name,
            )
    if parts.port is not None and not 0 <= parts.port <= PORT_MAX:
        raise InvalidInput(f"port: a number from 0 to {PORT_MAX}.", field="port")
    if len(json.dumps(dict(parts.extra), ensure_ascii=False).encode(errors="replace")) > (
        EXTRA_BYTES_MAX
    ):
        raise InvalidInput(f"extra: at most {EXTRA_BYTES_MAX:,} bytes as JSON.", field="extra")
    return parts


def is_storable(text: str) -> bool:
    """Whether the database takes the text."""
    return "\x00" not in text and not any(0xD800 <= ord(one) <= 0xDFFF for one in text)


def extra_of(text: str | None) -> dict[str, Any]:
    """The extras that a JSON text stands for. Raises ``InvalidInput``, which does not quote it."""
    if text is None or not text.strip():
        return {}
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or not is_storable(json.dumps(found, ensure_ascii=False)):
        raise InvalidInput('extra: give a JSON object as a text, as {"role": "x"}.', field="extra")
    return found


def kept(given: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    """The extras that are given; where one is masked, as an answer showed it, what there was."""
    return {
        name: before[name] if value == MASK and name in before else value
        for name, value in given.items()
    }


def uri(parts: ConnectionParts) -> str:
    """The connection in one line, everything quoted: ``postgres://ana:...@db:5432/sales?sslmode=require``."""
    who = quote(parts.login, safe="")
    if parts.password:
        who += f":{quote(parts.password, safe='')}"
    where = quote(parts.host, safe="") + ("" if parts.port is None else f":{parts.port}")
    texts = {
        name: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for name, value in parts.extra.items()
    }
    return (
        f"{parts.conn_type}://{who}{'@' if who else ''}{where}"
        f"{'/' + quote(parts.schema, safe='') if parts.schema else ''}"
        f"{'?' + urlencode(texts) if texts else ''}"
    )
