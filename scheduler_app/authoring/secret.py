"""Secrets by name: what a flow says instead of the value, which is never in a file, row or log."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,200}")
KEY: Final = "secret"  # of the JSON object that stands for one


@dataclass(frozen=True, slots=True)
class Secret:
    """A secret by its name, found where it is needed: in the environment, else among the variables.

    ``Secret("pager_key")`` is the environment variable ``DAYLIGHT_NOTIFIER_SECRET_PAGER_KEY`` of the
    process that sends, or the variable ``pager_key``. Raises ``ValueError`` for a name that is none.
    """

    name: str

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not NAME.fullmatch(self.name):
            raise ValueError(
                f"Secret({self.name!r}): give the name of a secret, 1 to 200 of A-Z a-z 0-9 _ . -,"
                " not its value."
            )

    def described(self) -> dict[str, str]:
        """How the stored definition tells of it."""
        return {KEY: self.name}
