"""Groups of tasks: ``with group("extract"):`` and ``@group``, and how they stand in the order."""

from __future__ import annotations

import functools
import inspect
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Generic, NoReturn, ParamSpec, Self, Unpack, overload

from scheduler_app.authoring import callbacks
from scheduler_app.authoring import options as option_checks
from scheduler_app.authoring.building import current
from scheduler_app.authoring.defaults import checked_defaults
from scheduler_app.authoring.faults import (
    Place,
    fault,
    place_of_caller,
    place_of_function,
    refuse,
)
from scheduler_app.authoring.mapping import DICTS, live_mapping, refuse_unnamed, written_dicts
from scheduler_app.authoring.options import BadOption, check_options
from scheduler_app.authoring.task import TaskFunction
from scheduler_app.authoring.wiring import Step, Uncalled, steps_in, with_results
from scheduler_app.rules import definition
from scheduler_app.rules.callbacks import OF_GROUP
from scheduler_app.rules.definition import GroupDefinition, TriggerRule
from scheduler_app.rules.roles import Role, Running

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import timedelta

    from scheduler_app.authoring.building import Building
    from scheduler_app.authoring.call import TaskCall
    from scheduler_app.authoring.mapping import LiveMapping
    from scheduler_app.authoring.typed import GroupOptions

P = ParamSpec("P")

ATTEMPTS_MAX: Final = 1000


class GroupRetry:
    """How a group is retried as a whole: as ``retry=`` of a group it makes the group one unit.

    ``max_attempts`` counts the first one. ``cooldown`` (timedelta or seconds) lies between the end of
    an attempt and the next one, each time ``backoff`` times longer, up to ``max_cooldown``. When a
    task of it has failed for good, ``running="wait"`` lets the others end, ``"stop"`` stops them.
    """

    def __init__(
        self,
        max_attempts: int = 2,
        *,
        cooldown: timedelta | float = 0,
        backoff: float = 0,
        max_cooldown: timedelta | float | None = None,
        running: str = Running.WAIT,
    ) -> None:
        checks: dict[str, tuple[object, Callable[[object], Any]]] = {
            "max_attempts": (max_attempts, option_checks.whole_number(1, ATTEMPTS_MAX)),
            "cooldown": (cooldown, option_checks.duration_s),
            "backoff": (backoff, option_checks.backoff),
            "max_cooldown": (max_cooldown, option_checks.optional(option_checks.duration_s)),
            "running": (running, _running),
        }
        checked: dict[str, Any] = {}
        for name, (value, check) in checks.items():
            try:
                checked[name] = check(value)
            except BadOption as wanted:
                raise refuse(
                    f"GroupRetry has {name}={value!r}.", f"Give {name} {wanted}."
                ) from None
        self.stored = definition.GroupRetry(
            max_attempts=checked["max_attempts"],
            delay_s=checked["cooldown"],
            backoff=checked["backoff"],
            max_delay_s=checked["max_cooldown"],
            running=checked["running"],
        )

    def __repr__(self) -> str:
        return f"GroupRetry(max_attempts={self.stored.max_attempts})"


@dataclass(slots=True, kw_only=True, eq=False)
class Group(Step):
    """One group of one flow; beside an arrow it stands for its first or its last tasks."""

    group_id: str
    parent: Group | None
    place: Place
    building: Building
    inner_prefix: str
    defaults: Mapping[str, Any]  # options of its tasks
    doc: str = ""
    retry: definition.GroupRetry | None = None
    compensate: TaskFunction[[], Any] | None = None
    callbacks: callbacks.Callbacks = field(default_factory=dict)
    mapping: LiveMapping | None = None  # what all of it maps over

    @property
    def task_id(self) -> str:
        """A group has none, and no result: raises."""
        return self.as_call().task_id

    def as_call(self) -> TaskCall:
        """A group is no call: raises."""
        self._refuse_result()

    def run_after(self, other: Step) -> None:
        """Its first tasks start only when the other one has ended."""
        before = other.in_order()
        self._check_flow(before)
        self.building.links.append((before, self))

    def run_before(self, other: Step) -> None:
        """The other one starts only when its last tasks have ended."""
        self._check_flow(other)
        self.building.links.append((self, other))

    def contains(self, group_id: str) -> bool:
        """Whether the group with this id is this one, or lies in it."""
        found = self.building.groups.get(group_id)
        while found is not None and found is not self:
            found = found.parent
        return found is not None

    def definition(self) -> GroupDefinition:
        """This group as the stored picture of the flow has it."""
        return GroupDefinition(
            group_id=self.group_id,
            parent="" if self.parent is None else self.parent.group_id,
            doc=self.doc,
            retry=self.retry,
            callbacks=callbacks.names_of(self.callbacks),
            line=self.place.line,
            mapped=None if self.mapping is None else self.mapping.over,
        )

    def _check_flow(self, other: Step) -> None:
        theirs: Building = other.building  # type: ignore[attr-defined]  # of a call, or of a group
        if theirs is not self.building:
            raise refuse(
                f"Group {self.group_id!r} of flow {self.building.flow_id!r} is tied to flow"
                f" {theirs.flow_id!r}.",
                "Tie only tasks and groups of one flow.",
            )

    def _refuse_result(self) -> NoReturn:
        raise refuse(
            f"Group {self.group_id!r} stands where the result of a task is wanted.",
            "Return the result of one of its tasks from the group's function, and pass that.",
            self.place,
        )

    def _refuse_use(self, verb: str) -> NoReturn:
        raise refuse(
            f"Group {self.group_id!r} is {verb} while the flow is being built.",
            "Use it beside >> and << only.",
        )

    def __repr__(self) -> str:
        return f"<group {self.building.flow_id}.{self.group_id}>"


@dataclass(slots=True, kw_only=True, eq=False)
class GroupResult(Step):
    """What a group's function returned: the result of a task, in the order the whole group."""

    step: Step
    group: Group

    @property
    def task_id(self) -> str:
        """The id of the task whose result it is."""
        return self.step.task_id

    def as_call(self) -> TaskCall:
        """The call whose result it is."""
        return self.step.as_call()

    def in_order(self) -> Step:
        """The group."""
        return self.group

    def run_after(self, other: Step) -> None:
        """The first tasks of the group start only when the other one has ended."""
        self.group.run_after(other)


class GroupMaker:
    """``group("extract", ...)``: stands in a ``with`` statement, or over a function."""

    def __init__(self, options: Mapping[str, object], place: Place) -> None:
        self._options = options
        self._place = place

    def __enter__(self) -> Group:
        if "group_id" not in self._options:
            raise refuse(
                "A group in a with statement has no id.",
                'Write with group("extract"):',
                self._place,
            )
        return _enter(self._options, self._place, exact=True)

    def __exit__(self, kind: object, *_: object) -> None:
        _leave(current("A group", "").inside.pop(), has_raised=kind is not None)

    def __call__(self, function: Callable[P, Any]) -> GroupFunction[P]:
        """The function as a group."""
        return GroupFunction(function, self._options, self._place)


class GroupFunction(Uncalled, Generic[P]):
    """A function made into a group: calling it in a flow body adds the group with its tasks."""

    def __init__(
        self, function: Callable[P, Any], options: Mapping[str, object], place: Place
    ) -> None:
        if not inspect.isfunction(function):
            raise refuse(
                f"@group stands on {function!r}, which is no function.",
                "Put @group on a def whose body calls tasks.",
                place,
            )
        if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
            raise refuse(
                f"Group function {function.__name__!r} is async or yields.",
                "Write a plain def whose body calls tasks.",
                place_of_function(function),
            )
        self.function = function
        self.options = options
        functools.update_wrapper(self, function)

    def override(self, **options: Unpack[GroupOptions]) -> Self:
        """The same group with other options; ``group_id`` given here is taken exactly."""
        return type(self)(self.function, {**self.options, **options}, place_of_caller())

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        """The flow has one more group, in it the tasks that the function calls.

        What it returns: the results of tasks that the function returns, which stand for the whole
        group beside an arrow; else the group.
        """
        return self._add(args, kwargs, None)

    def partial(self, **kwargs: object) -> PartialGroup:
        """The group with arguments that are the same for all of its mapped instances."""
        return PartialGroup(function=self, fixed=kwargs)

    def map(self, *args: object, **kwargs: object) -> Any:
        """The flow has one more group, all of it once for every combination of these elements.

        Inside, a task waits for the same map index of those before it; outside, the result of one of its
        tasks is the list of the results.
        """
        return self.partial().map(*args, **kwargs)

    def expand(self, *args: object, **kwargs: object) -> Any:
        """The same, with every argument named."""
        return self.partial().expand(*args, **kwargs)

    def expand_kwargs(self, dicts: object) -> Any:
        """The flow has one more group, all of it once for each dict of arguments in the list."""
        return self.partial().expand_kwargs(dicts)

    def _add(
        self, args: tuple[object, ...], kwargs: Mapping[str, object], mapping: LiveMapping | None
    ) -> Any:
        try:
            inspect.signature(self.function).bind(*args, **kwargs)
        except TypeError as error:
            name = self.function.__name__
            raise refuse(
                f"Group {name!r} is called wrongly: {error}.",
                f"It takes {inspect.signature(self.function)}; options go into {name}.override(...).",
            ) from None
        is_named = "group_id" in self.options
        options = {
            "group_id": self.function.__name__,
            "doc": inspect.getdoc(self.function) or "",
            **self.options,
        }
        made = _enter(options, place_of_caller(), exact=is_named)
        has_raised = True
        if mapping is not None:
            _map_over(made, mapping)
        try:
            returned = self.function(*args, **kwargs)
            has_raised = False
        finally:
            _leave(made.building.inside.pop(), has_raised=has_raised)
        if returned is made or next(steps_in(returned), None) is None:
            return made
        return with_results(
            returned,
            lambda leaf: GroupResult(step=leaf, group=made) if isinstance(leaf, Step) else leaf,
        )

    def __repr__(self) -> str:
        return f"<group function {self.function.__name__}>"


@overload
def group(function: Callable[P, Any], /) -> GroupFunction[P]: ...


@overload
def group(group_id: str | None = None, /, **options: Unpack[GroupOptions]) -> GroupMaker: ...


def group(first: str | Callable[..., Any] | None = None, /, **options: Unpack[GroupOptions]) -> Any:
    """Tasks that stand together: those called in the ``with`` block, or in the decorated function.

    Options: group_id, prefix (whether its id stands before the ids in it), default_args (options for
    its tasks), doc; retry (a GroupRetry: the group is one unit, retried as a whole, and nothing of it
    counts outside before all of it has succeeded), compensate (a task that runs when the group is
    given up, which makes it such a unit too),
    on_retry_callback, on_success_callback, on_failure_callback (of such a unit).
    """
    place = place_of_caller()
    if first is None or isinstance(first, str):
        given: Mapping[str, object] = options
        if first is not None:
            given = {"group_id": first, **options}
        return GroupMaker(given, place)
    return GroupFunction(first, options, place)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartialGroup(Uncalled):
    """A group with some arguments given, which are the same for all of its mapped instances."""

    function: GroupFunction[Any]
    fixed: Mapping[str, object]

    def partial(self, **kwargs: object) -> PartialGroup:
        """The same with more arguments given."""
        return PartialGroup(function=self.function, fixed={**self.fixed, **kwargs})

    def map(self, *args: object, **kwargs: object) -> Any:
        """The flow has one more group, all of it once for every combination of these elements."""
        names = [name for name in self._parameters() if name not in kwargs]
        if len(args) > len(names):
            raise refuse(
                f"{self._subject} is mapped over {len(args)} lists by place, and takes"
                f" {len(names)} such arguments.",
                "Name them: .map(a=..., b=...).",
            )
        over = {**dict(zip(names, args, strict=False)), **kwargs}
        self._check(over)
        live = live_mapping(over, subject=self._subject, place=place_of_caller())
        return self._made(live, {name: live.argument(name) for name in over})

    def expand(self, *args: object, **kwargs: object) -> Any:
        """The same, with every argument named."""
        if args:
            raise refuse_unnamed(self._subject)
        return self.map(**kwargs)

    def expand_kwargs(self, dicts: object) -> Any:
        """The flow has one more group, all of it once for each dict of arguments in the list."""
        place = place_of_caller()
        live = live_mapping({DICTS: dicts}, subject=self._subject, place=place, is_dicts=True)
        given = {}
        for element in written_dicts({DICTS: dicts}):
            try:
                inspect.signature(self.function.function).bind(**{**element, **self.fixed})
            except TypeError as error:
                raise refuse(
                    f"{self._subject} is mapped over {element!r:.80} wrongly: {error}.",
                    f"It takes {inspect.signature(self.function.function)}.",
                    place,
                ) from None
        for name, parameter in self._parameters().items():
            if parameter.default is inspect.Parameter.empty:
                given[name] = live.argument(name)
            else:
                given[name] = live.argument(name, parameter.default)
        return self._made(live, given)

    @property
    def _subject(self) -> str:
        return f"Group {self.function.function.__name__!r}"

    def _parameters(self) -> dict[str, inspect.Parameter]:
        found = inspect.signature(self.function.function).parameters
        return {name: one for name, one in found.items() if name not in self.fixed}

    def _check(self, over: Mapping[str, object]) -> None:
        known = list(self._parameters())
        for name in over:
            if name not in known:
                raise refuse(
                    f"{self._subject} maps over {name!r}, which "
                    + (
                        "it gets by .partial(...) too."
                        if name in self.fixed
                        else "its function does not take."
                    ),
                    f"It takes {', '.join(known) or 'nothing'}.",
                )

    def _made(self, live: LiveMapping, given: Mapping[str, object]) -> Any:
        return self.function._add((), {**self.fixed, **given}, live)  # noqa: SLF001 - a part of it


def _map_over(made: Group, mapping: LiveMapping) -> None:
    """All of the group is there once for each element. Raises ``DefinitionError``."""
    outer = made.parent
    around = None if outer is None else made.building.mapped_group_around(outer.group_id)
    if around is not None:
        _abandon(made)
        raise refuse(
            f"Group {made.group_id!r} is mapped inside group {around.group_id!r}, which is mapped too.",
            "Nothing can be expanded within an expanded group: map over both at once, outside.",
        )
    if made.retry is not None:
        _abandon(made)
        raise refuse(
            f"Group {made.group_id!r} is mapped, and is one unit that is retried as a whole.",
            "Take retry and compensate away, or put the mapped group into a group that has them.",
        )
    made.mapping = mapping


def _abandon(made: Group) -> None:
    made.building.inside.pop()


def _tie_to_inputs(made: Group) -> None:
    """The first tasks of a mapped group wait for what it maps over."""
    assert made.mapping is not None
    calls = [call for call in made.building.calls.values() if made.contains(call.group_id)]
    own = {call.task_id for call in calls}
    for call in calls:
        if own.isdisjoint(call.upstream_ids()):
            call.run_after_ids.update(made.mapping.input_ids())


def _enter(options: Mapping[str, object], place: Place, *, exact: bool) -> Group:
    """The group is part of the flow, and what is called now is in it."""
    target = current(f"Group {options.get('group_id')!r} is made", "it is a part of one flow.")
    subject = f"Group {options.get('group_id')!r}"
    given = dict(options)
    default_args = given.pop("default_args", None) or {}
    fields, faults = check_options(given, GROUP_OPTIONS, place, subject)
    defaults, wrong = checked_defaults(default_args, place, f"default_args of {subject.lower()}")
    target.faults.extend([*faults, *wrong])
    wanted = fields.get("group_id") or "group"
    outer = target.inside[-1] if target.inside else None
    prefix = target.prefix
    group_id = target.id_for(wanted, place, exact=exact, noun="Group")
    retry = fields.get("retry")
    compensate = fields.get("compensate")
    if retry is None and compensate is not None:
        retry = definition.GroupRetry(max_attempts=1)
    own = callbacks.taken_from(fields)
    if own and retry is None:
        raise refuse(
            f"Group {group_id!r} has callbacks, and is no unit: it has no end of its own.",
            "Give it retry=GroupRetry(...), or give its tasks the callbacks by default_args={...}.",
            place,
        )
    mapped = target.mapped_group_around(outer.group_id) if outer is not None else None
    if retry is not None and mapped is not None:
        raise refuse(
            f"Group {group_id!r} is retried as a whole, and lies in group {mapped.group_id!r}, which"
            " is mapped.",
            "Put the mapped group into a group that is retried as a whole.",
            place,
        )
    if retry is not None and (around := _unit_around(outer)) is not None:
        raise refuse(
            f"Group {group_id!r} is retried as a whole, and lies in group {around.group_id!r}, which"
            " is too.",
            "Take retry and compensate from one of them: a unit is retried with all that is in it.",
            place,
        )
    made = Group(
        group_id=group_id,
        parent=outer,
        place=place,
        building=target,
        inner_prefix=f"{group_id}." if fields.get("prefix", True) else prefix,
        defaults={**target.task_defaults, **defaults},
        doc=fields.get("doc", ""),
        retry=retry,
        compensate=compensate,
        callbacks=own,
    )
    target.groups[group_id] = made
    target.inside.append(made)
    return made


def _leave(made: Group, *, has_raised: bool) -> None:
    """Its compensation, where it has one, is a task behind all of its tasks."""
    if made.retry is not None and made.retry.running == Running.STOP:
        made.building.faults.extend(
            fault(
                call.place,
                f"Teardown {call.name!r} is in group {made.group_id!r}, which stops its tasks to be"
                " tried again: then it would not run.",
                'Write running="wait", or take the teardown out of the group.',
            )
            for call in made.building.calls.values()
            if made.contains(call.group_id) and call.options.get("role") == Role.TEARDOWN
        )
    if made.compensate is None or has_raised:
        return
    undo = made.compensate.being(
        role=Role.COMPENSATION,
        compensates=made.group_id,
        trigger_rule=TriggerRule.ONE_FAILED,
    )()
    undo.run_after_ids.update(
        call.task_id
        for call in made.building.calls.values()
        if made.contains(call.group_id) and not _is_lenient(call)
    )


def _is_lenient(call: TaskCall) -> bool:
    return call.options.get("role") == Role.TEARDOWN and not call.options.get("fails_run")


def _unit_around(outer: Group | None) -> Group | None:
    while outer is not None and outer.retry is None:
        outer = outer.parent
    return outer


def _running(value: object) -> str:
    if value not in list(Running):
        raise BadOption("'wait' or 'stop'")
    return str(value)


def _retry(value: object) -> definition.GroupRetry:
    if not isinstance(value, GroupRetry):
        raise BadOption("a GroupRetry, such as GroupRetry(max_attempts=3)")
    return value.stored


def _compensation(value: object) -> TaskFunction[[], Any]:
    if not isinstance(value, TaskFunction):
        raise BadOption("a task that takes no argument but ctx, without calling it")
    return value


GROUP_OPTIONS: Final[Mapping[str, tuple[str, Callable[[object], Any]]]] = {
    "group_id": ("group_id", option_checks.identifier),
    "prefix": ("prefix", option_checks.flag),
    "doc": ("doc", option_checks.text),
    "retry": ("retry", option_checks.optional(_retry)),
    "compensate": ("compensate", option_checks.optional(_compensation)),
    "default_args": ("default_args", lambda value: value),  # checked by itself
    **option_checks.callback_options(OF_GROUP),
}


def resolve_links(work: Building) -> None:
    """Every arrow beside a group is one between its first or last tasks and the others.

    An empty group passes on what stands before it. Faults are in ``work.faults``.
    """
    for made in work.groups.values():
        if made.mapping is not None:
            _tie_to_inputs(made)
    inside = {group_id: _calls_in(work, made) for group_id, made in work.groups.items()}
    links = [link for link in work.links if not _is_within(work, *link)]
    for made in work.groups.values():
        if not inside[made.group_id]:
            before = [above for above, below in links if below is made]
            after = [below for above, below in links if above is made]
            links = [link for link in links if made not in link]
            links += [(above, below) for above in before for below in after]
    edges = [
        (
            {call.task_id for call in _of(above, inside)},
            {call.task_id for call in _of(below, inside)},
        )
        for above, below in links
    ]
    ties = [(_last(above, inside, edges), _first(below, inside, edges)) for above, below in links]
    for last, first in ties:
        for call in first:
            call.run_after_ids.update(one.task_id for one in last)


def _is_within(work: Building, above: Step, below: Step) -> bool:
    """Whether one of the two lies in the other; then it is a fault."""
    for outer, inner in ((above, below), (below, above)):
        if isinstance(outer, Group) and outer.contains(inner.group_id):  # type: ignore[attr-defined]
            name = getattr(inner, "name", None) or inner.group_id  # type: ignore[attr-defined]
            work.faults.append(
                fault(
                    outer.place,
                    f"Group {outer.group_id!r} is tied to {name!r}, which is in it.",
                    "Tie a group to what is outside it only.",
                )
            )
            return True
    return False


def _calls_in(work: Building, made: Group) -> list[TaskCall]:
    return [call for call in work.calls.values() if made.contains(call.group_id)]


def _of(step: Step, inside: Mapping[str, list[TaskCall]]) -> list[TaskCall]:
    return inside[step.group_id] if isinstance(step, Group) else [step.as_call()]


_Edges = list[tuple[set[str], set[str]]]


def _first(step: Step, inside: Mapping[str, list[TaskCall]], edges: _Edges) -> list[TaskCall]:
    """Its tasks that wait for none of it."""
    calls = _of(step, inside)
    own = {call.task_id for call in calls}
    later = {one for above, below in edges if above <= own and below <= own for one in below} | {
        call.task_id for call in calls if call.upstream_ids() & own
    }
    return [call for call in calls if call.task_id not in later]


def _last(step: Step, inside: Mapping[str, list[TaskCall]], edges: _Edges) -> list[TaskCall]:
    """Its tasks that none of it waits for, teardowns aside."""
    calls = _of(step, inside)
    work = [call for call in calls if call.options.get("role") != Role.TEARDOWN] or calls
    own = {call.task_id for call in calls}
    working = {call.task_id for call in work}
    earlier = {
        one
        for above, below in edges
        if above <= own and below <= own and below & working
        for one in above
    }.union(*(call.upstream_ids() for call in work))
    return [call for call in work if call.task_id not in earlier]
