"""Declared parameters of runs: JSON Schema, checked where a value comes in.

``jsonschema`` is imported where a flow declares schemas, and not before: most flow files do not, and it
would take as long to import as they do to load.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import date, datetime, time
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo

from scheduler_app.rules.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from jsonschema import Draft202012Validator

FAULTS_TOLD_MAX: Final = 10
DEPTH_MAX: Final = 50  # of a value in itself
_OFFSET: Final = re.compile(r"(Z|[+-]\d\d:?\d\d)\Z", re.IGNORECASE)


def schema_fault(schema: Mapping[str, Any]) -> str | None:
    """What is wrong with the schema itself, or ``None``."""
    from jsonschema import Draft202012Validator  # noqa: PLC0415 - see above
    from jsonschema.exceptions import SchemaError  # noqa: PLC0415

    if "$ref" in repr(schema) or "$dynamicRef" in repr(schema):
        return "it refers to another schema ($ref); write what it says in its place"
    try:
        Draft202012Validator.check_schema(dict(schema))
    except SchemaError as error:
        where = ".".join(map(str, error.absolute_path))
        return f"{where}: {error.message}" if where else str(error.message)
    return None


def fault_of(schema: Mapping[str, Any], value: object) -> str | None:
    """Why the value is not as the schema says, or ``None``."""
    if _depth(value) > DEPTH_MAX:
        return f"it is nested deeper than {DEPTH_MAX} levels"
    from jsonschema.exceptions import best_match  # noqa: PLC0415 - see above

    error = best_match(_validator(_frozen(schema)).iter_errors(value))
    if error is None:
        return None
    where = "".join(f"[{part!r}]" for part in error.absolute_path)
    message = error.message if len(error.message) <= 300 else f"{error.message[:297]}..."
    return f"{where}: {message}" if where else message


def check(
    schemas: Mapping[str, Mapping[str, Any]], conf: Mapping[str, Any], *, field: str = "conf"
) -> None:
    """Every declared parameter has a value that is as its schema says. Raises ``InvalidInput``.

    ``conf`` has the defaults in it already. Keys that are not declared are not looked at.
    """
    faults = {}
    for name, schema in schemas.items():
        fault = fault_of(schema, conf[name]) if name in conf else "it is required, and not given"
        if fault is not None:
            faults[name] = fault
    if faults:
        shown = list(faults.items())[:FAULTS_TOLD_MAX]
        said = "; ".join(f"{name}: {fault}" for name, fault in shown)
        more = len(faults) - len(shown)
        said += f"; and {more} more" if more else ""
        message = f"Parameters are not as the flow declares them: {said}."
        raise InvalidInput(message, field=field, faults=faults)


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """One declared parameter as people read it."""

    name: str
    accepts: str  # as "integer, at least 1"
    default: str | None  # as JSON; None: it has to be given
    description: str


def stored_order(names: Iterable[str]) -> list[str]:
    """The names as the database keeps the keys of an object: the shorter first, then by their bytes."""
    return sorted(names, key=lambda name: (len(name.encode()), name.encode()))


def in_order(names: Collection[str], order: Iterable[str]) -> list[str]:
    """The names in this order; what it does not know comes last."""
    known = [name for name in order if name in names]
    return [*known, *(name for name in names if name not in set(known))]


def told(
    schemas: Mapping[str, Mapping[str, Any]],
    defaults: Mapping[str, Any],
    order: Iterable[str] = (),
) -> list[Told]:
    """The declared parameters, in the order of their declaration; those without a schema too."""
    found = []
    for name in in_order(dict.fromkeys([*defaults, *schemas]), order):
        schema = schemas.get(name, {})
        default = json.dumps(defaults[name], ensure_ascii=False) if name in defaults else None
        texts = [str(schema[key]) for key in ("title", "description") if schema.get(key)]
        found.append(
            Told(name=name, accepts=_accepts(schema), default=default, description=": ".join(texts))
        )
    return found


_SAID: Final = {
    "format": "a {}",
    "minimum": "at least {}",
    "exclusiveMinimum": "more than {}",
    "maximum": "at most {}",
    "exclusiveMaximum": "less than {}",
    "multipleOf": "a multiple of {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "pattern": "like {}",
    "minItems": "at least {} items",
    "maxItems": "at most {} items",
    "const": "just {}",
}


def _accepts(schema: Mapping[str, Any]) -> str:
    types = schema.get("type", ())
    parts = [" or ".join([types] if isinstance(types, str) else map(str, types))]
    if "enum" in schema:
        values = [json.dumps(one, ensure_ascii=False) for one in schema["enum"]]
        more = len(values) - 10
        parts.append("one of " + ", ".join(values[:10]) + (f" and {more} more" if more > 0 else ""))
    parts += [said.format(schema[key]) for key, said in _SAID.items() if key in schema]
    return ", ".join(part for part in parts if part) or "any value"


def _depth(value: object) -> int:
    """How deep lists and dicts stand in each other; without recursion, since it is anybody's value."""
    deepest, stack = 0, [(value, 0)]
    while stack and deepest <= DEPTH_MAX:
        one, depth = stack.pop()
        deepest = max(deepest, depth)
        if isinstance(one, dict):
            stack += [(item, depth + 1) for item in one.values()]
        elif isinstance(one, list):
            stack += [(item, depth + 1) for item in one]
    return deepest


def _frozen(schema: Mapping[str, Any]) -> str:

    return json.dumps(schema, sort_keys=True)


@cache
def _formats() -> Any:
    from jsonschema import FormatChecker  # noqa: PLC0415 - see above

    # A checker of its own: the formats that the library leaves out where its extras are missing.
    checker = FormatChecker()
    for name, read in _FORMATS.items():
        checker.checks(name, raises=ValueError)(_if_text(read))
    return checker


def _if_text(read: Callable[[str], object]) -> Callable[[object], bool]:
    """Formats say something of texts alone."""

    def reads(value: object) -> bool:
        if isinstance(value, str):
            read(value)
        return True

    return reads


def _moment(text: str) -> None:
    datetime.fromisoformat(text)
    if not _OFFSET.search(text):
        raise ValueError("no offset")


def _zone(text: str) -> None:
    try:
        ZoneInfo(text)
    except (OSError, KeyError) as error:
        raise ValueError("no zone") from error


_FORMATS: Final[Mapping[str, Callable[[str], object]]] = {
    "date": date.fromisoformat,
    "date-time": _moment,
    "time": time.fromisoformat,
    "timezone": _zone,
}


@lru_cache(maxsize=1000)
def _validator(schema: str) -> Draft202012Validator:

    from jsonschema import Draft202012Validator  # noqa: PLC0415 - see above

    return Draft202012Validator(json.loads(schema), format_checker=_formats())
