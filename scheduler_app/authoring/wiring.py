"""How tasks are tied together in a flow body: results as arguments, ``>>`` and ``<<``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NoReturn, Self, TypeAlias, TypeVar

from scheduler_app.authoring.faults import refuse
from scheduler_app.authoring.sources import MapSource, Part, concat, transformed, zip_
from scheduler_app.authoring.template import Template

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from scheduler_app.authoring.call import TaskCall
    from scheduler_app.authoring.faults import Place

Leaf: TypeAlias = "Step | Template | Part"
# One side of an arrow: a step, or several, nested or not.
Steps: TypeAlias = "Step | list[Any] | tuple[Any, ...] | set[Any] | frozenset[Any]"
StepsT = TypeVar("StepsT", bound=Steps)

DEPTH_MAX: Final = 100  # of containers in each other; one that contains itself ends here
_CONTAINERS: Final = (list, tuple, dict, set, frozenset)


class Step:
    """Stands for a task in a flow body: for its place in the order, and for its later result."""

    @property
    def task_id(self) -> str:
        """The id of the task in its flow."""
        raise NotImplementedError

    def as_call(self) -> TaskCall:
        """The call that it stands for."""
        raise NotImplementedError

    def in_order(self) -> Step:
        """What it is in the order of the flow: itself, or the group that it came out of."""
        return self

    def run_before(self, other: Step) -> None:
        """The other one starts only when it has ended as its trigger rule wants."""
        other.run_after(self)

    def run_after(self, other: Step) -> None:
        """The task starts only when the other one has ended as its trigger rule wants."""
        raise NotImplementedError

    def map(self, function: Callable[[Any], Any]) -> MapSource:
        """To be mapped over: what the function makes of each element of the result."""
        return transformed(self, function)

    def zip(self, *others: object, **fill: Any) -> MapSource:
        """To be mapped over: tuples of its elements and theirs at the same place; see ``zip_``."""
        return zip_(self, *others, **fill)

    def concat(self, *others: object) -> MapSource:
        """To be mapped over: the elements of its result, then theirs."""
        return concat(self, *others)

    def __rshift__(self, other: StepsT) -> StepsT:
        for step in _steps(other, ">>"):
            step.run_after(self)
        return other

    def __lshift__(self, other: StepsT) -> StepsT:
        for step in _steps(other, "<<"):
            self.run_after(step)
        return other

    def __rrshift__(self, other: Steps) -> Self:
        for step in _steps(other, ">>"):
            self.run_after(step)
        return self

    def __rlshift__(self, other: Steps) -> Self:
        for step in _steps(other, "<<"):
            step.run_after(self)
        return self

    def __bool__(self) -> NoReturn:  # noqa: PLE0304 - refuses
        self._refuse_use("tested")

    def __iter__(self) -> NoReturn:
        self._refuse_use("looped over")

    def __len__(self) -> NoReturn:  # noqa: PLE0303 - refuses
        self._refuse_use("measured")

    def __getitem__(self, key: object) -> NoReturn:
        self._refuse_use("looked into")

    def __format__(self, spec: str) -> NoReturn:
        self._refuse_use("made into text")

    def __str__(self) -> NoReturn:  # noqa: PLE0307 - refuses
        self._refuse_use("made into text")

    def __eq__(self, other: object) -> bool:
        # Where it is looked for among other steps, it is itself and no other.
        if not isinstance(other, Step):
            self._refuse_use("compared")
        return self is other

    __hash__ = object.__hash__

    def _refuse_use(self, verb: str) -> NoReturn:
        raise refuse(
            f"The result of task {self.task_id!r} is {verb} while the flow is being built, before "
            "any task has run.",
            "Pass it whole to another task as an argument, and do this inside that task.",
        )


class Uncalled:
    """What makes a task or a group where it is called: by itself it stands for no result."""

    __slots__ = ()


_LEAVES: Final = (Step, Template, Part)


def steps_in(value: object, place: Place | None = None) -> Iterator[Step]:
    """Every step in the value, at any depth of lists, tuples, sets and dicts.

    ``place`` is what an error names, in place of the running line.
    """
    for leaf in leaves_in(value, place):
        if isinstance(leaf, Step):
            yield leaf


def leaves_in(value: object, place: Place | None = None) -> Iterator[Leaf]:
    """Every part of the value that stands for something which is there only at execution."""
    if isinstance(value, _LEAVES):
        yield value
    elif isinstance(value, _CONTAINERS):
        yield from _walk(value, 1, place)


def uncalled_in(value: object) -> Iterator[object]:
    """Every task or group in the value, at any depth, that is named there and was not called."""
    if isinstance(value, Uncalled) or (isinstance(value, type) and issubclass(value, Step)):
        yield value
    elif isinstance(value, _CONTAINERS):
        for one in value.values() if isinstance(value, dict) else value:
            yield from uncalled_in(one)


def with_results(value: Any, result_of: Callable[[Leaf], object]) -> Any:
    """A copy of the value with what each step or template stands for; other parts are shared."""
    if isinstance(value, _LEAVES):
        return result_of(value)
    if isinstance(value, _CONTAINERS) and next(leaves_in(value), None) is not None:
        return _rebuilt(value, result_of)
    return value


def _rebuilt(value: Any, result_of: Callable[[Leaf], object]) -> Any:
    if isinstance(value, dict):
        return {key: with_results(item, result_of) for key, item in value.items()}
    items = [with_results(item, result_of) for item in value]
    if hasattr(value, "_fields"):  # a named tuple
        return type(value)(*items)
    return next(kind for kind in _CONTAINERS if isinstance(value, kind))(items)


def _walk(value: Any, depth: int, place: Place | None) -> Iterator[Leaf]:
    if depth > DEPTH_MAX:
        raise refuse(
            f"An argument is nested deeper than {DEPTH_MAX} levels, or contains itself.",
            "Give the task a flatter argument.",
            place,
        )
    if isinstance(value, dict):
        if any(isinstance(key, Step) for key in value):
            raise refuse(
                "The result of a task is used as a key of a dict.",
                "Pass it as a value, and make the key inside the task.",
                place,
            )
        items = list(value.values())
    else:
        items = list(value)
    for item in items:
        if isinstance(item, _LEAVES):
            yield item
        elif isinstance(item, _CONTAINERS):
            yield from _walk(item, depth + 1, place)


def _steps(value: object, operator: str) -> list[Step]:
    """The steps of one side of an arrow: a step, or a list or tuple of them, nested or not."""
    if isinstance(value, Step):
        return [value]
    if isinstance(value, (list, tuple, set, frozenset)):
        return [step for item in value for step in _steps(item, operator)]
    called = getattr(value, "__name__", None)
    remedy = (
        f"Call it first: {called}()."
        if callable(value) and called
        else "Put a called task, or a list of called tasks, on both sides."
    )
    raise refuse(
        f"{value!r} stands beside {operator}, and is no task of this flow.",
        remedy,
    )
