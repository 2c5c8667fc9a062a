"""The public names: complete, described, documented, and typed for those who write flows."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import pytest

from scheduler_app import authoring
from scheduler_app.authoring import groups, options, retrying, typed
from scheduler_app.authoring.flow import FLOW_OPTIONS
from scheduler_app.rules import definition
from tests.unit.authoring import typed_flows

CHECKOUT = Path(__file__).parents[3]
STRICT_S = 300.0  # a cold check takes some ten seconds on a quiet machine


@pytest.mark.parametrize(
    ("told", "checked"),
    [
        (typed.TaskOptions, options.TASK_OPTIONS),
        (typed.GroupOptions, groups.GROUP_OPTIONS),
        (typed.FlowOptions, FLOW_OPTIONS),
        (typed.RetryOptions, retrying._RETRY_OPTIONS),
    ],
    ids=["task", "group", "flow", "retry"],
)
def test_checkers_know_the_options_that_there_are(told: Any, checked: Any) -> None:
    assert {*told.__annotations__} == {*checked}


def test_checkers_know_the_words_of_each_choice() -> None:
    rules = {*map(str, definition.TriggerRule)} - {"all_done_setup_success"}
    assert {*get_args(typed.TriggerRuleName)} == rules
    assert {*get_args(typed.WeightRuleName)} == {*map(str, definition.WeightRule)}
    assert {*get_args(typed.OverlapName)} == {*map(str, definition.Overlap)}
    assert {*get_args(typed.DeadlineFromName)} == {*definition.DEADLINE_FROM}


def test_the_package_says_that_it_is_typed() -> None:
    assert (CHECKOUT / "scheduler_app" / "py.typed").is_file()


def test_every_public_name_is_listed_described_and_documented() -> None:
    public = {
        name
        for name, value in vars(authoring).items()
        if not name.startswith("_")
        and not inspect.ismodule(value)
        and getattr(value, "__module__", "").startswith("scheduler_app.")
    }
    assert public == {*authoring.__all__}
    assert sorted(authoring.__all__) == authoring.__all__
    pages = "\n".join(page.read_text(encoding="utf-8") for page in (CHECKOUT / "docs").glob("*.md"))
    told = {*re.findall(r"\w+", pages)}
    for name in authoring.__all__:
        assert inspect.getdoc(getattr(authoring, name)), f"{name} has no docstring"
        assert name in told, f"{name} is on no page of docs/"


def test_the_typed_flow_is_one() -> None:
    assert typed_flows.typed.definition().flow_id == "typed"
    assert "both.fetch" in typed_flows.typed.calls


def test_mypy_has_nothing_to_say_of_flows_that_are_right_and_all_of_what_is_wrong(
    tmp_path: Path,
) -> None:
    pytest.importorskip("mypy", reason="mypy is among the tools of `make setup`")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "mypy", "--config-file=", "--strict"),
            *("--follow-imports=silent", f"--cache-dir={tmp_path}"),
            str(Path(typed_flows.__file__)),
        ],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        timeout=STRICT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
