"""How user code that has to stop is stopped: three stages, each for what the one before did not end."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Stage(StrEnum):
    """What user code is told to stop with, in this order."""

    EXCEPTION = "exception"  # raised in it, so that it can tidy up
    SIGNAL = "signal"  # SIGTERM to it and to what it started
    KILL = "kill"  # SIGKILL to it and to what it started


_NEXT: Final = {Stage.EXCEPTION: Stage.SIGNAL, Stage.SIGNAL: Stage.KILL}
_WORDS: Final = {
    Stage.EXCEPTION: "Its code ended at the exception that asked it to.",
    Stage.SIGNAL: "Its code took no notice of an exception; SIGTERM ended it.",
    Stage.KILL: "Its code took no notice of an exception, nor of SIGTERM; it was killed.",
}


def following(stage: Stage) -> Stage:
    """What comes when this stage ended nothing; a kill is repeated."""
    return _NEXT.get(stage, Stage.KILL)


def ended_by(stage: Stage, *, signal_number: int | None) -> Stage | None:
    """Which stage ended a process that was told to stop.

    ``signal_number`` is the signal that ended it, null if it exited: code that heeds SIGTERM exits in
    its own way. Null: something else ended it.
    """
    if stage is Stage.KILL and signal_number == SIGKILL:
        return Stage.KILL
    if stage is not Stage.EXCEPTION and signal_number in (None, SIGTERM):
        return Stage.SIGNAL
    return None


def explain(why: str, stage: Stage | None) -> str:
    """The request and what ended the code, as sentences."""
    said = why if why.endswith((".", "!", "?")) else f"{why}."
    said = f"{said[:1].upper()}{said[1:]}"
    told = _WORDS[stage] if stage else "Its process ended by itself."
    return f"{said} {told}"


SIGKILL: Final = 9  # as everywhere; this room imports no system
SIGTERM: Final = 15
