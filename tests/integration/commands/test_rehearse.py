"""``manage.py flows test``: a run without a stack."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.commands.conftest import Call

pytestmark = pytest.mark.django_db

SOURCE = """
    from scheduler_app.authoring import EventTrigger, Param, flow, task

    @task(retries=1, retry_delay=3600)
    def load(ctx):
        if ctx.try_number == 1:
            raise OSError("not yet")
        return ctx.params["n"]

    @task
    def wait(ctx):
        ctx.defer(EventTrigger("go"), method="gone")

    @wait.method
    def gone(event):
        return event

    @flow(params={"n": Param(1, type=int)})
    def good():
        load()

    @flow
    def waiting():
        wait()
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    made = tmp_path / "rehearsed.py"
    made.write_text(textwrap.dedent(SOURCE), encoding="utf-8")
    return str(made)


def test_a_run_is_played_and_told(call: Call, file: str) -> None:
    answer = call("flows", "test", file, "--flow", "good", "--conf", '{"n": 7}')
    assert answer.code == 0
    assert "OSError: not yet; try 1 of 2 failed with OSError: retry in 60 min" in answer.out
    assert "The run is success." in answer.out
    told = call("flows", "test", file, "--flow", "good", "--conf", '{"n": 7}', "--json").json
    assert (told["state"], told["results"]) == ("success", {"load": 7})
    assert [one["outcome"] for one in told["attempts"]] == ["failed", "success"]


def test_what_it_waits_for_is_given(call: Call, file: str) -> None:
    refused = call("flows", "test", file, "--flow", "waiting")
    assert refused.code == 1
    assert "waits for the event 'go', which nobody brings about here" in refused.err
    given = call("flows", "test", file, "--flow", "waiting", "--events", '{"wait": 5}', "--json")
    assert given.json["results"] == {"wait": 5}


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ([], "defines good, waiting; name one with --flow"),
        (["--flow", "nothing"], "defines good, waiting; not nothing"),
        (["--flow", "good", "--conf", '{"n": "x"}'], "n: 'x' is not of type 'integer'"),
    ],
)
def test_what_is_wrong_is_told(call: Call, file: str, options: list[str], told: str) -> None:
    answer = call("flows", "test", file, *options)
    assert answer.code == 1
    assert told in answer.err


def test_a_run_that_fails_is_a_failure_to_scripts(call: Call, tmp_path: Path) -> None:
    made = tmp_path / "failing.py"
    source = "from scheduler_app.authoring import flow, task\n\n@task\ndef a():\n    1 / 0\n\n"
    made.write_text(f"{source}@flow\ndef f():\n    a()\n", encoding="utf-8")
    answer = call("flows", "test", str(made))
    assert answer.code == 1
    assert "ZeroDivisionError" in answer.out
    made.write_text("import nothing_of_this_name_at_all\n", encoding="utf-8")
    assert "cannot be loaded: ModuleNotFoundError" in call("flows", "test", str(made)).err
    assert "There is no file" in call("flows", "test", str(tmp_path / "none.py")).err
