"""The end of a log as a page shows it first; scripts go on from there."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from scheduler_app.queries import logs

if TYPE_CHECKING:
    from dashboard.answer import Reading
    from scheduler_app.queries.attempts import AttemptRow

TAIL_BYTES: Final = 256 * 1024  # shown at once; the download has all
# Terminal sequences, for readers without scripts; scripts turn colours into classes instead.
ESCAPE: Final = re.compile(r"\x1b(?:\[[0-9;:?]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogView:
    """The last part of a log as text."""

    text: str
    start: int  # the byte that the text begins at
    next_offset: int
    size: int
    is_live: bool

    @property
    def is_coloured(self) -> bool:
        """Whether the text has terminal sequences: then scripts read it again, with them."""
        return ESCAPE.search(self.text) is not None

    @property
    def plain(self) -> str:
        """The text without terminal sequences."""
        return ESCAPE.sub("", self.text)


def log_of(reading: Reading, attempt: AttemptRow) -> LogView:
    """What the attempt printed last; any byte that is not UTF-8 shows as a replacement character."""
    page = logs.read_log(reading.scope, attempt.id, start=-TAIL_BYTES, limit=TAIL_BYTES)
    start = page.next_offset - len(page.data)
    data = page.data
    if start:
        # The first line is cut: begin with the next.
        cut = data.find(b"\n") + 1
        data, start = data[cut:], start + cut
    return LogView(
        text=data.decode("utf-8", errors="replace"),
        start=start,
        next_offset=page.next_offset,
        size=page.size,
        is_live=not page.ended,
    )
