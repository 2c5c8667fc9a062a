"""Secrets in what attempts print: every log is stored with them masked, whoever printed them.

The mask keeps the length of what it hides, since places in a log are counted in bytes.
"""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Any, Final

from scheduler_app.processes.connections import open_part
from scheduler_app.processes.sealing import CannotOpen, open_sealed
from scheduler_app.rules import values, variables
from scheduler_app.rules.connections import ConnectionParts
from scheduler_app.rules.errors import InvalidInput
from scheduler_app.transitions.connection import read_sealed, sealed_stamp
from scheduler_app.transitions.variable import read_secrets, secrets_stamp

if TYPE_CHECKING:
    import psycopg

STAR: Final = b"*"

logger = logging.getLogger(__name__)


class Masks:
    """The secrets that this process knows of: all that are stored, and what attempts here have read."""

    def __init__(self) -> None:
        self._forms: set[bytes] = set()
        self._pattern: re.Pattern[bytes] | None = None
        self._stamp: tuple[Any, ...] = ()

    def add(self, value: object) -> None:
        """The value is masked from now on, as long as this process lives."""
        new = {form for text in variables.texts_of(value) for form in variables.forms_of(text)}
        if not new <= self._forms:
            self._forms |= new
            # The longest first: one secret may begin as another.
            longest = sorted(self._forms, key=len, reverse=True)
            self._pattern = re.compile(b"|".join(map(re.escape, longest)))

    def refresh(self, connection: psycopg.Connection[Any]) -> None:
        """Every stored secret that this host can open is masked. Raises ``psycopg.Error``."""
        stamp = (*secrets_stamp(connection), *sealed_stamp(connection))
        if stamp == self._stamp:
            return
        for connection_id, sealed in read_sealed(connection):
            try:
                self.add(ConnectionParts(**open_part(connection_id, sealed)).masked())
            except CannotOpen as error:
                logger.warning("a connection cannot be masked", extra={"error": str(error)})
        for key, sealed in read_secrets(connection):
            try:
                self.add(values.decode(open_sealed(key, sealed)))
            except (CannotOpen, InvalidInput) as error:
                logger.warning("a secret cannot be masked", extra={"error": str(error)})
        self._stamp = stamp

    def hide(self, data: bytes) -> bytes:
        """The bytes, as many, without secrets."""
        if self._pattern is None:
            return data
        return self._pattern.sub(lambda found: STAR * len(found[0]), data)

    def hide_text(self, text: str) -> str:
        """The text without secrets."""
        if self._pattern is None:
            return text
        raw = text.encode("utf-8", "surrogatepass")
        return self._pattern.sub(variables.MASK.encode(), raw).decode("utf-8", "surrogatepass")

    def settled(self, data: bytes) -> int:
        """How many of the bytes can be masked without knowing what follows them.

        The rest may be a secret's beginning.
        """
        if self._pattern is None:
            return len(data)
        begun = 0
        for form in self._forms:
            for size in range(min(len(form) - 1, len(data)), begun, -1):
                if data.endswith(form[:size]):
                    begun = size
                    break
        end = len(data) - begun
        for found in self._pattern.finditer(data):
            if found.start() < end < found.end():  # a whole one, that may be a longer one's part
                return found.start()
        return end
