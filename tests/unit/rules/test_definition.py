from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_app.rules import definition
from scheduler_app.rules.definition import FlowDefinition, TaskDefinition

ids = st.from_regex(definition.FLOW_OR_TASK_ID, fullmatch=True)
seconds = st.floats(0, 1e9)
tasks = st.builds(
    TaskDefinition,
    task_id=ids,
    upstream=st.lists(ids, max_size=3).map(tuple),
    trigger_rule=st.sampled_from(definition.TriggerRule),
    retries=st.integers(0, 10),
    retry_delay_s=seconds,
    backoff=st.floats(0, 10),
    max_retry_delay_s=st.none() | seconds,
    timeout_s=st.none() | seconds,
    pool_slots=st.integers(1, 9),
    priority=st.integers(-9, 9),
    doc=st.text(max_size=20),
    line=st.none() | st.integers(1, 999),
)
flows = st.builds(
    FlowDefinition,
    flow_id=ids,
    tasks=st.lists(tasks, max_size=4).map(tuple),
    schedule=st.none() | st.just("0 2 * * *"),
    start_date=st.none() | st.just("2025-06-01T00:00:00+02:00"),
    catchup=st.booleans(),
    tags=st.lists(st.text(max_size=5), max_size=3).map(tuple),
    params=st.dictionaries(st.text(max_size=5), st.none() | st.integers() | st.text(max_size=5)),
)


@given(flows)
def test_a_definition_comes_back_from_json_as_it_went(flow: FlowDefinition) -> None:
    stored = json.dumps(definition.to_dict(flow))
    assert definition.from_dict(json.loads(stored)) == flow


@given(flows)
def test_what_a_newer_writer_added_is_ignored(flow: FlowDefinition) -> None:
    raw: dict[str, Any] = definition.to_dict(flow) | {"of_tomorrow": 1}
    raw["tasks"] = [task | {"of_tomorrow": 1} for task in raw["tasks"]]
    assert definition.from_dict(raw) == flow


def test_a_task_is_found_by_its_id() -> None:
    flow = FlowDefinition(
        flow_id="f", tasks=(TaskDefinition(task_id="a"), TaskDefinition(task_id="b"))
    )
    assert flow.task("b").task_id == "b"
    with pytest.raises(KeyError, match="c"):
        flow.task("c")


def test_the_digest_changes_with_the_graph_and_with_the_source_and_with_nothing_else() -> None:
    flow = FlowDefinition(flow_id="f", tasks=(TaskDefinition(task_id="a"),))
    same = FlowDefinition(flow_id="f", tasks=(TaskDefinition(task_id="a"),))
    first = definition.digest(flow, "source")
    assert definition.digest(same, "source") == first
    assert definition.digest(flow, "other source") != first
    assert definition.digest(replace(flow, tags=("x",)), "source") != first
