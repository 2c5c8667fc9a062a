"""What a task shows of its work on its page: links, tables, notes in Markdown."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import urlsplit

from scheduler_app.authoring.saving import checked_key
from scheduler_app.rules.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Iterable

LINK: Final = "link"
TABLE: Final = "table"
MARKDOWN: Final = "markdown"
BYTES_MAX: Final = 256 * 1024  # of one artifact, as JSON
ROWS_MAX: Final = 1_000
COLUMNS_MAX: Final = 50
CELL_CHARACTERS_MAX: Final = 1_000
URL_CHARACTERS_MAX: Final = 2_000
TITLE_CHARACTERS_MAX: Final = 250
SCHEMES: Final = ("http", "https")


class ArtifactServices(Protocol):
    """What the worker does with an artifact."""

    def publish(self, key: str, kind: str, title: str, body: Any) -> None:
        """The artifact is stored. Raises ``Superseded`` and ``InvalidInput``."""


@dataclass(frozen=True, slots=True)
class Artifacts:
    """Shown on the task's page and in the API: ``ctx.artifacts``.

    A key names one artifact of an attempt: published again, it is replaced. Stored at once, only while
    this attempt is the one whose result would be accepted. Everything raises ``InvalidInput`` for what
    cannot be shown, and ``Superseded``.
    """

    services: ArtifactServices

    def link(self, key: str, url: str, *, title: str = "") -> None:
        """A link to where more of it is, over http or https."""
        text = str(url).strip()
        try:
            scheme, host = urlsplit(text).scheme, urlsplit(text).hostname
        except ValueError:
            scheme, host = "", None
        if (
            scheme not in SCHEMES
            or not host
            or len(text) > URL_CHARACTERS_MAX
            or not text.isprintable()
            or " " in text
        ):
            message = f"{text!r:.300} is no link: give http://... or https://..., at most"
            raise InvalidInput(f"{message} {URL_CHARACTERS_MAX} characters.", key=key)
        self._publish(key, LINK, title, {"url": text})

    def table(
        self,
        key: str,
        rows: Iterable[Mapping[str, Any] | Sequence[Any]],
        *,
        columns: Sequence[str] = (),
        title: str = "",
    ) -> None:
        """Rows that are dicts, or lists with ``columns``. Cells are shown as text or numbers.

        Without any rows it says so.
        """
        taken = list(rows)
        if len(taken) > ROWS_MAX:
            raise InvalidInput(
                f"Table {key!r} has {len(taken):,} rows; at most {ROWS_MAX:,} are shown. Give the first"
                " ones, or a link to the rest.",
                key=key,
            )
        heads = [str(one)[:TITLE_CHARACTERS_MAX] for one in columns or _heads(taken)]
        if len(heads) > COLUMNS_MAX or (taken and not heads):
            message = f"Table {key!r} has {len(heads)} columns; give 1 to {COLUMNS_MAX}."
            if not heads:
                message = (
                    f"Table {key!r} has no columns: give rows that are dicts, or columns=[...]."
                )
            raise InvalidInput(message, key=key)
        body = {"columns": heads, "rows": [_row(key, row, columns or heads) for row in taken]}
        self._publish(key, TABLE, title, body)

    def markdown(self, key: str, text: str, *, title: str = "") -> None:
        """A note: headings, lists, bold, italics, code and links; anything else is shown as it is."""
        self._publish(key, MARKDOWN, title, {"text": str(text)})

    def _publish(self, key: str, kind: str, title: str, body: Any) -> None:
        named = checked_key(key, "key of an artifact")
        if len(title) > TITLE_CHARACTERS_MAX:
            message = f"The title of {key!r} is longer than {TITLE_CHARACTERS_MAX} characters."
            raise InvalidInput(message, key=key)
        size = len(json.dumps(body, ensure_ascii=False).encode("utf-8", "backslashreplace"))
        if size > BYTES_MAX:
            raise InvalidInput(
                f"Artifact {key!r} is {size:,} bytes as JSON; the limit is {BYTES_MAX:,} bytes. Store it"
                " elsewhere and publish a link.",
                key=key,
                size=size,
                limit=BYTES_MAX,
            )
        self.services.publish(named, kind, title, body)


def _heads(rows: Sequence[Any]) -> list[str]:
    """The keys of the rows, in the order in which they first come."""
    return list(dict.fromkeys(name for row in rows if isinstance(row, Mapping) for name in row))


def _row(key: str, row: object, columns: Sequence[str]) -> list[Any]:
    if isinstance(row, Mapping):
        return [_cell(row.get(name)) for name in columns]
    if not isinstance(row, Sequence) or isinstance(row, (str, bytes)) or len(row) != len(columns):
        raise InvalidInput(
            f"A row of table {key!r} is {row!r:.200}: give dicts, or lists of one cell for each of the"
            f" {len(columns)} columns.",
            key=key,
        )
    return [_cell(one) for one in row]


def _cell(value: object) -> str | int | float | bool | None:
    if value is None or isinstance(value, (bool, int)):
        return value if not isinstance(value, int) or abs(value) < 2**53 else str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    text = str(value)
    return text if len(text) <= CELL_CHARACTERS_MAX else f"{text[: CELL_CHARACTERS_MAX - 3]}..."
