"""The example flows do what they say, run in this process from their stored source."""

from __future__ import annotations

import json
import logging
import os
import re
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from scheduler_app import examples
from scheduler_app.authoring import Context, Flow, StaleFence
from scheduler_app.authoring.saving import Checkpoint, Progress
from scheduler_app.catalog import discover
from scheduler_app.catalog.load import Loaded, load_each
from scheduler_app.launch import first_look
from scheduler_app.processes import bundles

FOLDER = Path(examples.__file__).parent
README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")


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
    ids = {
        "flow_id": "example",
        "run_id": "r1",
        "attempt_id": f"attempt-{fence}",
        "logical_date": datetime(2026, 1, 31, tzinfo=UTC),
    }
    return cast("Context", SimpleNamespace(fence=fence, try_number=try_number, log=log, **ids))


def run(flow: Flow, ctx: Context) -> dict[str, Any]:
    """The results of all tasks, each run after those that it needs."""
    results: dict[str, Any] = {}
    for task in flow.definition().tasks:
        results[task.task_id] = flow.calls[task.task_id].execute(ctx, results)
    return results


@pytest.fixture(scope="module")
def loaded() -> list[Loaded]:
    """What the catalog finds in the folder."""
    files = [(FOLDER, path) for path in discover.python_files(FOLDER)]
    return sorted(load_each(files, limit_s=30), key=lambda one: one.path)


def test_the_catalog_finds_every_example_and_no_fault(loaded: list[Loaded]) -> None:
    assert [fault for file in loaded for fault in file.faults] == []
    assert [flow.flow_id for file in loaded for flow in file.flows] == [
        "example_delivered_twice",
        "example_fails_twice",
        "example_fan",
        "example_island_weights",
        "example_pages_and_aggregates",
        "example_parallel_paths",
        "example_resumes",
        "example_simplest_dag",
    ]


def test_examples_run_once_a_day_at_most(loaded: list[Loaded]) -> None:
    flows = [flow for file in loaded for flow in file.flows]
    assert {flow.flow_id: flow.schedule for flow in flows if flow.schedule} == {
        "example_pages_and_aggregates": "0 6 * * *"
    }
    assert not any(flow.catchup for flow in flows)


def test_the_readme_and_the_first_start_name_examples_that_are_there(
    loaded: list[Loaded],
) -> None:
    flow_ids = {flow.flow_id for file in loaded for flow in file.flows}
    named = set(re.findall(r"example_\w+", README))
    assert named
    assert named <= flow_ids
    assert first_look.REPEATED_FLOW in flow_ids


def test_the_flow_that_the_readme_writes_is_a_good_one(tmp_path: Path) -> None:
    (source,) = re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    (tmp_path / "nightly.py").write_text(source, encoding="utf-8")
    (found,) = load_each([(tmp_path, "nightly.py")], limit_s=30)
    assert found.faults == ()
    assert [flow.flow_id for flow in found.flows] == ["nightly"]


def test_the_readme_names_tasks_that_its_examples_have(loaded: list[Loaded]) -> None:
    tasks = {
        flow.flow_id: [task.task_id for task in flow.tasks] for f in loaded for flow in f.flows
    }
    logs = re.findall(r"tasks log (\w+) \w+ (\w+)", README)
    assert logs
    assert [(flow_id, task_id) for flow_id, task_id in logs if task_id not in tasks[flow_id]] == []


def test_a_start_of_the_task_whose_message_comes_twice_leaves_a_line(load: Any) -> None:
    flow = load("delivered_twice.py", "example_delivered_twice")
    result = run(flow, context(fence=5))["weigh"]
    assert (result["penguins"], result["mass_g"]) == (342, 1_437_000)
    assert Path(result["starts"]).read_text(encoding="utf-8").startswith("r1 attempt attempt-5 ")


def test_the_census_counts_every_penguin_into_the_database_file(load: Any) -> None:
    results = run(load("pages_and_aggregates.py", "example_pages_and_aggregates"), context())
    assert results["report"] == {"Adelie": 152, "Chinstrap": 68, "Gentoo": 124}
    assert sum(group["penguins"] for group in results["count"]) == 344


def test_an_attempt_with_an_older_fence_cannot_write_the_census(load: Any) -> None:
    flow = load("pages_and_aggregates.py", "example_pages_and_aggregates")
    results = run(flow, context(fence=8))
    with pytest.raises(StaleFence, match="fence 7 < 8"):
        flow.calls["write"].execute(context(fence=7), {"count": []})
    with closing(sqlite3.connect(results["write"])) as database:
        assert database.execute("SELECT count(*) FROM census").fetchone() == (5,)


def test_each_island_is_weighed_into_its_row_once_and_never_by_an_older_fence(load: Any) -> None:
    flow = load("island_weights.py", "example_island_weights")
    results = run(flow, context(fence=8))
    run(flow, context(fence=9))
    with pytest.raises(StaleFence, match="fence 7 < 9"):
        flow.calls["weigh_dream"].execute(context(fence=7), {})
    file = Path(os.environ["DAYLIGHT_DATA_DIR"]) / "examples-output" / "weights.sqlite3"
    with closing(sqlite3.connect(file)) as database:
        rows = database.execute(
            "SELECT island, penguins, mass_g, fence FROM island_weight ORDER BY island"
        ).fetchall()
    assert [(island, number, fence) for island, number, _, fence in rows] == [
        ("Biscoe", 167, 9),
        ("Dream", 124, 9),
        ("Torgersen", 51, 9),
    ]
    assert sum(mass for _, _, mass, _ in rows) == sum(results.values()) == 1_437_000


def test_the_islands_are_measured_apart_and_joined(load: Any) -> None:
    flow = load("parallel_paths.py", "example_parallel_paths")
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


def test_the_task_that_fails_twice_succeeds_at_its_third_try(load: Any) -> None:
    flow = load("fails_twice.py", "example_fails_twice")
    with pytest.raises(ConnectionError, match="try 1"):
        flow.calls["fetch"].execute(context(), {})
    assert flow.calls["fetch"].execute(context(try_number=3), {}) == 344
    assert flow.definition().task("fetch").retries >= 2


def test_the_fan_has_two_hundred_tasks_and_no_schedule(load: Any) -> None:
    definition = load("fan.py", "example_fan").definition()
    assert len(definition.tasks) == 200
    assert definition.schedule is None


def test_the_flow_that_airflows_client_triggers_has_its_task(load: Any) -> None:
    definition = load("simplest_dag.py", "example_simplest_dag").definition()
    assert [task.task_id for task in definition.tasks] == ["my_task"]


class Keeps(dict[str, Any]):
    """Saves in memory, and what the bar was told."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[tuple[int, int | None]] = []

    def checkpoint(self, scope: str, owner: str | None, key: str) -> tuple[bool, Any]:
        return key in self, self.get(key)

    def save(self, scope: str, owner: str | None, given: Mapping[str, Any]) -> None:
        self.update(given)

    def flush(self) -> None:
        pass

    def tell_progress(self, done: int, total: int | None, note: str) -> None:
        self.told.append((done, total))


def test_the_example_that_breaks_off_goes_on_where_it_was(
    load: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow = load("resumes.py", "example_resumes")
    monkeypatch.setattr("time.sleep", lambda _: None)
    keeps = Keeps()

    def attempt(try_number: int) -> Any:
        ctx = context(try_number=try_number)
        ctx.checkpoint = Checkpoint(keeps)  # type: ignore[misc]
        ctx.progress = Progress(keeps)  # type: ignore[misc]
        return flow.calls["weigh_pages"].execute(ctx, {})

    with pytest.raises(ConnectionError):
        attempt(1)
    assert keeps["so_far"][0] == 3
    assert attempt(2) == {"pages": 7, "begun_at": 4, "mass_g": 1_437_000}
    assert keeps.told[-1] == (7, 7)
    assert keeps.told.count((3, 7)) == 2  # where the first left off, the second began
