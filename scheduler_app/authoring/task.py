"""Tasks: functions with ``@task``, classes that derive from ``Task``, and their calls in a flow."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, Self, TypeVar, overload

from scheduler_app.authoring.building import Building, current
from scheduler_app.authoring.context import Context
from scheduler_app.authoring.deferral import CTX, ERROR, EVENT, Defer, error_of
from scheduler_app.authoring.faults import (
    Fault,
    Place,
    did_you_mean,
    fault,
    place_of_caller,
    place_of_function,
    refuse,
)
from scheduler_app.authoring.options import TASK_OPTIONS, check_options
from scheduler_app.authoring.wiring import Step, steps_in, with_results
from scheduler_app.rules.definition import TaskDefinition
from scheduler_app.rules.errors import InvalidInput

if TYPE_CHECKING:
    from datetime import timedelta

    from scheduler_app.authoring.triggers import Trigger

F = TypeVar("F", bound=Callable[..., Any])


class Body(Protocol):
    """The user code of a call, with its arguments."""

    def arguments(self) -> object:
        """The values in which results of other tasks are looked for."""

    def execute(self, ctx: Context, result_of: Callable[[Step], object]) -> Any:
        """What the user code returns for these results."""

    def method(self, name: str, result_of: Callable[[Step], object] | None) -> Callable[..., Any]:
        """What it resumes with by this name; without results only to be looked at."""


@dataclass(slots=True, kw_only=True, eq=False)
class TaskCall(Step):
    """One task of one flow: a call of a task function, or an instance of a class task."""

    name: str
    place: Place
    building: Building
    options: Mapping[str, Any]  # fields of TaskDefinition
    body: Body
    doc: str
    run_after_ids: set[str] = field(default_factory=set)  # by >> and <<

    @property
    def task_id(self) -> str:
        return self.name

    def run_after(self, other: Step) -> None:
        self._check_flow(other)
        self.run_after_ids.add(other.task_id)

    def result_task_ids(self) -> frozenset[str]:
        """The tasks whose results the arguments need, at any depth."""
        return frozenset(step.task_id for step in steps_in(self.body.arguments()))

    def execute(self, ctx: Context, results: Mapping[str, Any]) -> Any:
        """What the user code returns; ``results`` holds each of ``result_task_ids()``."""
        return self.body.execute(ctx, lambda step: results[step.task_id])

    def check_resume(self, method: str, kwargs: Mapping[str, Any]) -> None:
        """Raises ``InvalidInput`` if the task could not be resumed so."""
        found = self.body.method(method, None)
        try:
            _bound(found, ctx=None, event=None, error=None, kwargs=kwargs)
        except TypeError as exc:
            message = f"The task cannot be resumed in {method!r} with these kwargs: {exc}."
            raise InvalidInput(message) from None

    def resume(
        self, ctx: Context, results: Mapping[str, Any], method: str, stored: Mapping[str, Any]
    ) -> Any:
        """What the method returns; ``stored`` has ``kwargs`` and ``event`` or ``error``."""
        found = self.body.method(method, lambda step: results[step.task_id])
        error = error_of(stored["error"]) if "error" in stored else None
        if error is not None and ERROR not in inspect.signature(found).parameters:
            raise error
        bound = _bound(
            found, ctx=ctx, event=stored.get("event"), error=error, kwargs=stored.get("kwargs", {})
        )
        return _finished(found(*bound.args, **bound.kwargs))

    def definition(self) -> TaskDefinition:
        """This task as the stored picture of the flow has it."""
        for step in steps_in(self.body.arguments()):
            self._check_flow(step)
        fields = {**self.building.defaults, **self.options, "task_id": self.name}
        fields.setdefault("doc", self.doc)
        upstream = tuple(sorted(self.run_after_ids | self.result_task_ids()))
        return TaskDefinition(**fields, upstream=upstream, line=self.place.line)

    def _check_flow(self, other: Step) -> None:
        call = call_of(other)
        if call.building is not self.building:
            raise refuse(
                f"Task {self.name!r} of flow {self.building.flow_id!r} is tied to task "
                f"{call.name!r} of flow {call.building.flow_id!r}.",
                "Tie only tasks of one flow; call the task again in this flow.",
                self.place,
            )

    def __repr__(self) -> str:
        return f"<task {self.building.flow_id}.{self.name}>"


def call_of(step: Step) -> TaskCall:
    """The call that a step of a flow body stands for."""
    if isinstance(step, Task):
        return step.call
    assert isinstance(step, TaskCall)
    return step


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionBody:
    """A task function and the arguments of one call."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    methods: Mapping[str, Callable[..., Any]]

    def arguments(self) -> object:
        return [list(self.args), dict(self.kwargs)]

    def method(self, name: str, result_of: Callable[[Step], object] | None) -> Callable[..., Any]:
        del result_of  # what the method needs of the arguments comes in the kwargs of the deferral
        if name not in self.methods:
            task_name = self.function.__name__
            remedy = (
                did_you_mean(name, list(self.methods))
                if self.methods
                else f"Put @{task_name}.method on the function that it resumes in."
            )
            message = f"Task {task_name!r} has no method {name!r} to resume in. {remedy}"
            raise InvalidInput(message)
        return self.methods[name]

    def execute(self, ctx: Context, result_of: Callable[[Step], object]) -> Any:
        args = [with_results(value, result_of) for value in self.args]
        kwargs = {name: with_results(value, result_of) for name, value in self.kwargs.items()}
        signature = inspect.signature(self.function)
        bound = _without_ctx(signature).bind(*args, **kwargs)
        bound.apply_defaults()
        if CTX in signature.parameters:
            values = {**bound.arguments, CTX: ctx}
            bound = inspect.BoundArguments(
                signature,
                # In the order of the signature: what stands before *args is passed by position.
                {name: values[name] for name in signature.parameters},
            )
        return _finished(self.function(*bound.args, **bound.kwargs))


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceBody:
    """An instance of a class task; its attributes are its arguments."""

    instance: Task

    def arguments(self) -> object:
        return self.instance.arguments()

    def execute(self, ctx: Context, result_of: Callable[[Step], object]) -> Any:
        return _finished(self._ready(result_of).execute(ctx))

    def method(self, name: str, result_of: Callable[[Step], object] | None) -> Callable[..., Any]:
        found = getattr(self.instance if result_of is None else self._ready(result_of), name, None)
        if not inspect.ismethod(found):
            kind = type(self.instance).__name__
            message = f"Class task {kind!r} has no method {name!r} to resume in. Write it there."
            raise InvalidInput(message)
        return found

    def _ready(self, result_of: Callable[[Step], object]) -> Task:
        """The instance with results in the place of tasks."""
        # Not copy.copy: it would go through Task.__new__, which adds an instance to a flow.
        ready = object.__new__(type(self.instance))
        vars(ready).update(vars(self.instance))
        for name, value in self.instance.arguments().items():
            setattr(ready, name, with_results(value, result_of))
        return ready


class TaskFunction:
    """A function made into a task: calling it in a flow body adds a task to the flow."""

    def __init__(self, function: Callable[..., Any], options: Mapping[str, object], place: Place):
        self.function = function
        self._is_named = False
        self._methods: dict[str, Callable[..., Any]] = {}
        self._fields, faults = check_options(
            options, TASK_OPTIONS, place, f"Task {function.__name__!r}"
        )
        self._faults = [*_faults_of_function(function), *faults]
        self.__doc__ = function.__doc__
        self.__name__ = function.__name__

    def override(self, **options: object) -> TaskFunction:
        """The same task with other options; ``task_id`` given here is taken exactly."""
        changed = TaskFunction(self.function, options, place_of_caller())
        changed._is_named = self._is_named or "task_id" in changed._fields
        changed._fields = {**self._fields, **changed._fields}
        changed._faults = list(dict.fromkeys([*self._faults, *changed._faults]))
        changed._methods = self._methods
        return changed

    def method(self, function: F) -> F:
        """``@<task>.method``: the task may resume in this function after a deferral.

        It gets ``ctx`` and ``event`` (and ``error``) by name, and the kwargs of the deferral.
        """
        if not inspect.isfunction(function):
            raise refuse(
                f"@{self.__name__}.method stands on {function!r}, which is no function.",
                "Put it on a def.",
            )
        if function.__name__ in self._methods:
            raise refuse(
                f"Task {self.__name__!r} has two methods called {function.__name__!r}.",
                "Give one of them another name.",
                place_of_function(function),
            )
        self._methods[function.__name__] = function
        return function

    def __call__(self, *args: object, **kwargs: object) -> TaskCall:
        place = place_of_caller()
        target = current(
            f"Task {self.__name__!r} is called",
            f"to run its code plainly, as in a test, write {self.__name__}.function(...).",
        )
        target.faults.extend(item for item in self._faults if item not in target.faults)
        fields = dict(self._fields)
        target.faults.extend(_faults_of_arguments(self.function, args, kwargs, place))
        return add_call(
            target,
            wanted=fields.pop("task_id", self.__name__),
            exact=self._is_named,
            place=place,
            options=fields,
            body=FunctionBody(
                function=self.function, args=args, kwargs=kwargs, methods=self._methods
            ),
            doc=inspect.getdoc(self.function) or "",
        )

    def __repr__(self) -> str:
        return f"<task function {self.__name__}>"


@overload
def task(function: Callable[..., Any], /) -> TaskFunction: ...


@overload
def task(**options: object) -> Callable[[Callable[..., Any]], TaskFunction]: ...


def task(function: Callable[..., Any] | None = None, /, **options: object) -> Any:
    """The function as a task, with or without options: ``@task`` or ``@task(retries=3)``.

    Options: task_id, retries, retry_delay, backoff, max_retry_delay, timeout, pool, slots,
    priority, queue, trigger_rule, doc. Durations are timedeltas or seconds.
    """
    place = place_of_caller()
    if function is None:
        return lambda decorated: _task_function(decorated, options, place)
    return _task_function(function, options, place)


def _task_function(function: Any, options: Mapping[str, object], place: Place) -> TaskFunction:
    if isinstance(function, TaskFunction):
        raise refuse(
            f"{function.__name__!r} is decorated with @task twice.", "Remove one of them.", place
        )
    if not inspect.isfunction(function):
        raise refuse(
            f"@task stands on {function!r}, which is no function.",
            "Put @task on a def; a class task derives from Task and needs no decorator.",
            place,
        )
    return TaskFunction(function, options, place)


class Task(Step):
    """The base of class tasks: write ``execute(self, ctx)``; an instance in a flow is a task.

    Annotated attributes are arguments: ``path: str`` in the class makes ``WaitForFile(path=...)``.
    A class with an ``__init__`` of its own passes ``**options`` on to this one.
    """

    def __new__(cls, *args: object, **kwargs: object) -> Self:
        instance = super().__new__(cls)
        current(
            f"Class task {cls.__name__!r} is made", "it is a task of one flow."
        ).instances.append(instance)
        return instance

    def __init__(self, **options: object) -> None:
        place = place_of_caller()
        target = current("It is made", "")
        subject = f"Task {type(self).__name__!r}"
        annotated = self._annotated()
        for name in annotated & options.keys():
            setattr(self, name, options.pop(name))
        known = {**TASK_OPTIONS, **dict.fromkeys(annotated, ("", lambda value: value))}
        fields, faults = check_options(options, known, place, subject)
        target.faults.extend(faults)
        target.faults.extend(_faults_of_class(type(self)))
        task_id = fields.pop("task_id", None)
        self.call = add_call(
            target,
            wanted=task_id or type(self).__name__,
            exact=task_id is not None,
            place=place,
            options=fields,
            body=InstanceBody(instance=self),
            doc=inspect.cleandoc(vars(type(self)).get("__doc__") or ""),
        )

    def execute(self, ctx: Context) -> Any:
        """What the task does; what it returns is its result."""
        raise NotImplementedError

    def defer(
        self,
        *,
        trigger: Trigger,
        method_name: str,
        kwargs: Mapping[str, Any] | None = None,
        timeout: timedelta | float | None = None,
    ) -> NoReturn:
        """Ends this attempt; the task waits for the trigger and resumes in that method: see Defer."""
        raise Defer(trigger, method=method_name, kwargs=kwargs, timeout=timeout)

    @property
    def task_id(self) -> str:
        return self.call.task_id

    def run_after(self, other: Step) -> None:
        self.call.run_after(other)

    def arguments(self) -> dict[str, Any]:
        """The attributes of the instance."""
        return {name: value for name, value in vars(self).items() if name != "call"}

    def faults(self, flow: Building) -> list[Fault]:
        """What is wrong with the instance, once the flow function has returned."""
        name = type(self).__name__
        if "call" not in vars(self):
            return [
                fault(
                    flow.place,
                    f"{name}.__init__ does not call the __init__ of Task.",
                    "Take **options in it and call super().__init__(**options).",
                )
            ]
        missing = sorted(key for key in self._annotated() if not hasattr(self, key))
        if missing:
            return [
                fault(
                    self.call.place,
                    f"{name} is made without {', '.join(missing)}.",
                    f"Write {name}({', '.join(f'{key}=...' for key in missing)}).",
                )
            ]
        return []

    @classmethod
    def _annotated(cls) -> set[str]:
        return {
            name
            for base in cls.__mro__
            if issubclass(base, Task) and base is not Task
            for name in inspect.get_annotations(base)
            if not name.startswith("_")
        }


def add_call(
    target: Building,
    *,
    wanted: str,
    exact: bool,
    place: Place,
    options: Mapping[str, Any],
    body: Body,
    doc: str,
) -> TaskCall:
    """The call is part of the flow, under an id of its own."""
    name = target.id_for(wanted, place, exact=exact)
    call = TaskCall(name=name, place=place, building=target, options=options, body=body, doc=doc)
    target.calls[name] = call
    return call


def _finished(result: Any) -> Any:
    """The result itself, where the user code is a coroutine: when it has run."""
    return asyncio.run(result) if inspect.iscoroutine(result) else result


def _bound(
    function: Callable[..., Any],
    *,
    ctx: Context | None,
    event: Any,
    error: Exception | None,
    kwargs: Mapping[str, Any],
) -> inspect.BoundArguments:
    """The arguments of a method that a task resumes in, by name. Raises ``TypeError``."""
    signature = inspect.signature(function)
    given = {CTX: ctx, EVENT: event, ERROR: error}
    filled = {name: value for name, value in given.items() if name in signature.parameters}
    return signature.bind(**filled, **kwargs)


def _without_ctx(signature: inspect.Signature) -> inspect.Signature:
    kept = [value for name, value in signature.parameters.items() if name != CTX]
    return signature.replace(parameters=kept)


def _faults_of_function(function: Callable[..., Any]) -> list[Fault]:
    place = place_of_function(function)
    name = function.__name__
    parameter = inspect.signature(function).parameters.get(CTX)
    if parameter and parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        stars = "*" if parameter.kind is parameter.VAR_POSITIONAL else "**"
        return [fault(place, f"Task {name!r} takes {stars}ctx.", "Write ctx without the star.")]
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        return [
            fault(
                place,
                f"Task {name!r} yields values; a task returns one result.",
                "Collect them in a list and return it.",
            )
        ]
    return []


def _faults_of_class(kind: type[Task]) -> list[Fault]:
    function = kind.execute
    if function is Task.execute:
        return [
            fault(
                place_of_caller(),
                f"Class task {kind.__name__!r} has no execute method.",
                "Write def execute(self, ctx) in it.",
            )
        ]
    parameters = list(inspect.signature(function).parameters)
    if parameters[1:] != [CTX]:
        return [
            fault(
                place_of_function(function),
                f"{kind.__name__}.execute takes ({', '.join(parameters)}).",
                "Write def execute(self, ctx); arguments are attributes of the instance.",
            )
        ]
    return []


def _faults_of_arguments(
    function: Callable[..., Any],
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
    place: Place,
) -> list[Fault]:
    name = function.__name__
    if CTX in kwargs:
        return [
            fault(
                place,
                f"Task {name!r} is called with ctx=..., which is filled in when the task runs.",
                "Leave ctx out of the call.",
            )
        ]
    plain = _without_ctx(inspect.signature(function))
    try:
        plain.bind(*args, **kwargs)
    except TypeError as exc:
        unknown = [key for key in kwargs if key not in plain.parameters]
        remedy = (
            did_you_mean(unknown[0], list(plain.parameters))
            if unknown and plain.parameters
            else f"It takes {plain}; ctx is filled in by that name and is not passed."
        )
        return [fault(place, f"Task {name!r} is called wrongly: {exc}.", remedy)]
    return []
