"""Which flows a file defines: while it is being loaded, each flow registers here."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from scheduler_app.authoring.faults import Fault, error_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scheduler_app.authoring.flow import Flow


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """A flow, the faults of its definition, and the file whose top-level code made it."""

    flow: Flow
    faults: tuple[Fault, ...]
    made_by: str


@dataclass(slots=True)
class Registry:
    """What was registered so far, in order."""

    registrations: list[Registration] = field(default_factory=list)


_collecting: Final[ContextVar[Registry | None]] = ContextVar("daylight_registry", default=None)


@contextmanager
def collecting() -> Iterator[Registry]:
    """Flows defined inside the block are in the registry, faulty ones too, and none raises."""
    registry = Registry()
    token = _collecting.set(registry)
    try:
        yield registry
    finally:
        _collecting.reset(token)


def register(flow: Flow, faults: list[Fault]) -> None:
    """The flow is known to who is loading; where nobody is, a faulty one raises."""
    registry = _collecting.get()
    if registry is not None:
        registry.registrations.append(
            Registration(flow=flow, faults=tuple(faults), made_by=_file_being_imported())
        )
    elif faults:
        raise error_of(faults)


def _file_being_imported() -> str:
    """The file of the innermost module whose top-level code is running.

    So a flow that comes with an import belongs to the imported file, and one that a helper function
    makes to the file that called it.
    """
    frame = sys._getframe(1)  # noqa: SLF001 - the cheap way to look at the stack
    while frame.f_code.co_name != "<module>" and frame.f_back is not None:
        frame = frame.f_back
    return frame.f_code.co_filename
