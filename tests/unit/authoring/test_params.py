"""Parameters as authors declare them."""

from __future__ import annotations

import json
from typing import Any

from scheduler_app.authoring import Param, flow, task
from scheduler_app.rules.definition import FlowDefinition, from_dict, to_dict
from scheduler_app.rules.params import told


def test_their_order_is_kept_where_the_database_has_another() -> None:
    made = defined({"warehouse": "w", "day": Param(type="string"), "b": 1, "a": 2})
    assert made.param_order == ("warehouse", "day", "b", "a")
    assert from_dict(json.loads(json.dumps(to_dict(made)))) == made
    asked = told(made.param_schemas, {"a": 2, "b": 1, "warehouse": "w"}, made.param_order)
    assert [one.name for one in asked] == ["warehouse", "day", "b", "a"]
    assert [one.name for one in told({}, {"a": 2, "new": 1}, ("new", "gone"))] == ["new", "a"]


def test_an_order_that_the_database_has_anyway_makes_no_new_version() -> None:
    made = defined({"a": 2, "b": 1, "day": Param(type="string"), "warehouse": "w"})
    assert "param_order" not in to_dict(made)


def defined(params: dict[str, Any]) -> FlowDefinition:
    @task
    def a() -> None: ...

    @flow(flow_id="f", params=params)
    def f() -> None:
        a()

    made = f.definition()
    assert from_dict(to_dict(made)) == made, "what is stored is what was written"
    return made


def test_defaults_and_schemas_are_stored_apart() -> None:
    made = defined(
        {"n": Param(10, type=int, minimum=1), "day": Param(type=(str, None)), "loose": [1]}
    )
    assert made.params == {"n": 10, "loose": [1]}
    assert made.param_schemas == {
        "n": {"type": "integer", "minimum": 1},
        "day": {"type": ["string", "null"]},
    }


def test_without_schemas_a_definition_is_stored_as_it_always_was() -> None:
    made = defined({"n": 10, "m": Param(None)})
    assert made.params == {"n": 10, "m": None}
    assert "param_schemas" not in to_dict(made)


def test_a_parameter_without_default_has_to_be_given_whatever_it_accepts() -> None:
    assert defined({"n": Param()}).param_schemas == {"n": {}}
