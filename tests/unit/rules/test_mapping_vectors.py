"""The vectors of dynamic mapping, each verb a pure function; differing ones named with their reasons."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from scheduler_app.rules import mapping, readiness, values
from scheduler_app.rules.errors import InvalidInput
from scheduler_app.rules.mapping import Argument, Kind, MapOver, Source
from scheduler_app.rules.readiness import UpstreamCounts
from scheduler_app.rules.states import TaskState
from tests.vectors.cases import case as vector
from tests.vectors.cases import cases, parameters

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.vectors.cases import Case

_STOPPED_FIRST = (
    "A surplus instance that runs is asked to stop, and is removed once it has: as the note says."
)
DIFFERING = {
    "expand-shrink-running": _STOPPED_FIRST,
    "expand-gap-not-filled": (
        "Expanding and revising are one step here, so that a hole is filled at once and not when the"
        " task is looked at the next time; nothing can start with a hole in it."
    ),
    "verify-literal-longer": (
        "An instance for each element is there before anything of the task starts: there is no time"
        " at which the integrity of a run is looked at and its growth is not."
    ),
}

ALL = cases("mapping")
COMPARED = [one for one in ALL if one.id not in DIFFERING]


@dataclass(slots=True)
class Shelf:
    """What a reader finds for the inputs of a case: lengths and values, by a made-up task id."""

    lengths: dict[str, int | None] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)

    def length(self, task_id: str) -> int | None:
        if task_id in self.values:
            return len(self.values[task_id])
        return self.lengths[task_id]

    def item(self, task_id: str, place: int) -> Any:
        found = self.values[task_id]
        return found[place] if isinstance(found, list) else list(found.items())[place]

    def whole(self, task_id: str) -> Any:
        return self.values[task_id]

    def transformed(self, slot: int, value: Any) -> Any:
        raise AssertionError((slot, value))

    def source(self, name: str, raw: dict[str, Any]) -> Source:
        """The source that the vector describes."""
        match raw["kind"]:
            case "literal":
                given = raw["value"]
                if isinstance(given, dict) and "times" in given:
                    given = [given["repeat"]] * given["times"]
                pairs = [list(one) for one in given.items()] if isinstance(given, dict) else given
                return Source(kind=Kind.LITERAL, items=tuple(values.encode(one) for one in pairs))
            case "upstream":
                self.lengths[name] = raw["length"] if raw["state"] == "success" else None
                return Source(kind=Kind.RESULT, task_id=name)
            case "mapped_upstream":
                ended = all(state not in ("running", "none") for state in raw["states"])
                self.lengths[name] = raw["values_pushed"] if ended else None
                return Source(kind=Kind.RESULT, task_id=name)
            case "upstream_value":
                self.values[name] = (
                    [dict(map(tuple, pairs)) for pairs in raw["value_pairs"]]
                    if "value_pairs" in raw
                    else raw["value"]
                )
                return Source(kind=Kind.RESULT, task_id=name)
            case "map":
                self.lengths[name] = raw["length"]
                part = Source(kind=Kind.RESULT, task_id=name)
                return Source(kind=Kind.TRANSFORM, parts=(part,))
        parts = []
        for n, _ in enumerate(raw["lengths"] if "lengths" in raw else raw["values"]):
            of = f"{name}{n}"
            if "lengths" in raw:
                self.lengths[of] = raw["lengths"][n]
            else:
                self.values[of] = raw["values"][n]
            parts.append(Source(kind=Kind.RESULT, task_id=of))
        return Source(
            kind=raw["kind"],
            parts=tuple(parts),
            has_fill=raw.get("fill_given", False),
            fill=values.encode(raw.get("fill")),
        )

    def over(self, raw: dict[str, Any]) -> MapOver:
        """What the vector maps over."""
        return MapOver(
            arguments=tuple(
                Argument(name=name, source=self.source(name, one)) for name, one in raw.items()
            ),
            is_dicts="__kwargs__" in raw,
        )


def _plain(value: Any) -> Any:
    """Tuples as lists, as the vectors write them."""
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    return value


def count_instances(given: dict[str, Any]) -> dict[str, Any]:
    shelf = Shelf()
    groups = given.get("groups") or ([given["group"]] if "group" in given else [])
    overs = [shelf.over(one["expand"]) for one in (*groups, given) if "expand" in one]
    try:
        if groups:
            return {"count": mapping.count_within(overs, shelf)}
        counted = mapping.count(overs[0], shelf)
    except mapping.TooManyInstances:
        return {"error": "too_many_instances"}
    return {"count": counted.count, "missing": list(counted.missing)}


def resolve_arguments(given: dict[str, Any]) -> dict[str, Any]:
    shelf = Shelf()
    over = shelf.over(given["expand"])
    try:
        return {"arguments": _plain_values(mapping.arguments_at(over, given["map_index"], shelf))}
    except mapping.NotExpanded:
        return {"error": "not_expanded"}
    except mapping.OutOfRange:
        return {"error": "index_out_of_range"}
    except InvalidInput as error:
        return {"error": error.extra["code_of_fault"]}


def _plain_values(found: dict[str, Any]) -> dict[str, Any]:
    return {name: _plain(value) for name, value in found.items()}


_RETURNED: dict[str, Callable[[range], Any]] = {
    "list": list,
    "tuple": tuple,
    "set": set,
    "text": lambda n: "x" * len(list(n)),
}


def finish_upstream(given: dict[str, Any]) -> dict[str, Any]:
    raw = given["returned"]
    kind = raw["type"]
    result: Any = None
    if kind == "dict":
        result = dict.fromkeys(range(raw["length"]))
    elif kind in _RETURNED:
        result = _RETURNED[kind](range(raw["length"]))
    elif kind != "null":
        result = 7
    if raw.get("push_disabled"):
        result = None
    if not given["has_mapped_dependant"]:
        return {"state": "success", "recorded_length": None}
    try:
        length = mapping.check_returned(
            result,
            is_mapped=given["is_mapped_itself"],
            limit=given["max_map_length"],
            task_id="t",
        )
    except InvalidInput as error:
        return {"state": "failed", "reason": error.extra["reason"], "http": 400}
    return {"state": "success", "recorded_length": length}


def expand(given: dict[str, Any]) -> dict[str, Any]:
    states = {one["map_index"]: TaskState(one["state"]) for one in given["instances"]}
    summary = states.pop(mapping.SUMMARY, None)
    if summary is None:
        rest = mapping.revise(states, given["count"])
        states |= dict.fromkeys(rest.created, TaskState.NONE)
        states |= dict.fromkeys(rest.removed, TaskState.REMOVED)
    else:
        done = mapping.expand(states, given["count"])
        if done is None:
            states[mapping.SUMMARY] = summary
        else:
            states |= dict.fromkeys(done.created, summary)
            states |= dict.fromkeys(done.removed, TaskState.REMOVED)
            if done.is_skipped:
                states[mapping.SUMMARY] = TaskState.SKIPPED
            elif done.becomes is not None:
                states[done.becomes] = summary
    return {
        "instances": [{"map_index": i, "state": str(states[i])} for i in sorted(states)],
    }


def revise(given: dict[str, Any]) -> dict[str, Any]:
    done = mapping.revise(dict.fromkeys(given["existing"], TaskState.SUCCESS), given["count"])
    return {"created": list(done.created), "removed": list(done.removed)}


def verify_run(given: dict[str, Any]) -> dict[str, Any]:
    if given.get("task_in_definition") is False:
        # Instances of a task that left the definition: rules/run_outcome.py, while the run runs.
        over = given["run_state"] in ("success", "failed")
        return {"removed": given["instances"] if over else []}
    states = dict.fromkeys(given["instances"], TaskState(given["states"]))
    done = mapping.revise(states, given.get("literal_count", given.get("upstream_count")))
    return {"created": list(done.created), "removed": list(done.removed)}


def evaluate_mapping_inputs(given: dict[str, Any]) -> dict[str, Any]:
    own = TaskState(given.get("own_state", "none"))
    decision = mapping.gate([TaskState(one) for one in given["inputs"]], own)
    is_marked = decision in (mapping.Gate.SKIP, mapping.Gate.UPSTREAM_FAILED)
    return {"decision": str(decision), "own_state": str(decision) if is_marked else str(own)}


def evaluate(given: dict[str, Any]) -> dict[str, Any]:
    states = given["upstream_instances"]
    counts = UpstreamCounts(
        total=len(states),
        **{
            one: states.count(one)
            for one in ("success", "failed", "skipped", "upstream_failed", "removed")
        },
    )
    decision = readiness.decide(given["trigger_rule"], counts)
    return {"decision": {"skip": "skipped"}.get(decision, str(decision))}


def collect_results(given: dict[str, Any]) -> dict[str, Any]:
    by_index = given.get("upstream_values_by_index", {})
    return {"values": mapping.collected({int(index): one for index, one in by_index.items()})}


def related_map_indexes(given: dict[str, Any]) -> dict[str, Any]:
    found = mapping.related_indexes(
        own_index=given["own_index"],
        own_count=given["own_count"],
        group_count=given.get("group_count", 1),
        is_in_common_group=given.get("common_group", True),
        has_other_mapping=given.get("relative_extra_mapping", False),
    )
    return {"indexes": "all" if found is None else found}


VERBS = {
    one.__name__: one
    for one in (
        count_instances,
        resolve_arguments,
        finish_upstream,
        expand,
        revise,
        verify_run,
        evaluate_mapping_inputs,
        evaluate,
        collect_results,
        related_map_indexes,
    )
}


@parameters(COMPARED)
def test_mapping_is_as_the_vector_says(case: Case) -> None:
    got = VERBS[case.when](case.given)
    assert {key: got[key] for key in case.wanted} == case.wanted


def test_a_running_surplus_instance_is_stopped_before_it_is_removed() -> None:
    case = vector("mapping", "expand-shrink-running")
    states = {one["map_index"]: TaskState(one["state"]) for one in case.given["instances"]}
    done = mapping.revise(states, case.given["count"])
    assert (done.removed, done.stopping) == ((), (1,))


def test_a_hole_is_filled_at_once() -> None:
    case = vector("mapping", "expand-gap-not-filled")
    states = {one["map_index"]: TaskState(one["state"]) for one in case.given["instances"]}
    assert mapping.revise(states, case.given["count"]).created == (1, 3)


def test_what_has_become_longer_grows_in_the_same_step() -> None:
    case = vector("mapping", "verify-literal-longer")
    states = dict.fromkeys(case.given["instances"], TaskState.SUCCESS)
    assert mapping.revise(states, case.given["literal_count"]).created == (3, 4)


def test_what_shrinks_to_nothing_leaves_a_skipped_summary() -> None:
    done = mapping.revise(dict.fromkeys(range(2), TaskState.SUCCESS), 0)
    assert (done.removed, done.summary) == ((0, 1), TaskState.SKIPPED)


def test_what_was_removed_comes_back_when_it_is_wanted_again() -> None:
    states = {0: TaskState.SUCCESS, 1: TaskState.REMOVED, 2: TaskState.REMOVED}
    done = mapping.revise(states, 2)
    assert (done.restored, done.removed, done.created) == ((1,), (), ())


@pytest.mark.parametrize("case_id", list(DIFFERING))
def test_few_cases_differ_and_each_really_does(case_id: str) -> None:
    case = vector("mapping", case_id)
    got = VERBS[case.when](case.given)
    assert {key: got.get(key) for key in case.wanted} != case.wanted
    assert len(DIFFERING) <= 0.05 * len(ALL)
    assert {one.when for one in COMPARED} == VERBS.keys()
