"""Arguments that are filled in when the task is executed: ``Template("/in/{ds}/{params[region]}.csv")``."""

from __future__ import annotations

import string
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from scheduler_app.authoring.faults import did_you_mean, fault, refuse
from scheduler_app.rules.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any as _FitsAnywhere

    from scheduler_app.authoring.context import Context
    from scheduler_app.authoring.faults import Fault, Place
else:
    _FitsAnywhere = object

TEXT_CHARACTERS_MAX: Final = 100_000
NAMES: Final = (
    "ds",  # of the logical date: 2026-01-31
    "ds_nodash",
    "ts",  # ISO 8601 with its offset
    "logical_date",
    "data_interval_start",
    "data_interval_end",
    "flow_id",
    "run_id",
    "task_id",
    "map_index",
    "try_number",
    "params",
    "conf",
)
DATES: Final = frozenset({"logical_date", "data_interval_start", "data_interval_end"})


class Template(_FitsAnywhere):  # type: ignore[misc] # its type for checkers is as of TaskResult
    """A text with names in braces; as an argument of a task, at any depth of lists and dicts.

    ``{ds}``, ``{logical_date:%Y/%m}``, ``{params[region]}``. A name that there is not is a fault of the
    definition; a parameter that there is not fails the task. Raises ``DefinitionError``.
    """

    def __init__(self, text: str) -> None:
        wrong = _fault(text)
        if wrong is not None:
            raise refuse(f"Template({text!r:.200}) cannot be filled in: {wrong[0]}.", wrong[1])
        self.text = text

    def filled(self, ctx: Context) -> str:
        """The text for this execution. Raises ``InvalidInput``."""
        try:
            made = _Filler().vformat(self.text, (), _names(ctx))
        except (InvalidInput, ValueError, TypeError) as error:
            message = f"The argument {self!r:.300} cannot be filled in: {error}"
            raise InvalidInput(message, template=self.text) from None
        if len(made) > TEXT_CHARACTERS_MAX:
            message = f"{self!r:.300} became {len(made):,} characters; at most"
            raise InvalidInput(f"{message} {TEXT_CHARACTERS_MAX:,} are passed on.")
        return made

    def params(self) -> list[str]:
        """The parameters that it names."""
        named = [_parts(name) for _, name, _, _ in string.Formatter().parse(self.text) if name]
        return [keys[0] for first, *keys in named if first == "params" and keys]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Template) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"Template({self.text!r})"


def faults_of(
    leaves: Iterable[object], declared: Mapping[str, object], task_id: str, place: Place
) -> list[Fault]:
    """A fault for each parameter that a template among them names and the flow does not declare."""
    return [
        fault(
            place,
            f"{leaf!r:.300}, an argument of task {task_id!r}, names parameter {name!r}, which the flow"
            " does not declare: runs of its schedule would fail.",
            f"Declare it: @flow(params={{{name!r}: ...}}). {did_you_mean(name, list(declared))}"
            if declared
            else f"Declare it: @flow(params={{{name!r}: ...}}).",
        )
        for leaf in leaves
        if isinstance(leaf, Template)
        for name in leaf.params()
        if name not in declared
    ]


class _Filler(string.Formatter):
    """Names, and keys of mappings; no attributes, so that nothing behind the values can be reached."""

    def get_field(self, field_name: str, args: Any, kwargs: Any) -> tuple[Any, str]:
        """The value of ``name`` or ``name[key]``."""
        del args
        first, *keys = _parts(field_name)
        value = kwargs[first]
        for key in keys:
            if not isinstance(value, Mapping) or key not in value:
                raise InvalidInput(f"{first} has no {key!r}")
            value = value[key]
        return value, first

    def format_field(self, value: Any, format_spec: str) -> str:
        """The value as text; a format is for times alone."""
        if isinstance(value, datetime):
            return value.strftime(format_spec) if format_spec else value.isoformat()
        if format_spec:
            raise InvalidInput(f"a format ({format_spec!r}) is for dates alone")
        return str(value)

    def convert_field(self, value: Any, conversion: Any) -> Any:
        """No conversions: the text is the value's own."""
        del conversion
        return value


def _names(ctx: Context) -> dict[str, Any]:
    date = ctx.logical_date
    return {
        **{name: getattr(ctx, name) for name in NAMES if not name.startswith(("ds", "ts"))},
        "ds": "" if date is None else date.strftime("%Y-%m-%d"),
        "ds_nodash": "" if date is None else date.strftime("%Y%m%d"),
        "ts": "" if date is None else date.isoformat(),
    }


def _parts(field_name: str) -> list[str]:
    """``params[a][b]`` as its name and keys."""
    first, *rest = field_name.split("[")
    return [first, *(one.removesuffix("]") for one in rest)]


def _fault(text: object) -> tuple[str, str] | None:
    """What is wrong, and what to do."""
    if not isinstance(text, str) or len(text) > TEXT_CHARACTERS_MAX:
        return (
            "it is no text, or too long",
            f"Give a text of at most {TEXT_CHARACTERS_MAX:,} characters.",
        )
    try:
        pieces = list(string.Formatter().parse(text))
    except ValueError as error:
        return str(error), "Write {{ and }} for plain braces."
    for _, name, spec, conversion in pieces:
        if name is None:
            continue
        first, *keys = _parts(name)
        if first not in NAMES:
            return f"there is no {first!r}", did_you_mean(first, list(NAMES))
        if keys and first not in {"params", "conf"}:
            return f"{first} has no keys", "Only params[...] and conf[...] are looked into."
        if conversion or "{" in (spec or ""):
            return "it has a conversion or a nested format", "Take it out."
        if spec and not keys and first not in DATES:
            told = f"{first} has a format ({spec!r}), which is for dates alone"
            return told, f"Write {{logical_date:{spec}}}, or {{{first}}}."
    return None
