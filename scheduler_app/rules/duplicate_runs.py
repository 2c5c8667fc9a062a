"""Of several runs of one logical date, which is kept, and why the others are set aside."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from scheduler_app.rules.states import RunState

if TYPE_CHECKING:
    from collections.abc import Sequence

IMPORTERS: Final = "import"  # the actor of an imported run begins with it


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One of the runs of a date, as it is now."""

    id: int
    run_id: str
    state: str
    actor: str
    has_run_attempt: bool  # written with every run that this product creates
    accepted_results: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SetAside:
    """One run that is set aside for another."""

    run: Candidate
    code: str
    kept: Candidate


def choose(candidates: Sequence[Candidate]) -> list[SetAside]:
    """Every run but the one that is kept, each with its code.

    Kept is the one that this product created, of those the one that ended well, then the one that
    did most, then the oldest. Nothing is chosen by chance.
    """
    if len(candidates) < 2:
        return []
    kept = min(candidates, key=_rank)
    return [
        SetAside(run=each, code=_code(each), kept=kept)
        for each in sorted(candidates, key=lambda one: one.id)
        if each is not kept
    ]


def _rank(run: Candidate) -> tuple[bool, bool, bool, int, int]:
    return (
        _is_imported(run),
        not run.has_run_attempt,
        run.state != RunState.SUCCESS,
        -run.accepted_results,
        run.id,
    )


def _is_imported(run: Candidate) -> bool:
    return run.actor.startswith(IMPORTERS)


def _code(run: Candidate) -> str:
    if _is_imported(run):
        return "imported_duplicate"
    return "duplicate_logical_date" if run.has_run_attempt else "ghost_run"
