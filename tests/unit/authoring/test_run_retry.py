"""RunRetry and Guards as an author writes them: what is stored, and faults with file and line."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from scheduler_app.authoring import Guards, RunRetry, flow, task
from scheduler_app.rules.definition import from_dict, to_dict
from scheduler_app.rules.errors import DefinitionError
from scheduler_app.rules.guards import GuardLimits
from scheduler_app.rules.run_retry import RunRetryPolicy


@task
def work() -> None:
    """Nothing."""


def test_the_policy_is_stored_with_the_definition_and_comes_back() -> None:
    @flow(
        flow_id="with_policy",
        run_retry=RunRetry(
            3, timedelta(minutes=10), 2.0, "all", on=(OSError, "lost", "requests.Timeout")
        ),
        guards=Guards(cooldown=60, max_actions=5, window=timedelta(hours=1), max_runs=1),
    )
    def made() -> None:
        work()

    definition = made.definition()
    assert definition.run_retry == RunRetryPolicy(
        max_attempts=3,
        cooldown_s=600,
        backoff=2,
        scope="all",
        on=("OSError", "lost", "requests.Timeout"),
    )
    assert definition.guards == GuardLimits(cooldown_s=60, actions_max=5, window_s=3600, runs_max=1)
    assert from_dict(to_dict(definition)) == definition


def test_a_flow_without_a_policy_is_stored_as_before() -> None:
    @flow(flow_id="without_policy")
    def made() -> None:
        work()

    assert {"run_retry", "guards"}.isdisjoint(to_dict(made.definition()))


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"max_attempts": 0}, "a whole number from 1 to 1000"),
        ({"max_attempts": True}, "a whole number from 1 to 1000"),
        ({"cooldown": "soon"}, "a timedelta or a number of seconds"),
        ({"cooldown": -1}, "a duration from 0 s to 10 years"),
        ({"backoff": -1}, "a number from 0 to 1000"),
        ({"scope": "some"}, "one of failed, all, from_checkpoint"),
        ({"siblings": "kill"}, "one of wait, stop"),
        ({"on": (int,)}, "exceptions, as classes or names"),
        ({"on": ("not a name",)}, "exceptions, as classes or names"),
        ({"on": tuple(f"E{n}" for n in range(51))}, "at most 50"),
    ],
)
def test_a_faulty_policy_names_its_file_and_line(given: dict[str, object], told: str) -> None:
    with pytest.raises(DefinitionError) as refused:
        RunRetry(**{"max_attempts": 3, **given})  # type: ignore[arg-type] # what an author may write
    assert told in str(refused.value)
    assert refused.value.extra["file"] == __file__
    assert isinstance(refused.value.extra["line"], int)


def test_faulty_guards_name_their_file_and_line() -> None:
    with pytest.raises(DefinitionError, match="Give max_runs a whole number") as refused:
        Guards(max_runs=-1)
    assert refused.value.extra["file"] == __file__


def _mistyped() -> None:
    mistyped: Any = {"run_retry": 3, "guards": {"max_actions": 3}}

    @flow(flow_id="wrong", **mistyped)
    def made() -> None:
        work()


def test_the_options_take_just_these() -> None:
    with pytest.raises(DefinitionError) as refused:
        _mistyped()
    assert "RunRetry(max_attempts=3" in str(refused.value)
    assert "Guards(cooldown=" in str(refused.value)
