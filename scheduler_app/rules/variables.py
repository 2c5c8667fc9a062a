"""Variables: which keys and values they have, how they count, and which texts give a secret away."""

from __future__ import annotations

import base64
import json
from typing import Any, Final
from urllib.parse import quote

from scheduler_app.rules import values
from scheduler_app.rules.errors import InvalidInput

KEY_CHARACTERS_MAX: Final = 250
DESCRIPTION_CHARACTERS_MAX: Final = 1000
VALUE_BYTES_MAX: Final = 64 * 1024  # as JSON; what is bigger belongs elsewhere
NUMBER_MAX: Final = 2**63 - 1
MASK: Final = "***"
# Endings of addresses that mean something else than a variable.
_TAKEN: Final = frozenset({"new", "edit", "delete", "increment", "export"})
# Shorter texts stand in every log by chance: to mask them would hide the log, not the secret.
MASKED_CHARACTERS_MIN: Final = 5
LINE_CHARACTERS_MIN: Final = 12  # of one line of a secret that has several


def check_key(key: object) -> str:
    """The key of a variable. Raises ``InvalidInput``."""
    if (
        isinstance(key, str)
        and 0 < len(key) <= KEY_CHARACTERS_MAX
        and key.isprintable()
        and key == key.strip()
        and key.strip("/") == key
    ):
        if key.rpartition("/")[2] in _TAKEN:
            message = f"{key!r} is no key of a variable: {key.rpartition('/')[2]!r} means an act."
            raise InvalidInput(message, field="key")
        return key
    raise InvalidInput(
        f"{key!r:.300} is no key of a variable: it must be a text of 1 to {KEY_CHARACTERS_MAX}"
        " printable characters, without a blank or a slash at its ends.",
        field="key",
    )


def check_description(description: str) -> str:
    """The description. Raises ``InvalidInput``."""
    if len(description) > DESCRIPTION_CHARACTERS_MAX or "\x00" in description:
        raise InvalidInput(
            f"description: at most {DESCRIPTION_CHARACTERS_MAX} characters and no NUL are allowed.",
            field="description",
        )
    return description


def encode(key: str, value: object) -> Any:
    """The value as it is stored. Raises ``InvalidInput``."""
    try:
        return values.encode_result(value, VALUE_BYTES_MAX, "value")
    except InvalidInput as error:
        message = f"Variable {key!r} cannot have this value. {error}"
        raise InvalidInput(message, **{**error.extra, "field": "value"}) from None


def incremented(key: str, value: object, by: float) -> float:
    """The number that follows. Raises ``InvalidInput`` where the value is no number."""
    for number, what in ((value, f"Variable {key!r} is"), (by, "by is")):
        if isinstance(number, bool) or not isinstance(number, (int, float)):
            kind = type(number).__name__
            raise InvalidInput(
                f"{what} of type {kind}: only numbers are counted up.", field="value"
            )
    assert isinstance(value, (int, float))
    total = value + by
    if abs(total) > NUMBER_MAX or total != total:  # noqa: PLR0124 - not-a-number alone differs from itself
        raise InvalidInput(f"Variable {key!r} would be out of range.", field="value")
    return total


def are_equal(one: object, other: object) -> bool:
    """Whether they are the same value of the same type: 1 is neither true nor 1.0."""
    return type(one) is type(other) and bool(values.encode(one) == values.encode(other))


def from_json_text(key: str, value: object) -> Any:
    """The value that a text of JSON stands for; anything but a text is itself. Raises ``InvalidInput``."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError as error:
        message = f"The value of variable {key!r} is no JSON ({error}). Leave out deserialize_json."
        raise InvalidInput(message, field="deserialize_json") from None


def texts_of(value: object) -> set[str]:
    """The texts by which a secret would be known in a log: itself, or what it is made of."""
    match value:
        case str():
            return {value} if len(value) >= MASKED_CHARACTERS_MIN else set()
        case bool() | None:
            return set()
        case int() | float():
            return texts_of(str(value))
        case dict():
            return set().union(*(texts_of(each) for each in value.values()))
        case list() | tuple() | set() | frozenset():
            return set().union(*(texts_of(each) for each in value))
        case bytes():
            return texts_of(value.decode("utf-8", "backslashreplace"))
        case _:
            return set()


def forms_of(text: str) -> set[bytes]:
    """The text as bytes in each form in which programs print it: also escaped, quoted and encoded."""
    raw = text.encode("utf-8", "surrogatepass")
    forms = {
        raw,
        json.dumps(text)[1:-1].encode(),
        repr(text)[1:-1].encode("utf-8", "backslashreplace"),
        quote(raw, safe="").encode(),
        quote(raw).encode(),
        base64.b64encode(raw),
        base64.urlsafe_b64encode(raw),
    }
    lines = [line.strip() for line in text.splitlines()]
    if len(lines) > 1:  # a key file is printed line by line
        forms |= {line.encode() for line in lines if len(line) >= LINE_CHARACTERS_MIN}
    return forms
