"""What a child says of a delivery when it is through with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

REPORTED: Final = "reported"  # the report was accepted, or recorded as too late
REFUSED: Final = "refused"  # nothing was executed; the refusal is recorded
HANDED_BACK: Final = "handed_back"  # stopped in mid-task, so that the main process hands it back
UNCLAIMED: Final = "unclaimed"  # nothing was started; the scheduler publishes the attempt again


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of a delivery, for the main process."""

    what: str  # one of the above
    outcome: str | None = None  # of the attempt, where it was reported
    printed: bool = False  # there is a log
    log_stored: int = 0  # bytes of it that are stored
    stopped_by: str | None = None  # the stage that ended it, where it was told to stop

    def as_list(self) -> list[Any]:
        """Its fields in their order, as a child says them."""
        return [self.what, self.outcome, self.printed, self.log_stored, self.stopped_by]

    @classmethod
    def of_list(cls, said: list[Any]) -> Outcome:
        """What ``as_list`` made a list of. Raises ``ValueError`` and ``TypeError``."""
        what, outcome, printed, log_stored, stopped_by = said
        return cls(
            what=what,
            outcome=outcome,
            printed=printed,
            log_stored=log_stored,
            stopped_by=stopped_by,
        )
