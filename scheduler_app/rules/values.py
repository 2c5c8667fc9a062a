"""What tasks hand to each other: Python values as JSON with typed extensions, and back.

A value that JSON does not know travels as ``{"__daylight__": <type>, "value": ...}``. So do floats
and texts that a JSON column would change or refuse: not-a-number, exponents, NUL, lone surrogates.
``decode(encode(value)) == value`` and the types are the same; an instance of a subclass comes back
as its base type, a bytearray as bytes, and an aware time with its offset in place of its zone.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from datetime import date, datetime, time, timedelta
from decimal import Decimal, DecimalException
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from scheduler_app.rules.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

TAG: Final = "__daylight__"
DEPTH_MAX: Final = 200  # of lists and dicts in each other; a value that contains itself ends here
INT_BITS_MAX: Final = 10_000  # about 3,000 digits; readers of JSON refuse longer ones
SUPPORTED: Final = (
    "None, bool, int, float, str, list, dict, tuple, set, frozenset, bytes, datetime, date, time, "
    "timedelta, Decimal or UUID"
)


def encode(value: object) -> Any:
    """The value as plain JSON values. Raises ``InvalidInput`` with the place in the value."""
    return _encode(value, "value", 0)


def decode(raw: Any) -> Any:
    """The value that ``encode`` was given. Raises ``InvalidInput`` for anything else."""
    if isinstance(raw, list):
        return [decode(item) for item in raw]
    if not isinstance(raw, dict):
        return raw
    if TAG not in raw:
        return {key: decode(item) for key, item in raw.items()}
    kind = raw[TAG]
    if not isinstance(kind, str) or kind not in _DECODERS:
        raise InvalidInput(
            f"The stored value has the type {kind!r}, which this version of Daylight does not know. "
            "Read it with the version that wrote it, or a newer one."
        )
    try:
        return _DECODERS[kind](raw["value"])
    except (KeyError, TypeError, ValueError, DecimalException, binascii.Error) as exc:
        raise InvalidInput(f"The stored value of type {kind!r} is damaged: {exc}.") from exc


PLACE_CHARACTERS_MAX: Final = 120  # of where in a value something is wrong


def encode_result(value: object, bytes_max: int, name: str = "result") -> Any:
    """The result of a task, or what else has this name, as JSON values that fit the cap.

    Raises ``InvalidInput`` naming the type and place, or the size and the limit, and the remedy.
    """
    encoded = _encode(value, name, 0)
    size = len(json.dumps(encoded, ensure_ascii=False, separators=(",", ":")).encode())
    if size > bytes_max:
        raise InvalidInput(
            f"The {name} is {size:,} bytes as JSON; the limit is {bytes_max:,} bytes. Store the "
            "data elsewhere (a file, a table, an object store) and return a reference to it.",
            size=size,
            limit=bytes_max,
        )
    return encoded


def _encode(value: object, path: str, depth: int) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _encode_text(str(value))
    if isinstance(value, int):
        return _encode_int(int(value), path)
    if isinstance(value, float):
        return _encode_float(float(value))
    if depth >= DEPTH_MAX:
        raise InvalidInput(
            f"The {_place(path)} is nested deeper than {DEPTH_MAX} levels, or contains itself. "
            "Return a flatter value.",
            path=path,
        )
    if isinstance(value, dict):
        return _encode_dict(value, path, depth + 1)
    if isinstance(value, list):
        return _encode_items(value, path, depth + 1)
    if isinstance(value, tuple):
        return {TAG: "tuple", "value": _encode_items(value, path, depth + 1)}
    if isinstance(value, (set, frozenset)):
        kind = "set" if isinstance(value, set) else "frozenset"
        items = [_encode(item, f"{path}{{...}}", depth + 1) for item in value]
        return {TAG: kind, "value": sorted(items, key=json.dumps)}
    return _encode_scalar(value, path)


def _encode_dict(value: dict[Any, Any], path: str, depth: int) -> Any:
    plain = TAG not in value and all(isinstance(key, str) and is_plain(key) for key in value)
    if plain:
        return {str(key): _encode(item, f"{path}[{key!r}]", depth) for key, item in value.items()}
    pairs = [
        [_encode(key, f"{path}.keys()", depth), _encode(item, f"{path}[{key!r}]", depth)]
        for key, item in value.items()
    ]
    return {TAG: "dict", "value": pairs}


def _encode_items(value: Iterable[object], path: str, depth: int) -> list[Any]:
    return [_encode(item, f"{path}[{index}]", depth) for index, item in enumerate(value)]


def _encode_scalar(value: object, path: str) -> Any:
    match value:
        case datetime():
            # The isoformat of a subclass may say more than datetime can hold.
            return {TAG: "datetime", "value": datetime.isoformat(value)}
        case date():
            return {TAG: "date", "value": date.isoformat(value)}
        case time():
            return {TAG: "time", "value": time.isoformat(value)}
        case timedelta():
            return {TAG: "timedelta", "value": [value.days, value.seconds, value.microseconds]}
        case Decimal():
            return {TAG: "decimal", "value": str(value)}
        case UUID():
            return {TAG: "uuid", "value": str(value)}
        case bytes() | bytearray():
            return {TAG: "bytes", "value": base64.b64encode(value).decode("ascii")}
    kind = f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
    raise InvalidInput(
        f"The {_place(path)} is of type {kind}, which cannot be stored. "
        f"Return {SUPPORTED}: {_remedy(value)}.",
        path=path,
        type=kind,
    )


def _remedy(value: object) -> str:
    if hasattr(value, "__dataclass_fields__"):
        return "for a dataclass, dataclasses.asdict(it)"
    if hasattr(value, "__fspath__"):
        return "for a path, str(it)"
    if hasattr(value, "tolist"):
        return "for an array or a number of numpy, it.tolist()"
    if hasattr(value, "to_dict"):
        return "for a table, it.to_dict() if it is small, or write it to a file and return its path"
    if hasattr(value, "__next__"):
        return "for a generator, list(it)"
    return "convert it, or store it elsewhere and return a reference to it"


def _place(path: str) -> str:
    name = path.split("[", 1)[0].split("{", 1)[0].split(".", 1)[0]
    shown = path if len(path) <= PLACE_CHARACTERS_MAX else f"{path[:PLACE_CHARACTERS_MAX]}..."
    return name if path == name else f"{name} at {shown}"


def _encode_int(value: int, path: str) -> int:
    if value.bit_length() > INT_BITS_MAX:
        raise InvalidInput(
            f"The {_place(path)} is a whole number of {value.bit_length():,} bits; the limit is "
            f"{INT_BITS_MAX:,}. Return it as bytes or text.",
            path=path,
        )
    return value


def _encode_float(value: float) -> Any:
    text = repr(value)
    # A JSON column keeps numbers as decimals: exponents come back as whole numbers, -0.0 as 0.0.
    if "e" in text or not math.isfinite(value) or text == "-0.0":
        return {TAG: "float", "value": text}
    return value


def is_plain(text: str) -> bool:
    """Whether a JSON column takes the text as it is."""
    if text.isascii():
        return "\x00" not in text
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return "\x00" not in text


def _encode_text(text: str) -> Any:
    if is_plain(text):
        return text
    raw = text.encode("utf-8", "surrogatepass")
    return {TAG: "text", "value": base64.b64encode(raw).decode("ascii")}


_DECODERS: Final[dict[str, Callable[[Any], Any]]] = {
    "datetime": datetime.fromisoformat,
    "date": date.fromisoformat,
    "time": time.fromisoformat,
    "timedelta": lambda raw: timedelta(days=raw[0], seconds=raw[1], microseconds=raw[2]),
    "decimal": Decimal,
    "uuid": UUID,
    "bytes": lambda raw: base64.b64decode(raw, validate=True),
    "text": lambda raw: base64.b64decode(raw, validate=True).decode("utf-8", "surrogatepass"),
    "float": float,
    "tuple": lambda raw: tuple(decode(item) for item in raw),
    "set": lambda raw: {decode(item) for item in raw},
    "frozenset": lambda raw: frozenset(decode(item) for item in raw),
    "dict": lambda raw: {decode(key): decode(item) for key, item in raw},
}
