"""Declared parameters of a flow's runs: ``@flow(params={"limit": Param(10, type="integer", minimum=1)})``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from scheduler_app.authoring.faults import did_you_mean, fault
from scheduler_app.authoring.options import BadOption
from scheduler_app.rules import params

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler_app.authoring.faults import Fault, Place

PARAMS_MAX: Final = 200
BYTES_MAX: Final = 256 * 1024  # of all of them as JSON: every version and every run keeps them
REQUIRED: Final[Any] = object()
_SCHEMAS: Final = (
    "items",
    "contains",
    "additionalProperties",
    "propertyNames",
    "unevaluatedItems",
    "unevaluatedProperties",
    "not",
    "if",
    "then",
    "else",
)
_SCHEMA_LISTS: Final = ("allOf", "anyOf", "oneOf", "prefixItems")
_NAMED_SCHEMAS: Final = ("properties", "patternProperties", "dependentSchemas")
KEYWORDS: Final = (
    *_SCHEMAS,
    *_SCHEMA_LISTS,
    *_NAMED_SCHEMAS,
    "type",
    "enum",
    "const",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "pattern",
    "format",
    "minItems",
    "maxItems",
    "uniqueItems",
    "minContains",
    "maxContains",
    "minProperties",
    "maxProperties",
    "required",
    "dependentRequired",
    "title",
    "description",
    "default",
    "examples",
    "deprecated",
    "readOnly",
    "writeOnly",
    "contentEncoding",
    "contentMediaType",
    "$comment",
    "$ref",  # refused by itself
    "$dynamicRef",
    "$defs",
)
_TYPES: Final[dict[object, str]] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    list: "array",
    dict: "object",
    None: "null",
}


class Param:
    """A parameter with a default, or without one, and what its values have to be.

    The keywords are those of JSON Schema: ``type`` (a name, a Python type, or a list of them), ``enum``,
    ``minimum``, ``maximum``, ``minLength``, ``pattern``, ``format`` (date, date-time, time, timezone,
    email, uuid, ...), ``items``, ``properties``, ``title``, ``description``. A run that is started without
    a parameter that has no default is refused, as is one with a value that does not fit.
    """

    def __init__(self, default: object = REQUIRED, **schema: Any) -> None:
        self.default = default
        self.schema = schema
        if "type" in schema:
            self.schema = {**schema, "type": _type(schema["type"])}

    def __repr__(self) -> str:
        shown = [] if self.default is REQUIRED else [repr(self.default)]
        return f"Param({', '.join(shown + [f'{k}={v!r}' for k, v in self.schema.items()])})"


def _type(given: object) -> object:
    if isinstance(given, (list, tuple)):
        return [_type(one) for one in given]
    if given is None or isinstance(given, type):
        return _TYPES.get(given, given)
    return given


def declared(value: object) -> dict[str, Param]:
    """The parameters of the option ``params``; a plain value is a default that any value may replace."""
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise BadOption("a dict from names to Param(...) or JSON values")
    if len(value) > PARAMS_MAX:
        raise BadOption(f"at most {PARAMS_MAX} parameters")
    made = {name: one if isinstance(one, Param) else Param(one) for name, one in value.items()}
    for one in made.values():
        _plain(one.schema)
        if one.default is not REQUIRED:
            _plain(one.default)
    if "" in made:
        raise BadOption("a dict whose names are not empty")
    size = sum(len(json.dumps([_plain(one.schema), _default_of(one)])) for one in made.values())
    if size > BYTES_MAX:
        raise BadOption(f"at most {BYTES_MAX:,} bytes of parameters as JSON; these are {size:,}")
    return made


def _default_of(one: Param) -> Any:
    return None if one.default is REQUIRED else _plain(one.default)


def taken_from(
    fields: dict[str, Any], place: Place, subject: str, *, is_scheduled: bool
) -> list[Fault]:
    """``params`` of the fields become defaults, beside ``param_schemas``; the faults of each."""
    given: Mapping[str, Param] = fields.pop("params", {})
    defaults = {
        name: _plain(one.default) for name, one in given.items() if one.default is not REQUIRED
    }
    schemas = {
        name: _plain(one.schema)
        for name, one in given.items()
        if one.schema or one.default is REQUIRED
    }
    fields |= {"params": defaults, "param_schemas": schemas}
    if [*given] != params.stored_order(given):
        fields["param_order"] = tuple(given)
    faults = []
    for name, schema in schemas.items():
        what = f"Parameter {name!r} of {subject}"
        if unknown := _unknown_keyword(schema):
            remedy = did_you_mean(unknown, KEYWORDS)
            faults.append(fault(place, f"{what} has no keyword {unknown!r}.", remedy))
        elif wrong := params.schema_fault(schema):
            remedy = "Write it in the words of JSON Schema: type, enum, minimum, pattern, ..."
            faults.append(fault(place, f"{what} is declared wrongly: {wrong}.", remedy))
        elif name not in defaults:
            if is_scheduled:
                remedy = "Give it one: Param(default, ...); only runs by hand can be asked for it."
                message = f"{what} has no default, and its schedule starts runs without asking."
                faults.append(fault(place, message, remedy))
        elif wrong := params.fault_of(schema, defaults[name]):
            remedy = "Give it a default that fits, or none where it has to be asked for."
            faults.append(fault(place, f"{what} has a default that does not fit: {wrong}.", remedy))
    return faults


def _unknown_keyword(schema: Any) -> str | None:
    """A word that says nothing in JSON Schema, so that what it was meant to say would not hold."""
    if not isinstance(schema, dict):
        return None
    for word, value in schema.items():
        if word not in KEYWORDS:
            return str(word)
        below = list(value.values()) if word in _NAMED_SCHEMAS and isinstance(value, dict) else []
        below += value if word in _SCHEMA_LISTS and isinstance(value, list) else []
        below += [value] if word in _SCHEMAS else []
        for one in below:
            if found := _unknown_keyword(one):
                return found
    return None


def _plain(value: object) -> Any:
    """A copy as JSON has it. Raises ``BadOption``."""
    try:
        return json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError, RecursionError):
        raise BadOption("a dict from names to Param(...) or JSON values") from None
