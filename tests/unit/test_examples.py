"""The example flows do what they say, run in this process from their stored source."""

from __future__ import annotations

import json
import logging
import sqlite3
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from scheduler_app import examples
from scheduler_app.authoring import Context, Flow
from scheduler_app.processes import bundles

FOLDER = Path(examples.__file__).parent


@pytest.fixture(autouse=True)
def _own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DAYLIGHT_DATA_DIR", str(tmp_path / "data"))


@pytest.fixture
def load(tmp_path: Path) -> Any:
    """Loads a flow as a worker does: from the bundle that its file and imports make."""

    def loaded(file: str, flow_id: str) -> Flow:
        source = {file: (FOLDER / file).read_bytes()}
        digest, archive = bundles.pack_sources(file, bundles.imports_of(FOLDER, source).sources)
        return bundles.flow_of_bundle(digest, lambda: archive, flow_id, tmp_path / "bundles")

    return loaded


def context(*, fence: int = 1, try_number: int = 1) -> Context:
    """What these tasks use of a context."""
    log = logging.getLogger("daylight.task")
    return cast("Context", SimpleNamespace(fence=fence, try_number=try_number, log=log))


def run(flow: Flow, ctx: Context) -> dict[str, Any]:
    """The results of all tasks, each run after those that it needs."""
    results: dict[str, Any] = {}
    for task in flow.definition().tasks:
        results[task.task_id] = flow.calls[task.task_id].execute(ctx, results)
    return results


def test_the_census_counts_every_penguin_into_the_database_file(load: Any) -> None:
    results = run(load("penguin_census.py", "example_penguin_census"), context())
    assert results["report"] == {"Adelie": 152, "Chinstrap": 68, "Gentoo": 124}
    assert sum(group["penguins"] for group in results["count"]) == 344


def test_an_attempt_with_an_older_fence_cannot_write_the_census(load: Any) -> None:
    flow = load("penguin_census.py", "example_penguin_census")
    results = run(flow, context(fence=8))
    with pytest.raises(RuntimeError, match="newer attempt"):
        flow.calls["write"].execute(context(fence=7), {"count": []})
    with closing(sqlite3.connect(results["write"])) as database:
        assert database.execute("SELECT count(*) FROM census").fetchone() == (5,)


def test_the_islands_are_measured_apart_and_joined(load: Any) -> None:
    flow = load("penguin_islands.py", "example_penguin_islands")
    assert set(flow.definition().task("join").upstream) == {
        "measure_biscoe",
        "measure_dream",
        "measure_torgersen",
    }
    measures = json.loads(Path(run(flow, context())["join"]).read_text(encoding="utf-8"))
    assert [(one["island"], one["penguins"]) for one in measures] == [
        ("Biscoe", 168),
        ("Dream", 124),
        ("Torgersen", 52),
    ]


def test_the_unlucky_task_succeeds_at_its_third_try(load: Any) -> None:
    flow = load("third_time_lucky.py", "example_third_time_lucky")
    with pytest.raises(ConnectionError, match="try 1"):
        flow.calls["fetch"].execute(context(), {})
    assert flow.calls["fetch"].execute(context(try_number=3), {}) == 344
    assert flow.definition().task("fetch").retries >= 2


def test_the_fan_has_two_hundred_tasks_and_no_schedule(load: Any) -> None:
    definition = load("fan.py", "example_fan").definition()
    assert len(definition.tasks) == 200
    assert definition.schedule is None


def test_the_flow_that_airflows_client_triggers_has_its_task(load: Any) -> None:
    definition = load("simplest.py", "example_simplest_dag").definition()
    assert [task.task_id for task in definition.tasks] == ["my_task"]
