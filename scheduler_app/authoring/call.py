"""Calls: one task of one flow, with the user code that it runs and where it resumes."""

from __future__ import annotations

import asyncio
import inspect
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from scheduler_app.authoring import callbacks
from scheduler_app.authoring.deferral import CTX, ERROR, EVENT, error_of
from scheduler_app.authoring.faults import Place, did_you_mean, refuse
from scheduler_app.authoring.signatures import without_ctx
from scheduler_app.authoring.wiring import Step, steps_in, with_results
from scheduler_app.rules.definition import TaskDefinition
from scheduler_app.rules.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from scheduler_app.authoring.building import Building
    from scheduler_app.authoring.context import Context
    from scheduler_app.authoring.task import Task


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
        """The id of the task in its flow."""
        return self.name

    def as_call(self) -> TaskCall:
        """The call itself."""
        return self

    def run_after(self, other: Step) -> None:
        """The other task is upstream."""
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

    def callbacks(self) -> callbacks.Callbacks:
        """What is called when the task moves: its own, or those of the flow's default_args."""
        return callbacks.taken_from({**self.building.defaults, **self.options})

    def definition(self) -> TaskDefinition:
        """This task as the stored picture of the flow has it."""
        for step in steps_in(self.body.arguments(), self.place):
            self._check_flow(step)
        fields = {**self.building.defaults, **self.options, "task_id": self.name}
        fields.setdefault("doc", self.doc)
        fields["callbacks"] = callbacks.names_of(callbacks.taken_from(fields))
        upstream = tuple(sorted(self.run_after_ids | self.result_task_ids()))
        return TaskDefinition(**fields, upstream=upstream, line=self.place.line)

    def _check_flow(self, other: Step) -> None:
        call = other.as_call()
        if call.building is not self.building:
            raise refuse(
                f"Task {self.name!r} of flow {self.building.flow_id!r} is tied to task "
                f"{call.name!r} of flow {call.building.flow_id!r}.",
                "Tie only tasks of one flow; call the task again in this flow.",
                self.place,
            )

    def __repr__(self) -> str:
        return f"<task {self.building.flow_id}.{self.name}>"


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


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionBody:
    """A task function and the arguments of one call."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    methods: Mapping[str, Callable[..., Any]]

    def arguments(self) -> object:
        """The values in which results of other tasks are looked for."""
        return [list(self.args), dict(self.kwargs)]

    def method(self, name: str, result_of: Callable[[Step], object] | None) -> Callable[..., Any]:
        """The function that ``@<task>.method`` registered by this name."""
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
        """What the user code returns for these results."""
        args = [with_results(value, result_of) for value in self.args]
        kwargs = {name: with_results(value, result_of) for name, value in self.kwargs.items()}
        signature = inspect.signature(self.function)
        bound = without_ctx(signature).bind(*args, **kwargs)
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
        """The values in which results of other tasks are looked for."""
        return self.instance.arguments()

    def execute(self, ctx: Context, result_of: Callable[[Step], object]) -> Any:
        """What the user code returns for these results."""
        return _finished(self._ready(result_of).execute(ctx))

    def method(self, name: str, result_of: Callable[[Step], object] | None) -> Callable[..., Any]:
        """The method of the instance with this name."""
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
