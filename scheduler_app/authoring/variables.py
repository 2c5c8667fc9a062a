"""Variables in user code: ``Variable.get("name")`` inside a task or a callback."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol

from scheduler_app.rules import values, variables
from scheduler_app.rules.errors import NotFound

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


class VariablesOutOfReach(RuntimeError):
    """There is no stack behind this call: it was not made by a running task or callback."""

    def __init__(self, call: str) -> None:
        super().__init__(call)
        self.call = call

    def __str__(self) -> str:
        """What to do instead."""
        return (
            f"{self.call} works inside a running task or callback alone, not while the file of a flow"
            " is loaded and not in a process of the task's own. Move it into the task; in a test, put"
            ' it under: with Variable.given({"name": 1}): ...'
        )


class NoSuchVariable(NotFound, KeyError):
    """There is no variable of this key, and no default was given."""

    def __str__(self) -> str:
        """The message, not its repr as of other ``KeyError``."""
        return str(self.args[0])


class _Missing:
    def __repr__(self) -> str:
        return "ABSENT"


ABSENT: Final = _Missing()


class VariableServices(Protocol):
    """What the worker does for variables while user code runs."""

    def variable(self, key: str) -> tuple[bool, Any]:
        """Whether the variable is there, and its value."""

    def set_variable(
        self,
        key: str,
        value: Any,
        *,
        description: str | None,
        is_secret: bool | None,
        expected: Any = ABSENT,
        is_compared: bool = False,
    ) -> bool:
        """Whether it was set: ``is_compared`` sets it only if ``expected`` is there (or nothing)."""

    def increment_variable(self, key: str, by: float, start: float) -> float:
        """The new number."""

    def delete_variable(self, key: str) -> bool:
        """Whether there was one."""


_services: VariableServices | None = None  # of the attempt that this process executes


@contextmanager
def served_by(services: VariableServices) -> Iterator[None]:
    """``Variable`` works inside, over these services."""
    global _services  # noqa: PLW0603 - a process executes one attempt at a time
    kept, _services = _services, services
    try:
        yield
    finally:
        _services = kept


class Variable:
    """Named values that flows share, read and written at once.

    What an attempt reads is what is stored at that moment; nothing is kept from call to call. A value
    is any that a task could return. Works in tasks and callbacks: see ``VariablesOutOfReach``.
    """

    ABSENT: Final = ABSENT

    @staticmethod
    def get(
        key: str,
        default: Any = ABSENT,
        *,
        deserialize_json: bool = False,
        default_var: Any = ABSENT,
    ) -> Any:
        """The value; without one, the default. Raises ``NoSuchVariable``, which is a ``KeyError``.

        ``deserialize_json`` reads a value that is a text as JSON; any other is returned as it is.
        ``default_var`` is the older name of ``default``.
        """
        is_there, value = _at(f"Variable.get({key!r})").variable(variables.check_key(key))
        if is_there:
            return variables.from_json_text(key, value) if deserialize_json else value
        for given in (default, default_var):
            if given is not ABSENT:
                return given
        message = f"There is no variable {key!r}. Create it, or give a default."
        raise NoSuchVariable(message, field="key")

    @staticmethod
    def set(
        key: str,
        value: Any,
        description: str | None = None,
        serialize_json: bool = False,
        *,
        secret: bool | None = None,
    ) -> None:
        """The variable has the value. Raises ``InvalidInput`` and ``Superseded``.

        ``secret`` encrypts it at rest and masks it wherever it is shown; without it, and without a
        description, these stay as they are. ``serialize_json`` changes nothing: values keep their type.
        """
        del serialize_json
        _at(f"Variable.set({key!r})").set_variable(
            variables.check_key(key), value, description=description, is_secret=secret
        )

    @staticmethod
    def compare_and_set(key: str, expected: Any, value: Any) -> bool:
        """Whether the variable had the value ``expected``; then it has ``value`` now.

        ``Variable.ABSENT`` expects that there is none. Raises ``InvalidInput`` and ``Superseded``.
        """
        return _at(f"Variable.compare_and_set({key!r})").set_variable(
            variables.check_key(key),
            value,
            description=None,
            is_secret=None,
            expected=expected,
            is_compared=True,
        )

    @staticmethod
    def increment(key: str, by: float = 1, *, start: float = 0) -> float:
        """The number is greater by ``by``, in one step that no other writer can fall between.

        A variable that is not there begins at ``start``. Returns the new number. Raises
        ``InvalidInput`` where the value is no number, and ``Superseded``.
        """
        return _at(f"Variable.increment({key!r})").increment_variable(
            variables.check_key(key), by, start
        )

    @staticmethod
    def delete(key: str) -> bool:
        """There is no such variable; whether there was one. Raises ``Superseded``."""
        return _at(f"Variable.delete({key!r})").delete_variable(variables.check_key(key))

    @staticmethod
    @contextmanager
    def given(kept: Mapping[str, Any] | None = None) -> Iterator[dict[str, Any]]:
        """For tests, without a stack: inside, there are these variables; yields what they become."""
        memory = _Memory(values.decode(values.encode(dict(kept or {}))))
        with served_by(memory):
            yield memory.kept


class _Memory:
    """Variables of a test."""

    def __init__(self, kept: dict[str, Any]) -> None:
        self.kept = kept

    def variable(self, key: str) -> tuple[bool, Any]:
        return key in self.kept, self.kept.get(key)

    def set_variable(
        self,
        key: str,
        value: Any,
        *,
        description: str | None,
        is_secret: bool | None,
        expected: Any = ABSENT,
        is_compared: bool = False,
    ) -> bool:
        del description, is_secret
        if is_compared and not _is_as(self.kept.get(key, ABSENT), expected):
            return False
        self.kept[key] = values.decode(variables.encode(key, value))
        return True

    def increment_variable(self, key: str, by: float, start: float) -> float:
        number = variables.incremented(key, self.kept.get(key, start), by)
        self.kept[key] = number
        return number

    def delete_variable(self, key: str) -> bool:
        return self.kept.pop(key, ABSENT) is not ABSENT


def _is_as(found: object, expected: object) -> bool:
    if ABSENT in (found, expected):
        return found is expected
    return variables.are_equal(found, expected)


def _at(call: str) -> VariableServices:
    if _services is None:
        raise VariablesOutOfReach(call)
    return _services
