"""``manage.py flows test``: a run of a flow in this process, told as a table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from scheduler_app.management import validate
from scheduler_app.management.output import table
from scheduler_app.processes import bundles
from scheduler_app.rules import values
from scheduler_app.rules.errors import DefinitionError, InvalidInput, SchedulerError

if TYPE_CHECKING:
    from scheduler_app.authoring.flow import Flow
    from scheduler_app.authoring.rehearsal import Rehearsal

HEADINGS = ("AT", "TASK", "TRY", "OUTCOME", "SAID")


def flow_of(what: str, flow_id: str | None) -> Flow:
    """The flow of the file, or with this id. Raises what is wrong with it."""
    folder, path = validate.place_of(what)
    wanted = flow_id if Path(what).is_file() else what
    try:
        loaded = bundles.load_file(folder, path)
        found, faults = loaded.flows(), loaded.faults()
    except SchedulerError:
        raise
    except Exception as error:  # user code: what it raises is a fault of the file
        message = f"{folder / path} cannot be loaded: {type(error).__name__}: {error}"
        raise DefinitionError(message) from error
    if wanted is None and len(found) == 1 and not faults:
        return next(iter(found.values()))
    if wanted in found:
        return found[wanted]
    if faults:
        first = faults[0]
        message = f"{first.file}:{first.line}: {first.message} {first.remedy}"
        raise DefinitionError(message)
    named = ", ".join(sorted(found)) or "no flow"
    said = "name one with --flow" if wanted is None else f"not {wanted}"
    raise InvalidInput(f"{folder / path} defines {named}; {said}.")


def as_values(done: Rehearsal) -> dict[str, Any]:
    """The rehearsal as JSON has it."""
    return {
        "state": str(done.state),
        "reason": done.reason,
        "started_at": done.started_at.isoformat(),
        "ended_at": done.ended_at.isoformat(),
        "states": done.states,
        "results": {name: values.encode(value) for name, value in done.results.items()},
        "attempts": [
            {
                "task_id": one.task_id,
                "try_number": one.try_number,
                "resume_index": one.resume_index,
                "outcome": str(one.outcome),
                "at": one.at.isoformat(),
                "error": None if one.error is None else f"{type(one.error).__name__}: {one.error}",
                "why": one.why,
            }
            for one in done.attempts
        ],
        "callbacks": [
            {"task_id": one.task_id, "on": one.on, "name": one.name, "at": one.at.isoformat()}
            for one in done.callbacks
        ],
    }


def told(done: Rehearsal) -> str:
    """The rehearsal as a person reads it."""
    lines = []
    for one in done.attempts:
        said = [] if one.error is None else [f"{type(one.error).__name__}: {one.error}"]
        said += [one.why] if one.why else []
        number = f"{one.try_number}.{one.resume_index}"
        lines.append((one.at, one.task_id, number, str(one.outcome), "; ".join(said)))
    skipped = {name: state for name, state in done.states.items() if state not in _EXECUTED}
    left = [f"\n{name} is {state}" for name, state in skipped.items()]
    return f"{table(HEADINGS, lines)}\n{''.join(left)}\nThe run is {done.state}. {done.reason}"


_EXECUTED = ("success", "failed")
