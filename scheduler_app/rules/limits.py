"""Keys of limits: a text with names in braces, filled in from a run without any code of its flow.

``customer:{params[customer]}``, ``{flow_id}/{map_label}``. Everything fills in to some key: what is
not there is empty, what is no text is its JSON.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

KEY_CHARACTERS_MAX: Final = 250
NAMES: Final = (
    "params",
    "conf",
    "flow_id",
    "run_id",
    "task_id",
    "map_index",
    "map_label",
    "ds",
)
DEEP: Final = ("params", "conf")  # of which keys may be named
ANY: Final = "*"  # at the end of a rule of an operator: whatever follows

_FIELD: Final = re.compile(r"\{([a-z_]+)((?:\[[^\[\]{}]+\])*)\}")
_DIGEST_CHARACTERS: Final = 16


def fault(text: object) -> tuple[str, str] | None:
    """What is wrong with the text of a key, and what to do; none if it is good."""
    if not isinstance(text, str) or not text.strip() or len(text) > KEY_CHARACTERS_MAX:
        return (
            "it is no text, is empty or is too long",
            f"Give a text of 1 to {KEY_CHARACTERS_MAX} characters.",
        )
    if not text.isprintable() or text != text.strip():
        return "it has blanks at its ends, or what cannot be printed", "Take them out."
    if ANY in text:
        return f"it has a {ANY!r}, which stands for any ending where limits are set", "Take it out."
    if "{{" in text or "}}" in text:
        return "it has double braces", "Write single ones: {params[customer]}."
    for name, keys in names(text):
        if name not in NAMES:
            return f"there is no {name!r}", f"Use one of: {', '.join(NAMES)}."
        if keys and name not in DEEP:
            return f"{name} has no keys", f"Only {', '.join(DEEP)} are looked into."
        if not keys and name in DEEP:
            return f"{name} as a whole is no key", f"Name one of them: {{{name}[customer]}}."
    if "{" in _FIELD.sub("", text) or "}" in _FIELD.sub("", text):
        return "its braces do not close around a name", "Write {params[customer]}."
    return None


def names(text: str) -> list[tuple[str, tuple[str, ...]]]:
    """The names in braces, each with the keys that are looked up in it."""
    return [(found[1], _keys(found[2])) for found in _FIELD.finditer(text)]


def key(text: str, values: Mapping[str, Any]) -> str:
    """The text with its names filled in; one that grew too long ends in a digest of the whole."""
    filled = _FIELD.sub(lambda found: _word(_at(values.get(found[1]), _keys(found[2]))), text)
    shown = "".join(letter if letter.isprintable() else "?" for letter in filled)
    if shown == filled and len(filled) <= KEY_CHARACTERS_MAX:
        return filled
    digest = hashlib.sha256(filled.encode(errors="surrogatepass")).hexdigest()
    kept = shown[: KEY_CHARACTERS_MAX - _DIGEST_CHARACTERS - 1]
    return f"{kept}#{digest[:_DIGEST_CHARACTERS]}"


def slots_of(found: str, own: int, rules: Mapping[str, int]) -> int:
    """How many slots a key has: as the longest rule says that fits, else the task's own number."""
    if found in rules:
        return rules[found]
    fitting = [one for one in rules if one.endswith(ANY) and found.startswith(one[:-1])]
    return rules[max(fitting, key=len)] if fitting else own


def _keys(text: str) -> tuple[str, ...]:
    return tuple(text[1:-1].split("][")) if text else ()


def _at(value: Any, keys: tuple[str, ...]) -> Any:
    for one in keys:
        if isinstance(value, Mapping):
            value = value.get(one)
        elif isinstance(value, Sequence) and not isinstance(value, str) and one.isdecimal():
            value = value[int(one)] if int(one) < len(value) else None
        else:
            return None
    return value


def _word(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    return json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)
