"""What a trigger's code came to, as the fire that tells it."""

from __future__ import annotations

import traceback
from typing import Any, Final

from scheduler_app.rules import values
from scheduler_app.transitions.trigger import Fire

MESSAGE_MAX: Final = 4_000  # characters
TRACEBACK_MAX: Final = 16_000


def happened(trigger_id: int, event: Any, *, bytes_max: int) -> Fire:
    """The trigger fired with this event; it failed where that cannot be stored."""
    try:
        encoded = values.encode_result(event, bytes_max, "event of the trigger")
    except Exception as error:  # noqa: BLE001 - encoding may meet code of the user's
        return failed(trigger_id, error)
    return Fire(trigger_id=trigger_id, state="fired", payload={"event": encoded})


def failed(trigger_id: int, error: BaseException) -> Fire:
    """The trigger failed with this error, which its task is told."""
    kind = type(error)
    name = kind.__qualname__
    if kind.__module__ != "builtins":
        name = f"{kind.__module__}.{name}"
    try:
        message, trace = str(error), "".join(traceback.format_exception(error))
    except Exception as worse:  # noqa: BLE001 - user code again: an exception's own __str__
        message, trace = f"(its message cannot be shown: {type(worse).__name__})", ""
    return Fire(
        trigger_id=trigger_id,
        state="failed",
        payload={
            "error": {
                "kind": "failed",
                "type": _storable(name),
                "message": _storable(message)[:MESSAGE_MAX],
                "traceback": _storable(trace)[-TRACEBACK_MAX:],
            }
        },
    )


def _storable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode().replace("\x00", "\\x00")
