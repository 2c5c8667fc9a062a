"""Tasks: functions with ``@task``, and classes that derive from ``Task``."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    NoReturn,
    ParamSpec,
    Self,
    TypeVar,
    Unpack,
    cast,
    overload,
)

from scheduler_app.authoring.building import Building, current
from scheduler_app.authoring.call import Body, FunctionBody, InstanceBody, TaskCall, add_call
from scheduler_app.authoring.deferral import Defer
from scheduler_app.authoring.faults import (
    Fault,
    Place,
    did_you_mean,
    error_of,
    fault,
    place_of_caller,
    place_of_function,
    refuse,
)
from scheduler_app.authoring.mapping import DICTS, live_mapping, refuse_unnamed, written_dicts
from scheduler_app.authoring.options import TASK_OPTIONS, check_options
from scheduler_app.authoring.signatures import (
    faults_of_arguments,
    faults_of_class,
    faults_of_function,
    without_ctx,
    yields,
)
from scheduler_app.authoring.wiring import Step, Uncalled
from scheduler_app.rules.roles import Role

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import timedelta

    from scheduler_app.authoring.context import Context
    from scheduler_app.authoring.mapping import LiveMapping
    from scheduler_app.authoring.triggers import Trigger
    from scheduler_app.authoring.typed import MakesTask, TakesContext, TaskOptions, TaskResult

F = TypeVar("F", bound=Callable[..., Any])
P = ParamSpec("P")
R = TypeVar("R")
FunctionT = TypeVar("FunctionT", bound="TaskFunction[..., Any]")


class TaskFunction(Uncalled, Generic[P, R]):
    """A function made into a task: calling it in a flow body adds a task to the flow."""

    def __init__(self, function: Callable[..., R], options: Mapping[str, object], place: Place):
        self.function = function
        self._is_named = False
        self._methods: dict[str, Callable[..., Any]] = {}
        self._fields, faults = check_options(
            options, TASK_OPTIONS, place, f"Task {function.__name__!r}"
        )
        self._faults = [*faults_of_function(function), *faults]
        self.__doc__ = function.__doc__
        self.__name__ = function.__name__

    def override(self, **options: Unpack[TaskOptions]) -> TaskFunction[P, R]:
        """The same task with other options; ``task_id`` given here is taken exactly."""
        changed: TaskFunction[P, R] = TaskFunction(self.function, options, place_of_caller())
        self._hand_on(changed)
        return changed

    def _hand_on(self, changed: TaskFunction[P, R]) -> None:
        """What the other one does not say itself is as of this one."""
        changed._is_named = self._is_named or "task_id" in changed._fields
        changed._fields = {**self._fields, **changed._fields}
        changed._faults = list(dict.fromkeys([*self._faults, *changed._faults]))
        changed._methods = self._methods

    def method(self, function: F) -> F:
        """``@<task>.method``: the task may resume in this function after a deferral.

        It gets ``ctx`` and ``event`` (and ``error``) by name, and the kwargs of the deferral.
        """
        if not inspect.isfunction(function):
            raise refuse(
                f"@{self.__name__}.method stands on {function!r}, which is no function.",
                "Put it on a def.",
            )
        if yields(function):
            raise refuse(
                f"Method {function.__name__!r} of task {self.__name__!r} yields values; it returns one"
                " result.",
                "Collect them in a list and return it.",
                place_of_function(function),
            )
        if function.__name__ in self._methods:
            raise refuse(
                f"Task {self.__name__!r} has two methods called {function.__name__!r}.",
                "Give one of them another name.",
                place_of_function(function),
            )
        self._methods[function.__name__] = function
        return function

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> TaskResult[R]:
        """The flow that is being built has one more task; ``ctx`` is left out of the call."""
        place = place_of_caller()
        target = current(
            f"Task {self.__name__!r} is called",
            f"to run its code plainly, as in a test, write {self.__name__}.function(...).",
        )
        return self._add(target, args, kwargs, place)

    def partial(self, **kwargs: object) -> Partial[R]:
        """The task with arguments that are the same for all of its mapped instances."""
        return Partial(function=self, fixed=kwargs)

    def map(self, *args: object, **kwargs: object) -> TaskResult[R]:
        """The flow has one more task, with an instance for every combination of these elements."""
        return self.partial().map(*args, **kwargs)

    def expand(self, *args: object, **kwargs: object) -> TaskResult[R]:
        """The same, with every argument named."""
        return self.partial().expand(*args, **kwargs)

    def expand_kwargs(self, dicts: object) -> TaskResult[R]:
        """The flow has one more task, with an instance for each dict of arguments in the list."""
        return self.partial().expand_kwargs(dicts)

    def _add(
        self,
        target: Building,
        args: tuple[object, ...],
        kwargs: Mapping[str, object],
        place: Place,
        mapping: LiveMapping | None = None,
    ) -> TaskResult[R]:
        target.faults.extend(item for item in self._faults if item not in target.faults)
        fields = dict(self._fields)
        is_whole = mapping is None or not mapping.over.is_dicts
        target.faults.extend(
            faults_of_arguments(self.function, args, kwargs, place, is_whole=is_whole)
        )
        body = self.body(args, kwargs)
        if mapping is not None and mapping.over.is_dicts:
            body = body.spreading(mapping.argument(DICTS))
        made = add_call(
            target,
            wanted=fields.pop("task_id", self.__name__),
            exact=self._is_named,
            place=place,
            options=fields,
            body=body,
            doc=inspect.getdoc(self.function) or "",
            mapping=mapping,
        )
        return cast("TaskResult[R]", made)

    def body(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Body:
        """What a call of it executes."""
        return FunctionBody(function=self.function, args=args, kwargs=kwargs, methods=self._methods)

    def being(self, **fields: object) -> TaskFunction[P, R]:
        """The same task with these fields of its definition: its role, what it picks."""
        changed = copy.copy(self)
        changed._fields = {**self._fields, **fields}
        return changed

    def __repr__(self) -> str:
        return f"<task function {self.__name__}>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Partial(Uncalled, Generic[R]):
    """A task with some arguments given, which are the same for all of its mapped instances."""

    function: TaskFunction[Any, R]
    fixed: Mapping[str, object]

    def partial(self, **kwargs: object) -> Partial[R]:
        """The same with more arguments given."""
        return Partial(function=self.function, fixed={**self.fixed, **kwargs})

    def map(self, *args: object, **kwargs: object) -> TaskResult[R]:
        """The flow has one more task, with an instance for every combination of these elements."""
        plain = without_ctx(inspect.signature(self.function.function)).parameters
        names = [name for name in plain if name not in self.fixed and name not in kwargs]
        if len(args) > len(names):
            raise refuse(
                f"{self._subject} is mapped over {len(args)} lists by place, and takes"
                f" {len(names)} such arguments.",
                "Name them: .map(a=..., b=...).",
            )
        over = {**dict(zip(names, args, strict=False)), **kwargs}
        return self._mapped(over, is_dicts=False)

    def expand(self, *args: object, **kwargs: object) -> TaskResult[R]:
        """The same, with every argument named."""
        if args:
            raise refuse_unnamed(self._subject)
        return self.map(**kwargs)

    def expand_kwargs(self, dicts: object) -> TaskResult[R]:
        """The flow has one more task, with an instance for each dict of arguments in the list."""
        return self._mapped({DICTS: dicts}, is_dicts=True)

    @property
    def _subject(self) -> str:
        return f"Task {self.function.__name__!r}"

    def _mapped(self, over: Mapping[str, object], *, is_dicts: bool) -> TaskResult[R]:
        place = place_of_caller()
        target = current(f"{self._subject} is mapped", "it is a task of one flow.")
        if twice := sorted(self.fixed.keys() & over.keys()):
            raise refuse(
                f"{self._subject} gets {twice[0]!r} by .partial(...), and maps over it too.",
                "Leave it out of one of them.",
            )
        function = self.function.function
        for name in (one for one in over if not is_dicts and one in TASK_OPTIONS):
            if name not in inspect.signature(function).parameters:
                raise refuse(
                    f"{self._subject} maps over {name!r}, which is an option.",
                    f"Options are the same for all: {self.function.__name__}.override({name}=...)"
                    ".expand(...).",
                    place,
                )
        live = live_mapping(over, subject=self._subject, place=place, is_dicts=is_dicts)
        for element in written_dicts(over) if is_dicts else ():
            if wrong := faults_of_arguments(function, (), {**element, **self.fixed}, place):
                raise error_of(wrong)
        kwargs = dict(self.fixed)
        if not is_dicts:
            kwargs |= {name: live.argument(name) for name in over}
        return self.function._add(target, (), kwargs, place, live)  # noqa: SLF001 - a part of it


@overload
def task(function: TakesContext[P, R], /) -> TaskFunction[P, R]: ...


@overload
def task(function: Callable[P, R], /) -> TaskFunction[P, R]: ...


@overload
def task(**options: Unpack[TaskOptions]) -> MakesTask: ...


def task(function: Callable[..., Any] | None = None, /, **options: Unpack[TaskOptions]) -> Any:
    """The function as a task, with or without options: ``@task`` or ``@task(retries=3)``.

    Options: task_id, retries, retry_delay, backoff, max_retry_delay, jitter, retry_on, fail_on,
    retry_policies, timeout, suspect_factor, suspect_after, pool, slots, priority, weight_rule, limit,
    max_active_per_flow, max_active_per_run, queue, trigger_rule, doc; on_execute_callback, on_retry_callback,
    on_success_callback, on_failure_callback, on_skipped_callback (each a function of the context,
    or a list of them). Durations are timedeltas or seconds.
    """
    place = place_of_caller()
    if function is None:
        return lambda decorated: task_function(decorated, options, place)
    return task_function(function, options, place)


@overload
def setup(function: TaskFunction[P, R], /) -> TaskFunction[P, R]: ...


@overload
def setup(function: TakesContext[P, R], /) -> TaskFunction[P, R]: ...


@overload
def setup(function: Callable[P, R], /) -> TaskFunction[P, R]: ...


@overload
def setup(**options: Unpack[TaskOptions]) -> MakesTask: ...


def setup(function: Callable[..., Any] | None = None, /, **options: Unpack[TaskOptions]) -> Any:
    """The task as a setup: see ``as_setup``. Stands alone, or over ``@task``; options as there."""
    return special("setup", function, options, role=Role.SETUP)


@overload
def teardown(function: TaskFunction[P, R], /) -> TaskFunction[P, R]: ...


@overload
def teardown(function: TakesContext[P, R], /) -> TaskFunction[P, R]: ...


@overload
def teardown(function: Callable[P, R], /) -> TaskFunction[P, R]: ...


@overload
def teardown(*, fails_run: bool = False, **options: Unpack[TaskOptions]) -> MakesTask: ...


def teardown(
    function: Callable[..., Any] | None = None,
    /,
    *,
    fails_run: bool = False,
    **options: Unpack[TaskOptions],
) -> Any:
    """The task as a teardown: see ``as_teardown``. Stands alone, or over ``@task``; options as there."""
    return special("teardown", function, options, role=Role.TEARDOWN, fails_run=fails_run)


def special(
    name: str,
    function: Callable[..., Any] | None,
    options: Mapping[str, object],
    **fields: object,
) -> Any:
    """What a decorator of this name makes of a function or of a task: a task with these fields."""
    place = place_of_caller()

    def made(decorated: Any) -> TaskFunction[..., Any]:
        if isinstance(decorated, TaskFunction):
            changed = decorated.override(**cast("TaskOptions", options)) if options else decorated
            return changed.being(**fields)
        return task_function(decorated, options, place, name).being(**fields)

    return made if function is None else made(function)


def task_function(
    function: Any,
    options: Mapping[str, object],
    place: Place,
    name: str = "task",
    *,
    kind: type[FunctionT] = TaskFunction,  # type: ignore[assignment]  # the usual one
) -> FunctionT:
    """What a decorator of this name makes of a function. Raises ``DefinitionError``."""
    if isinstance(function, TaskFunction):
        raise refuse(
            f"{function.__name__!r} is decorated with @task twice.", "Remove one of them.", place
        )
    if not inspect.isfunction(function):
        raise refuse(
            f"@{name} stands on {function!r}, which is no function.",
            f"Put @{name} on a def; a class task derives from Task and needs no decorator.",
            place,
        )
    return kind(function, options, place)


class Task(Step):
    """The base of class tasks: write ``execute(self, ctx)``; an instance in a flow is a task.

    Annotated attributes are arguments: ``path: str`` in the class makes ``WaitForFile(path=...)``.
    A class with an ``__init__`` of its own passes ``**options`` on to this one.
    """

    def __new__(cls, *args: object, **kwargs: object) -> Self:
        """The flow that is being built knows of the instance, whatever its ``__init__`` does."""
        instance = super().__new__(cls)
        current(
            f"Class task {cls.__name__!r} is made", "it is a task of one flow."
        ).instances.append(instance)
        return instance

    def __init__(self, *args: object, **options: object) -> None:
        place = place_of_caller()
        target = current("It is made", "")
        subject = f"Task {type(self).__name__!r}"
        annotated = self._annotated()
        if args:
            target.instances.remove(self)  # this fault tells all that is wrong with it
            named = next((name for name in self._in_order() if name not in options), "...")
            raise refuse(
                f"{type(self).__name__} is given {args[0]!r:.80} by place.",
                f"Name its arguments: {type(self).__name__}({named}={args[0]!r:.80}).",
                place,
            )
        for name in annotated & options.keys():
            setattr(self, name, options.pop(name))
        known = {**TASK_OPTIONS, **dict.fromkeys(annotated, ("", lambda value: value))}
        fields, faults = check_options(options, known, place, subject)
        target.faults.extend(faults)
        target.faults.extend(faults_of_class(type(self), _own_execute(type(self))))
        task_id = fields.pop("task_id", None)
        self.call = add_call(
            target,
            wanted=task_id or self.usual_task_id(),
            exact=task_id is not None,
            place=place,
            options=fields,
            body=InstanceBody(instance=self),
            doc=inspect.cleandoc(vars(type(self)).get("__doc__") or ""),
        )

    def usual_task_id(self) -> str:
        """The id where none is given, unless it is taken."""
        return type(self).__name__

    @classmethod
    def partial(cls, **kwargs: object) -> PartialClass:
        """The class task with arguments and options that are the same for all of its instances."""
        return PartialClass(kind=cls, fixed=kwargs)

    @classmethod
    def expand(cls, *args: object, **kwargs: object) -> Task:
        """The flow has one more task, with an instance for every combination of these elements."""
        return cls.partial().expand(*args, **kwargs)

    @classmethod
    def expand_kwargs(cls, dicts: object) -> Task:
        """The flow has one more task, with an instance for each dict of arguments in the list."""
        return cls.partial().expand_kwargs(dicts)

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
        """The id of the task in its flow."""
        return self.call.task_id

    def as_call(self) -> TaskCall:
        """The call that the instance stands for."""
        return self.call

    def in_order(self) -> TaskCall:
        """The call that the instance stands for."""
        return self.call

    def run_after(self, other: Step) -> None:
        """The other task is upstream, or the last tasks of the group are."""
        self.call.run_after(other)

    def as_setup(self) -> Self:
        """It makes what the tasks up to its teardown need; cleared along with them."""
        self.call.as_setup()
        return self

    def as_teardown(self, *, setups: Step | Iterable[Step] = (), fails_run: bool = False) -> Self:
        """It takes away what the setups made once all between them and it has ended, however.

        ``setups`` are made setups and stand before it. With ``fails_run`` its failure fails the run.
        """
        self.call.as_teardown(setups=setups, fails_run=fails_run)
        return self

    def __enter__(self) -> Self:
        self.call.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.call.__exit__(*error)

    def arguments(self) -> dict[str, Any]:
        """The attributes of the instance."""
        return {name: value for name, value in vars(self).items() if name != "call"}

    @property
    def is_made(self) -> bool:
        """Whether its ``__init__`` has called the one of ``Task``."""
        return "call" in vars(self)

    def faults(self, flow: Building) -> list[Fault]:
        """What is wrong with the instance, once the flow function has returned."""
        name = type(self).__name__
        if not self.is_made:
            return [
                fault(
                    flow.place,
                    f"{name}.__init__ does not call the __init__ of Task.",
                    "Take **options in it and call super().__init__(**options).",
                )
            ]
        if isinstance(self.call.body, InstanceBody) and self.call.body.spread is not None:
            return []  # the others come with the elements
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
        return set(cls._in_order())

    @classmethod
    def _in_order(cls) -> list[str]:
        """Its arguments: those of the class itself before those of what it derives from."""
        return [
            name
            for base in cls.__mro__
            if issubclass(base, Task) and base is not Task
            for name in inspect.get_annotations(base)
            if not name.startswith("_")
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartialClass(Uncalled):
    """A class task with some arguments and options given."""

    kind: type[Task]
    fixed: Mapping[str, object]

    def expand(self, *args: object, **kwargs: object) -> Task:
        """The flow has one more task, with an instance for every combination of these elements."""
        if args:
            raise refuse_unnamed(f"Class task {self.kind.__name__!r}")
        return self._mapped(kwargs, is_dicts=False)

    def expand_kwargs(self, dicts: object) -> Task:
        """The flow has one more task, with an instance for each dict of arguments in the list."""
        return self._mapped({DICTS: dicts}, is_dicts=True)

    def _mapped(self, over: Mapping[str, object], *, is_dicts: bool) -> Task:
        place = place_of_caller()
        subject = f"Class task {self.kind.__name__!r}"
        current(f"{subject} is mapped", "it is a task of one flow.")
        wrong = sorted(over.keys() & (self.fixed.keys() | TASK_OPTIONS.keys()))
        if wrong:
            raise refuse(
                f"{subject} maps over {wrong[0]!r}, which is"
                f" {'an option' if wrong[0] in TASK_OPTIONS else 'given by .partial(...)'}.",
                "Options are the same for all mapped instances: give them by .partial(...) only.",
            )
        live = live_mapping(over, subject=subject, place=place, is_dicts=is_dicts)
        for element in written_dicts(over) if is_dicts else ():
            known = self.kind._annotated()  # noqa: SLF001 - a part of it
            if unknown := sorted(element.keys() - known):
                raise refuse(
                    f"{subject} takes no {unknown[0]!r}, which a dict that it maps over has.",
                    did_you_mean(unknown[0], sorted(known)),
                    place,
                )
        given = {} if is_dicts else {name: live.argument(name) for name in over}
        made = self.kind(**{**self.fixed, **given})
        made.call.map_over(live)
        if is_dicts:
            made.call.body = made.call.body.spreading(live.argument(DICTS))
        return made


def _own_execute(kind: type[Task]) -> Callable[..., Any] | None:
    return None if kind.execute is Task.execute else kind.execute
