"""The reason that an act needs: a person reads it later, in the audit and beside what it ended."""

from __future__ import annotations

from typing import Final

from scheduler_app.rules.errors import InvalidInput

REASON_CHARACTERS_MAX: Final = 1000


def check_reason(reason: str) -> str:
    """The reason without blanks around it. Raises ``InvalidInput`` for an empty or too long one."""
    text = reason.strip()
    if not text:
        raise InvalidInput("Say why: the reason is empty.", field="reason")
    if len(text) > REASON_CHARACTERS_MAX:
        message = (
            f"The reason has {len(text)} characters; at most {REASON_CHARACTERS_MAX} are kept."
        )
        raise InvalidInput(message, field="reason")
    if "\x00" in text:
        raise InvalidInput("The reason has a NUL in it; take it out.", field="reason")
    return text
