"""What a running task keeps for its next attempt, and how far it tells that it has got."""

from __future__ import annotations

from collections.abc import Mapping, Sized
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from scheduler_app.rules.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

TASK: Final = "task"
FLOW: Final = "flow"
NAME: Final = "name"
KEY_CHARACTERS_MAX: Final = 250
NOTE_CHARACTERS_MAX: Final = 250
COUNT_MAX: Final = 2**63 - 1

T = TypeVar("T")


class Superseded(RuntimeError):
    """The attempt is no longer the one whose result would be accepted; nothing was saved."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what

    def __str__(self) -> str:
        """What was refused, and what to do."""
        return (
            f"{self.what} was not saved: another attempt of this task has taken its place, or the"
            " task was ended. Let this one end; what it still does counts for nothing."
        )


class SavingServices(Protocol):
    """What the worker keeps for a task while it runs. An owner is the name of a scope ``name``."""

    def checkpoint(self, scope: str, owner: str | None, key: str) -> tuple[bool, Any]:
        """Whether the checkpoint is there, and its value."""

    def save(self, scope: str, owner: str | None, values: Mapping[str, Any]) -> None:
        """The values are saved within an interval, all in one commit. Raises ``Superseded``."""

    def flush(self) -> None:
        """What waits to be saved is saved. Raises ``Superseded``."""

    def tell_progress(self, done: int, total: int | None, note: str) -> None:
        """The numbers are shown within an interval. Raises ``Superseded``."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Values that outlive an attempt: ``ctx.checkpoint``.

    They survive a retry, a lost worker and a deferral. Those of scope ``task`` belong to this task
    of this run, those of ``flow`` to all runs of this flow; any other scope is a name that flows may
    share. A save reaches the database within an interval, and the last one before the attempt ends;
    a process that is killed loses no more than the saves of one interval: ``flush`` waits for them.
    """

    services: SavingServices
    scope: str = TASK
    owner: str | None = None

    def __call__(self, scope: str = TASK) -> Checkpoint:
        """The checkpoints of another scope: ``ctx.checkpoint("flow").get("since")``."""
        if scope in (TASK, FLOW):
            return Checkpoint(self.services, scope)
        return Checkpoint(self.services, NAME, checked_key(scope, "scope"))

    def get(self, key: str, default: Any = None) -> Any:
        """The value that was saved last, by whichever attempt; ``default`` if there is none."""
        is_there, value = self.services.checkpoint(self.scope, self.owner, checked_key(key))
        return value if is_there else default

    def set(self, key: str, value: Any) -> None:
        """The value is saved within an interval. Raises ``InvalidInput`` and ``Superseded``."""
        self.services.save(self.scope, self.owner, {checked_key(key): value})

    def update(self, values: Mapping[str, Any] | None = None, /, **more: Any) -> None:
        """All these values are saved, in one commit: an attempt finds all of them or none."""
        if values is not None and not isinstance(values, Mapping):
            raise InvalidInput(
                f"ctx.checkpoint.update takes a dict, not {type(values).__name__}.", key="values"
            )
        together = {**(values or {}), **more}
        if together:
            self.services.save(
                self.scope, self.owner, {checked_key(key): together[key] for key in together}
            )

    def flush(self) -> None:
        """What was set is in the database now, whatever becomes of this process afterwards."""
        self.services.flush()


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the task has got, as a bar on its page: ``ctx.progress``."""

    services: SavingServices

    def __call__(
        self, items: Iterable[T], total: int | None = None, *, done: int = 0
    ) -> Iterator[T]:
        """The items, counted as they are through.

        ``done`` were through before, in an earlier attempt. ``total`` is all of them; without it, it
        is ``done`` and the length of ``items``, if they have one.
        """
        start = _checked_count(done, "done")
        if total is None and isinstance(items, Sized):
            total = start + len(items)
        return self._counted(items, start, _checked_total(total))

    def update(self, done: int, total: int | None = None, note: str = "") -> None:
        """``done`` of ``total`` are through; the note says in words what is being done."""
        cleaned = str(note).encode("utf-8", "backslashreplace").decode().replace("\x00", "\\x00")
        self.services.tell_progress(
            _checked_count(done, "done"), _checked_total(total), cleaned[:NOTE_CHARACTERS_MAX]
        )

    def _counted(self, items: Iterable[T], done: int, total: int | None) -> Iterator[T]:
        self.services.tell_progress(done, total, "")
        for item in items:
            yield item
            done += 1
            self.services.tell_progress(done, total, "")


def checked_key(key: object, what: str = "key") -> str:
    """The key of a checkpoint or a pushed value. Raises ``InvalidInput``."""
    if isinstance(key, str) and 0 < len(key) <= KEY_CHARACTERS_MAX and key.isprintable():
        return key
    raise InvalidInput(
        f"{key!r:.300} is no {what}: it must be a text of 1 to {KEY_CHARACTERS_MAX} printable"
        " characters.",
        key=what,
    )


def _checked_total(total: object) -> int | None:
    return None if total is None else _checked_count(total, "total")


def _checked_count(number: object, what: str) -> int:
    if isinstance(number, int) and not isinstance(number, bool) and 0 <= number <= COUNT_MAX:
        return number
    raise InvalidInput(f"{what}={number!r:.100} is no whole number from 0 on.", key=what)
