"""Flow files of every kind, loaded in real processes and stored in a real database."""

from __future__ import annotations

import textwrap
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from django.test import override_settings

from scheduler_app.catalog import discover, service
from scheduler_app.catalog.load import load_each
from scheduler_app.catalog.service import Catalog, ScanReport
from scheduler_app.catalog.store import store
from scheduler_app.models import Bundle, Flow, FlowFile, FlowVersion, Job, Pool
from scheduler_app.processes import bundles, database
from tests.factories import make_job

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.django_db(transaction=True)

GOOD = """
    from scheduler_app.authoring import flow, task

    @task
    def a():
        return 1

    @flow
    def {name}():
        a()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    flows = tmp_path / "flows"
    flows.mkdir()
    return flows


@pytest.fixture
def catalog(folder: Path) -> Iterator[Catalog]:
    with closing(Catalog([folder])) as made:
        yield made


def _scan_afresh(folder: Path) -> ScanReport:
    """As after a restart: nothing is remembered."""
    with closing(Catalog([folder])) as made:
        return made.scan_once()


def _write(folder: Path, name: str, source: str) -> None:
    (folder / name).write_text(textwrap.dedent(source), encoding="utf-8")


def _errors(path: str) -> list[dict[str, Any]]:
    errors: list[dict[str, Any]] = FlowFile.objects.get(path=path).errors
    return errors


def test_a_file_becomes_a_flow_with_a_version_and_its_source(
    folder: Path, catalog: Catalog
) -> None:
    _write(folder, "one.py", GOOD.format(name="one"))
    report = catalog.scan_once()
    assert report == ScanReport(
        folders=[str(folder)], files=1, loaded=1, flows=1, faults=0, changed=True
    )
    flow = Flow.objects.get(flow_id="one")
    assert flow.current_version is not None
    assert flow.current_version.number == 1
    _, sources = bundles.unpack(bytes(flow.current_version.bundle.archive))
    assert set(sources) == {"one.py"}


def test_loading_an_unchanged_file_again_and_again_makes_one_version(
    folder: Path, catalog: Catalog
) -> None:
    _write(folder, "one.py", GOOD.format(name="one"))
    for _ in range(5):
        _scan_afresh(folder)
    assert FlowVersion.objects.count() == 1
    assert catalog.scan_once().loaded == 1
    for _ in range(1000):
        assert catalog.scan_once().loaded == 0
    (loaded,) = load_each([(folder, "one.py")], limit_s=30)
    with database.connect("scheduler") as connection:
        for _ in range(1000):
            assert not store(connection, loaded, own_folders=[str(folder)]).is_changed
    assert FlowVersion.objects.count() == 1


def test_a_file_that_cannot_be_stored_keeps_no_other_waiting_and_is_tried_again(
    folder: Path, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "RETRY_FIRST_S", 0.1)
    _write(folder, "a.py", GOOD.format(name="a"))
    catalog.scan_once()
    _write(folder, "a.py", GOOD.format(name="a").replace("return 1", "return 2"))
    _write(folder, "b.py", GOOD.format(name="b"))
    with database.connect("worker", name="test") as holder:
        with holder.transaction():
            holder.execute("SELECT 1 FROM flow WHERE flow_id = 'a' FOR UPDATE")
            report = catalog.scan_once()
        assert (report.files, report.flows, report.faults) == (2, 2, 1)
        assert FlowVersion.objects.filter(flow_id="b").count() == 1
        assert FlowVersion.objects.filter(flow_id="a").count() == 1
        (fault,) = _errors("a.py")
        assert fault["file"] == "a.py"
        assert "could not be stored: canceling statement due to lock timeout" in fault["message"]
        time.sleep(0.2)
        assert catalog.scan_once().faults == 0
    assert FlowVersion.objects.filter(flow_id="a").count() == 2
    assert _errors("a.py") == []


def test_a_changed_helper_makes_a_new_version_and_the_old_one_keeps_its_own(
    folder: Path, catalog: Catalog, tmp_path: Path
) -> None:
    _write(folder, "helper.py", "VALUE = 1")
    source = """
        from scheduler_app.authoring import flow, task

        @task
        def a():
            from helper import VALUE
            return VALUE

        @flow
        def one():
            a()
    """
    _write(folder, "one.py", source)
    catalog.scan_once()
    _write(folder, "helper.py", "VALUE = 22")
    assert catalog.scan_once().changed
    first, second = FlowVersion.objects.order_by("number").select_related("bundle")
    for version, value in ((first, b"VALUE = 1"), (second, b"VALUE = 22")):
        _, sources = bundles.unpack(bytes(version.bundle.archive))
        assert sources["helper.py"] == value
    assert Flow.objects.get().current_version == second


@pytest.mark.parametrize(
    ("source", "line", "words"),
    [
        ("def broken(:\n    pass  # authoring", 1, "Syntax error"),
        ("import os  # authoring\nos._exit(3)", 1, "exit code 3"),
        ("import sys  # authoring\n\nsys.exit('no')", 3, "sys.exit"),
        ("import os, signal  # authoring\nos.kill(os.getpid(), signal.SIGSEGV)", 1, "SIGSEGV"),
        ("# authoring\nraise KeyboardInterrupt", 2, "KeyboardInterrupt"),
        ("# authoring\nimport nowhere_to_be_found", 2, "nowhere_to_be_found"),
        (
            "from scheduler_app.authoring import flow, task\n@task\ndef a(): pass\n"
            "@flow(schedule='61 * * * *')\ndef f():\n    a()",
            4,
            "61",
        ),
    ],
)
def test_a_bad_file_is_told_with_file_line_and_remedy_and_harms_no_other(
    folder: Path, catalog: Catalog, source: str, line: int, words: str
) -> None:
    (folder / "bad.py").write_text(source, encoding="utf-8")
    _write(folder, "good.py", GOOD.format(name="good"))
    report = catalog.scan_once()
    assert Flow.objects.filter(flow_id="good", removed_at=None).exists()
    assert report.faults == 1
    (error,) = _errors("bad.py")
    assert (error["file"], error["line"]) == ("bad.py", line)
    assert words in error["message"]
    assert error["remedy"]


def test_a_file_that_never_ends_is_ended_within_the_limit_beside_the_others(
    folder: Path, catalog: Catalog
) -> None:
    _write(folder, "endless.py", "import subprocess  # authoring\nwhile True: pass")
    _write(folder, "noisy.py", "# authoring\nimport os\nos.write(1, b'x' * 100_000_000)")
    _write(folder, "good.py", GOOD.format(name="good"))
    with override_settings(FLOW_FILE_TIMEOUT_S=8.0):
        began = time.monotonic()
        catalog.scan_once()
        assert time.monotonic() - began < 40, "it did not wait for the endless one"
    order = list(FlowFile.objects.order_by("loaded_at").values_list("path", flat=True))
    assert order[-1] == "endless.py", "none waited for it"
    assert "longer than 8 s" in _errors("endless.py")[0]["message"]
    assert _errors("noisy.py") == []
    assert Flow.objects.filter(flow_id="good").exists()


def test_a_file_that_broke_keeps_its_last_good_version(folder: Path, catalog: Catalog) -> None:
    _write(folder, "one.py", GOOD.format(name="one"))
    catalog.scan_once()
    (folder / "one.py").write_text("authoring = (", encoding="utf-8")
    catalog.scan_once()
    flow = Flow.objects.get(flow_id="one")
    assert flow.removed_at is None
    assert flow.current_version is not None
    assert len(_errors("one.py")) == 1
    _write(folder, "one.py", GOOD.format(name="one"))
    catalog.scan_once()
    assert _errors("one.py") == []
    assert FlowVersion.objects.count() == 1


def test_the_first_of_two_files_that_define_a_flow_keeps_it_and_the_other_is_told(
    folder: Path, catalog: Catalog
) -> None:
    _write(folder, "a.py", GOOD.format(name="same"))
    catalog.scan_once()
    _write(folder, "b.py", GOOD.format(name="same"))
    catalog.scan_once()
    assert Flow.objects.get(flow_id="same").path == "a.py"
    (error,) = _errors("b.py")
    assert "a.py" in error["message"]
    assert "b.py" in error["message"]


def test_a_vanished_file_removes_its_flows_and_brings_them_back_with_it(
    folder: Path, catalog: Catalog
) -> None:
    _write(folder, "one.py", GOOD.format(name="one"))
    catalog.scan_once()
    (folder / "one.py").unlink()
    assert catalog.scan_once().changed
    assert Flow.objects.get(flow_id="one").removed_at is not None
    assert Bundle.objects.count() == 1, "its runs go on with the version they have"
    _write(folder, "moved.py", GOOD.format(name="one"))
    catalog.scan_once()
    flow = Flow.objects.get(flow_id="one")
    assert (flow.removed_at, flow.path) == (None, "moved.py")


def test_a_file_that_vanished_while_nobody_looked_is_noticed_at_the_next_start(
    folder: Path, catalog: Catalog
) -> None:
    _write(folder, "one.py", GOOD.format(name="one"))
    catalog.scan_once()
    (folder / "one.py").unlink()
    _scan_afresh(folder)
    assert Flow.objects.get(flow_id="one").removed_at is not None


def test_an_unknown_pool_is_told_and_the_last_good_version_stays(
    folder: Path, catalog: Catalog
) -> None:
    _write(folder, "one.py", GOOD.format(name="one"))
    _write(folder, "two.py", GOOD.format(name="two").replace("@task", '@task(pool="nowhere")'))
    catalog.scan_once()
    assert not Flow.objects.filter(flow_id="two").exists()
    _write(folder, "one.py", GOOD.format(name="one").replace("@task", '@task(pool="nowhere")'))
    catalog.scan_once()
    assert Flow.objects.get(flow_id="one").removed_at is None
    assert FlowVersion.objects.count() == 1
    (error,) = _errors("one.py")
    assert "nowhere" in error["message"]
    assert "default" in error["remedy"]


def test_a_file_whose_missing_helper_appears_is_loaded_again(
    folder: Path, catalog: Catalog
) -> None:
    _write(folder, "one.py", "    import late_helper\n" + GOOD.format(name="one"))
    catalog.scan_once()
    assert not Flow.objects.exists()
    _write(folder, "late_helper.py", "VALUE = 1")
    catalog.scan_once()
    assert Flow.objects.filter(flow_id="one").exists()


def test_a_schedule_sets_the_cursor_of_a_new_flow(folder: Path, catalog: Catalog) -> None:
    _write(folder, "one.py", GOOD.format(name="one").replace("@flow", '@flow(schedule="@daily")'))
    catalog.scan_once()
    flow = Flow.objects.get(flow_id="one")
    assert flow.next_interval_end is not None
    _write(folder, "one.py", GOOD.format(name="one"))
    catalog.scan_once()
    assert Flow.objects.get(flow_id="one").next_interval_end is None


def test_two_catalogs_that_scan_the_same_folder_at_once_store_one_version(folder: Path) -> None:
    for number in range(3):
        _write(folder, f"f{number}.py", GOOD.format(name=f"f{number}"))
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: _scan_afresh(folder), range(2)))
    assert FlowVersion.objects.count() == 3


def test_files_of_one_path_in_two_folders_are_two_files(tmp_path: Path) -> None:
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        folder.mkdir()
        _write(folder, "flows.py", GOOD.format(name=folder.name))
    with closing(Catalog(folders)) as catalog:
        catalog.scan_once()
        assert Flow.objects.filter(removed_at=None).count() == 2
        _write(folders[1], "flows.py", GOOD.format(name="one"))
        catalog.scan_once()
        assert Flow.objects.get(flow_id="one").folder == str(folders[0])
        assert Flow.objects.get(flow_id="two").removed_at is not None
        (error,) = FlowFile.objects.get(folder=str(folders[1])).errors
        assert f"{folders[0]}/flows.py" in error["message"]


def test_a_flow_that_moves_between_two_files_in_one_step_is_never_lost(
    folder: Path, catalog: Catalog
) -> None:
    for before, after in (("a.py", "b.py"), ("b.py", "a.py")):
        _write(folder, after, "# a flow file without flows")
        _write(folder, before, GOOD.format(name="same"))
        catalog.scan_once()
        catalog.scan_once()
        assert Flow.objects.get(flow_id="same").path == before
        _write(folder, before, "# no flow any more")
        _write(folder, after, GOOD.format(name="same"))
        catalog.scan_once()
        catalog.scan_once()
        flow = Flow.objects.get(flow_id="same")
        assert (flow.path, flow.removed_at) == (after, None)
        assert _errors(after) == []


def test_a_file_gets_the_flow_when_its_owner_goes(folder: Path, catalog: Catalog) -> None:
    _write(folder, "a.py", GOOD.format(name="same"))
    catalog.scan_once()
    _write(folder, "b.py", GOOD.format(name="same"))
    catalog.scan_once()
    (folder / "a.py").unlink()
    catalog.scan_once()
    catalog.scan_once()
    flow = Flow.objects.get(flow_id="same")
    assert (flow.path, flow.removed_at) == ("b.py", None)
    assert _errors("b.py") == []


def test_a_flow_is_registered_when_its_missing_pool_is_made(folder: Path, catalog: Catalog) -> None:
    _write(folder, "one.py", GOOD.format(name="one").replace("@task", '@task(pool="later")'))
    catalog.scan_once()
    catalog.recheck(ScanReport())
    assert catalog.scan_once().loaded == 0
    assert not FlowVersion.objects.exists()
    Pool.objects.create(name="later", slots=1)
    catalog.recheck(ScanReport())
    assert catalog.scan_once().loaded == 1
    assert _errors("one.py") == []
    assert FlowVersion.objects.count() == 1


def test_flows_of_a_folder_that_nobody_watches_any_more_are_removed_and_come_back(
    folder: Path, catalog: Catalog, tmp_path: Path
) -> None:
    _write(folder, "one.py", GOOD.format(name="one"))
    catalog.scan_once()
    other = tmp_path / "other"
    other.mkdir()
    with closing(Catalog([other])) as newer:
        watching = make_job(
            kind="scheduler",
            heartbeat_at=datetime.now(UTC),
            detail={"catalog": {"folders": [str(folder)]}},
        )
        newer.recheck(ScanReport())
        assert Flow.objects.get().removed_at is None, "a living scheduler watches it"
        Job.objects.filter(id=watching.id).update(ended_at=watching.started_at)
        report = ScanReport()
        newer.recheck(report)
        assert report.changed
        assert Flow.objects.get().removed_at is not None
        assert FlowFile.objects.get().removed_at is not None
    catalog.recheck(ScanReport())
    catalog.scan_once()
    assert Flow.objects.get().removed_at is None, "its watcher knows better"


def test_a_folder_that_goes_away_as_a_whole_leaves_its_flows(
    folder: Path, catalog: Catalog
) -> None:
    """As when a share is unmounted: a restart of the share must not look like a removal of all."""
    _write(folder, "one.py", GOOD.format(name="one"))
    catalog.scan_once()
    folder.rename(folder.with_name("away"))
    catalog.scan_once()
    assert Flow.objects.get().removed_at is None


def test_one_name_twice_in_a_file_is_told_at_the_second_line(
    folder: Path, catalog: Catalog
) -> None:
    source = textwrap.dedent(GOOD.format(name="twice"))
    (folder / "one.py").write_text(source + source.split("\n", 2)[2], encoding="utf-8")
    catalog.scan_once()
    (error,) = _errors("one.py")
    assert "twice" in error["message"]
    assert error["line"] == source.count("\n") + 6
    assert Flow.objects.get(flow_id="twice").current_version is not None


def test_any_bytes_in_a_message_can_be_stored(folder: Path, catalog: Catalog) -> None:
    _write(folder, "one.py", "# flow\nraise ValueError('\\x00 \\ud800')")
    catalog.scan_once()
    assert "ValueError" in _errors("one.py")[0]["message"]


def test_links_in_circles_hidden_folders_and_environments_are_left_out(folder: Path) -> None:
    for name in (".hidden", "venv", "inner"):
        (folder / name).mkdir()
        _write(folder / name, "one.py", "")
    _write(folder / "venv", "pyvenv.cfg", "")
    (folder / "inner" / "circle").symlink_to(folder / "inner")
    (folder / "inner" / "\udcff.py").write_bytes(b"")
    assert set(discover.python_files(folder)) == {"inner/one.py"}


def test_a_file_that_failed_by_something_outside_is_tried_again_later(
    folder: Path, catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "RETRY_FIRST_S", 0.0)
    needed = tmp_path / "needed"
    head = f"import pathlib\npathlib.Path({str(needed)!r}).read_text()\n"
    (folder / "one.py").write_text(head + textwrap.dedent(GOOD.format(name="one")))
    catalog.scan_once()
    assert "needed" in _errors("one.py")[0]["message"]
    needed.write_text("there")
    time.sleep(0.01)
    catalog.scan_once()
    assert _errors("one.py") == []
    assert catalog.scan_once().loaded == 0
