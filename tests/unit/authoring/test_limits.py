from __future__ import annotations

from typing import Any

import pytest

from scheduler_app.authoring import Limit, flow, task
from scheduler_app.rules.definition import LimitDefinition, from_dict, to_dict
from scheduler_app.rules.errors import DefinitionError


def made(options: dict[str, Any], **of_flow: Any) -> Any:
    @flow(**of_flow)
    def limited() -> None:
        @task(**options)
        def t() -> None: ...

        t()

    return limited.definition()


def test_limits_are_stored_and_read_again() -> None:
    said = made(
        {
            "limit": [Limit("customer:{params[customer]}", 2), Limit("api", 1)],
            "max_active_per_flow": 3,
            "max_active_per_run": 2,
        },
        params={"customer": "acme"},
        max_active_tasks_per_flow=7,
    )
    assert from_dict(to_dict(said)) == said
    assert said.tasks[0].limits == (
        LimitDefinition(key="customer:{params[customer]}", slots=2),
        LimitDefinition(key="api", slots=1),
    )
    assert (said.tasks[0].max_active_per_flow, said.tasks[0].max_active_per_run) == (3, 2)
    assert said.max_active_tasks_per_flow == 7


def test_a_flow_without_limits_is_stored_as_before() -> None:
    raw = to_dict(made({}))
    assert {"limits", "max_active_per_flow", "weight_rule", "own_priority"}.isdisjoint(
        raw["tasks"][0]
    )
    assert "max_active_tasks_per_flow" not in raw


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"limit": "customer"}, "Limit('customer:{params[customer]}', 2)"),
        ({"limit": [Limit("a", 1), Limit("a", 2)]}, "limits of different keys"),
        ({"limit": Limit("c:{params[custmer]}", 1)}, "customer"),
        ({"max_active_per_flow": 0}, "from 1 to"),
        ({"max_active_tis_per_dag": 2}, "max_active_per_flow"),
        ({"max_active_tis_per_dagrun": 2}, "max_active_per_run"),
        ({"weight_rule": "sideways"}, "absolute, downstream, upstream"),
    ],
)
def test_bad_options_are_told_with_their_remedy(options: dict[str, Any], told: str) -> None:
    with pytest.raises(DefinitionError) as refused:
        made(options, params={"customer": "acme"})
    assert told in str(refused.value) + str(refused.value.extra)


def test_a_bad_limit_is_refused_where_it_is_written() -> None:
    with pytest.raises(DefinitionError, match="double braces"):
        Limit("customer:{{ params.customer }}", 2)
    with pytest.raises(DefinitionError, match="slots=0"):
        Limit("customer", 0)


def test_priorities_are_weighed_over_the_graph() -> None:
    @flow(default_args={"weight_rule": "downstream", "priority": 1})
    def weighing() -> None:
        @task
        def a() -> int:
            return 1

        @task
        def b(n: int) -> None: ...

        b(a())

    assert {one.task_id: one.priority for one in weighing.definition().tasks} == {"a": 2, "b": 1}
