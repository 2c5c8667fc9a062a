"""A letter by the library Apprise, if it is installed; under the same rules about addresses."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from scheduler_app.couriers import destinations
from scheduler_app.couriers.errors import NotReached, NotSendable

if TYPE_CHECKING:
    from scheduler_app.authoring.letters import Letter
    from scheduler_app.couriers.limits import Limits


def send(url: str, letter: Letter, *, limits: Limits) -> str:
    """The service took it; a sentence that says so. Raises ``NotSendable`` and ``NotReached``."""
    try:
        library: Any = importlib.import_module("apprise")
    except ImportError:
        raise NotSendable(
            "Apprise is not installed where this is sent: pip install apprise in its environment."
        ) from None
    service = library.Apprise.instantiate(url, suppress_exceptions=True)
    if service is None:
        raise NotSendable("Apprise does not understand the URL that the secret holds.")
    service.socket_connect_timeout = service.socket_read_timeout = limits.timeout_s
    # Not through Apprise.notify: that sends from threads of its own, past the guard.
    with destinations.guarded(limits.allowed) as refused:
        taken = service.notify(body=letter.text, title=letter.subject)
    if taken:
        return f"{service.service_name} took it."
    if refused:
        raise NotSendable(refused[0])
    raise NotReached(f"{service.service_name} did not take it.")
