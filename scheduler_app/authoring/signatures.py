"""What the signatures of tasks and of their calls must be."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from scheduler_app.authoring.deferral import CTX
from scheduler_app.authoring.faults import (
    Fault,
    Place,
    did_you_mean,
    fault,
    place_of_caller,
    place_of_function,
)
from scheduler_app.authoring.options import TASK_OPTIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def faults_of_function(function: Callable[..., Any]) -> list[Fault]:
    """What is wrong with the task function itself."""
    place = place_of_function(function)
    name = function.__name__
    parameter = inspect.signature(function).parameters.get(CTX)
    context = inspect.signature(function).parameters.get("context")
    if context and context.kind is context.VAR_KEYWORD:
        return [
            fault(
                place,
                f"Task {name!r} takes **context, which nothing fills in.",
                "Write ctx as its first parameter: it holds what the context has.",
            )
        ]
    if parameter and parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        stars = "*" if parameter.kind is parameter.VAR_POSITIONAL else "**"
        return [fault(place, f"Task {name!r} takes {stars}ctx.", "Write ctx without the star.")]
    if parameter and parameter.kind is parameter.POSITIONAL_ONLY:
        return [
            fault(
                place, f"Task {name!r} takes ctx by place only.", "Take the slash behind it away."
            )
        ]
    if yields(function):
        return [
            fault(
                place,
                f"Task {name!r} yields values; a task returns one result.",
                "Collect them in a list and return it.",
            )
        ]
    return []


def yields(function: Callable[..., Any]) -> bool:
    """Whether a call of it gives a generator, in place of a result."""
    return inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)


def faults_of_class(kind: type, execute: Callable[..., Any] | None) -> list[Fault]:
    """What is wrong with the class task and its own ``execute``, if it has one."""
    if execute is None:
        return [
            fault(
                place_of_caller(),
                f"Class task {kind.__name__!r} has no execute method.",
                "Write def execute(self, ctx) in it.",
            )
        ]
    parameters = list(inspect.signature(execute).parameters)
    if parameters[1:] != [CTX]:
        return [
            fault(
                place_of_function(execute),
                f"{kind.__name__}.execute takes ({', '.join(parameters)}).",
                "Write def execute(self, ctx); arguments are attributes of the instance.",
            )
        ]
    return _faults_of_method(kind, execute)


def faults_of_poke(kind: type, poke: Callable[..., Any]) -> list[Fault]:
    """What is wrong with the ``poke`` of a sensor."""
    parameters = list(inspect.signature(poke).parameters)
    if parameters[1:] != [CTX]:
        return [
            fault(
                place_of_function(poke),
                f"{kind.__name__}.poke takes ({', '.join(parameters)}).",
                "Write def poke(self, ctx); arguments are attributes of the instance.",
            )
        ]
    return _faults_of_method(kind, poke)


def _faults_of_method(kind: type, method: Callable[..., Any]) -> list[Fault]:
    if not yields(method):
        return []
    return [
        fault(
            place_of_function(method),
            f"{kind.__name__}.{method.__name__} yields values; a task returns one result.",
            "Collect them in a list and return it.",
        )
    ]


def faults_of_arguments(
    function: Callable[..., Any],
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
    place: Place,
    *,
    is_whole: bool = True,
) -> list[Fault]:
    """What is wrong with this call of the task function; not ``is_whole``: more comes later."""
    name = function.__name__
    if CTX in kwargs:
        return [
            fault(
                place,
                f"Task {name!r} is called with ctx=..., which is filled in when the task runs.",
                "Leave ctx out of the call.",
            )
        ]
    plain = without_ctx(inspect.signature(function))
    try:
        bound = (plain.bind if is_whole else plain.bind_partial)(*args, **kwargs)
    except TypeError as exc:
        unknown = [key for key in kwargs if key not in plain.parameters]
        if unknown and unknown[0] in TASK_OPTIONS:
            remedy = f"It is an option: {name}.override({unknown[0]}=...)(...)."
            return [fault(place, f"Task {name!r} takes no argument {unknown[0]!r}.", remedy)]
        remedy = (
            did_you_mean(unknown[0], list(plain.parameters))
            if unknown and plain.parameters
            else f"It takes {plain}; ctx is filled in by that name and is not passed."
        )
        return [fault(place, f"Task {name!r} is called wrongly: {exc}.", remedy)]
    for value in [*args, *kwargs.values()]:
        if isinstance(value, Iterator):
            # A process that executes several attempts would find it read to its end.
            return [
                fault(
                    place,
                    f"Task {name!r} is called with {value!r:.80}, which can be read once only.",
                    "Write list(...) of it, or make it inside the task.",
                )
            ]
    if not is_whole:
        return []
    return [
        fault(
            place,
            f"Task {name!r} is called without {missing!r}, which is not filled in by its name.",
            f"Write {remedy} ({missing}=None where nothing is meant).",
        )
        for missing, remedy in _FILLED_IN_ELSEWHERE.items()
        if missing in plain.parameters
        and plain.parameters[missing].default is None
        and missing not in bound.arguments
    ]


# What Airflow fills in by the name of a parameter, and how a task gets it here.
_FILLED_IN_ELSEWHERE: Final = {
    "ti": "ctx as a parameter, and ctx.task_id, ctx.try_number, ctx.push and ctx.pull",
    "task_instance": "ctx as a parameter, and ctx.task_id, ctx.try_number, ctx.push and ctx.pull",
    "dag_run": "ctx as a parameter, and ctx.run_id and ctx.conf",
    "ds": 'ds=Template("{ds}") in the call, or ctx as a parameter, and ctx.logical_date',
    "ds_nodash": 'ds_nodash=Template("{ds_nodash}") in the call, or ctx as a parameter',
    "ts": 'ts=Template("{ts}") in the call, or ctx as a parameter, and ctx.logical_date',
    "logical_date": "ctx as a parameter, and ctx.logical_date",
    "execution_date": "ctx as a parameter, and ctx.logical_date",
    "data_interval_start": "ctx as a parameter, and ctx.data_interval_start",
    "data_interval_end": "ctx as a parameter, and ctx.data_interval_end",
}


@lru_cache(maxsize=1024)
def of_function(function: Callable[..., Any]) -> tuple[inspect.Signature, inspect.Signature]:
    """The signature, and that of the data that a call gives: read once, since every attempt asks."""
    signature = inspect.signature(function)
    return signature, without_ctx(signature)


def without_ctx(signature: inspect.Signature) -> inspect.Signature:
    """The signature of the data that a call gives."""
    kept = [value for name, value in signature.parameters.items() if name != CTX]
    return signature.replace(parameters=kept)
