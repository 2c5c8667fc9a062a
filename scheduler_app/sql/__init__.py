"""Hot statements, one file each, for raw psycopg: what the ORM cannot say in one round trip.

Comes in: a name. Goes out: the text, read once a process. Every file starts with a header that
says what is true afterwards, names its parameters with units, and the index it walks. Statements
are written for ``prepare_threshold=1`` and named parameters; ``clock_timestamp()`` is the clock.
"""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import LiteralString


@cache
def load(name: str) -> LiteralString:
    """The text of ``<name>.sql``, without its comment lines. Raises ``FileNotFoundError``."""
    text = resources.files(__name__).joinpath(f"{name}.sql").read_text(encoding="utf-8")
    kept = (line for line in text.splitlines() if not line.lstrip().startswith("--"))
    return "\n".join(kept)
