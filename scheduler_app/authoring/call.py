"""Calls: one task of one flow, with the user code that it runs and where it resumes."""

from __future__ import annotations

import asyncio
import inspect
from dataclasses import dataclass, field, replace
from types import GenericAlias
from typing import TYPE_CHECKING, Any, Final, Protocol

from scheduler_app.authoring import callbacks
from scheduler_app.authoring.building import POLLING
from scheduler_app.authoring.deferral import CTX, ERROR, EVENT, error_of
from scheduler_app.authoring.faults import Place, did_you_mean, refuse
from scheduler_app.authoring.mapping import (
    MappedArgument,
    NoItems,
    label_fault,
)
from scheduler_app.authoring.signatures import of_function
from scheduler_app.authoring.sources import MapSource
from scheduler_app.authoring.template import Template
from scheduler_app.authoring.wiring import Step, leaves_in, steps_in, uncalled_in, with_results
from scheduler_app.rules import graph, retry
from scheduler_app.rules.definition import TaskDefinition, TriggerRule
from scheduler_app.rules.errors import InvalidInput
from scheduler_app.rules.roles import Picks, Role
from scheduler_app.rules.ties import entries, exits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from scheduler_app.authoring.building import Building
    from scheduler_app.authoring.context import Context
    from scheduler_app.authoring.mapping import Items, LiveMapping
    from scheduler_app.authoring.task import Task
    from scheduler_app.authoring.wiring import Leaf

_OF_TEARDOWNS: Final = TriggerRule.ALL_DONE_SETUP_SUCCESS


class Body(Protocol):
    """The user code of a call, with its arguments."""

    def arguments(self) -> object:
        """The values in which results of other tasks are looked for."""

    def spreading(self, spread: MappedArgument) -> Body:
        """The same with a dict of further arguments for each instance."""

    def execute(self, ctx: Context, result_of: Callable[[Leaf], object]) -> Any:
        """What the user code returns for these results."""

    def method(self, name: str, result_of: Callable[[Leaf], object] | None) -> Callable[..., Any]:
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
    group_id: str = ""  # of the innermost group around it
    defaults: Mapping[str, Any] = field(default_factory=dict)  # of the flow and those groups
    run_after_ids: set[str] = field(default_factory=set)  # by >> and <<
    mapping: LiveMapping | None = None  # what it maps over, itself

    def __class_getitem__(cls, result: object) -> GenericAlias:
        """An annotation may name the type of the result: ``typed.TaskResult``."""
        return GenericAlias(cls, result)

    @property
    def task_id(self) -> str:
        """The id of the task in its flow."""
        return self.name

    def as_call(self) -> TaskCall:
        """The call itself."""
        return self

    def run_after(self, other: Step) -> None:
        """The other task is upstream, or the last tasks of the group are."""
        before = other.in_order()
        if isinstance(before, TaskCall):
            self._check_flow(before)
            self.run_after_ids.add(before.task_id)
        else:
            before.run_before(self)

    def as_setup(self) -> TaskCall:
        """It makes what the tasks up to its teardown need; cleared along with them."""
        self._become(Role.SETUP)
        return self

    def as_teardown(
        self, *, setups: Step | Iterable[Step] = (), fails_run: bool = False
    ) -> TaskCall:
        """It takes away what the setups made once all between them and it has ended, however.

        ``setups`` are made setups and stand before it. With ``fails_run`` its failure fails the run.
        """
        self._become(Role.TEARDOWN)
        if not isinstance(fails_run, bool):
            raise refuse(
                f"Teardown {self.name!r} has fails_run={fails_run!r:.80}.",
                "Give fails_run True or False.",
            )
        self.options = {**self.options, "fails_run": fails_run}
        for step in self._setups(setups):
            self.run_after(step.as_call().as_setup())
        return self

    def _become(self, role: Role) -> None:
        """It has this role. Raises ``DefinitionError`` where it has another one."""
        before = self.options.get("role")
        if before is not None and before != role:
            raise refuse(
                f"Task {self.name!r} is a {before} already, and is made a {role}.",
                "A task has one role: make what is taken away again in one task, the setup, and take it"
                " away in another, the teardown.",
            )
        self.options = {**self.options, "role": role}

    def _setups(self, setups: Any) -> list[Step]:
        """The called tasks that were given; whatever else is refused."""
        if isinstance(setups, Step):
            return [setups]
        try:
            given = list(setups)
        except TypeError:
            given = [setups]
        if all(isinstance(step, Step) for step in given):
            return given
        raise refuse(
            f"Teardown {self.name!r} has setups={setups!r}.",
            "Give setups a called task of this flow, or a list of them.",
        )

    def __enter__(self) -> TaskCall:
        if self.options.get("role") not in (Role.SETUP, Role.TEARDOWN):
            raise refuse(
                f"Task {self.name!r} stands in a with statement, and is neither setup nor teardown.",
                "Write .as_setup() or .as_teardown(...) behind it.",
            )
        self.building.scopes.append([])
        return self

    def __exit__(self, *_: object) -> None:
        calls = self.building.scopes.pop()
        if self.building.scopes:
            self.building.scopes[-1].extend(calls)
        upstream = {call.task_id: call.upstream_ids() for call in calls}
        setups, teardowns = self._around()
        for call in calls:
            if call.task_id in entries(upstream, list(upstream)):
                call.run_after_ids.update(setups)
        for teardown in teardowns:
            teardown.run_after_ids.update(exits(upstream, list(upstream)))

    def _around(self) -> tuple[set[str], list[TaskCall]]:
        """The setups and the teardowns of the ``with`` that it stands in."""
        calls = self.building.calls
        if self.options["role"] == Role.SETUP:
            below = [call for call in calls.values() if self.task_id in call.upstream_ids()]
            return {self.task_id}, [c for c in below if c.options.get("role") == Role.TEARDOWN]
        above = {one for one in self.upstream_ids() if one in calls}
        return {one for one in above if calls[one].options.get("role") == Role.SETUP}, [self]

    def map_over(self, mapping: LiveMapping) -> None:
        """It has an instance for each element. Raises ``DefinitionError`` within a mapped group."""
        around = self.building.mapped_group_around(self.group_id)
        if around is not None:
            raise refuse(
                f"Task {self.name!r} is mapped inside group {around.group_id!r}, which is mapped too.",
                "Nothing can be expanded within an expanded group: map the task outside of it, or loop"
                " inside the task.",
                self.place,
            )
        self.mapping = mapping

    def upstream_ids(self) -> frozenset[str]:
        """The tasks that it waits for, by an arrow or for their result."""
        mapped = frozenset[str]() if self.mapping is None else self.mapping.input_ids()
        return self.result_task_ids() | self.run_after_ids | mapped

    def result_task_ids(self) -> frozenset[str]:
        """The tasks whose whole results the arguments need, at any depth."""
        return frozenset(step.task_id for step in steps_in(self.body.arguments()))

    def execute(self, ctx: Context, results: Mapping[str, Any], items: Items | None = None) -> Any:
        """What the user code returns; ``results`` holds each of ``result_task_ids()``.

        ``items`` gives what is mapped over.
        """
        return self._picked(self.body.execute(ctx, _in_place_of(ctx, results, items)))

    def check_resume(self, method: str, kwargs: Mapping[str, Any]) -> None:
        """Raises ``InvalidInput`` if the task could not be resumed so."""
        found = self.body.method(method, None)
        try:
            _bound(found, ctx=None, event=None, error=None, kwargs=kwargs)
        except TypeError as exc:
            message = f"The task cannot be resumed in {method!r} with these kwargs: {exc}."
            raise InvalidInput(message) from None

    def resume(
        self,
        ctx: Context,
        results: Mapping[str, Any],
        method: str,
        stored: Mapping[str, Any],
        items: Items | None = None,
    ) -> Any:
        """What the method returns; ``stored`` has ``kwargs`` and ``event`` or ``error``."""
        found = self.body.method(method, _in_place_of(ctx, results, items))
        error = error_of(stored["error"]) if "error" in stored else None
        if error is not None and ERROR not in inspect.signature(found).parameters:
            raise error
        bound = _bound(
            found, ctx=ctx, event=stored.get("event"), error=error, kwargs=stored.get("kwargs", {})
        )
        return self._picked(finished(found(*bound.args, **bound.kwargs)))

    def _picked(self, result: Any) -> Any:
        """The result; of a branch, the ids that it goes on with, each of a task or group below it."""
        if self.options.get("picks") != Picks.BRANCH:
            return result
        chosen = result if isinstance(result, (list, tuple, set, frozenset)) else [result]
        below = self._below()
        prefix = f"{self.group_id}." if self.group_id else ""
        picked = []
        for one in chosen:
            if one is None:
                continue
            found = next((i for i in (one, f"{prefix}{one}") if i in below), None)
            if found is None:
                message = (
                    f"Branch {self.name!r} returned {one!r}, which is no id of a task or group after"
                    f" it. Return one of {', '.join(sorted(below)) or 'nothing: None'}."
                )
                raise InvalidInput(message)
            picked.append(found)
        return picked

    def _below(self) -> frozenset[str]:
        """The ids of the tasks that wait for it, directly or not, and of the groups around them."""
        calls = self.building.calls
        upstream = {task_id: call.upstream_ids() for task_id, call in calls.items()}
        below = graph.downstream_closure(upstream, [self.name])
        around = {
            group_id
            for group_id, group in self.building.groups.items()
            if not group.contains(self.group_id)
            and any(group.contains(calls[task_id].group_id) for task_id in below)
        }
        return below | around

    def callbacks(self) -> callbacks.Callbacks:
        """What is called when the task moves: its own, or those of the flow's default_args."""
        return callbacks.taken_from({**self.defaults, **self.options})

    def definition(self) -> TaskDefinition:
        """This task as the stored picture of the flow has it."""
        for leaf in leaves_in(self.body.arguments(), self.place):
            if isinstance(leaf, Step):
                self._check_flow(leaf)
            elif isinstance(leaf, MapSource):
                raise refuse(
                    f"Task {self.name!r} is called with {leaf!r}, which is there to be mapped over.",
                    "Write .map(...) or .expand(...) of the task.",
                    self.place,
                )
        for one in uncalled_in(self.body.arguments()):
            raise refuse(
                f"Task {self.name!r} is given {one!r} itself, which was not called.",
                "Write the brackets of the call behind it, so that the result is passed.",
                self.place,
            )
        for step in () if self.mapping is None else self.mapping.steps:
            self._check_flow(step)
        fields = {**self.defaults, **self.options, "task_id": self.name}
        fields = {name: one for name, one in fields.items() if not name.startswith(POLLING)}
        if self.options.get("role") == Role.TEARDOWN:
            if self.options.get("trigger_rule", _OF_TEARDOWNS) != _OF_TEARDOWNS:
                raise refuse(
                    f"Teardown {self.name!r} has trigger_rule={self.options['trigger_rule']!r}.",
                    "Leave it out: a teardown runs when everything up to it has ended.",
                    self.place,
                )
            fields["trigger_rule"] = _OF_TEARDOWNS
        fields.setdefault("doc", self.doc)
        fields["callbacks"] = callbacks.names_of(callbacks.taken_from(fields))
        self._check_mapping(fields)
        made = TaskDefinition(
            **fields,
            mapped=None if self.mapping is None else self.mapping.over,
            upstream=tuple(sorted(self.upstream_ids())),
            line=self.place.line,
            group=self.group_id,
        )
        if twice := retry.named_twice(made):
            raise refuse(
                f"Task {self.name!r} names {retry.shown_name(twice)} in two retry rules.",
                "Leave it in one of retry_on, fail_on and retry_policies.",
                self.place,
            )
        return made

    def _check_mapping(self, fields: Mapping[str, Any]) -> None:
        """Raises ``DefinitionError`` for what a mapped task cannot be."""
        group = self.building.mapped_group_around(self.group_id)
        over = self.mapping
        if over is None and group is not None:
            over = group.mapping
        if over is None:
            return
        wrong = label_fault(fields.get("map_label", ""), over.over)
        if wrong:
            raise refuse(
                f"map_label={fields['map_label']!r} of task {self.name!r} {wrong[0]}.",
                wrong[1],
                self.place,
            )

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


def _in_place_of(
    ctx: Context, results: Mapping[str, Any], items: Items | None
) -> Callable[[Leaf], object]:
    """What stands in an argument at execution in place of a step, a template or an element."""
    given = items or NoItems()

    def fill(leaf: Leaf) -> object:
        if isinstance(leaf, Template):
            return leaf.filled(ctx)
        if isinstance(leaf, MappedArgument):
            return leaf.value(ctx.map_index, given)
        assert isinstance(leaf, Step), "what else is mapped over was refused when it was defined"
        return results[leaf.task_id]

    return fill


def add_call(
    target: Building,
    *,
    wanted: str,
    exact: bool,
    place: Place,
    options: Mapping[str, Any],
    body: Body,
    doc: str,
    mapping: LiveMapping | None = None,
) -> TaskCall:
    """The call is part of the flow, under an id of its own."""
    name = target.id_for(wanted, place, exact=exact)
    call = TaskCall(
        name=name,
        place=place,
        building=target,
        options=options,
        body=body,
        doc=doc,
        group_id=target.inside[-1].group_id if target.inside else "",
        defaults=target.task_defaults,
    )
    if mapping is not None:
        call.map_over(mapping)
    target.calls[name] = call
    if target.scopes:
        target.scopes[-1].append(call)
    return call


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionBody:
    """A task function and the arguments of one call."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    methods: Mapping[str, Callable[..., Any]]
    spread: MappedArgument | None = None  # the dict of further arguments of each instance

    def arguments(self) -> object:
        """The values in which results of other tasks are looked for."""
        return [list(self.args), dict(self.kwargs)]

    def spreading(self, spread: MappedArgument) -> FunctionBody:
        """The same with a dict of further arguments for each instance."""
        return replace(self, spread=spread)

    def method(self, name: str, result_of: Callable[[Leaf], object] | None) -> Callable[..., Any]:
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

    def execute(self, ctx: Context, result_of: Callable[[Leaf], object]) -> Any:
        """What the user code returns for these results."""
        args = [with_results(value, result_of) for value in self.args]
        kwargs = {name: with_results(value, result_of) for name, value in self.kwargs.items()}
        if self.spread is not None:
            kwargs |= _spread(self.spread, kwargs, result_of)
        signature, of_data = of_function(self.function)
        try:
            bound = of_data.bind(*args, **kwargs)
        except TypeError as error:
            if self.spread is None:
                raise
            given = ", ".join(repr(name) for name in kwargs)
            message = (
                f"The element that it maps over does not fit: {error}. With it the task is given"
                f" {given or 'nothing'}; it takes {of_data}."
            )
            raise InvalidInput(message) from None
        bound.apply_defaults()
        if CTX in signature.parameters:
            values = {**bound.arguments, CTX: ctx}
            bound = inspect.BoundArguments(
                signature,
                # In the order of the signature: what stands before *args is passed by position.
                {name: values[name] for name in signature.parameters},
            )
        return finished(self.function(*bound.args, **bound.kwargs))


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceBody:
    """An instance of a class task; its attributes are its arguments."""

    instance: Task
    spread: MappedArgument | None = None  # the dict of further attributes of each instance

    def arguments(self) -> object:
        """The values in which results of other tasks are looked for."""
        return self.instance.arguments()

    def spreading(self, spread: MappedArgument) -> InstanceBody:
        """The same with a dict of further arguments for each instance."""
        return replace(self, spread=spread)

    def execute(self, ctx: Context, result_of: Callable[[Leaf], object]) -> Any:
        """What the user code returns for these results."""
        return finished(self._ready(result_of).execute(ctx))

    def method(self, name: str, result_of: Callable[[Leaf], object] | None) -> Callable[..., Any]:
        """The method of the instance with this name."""
        found = getattr(self.instance if result_of is None else self._ready(result_of), name, None)
        if not inspect.ismethod(found):
            kind = type(self.instance).__name__
            message = f"Class task {kind!r} has no method {name!r} to resume in. Write it there."
            raise InvalidInput(message)
        return found

    def _ready(self, result_of: Callable[[Leaf], object]) -> Task:
        """The instance with results in the place of tasks."""
        # Not copy.copy: it would go through Task.__new__, which adds an instance to a flow.
        ready = object.__new__(type(self.instance))
        vars(ready).update(vars(self.instance))
        for name, value in self.instance.arguments().items():
            setattr(ready, name, with_results(value, result_of))
        if self.spread is not None:
            given = {name: getattr(ready, name) for name in self.instance.arguments()}
            vars(ready).update(_spread(self.spread, given, result_of))
        return ready


def _spread(
    leaf: MappedArgument, given: Mapping[str, Any], result_of: Callable[[Leaf], object]
) -> dict[str, Any]:
    """The further arguments of this instance. Raises ``InvalidInput`` for one that is given twice."""
    more: Any = result_of(leaf)
    twice = sorted(given.keys() & more.keys())
    if twice:
        raise InvalidInput(
            f"Argument {twice[0]!r} comes with the element that the task maps over, and by"
            " .partial(...) too. Leave it out of one of them."
        )
    return dict(more)


def finished(result: Any) -> Any:
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
