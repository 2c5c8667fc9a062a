"""What ``default_args`` of a flow or group gives its tasks, and its sensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from scheduler_app.authoring.building import POLLING
from scheduler_app.authoring.faults import fault
from scheduler_app.authoring.options import TASK_OPTIONS, check_options
from scheduler_app.authoring.sensors import POLLING_OPTIONS

if TYPE_CHECKING:
    from scheduler_app.authoring.faults import Fault, Place

_KNOWN: Final = {
    **{name: entry for name, entry in TASK_OPTIONS.items() if name not in ("task_id", "doc")},
    **{name: (f"{POLLING}{field}", check) for name, (field, check) in POLLING_OPTIONS.items()},
}
_OF_FLOW: Final = {
    name: f"Write {name}=... on @flow: it is the flow's, not a task's."
    for name in ("start_date", "end_date", "schedule", "timezone", "catchup", "tags", "params")
} | {"doc": "Give each task its own, by its docstring.", "task_id": "Give each task its own."}


def checked_defaults(
    default_args: object, place: Place, subject: str
) -> tuple[dict[str, Any], list[Fault]]:
    """Fields of TaskDefinition, those of how sensors wait with ``POLLING`` before them, and the faults."""
    if not isinstance(default_args, Mapping) or not all(isinstance(k, str) for k in default_args):
        return {}, [fault(place, f"{subject} is no dict of options.", "Write a dict.")]
    return check_options(default_args, _KNOWN, place, subject, _OF_FLOW)
