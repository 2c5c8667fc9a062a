"""Hot statements, one file each, for raw psycopg: what the ORM cannot say in one round trip.

Comes in: a name. Goes out: the text, read once a process. Every file starts with a header that
says what is true afterwards, names its parameters with units, and the index it walks. Statements
are written for ``prepare_threshold=1`` and named parameters; ``clock_timestamp()`` is the clock.
"""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Final, LiteralString

CALLBACKS: Final = "/* callbacks */"  # where a statement may issue callbacks
NEAR: Final = "/* near */"  # where a claim may bring results along
MOVED: Final = "/* moved */"  # where their insert is tied to what the statement moved


@cache
def load(name: str) -> LiteralString:
    """The text of ``<name>.sql``, without its comment lines. Raises ``FileNotFoundError``."""
    text = resources.files(__name__).joinpath(f"{name}.sql").read_text(encoding="utf-8")
    kept = (line for line in text.splitlines() if not line.lstrip().startswith("--"))
    return "\n".join(kept)


@cache
def with_callbacks(name: str) -> LiteralString:
    """The statement, issuing callbacks for the attempt that it moves (its ``x``) as it moves it.

    A text of its own, so that what calls nothing runs the plain one. Parameters: those of both.
    """
    issue = load("issue_callbacks").replace(MOVED, "JOIN x ON x.id = p.id")
    return load(name).replace(CALLBACKS, f", callbacks AS ({issue})")


@cache
def bringing(
    statement: LiteralString, *, results: bool = False, items: bool = False, by_task: bool = False
) -> LiteralString:
    """The claim, bringing along what is near: results of tasks, elements of lists, or both.

    ``by_task``: results, as what is claimed turns out to need them. A text for each: what is not asked for
    costs nothing, and a query costs by the tables that it names.
    """
    asked = load("near_results") if results else load("near_by_task") if by_task else ""
    if items:  # the columns keep their places
        asked = (asked or ", NULL::jsonb AS near_results") + load("near_items")
    return statement.replace(NEAR, asked)
