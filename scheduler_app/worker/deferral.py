"""User code is called, from its beginning or where it resumes; what it came to, as JSON values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scheduler_app.authoring.deferral import Defer, Reschedule
from scheduler_app.authoring.skipping import Skip
from scheduler_app.authoring.triggers import EventTrigger, TimeTrigger, classpath_of
from scheduler_app.rules import values
from scheduler_app.transitions.trigger import DETAIL_CHARACTERS_MAX
from scheduler_app.worker.report import storable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from scheduler_app.authoring.call import TaskCall
    from scheduler_app.authoring.context import Context
    from scheduler_app.authoring.mapping import Items
    from scheduler_app.transitions.attempt import Claim


@dataclass(frozen=True, slots=True, kw_only=True)
class CameTo:
    """A result, unless one of the others is there."""

    result: Any = None  # encoded
    wait: dict[str, Any] | None = None  # fields of a transitions.trigger.Wait, as JSON values
    again_after_s: float | None = None
    skipped: str | None = None  # why


def run_task(
    call: TaskCall,
    ctx: Context,
    results: Mapping[str, Any],
    claimed: Claim,
    *,
    bytes_max: int,
    items: Items | None = None,
    checked: Callable[[object, Any], Any] = lambda result, encoded: encoded,
) -> CameTo:
    """What the task came to. Raises what its code raises, and ``InvalidInput`` for what it hands over.

    ``items`` gives what it maps over; ``checked`` has the last word on a result, and how it is stored.
    All of it may meet code of the user's: triggers and values too.
    """
    try:
        if claimed.next_method is None:
            result = call.execute(ctx, results, items)
        else:
            stored = {key: values.decode(value) for key, value in claimed.next_kwargs.items()}
            result = call.resume(ctx, results, claimed.next_method, stored, items)
    except Defer as wanted:
        return CameTo(wait=_wait(call, wanted, bytes_max))
    except Reschedule as wanted:
        return CameTo(again_after_s=wanted.after_s)
    except Skip as wanted:
        return CameTo(skipped=str(wanted))
    return CameTo(result=checked(result, values.encode_result(result, bytes_max)))


def _wait(call: TaskCall, wanted: Defer, bytes_max: int) -> dict[str, Any]:
    """The deferral, checked as far as it can be before its task resumes."""
    call.check_resume(wanted.method, wanted.kwargs)
    trigger = wanted.trigger
    wait: dict[str, Any] = {
        "next_method": wanted.method,
        "next_kwargs": values.encode_result(wanted.kwargs, bytes_max, "kwargs of the deferral"),
        "kind": "watched",
        "classpath": classpath_of(trigger),
        "kwargs": values.encode_result(trigger.kwargs(), bytes_max, "trigger's arguments"),
        "detail": storable(f"Waits for {trigger.told()}.", DETAIL_CHARACTERS_MAX),
        "timeout_s": wanted.timeout_s,
    }
    if isinstance(trigger, TimeTrigger):
        wait["kind"] = "time"
        if trigger.at is not None:
            wait["due_at"] = trigger.at.isoformat()
        elif trigger.after is not None:
            wait["due_after_s"] = max(0.0, trigger.after.total_seconds())
    elif isinstance(trigger, EventTrigger):
        wait |= {"kind": "event", "event_key": trigger.key}
    return wait
