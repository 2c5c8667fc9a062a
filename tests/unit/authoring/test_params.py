"""Parameters as authors declare them."""

from __future__ import annotations

from typing import Any

from scheduler_app.authoring import Param, flow, task
from scheduler_app.rules.definition import FlowDefinition, from_dict, to_dict


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
