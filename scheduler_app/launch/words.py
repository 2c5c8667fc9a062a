"""What `up` says to a person."""

from __future__ import annotations

import os
import sys
from pathlib import Path


class UpFailed(RuntimeError):
    """The stack cannot be had; the text is one line for a person."""


def say(line: str) -> None:
    """The line is on standard output now; a closed output is no reason to end."""
    try:
        print(line, flush=True)  # noqa: T201 - `up` speaks to a person
    except BrokenPipeError:
        sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - until the end
