"""Lists as parameters of statements: written in one go, and of the type that the statement says.

psycopg looks at each element to find the type of a list, asks for what writes such an element, and
writes one after the other: half of what a statement with some lists costs its client. And numbers
that grow make lists of another type, for which the server plans the same statement once more.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from psycopg.types.array import ListDumper
from psycopg.types.json import Jsonb

if TYPE_CHECKING:
    from collections.abc import Callable

    from psycopg.abc import AdaptContext, Buffer, DumperKey
    from psycopg.adapt import PyFormat


def write_quickly(context: AdaptContext) -> None:
    """Over this connection statements say of which type the lists are that they are given."""
    context.adapters.register_dumper(list, QuickListDumper)


class QuickListDumper(ListDumper):
    """Numbers, truths, uuids, texts, JSON and nulls are written quickly; all else as psycopg does it."""

    def get_key(self, obj: list[Any], format: PyFormat) -> DumperKey:  # noqa: A002 - psycopg's
        """One dumper for all lists, whose type it does not say."""
        return self.cls

    def dump(self, obj: list[Any]) -> Buffer | None:
        """The list in the server's own words."""
        try:
            if _PLAIN.issuperset(map(type, obj)):
                return f"{{{','.join(map(str, obj))}}}".encode()
            return f"{{{','.join([_WRITTEN[type(one)](one) for one in obj])}}}".encode()
        except KeyError:
            pass
        for kind in set(map(type, obj)) - _WRITTEN.keys():
            if not issubclass(kind, str):
                return super().dump(obj)
            _WRITTEN[kind] = _quoted
        return self.dump(obj)


def _quoted(text: str) -> str:
    text = str.__str__(text)  # of an enumeration the value
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _json(value: Jsonb) -> str:
    text = (value.dumps or json.dumps)(value.obj)
    return _quoted(text if isinstance(text, str) else text.decode())


_PLAIN: Final = frozenset({int, float, bool, UUID})  # without quotes
_WRITTEN: Final[dict[type, Callable[[Any], str]]] = {
    **dict.fromkeys(_PLAIN, str),
    type(None): lambda _: "NULL",
    str: _quoted,
    Jsonb: _json,
}
