"""Follows a run to its end: a line for each task that moved, and for what keeps it waiting."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final

from scheduler_app.queries import attempts, flow_versions, runs, task_instances
from scheduler_app.queries.filters import AttemptFilter, TaskInstanceFilter
from scheduler_app.queries.scope import EVERYTHING
from scheduler_app.rules import states

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from scheduler_app.queries.runs import RunRow

POLL_INTERVAL_S: Final = 0.3
SILENCE_S: Final = 5.0  # without a move, what is waited for is told
WAITS_MAX: Final = 5  # task instances named in one line
ERRORS_MAX: Final = 10
TERMINAL: Final = frozenset(state.value for state in states.RUN_TERMINAL)


def follow(run: int, say: Callable[[str], None]) -> RunRow:
    """The run has ended; each move was said."""
    version = flow_versions.one(EVERYTHING, runs.one(EVERYTHING, run).version_id)
    place = {task.task_id: number for number, task in enumerate(version.graph().tasks)}
    seen: dict[str, str] = {}
    told_at = time.monotonic()
    last_wait = ""
    while True:
        row = runs.one(EVERYTHING, run)
        for name, state in _moves(run, seen, place):
            say(f"{_clock()}  {name}  {state}")
            told_at = time.monotonic()
        if row.state_beneath in TERMINAL:
            return row
        if time.monotonic() - told_at > SILENCE_S:
            told_at = time.monotonic()
            wait = _waits(row)
            if wait != last_wait:
                say(f"{_clock()}  {wait}")
                last_wait = wait
        time.sleep(POLL_INTERVAL_S)


def errors(run: int) -> Iterator[str]:
    """What the attempts that failed said, newest first."""
    page = attempts.page(
        AttemptFilter(
            run=(run,),
            kind=(states.AttemptKind.TASK.value,),
            outcome=("failed", "lost"),
            limit=ERRORS_MAX,
        ),
        EVERYTHING,
    )
    for row in page.rows:
        detail = attempts.one(EVERYTHING, row.id)
        error = detail.error or {}
        said = f"{error.get('type', row.outcome)}: {error.get('message', row.outcome_reason)}"
        index = "" if row.map_index is None or row.map_index < 0 else f"[{row.map_index}]"
        yield f"{row.task_id}{index}, try {row.try_number}: {' '.join(said.split())[:500]}"


def _moves(run: int, seen: dict[str, str], place: dict[str, int]) -> Iterator[tuple[str, str]]:
    """Name and state of what moved since it was seen, upstream first; a mapped task by its counts."""
    cells = task_instances.cells(EVERYTHING, [run])[run]
    mapped: dict[str, Counter[str]] = defaultdict(Counter)
    now: dict[str, str] = {}
    for cell in sorted(cells, key=lambda one: place.get(one.task_id, len(place))):
        if cell.is_mapped:
            if cell.filter_code is None:
                mapped[cell.task_id][cell.state] += cell.number
                now[f"{cell.task_id}[]"] = task_instances.told_states(mapped[cell.task_id])
        else:
            now[cell.task_id] = cell.state
    for name, state in now.items():
        if seen.get(name, states.TaskState.NONE) != state:
            yield name, state
        seen[name] = state


def _waits(row: RunRow) -> str:
    counts = task_instances.state_counts(EVERYTHING, [row.id])[row.id]
    told = ", ".join(f"{number} {state}" for state, number in sorted(counts.items()))
    waiting = [
        f"{ti.task_id}: {ti.wait.get('detail') or ti.wait.get('code')}"
        for ti in task_instances.page(TaskInstanceFilter(run=(row.id,)), EVERYTHING).rows
        if ti.wait
    ]
    reasons = f"; {'; '.join(waiting[:WAITS_MAX])}" if waiting else ""
    return f"the run is {row.state}: {told}{reasons}"


def _clock() -> str:
    return time.strftime("%H:%M:%S")
