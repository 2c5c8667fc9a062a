"""Bundles hold what a file imports from its folder, and run as they were, whatever the folder does."""

from __future__ import annotations

import io
import json
import sys
import textwrap
import zipfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_app.authoring import Flow
from scheduler_app.processes import bundles
from scheduler_app.rules.errors import InvalidInput, NotFound

MAIN = """
from scheduler_app.authoring import flow, task
import helper

@task
def now():
    return helper.VALUE

@task
def later():
    import lazy
    from package.deep import inner
    return lazy.VALUE, inner.VALUE

@flow
def f():
    now()
    later()
"""


@pytest.fixture(autouse=True)
def _nothing_loaded() -> Iterator[None]:
    yield
    bundles._shelf.clear()
    bundles._shelf.loaded.clear()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "flows"
    write(made, "main.py", MAIN)
    write(made, "helper.py", "VALUE = 'old'")
    write(made, "lazy.py", "VALUE = 'old lazy'")
    write(made, "package/__init__.py", "")
    write(made, "package/deep/__init__.py", "from . import inner")
    write(made, "package/deep/inner.py", "VALUE = 'old inner'")
    write(made, "unrelated.py", "")
    return made


def write(folder: Path, path: str, source: str) -> None:
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    (folder / path).write_text(textwrap.dedent(source), encoding="utf-8")


def bundled(folder: Path, main: str = "main.py") -> tuple[str, bytes]:
    loaded = bundles.load_file(folder, main)
    bundles._shelf.clear()
    return bundles.pack_sources(main, bundles.imports_of(folder, loaded.sources).sources)


def flow_of(bundle: tuple[str, bytes], cache: Path, flow_id: str = "f") -> Flow:
    return bundles.flow_of_bundle(bundle[0], lambda: bundle[1], flow_id, cache)


def run(flow: Flow, task_id: str) -> object:
    return flow.calls[task_id].execute(None, {})  # type: ignore[arg-type]  # these take no ctx


def test_a_bundle_holds_the_file_and_what_it_imports_in_functions_too(folder: Path) -> None:
    main, sources = bundles.unpack(bundled(folder)[1])
    assert main == "main.py"
    assert set(sources) == {
        "main.py",
        "helper.py",
        "lazy.py",
        "package/__init__.py",
        "package/deep/__init__.py",
        "package/deep/inner.py",
    }


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("import package.deep", {"package/__init__.py", "package/deep/__init__.py"}),
        ("from package import deep", {"package/__init__.py", "package/deep/__init__.py"}),
        ("from importlib import import_module as i\nimport importlib\n"
         "def g(): importlib.import_module('lazy')", {"lazy.py"}),
        ("def g(): __import__('lazy')", {"lazy.py"}),
        ("class A:\n    async def g(self):\n        import lazy", {"lazy.py"}),
        ("try:\n    import nowhere\nexcept ImportError:\n    import lazy", {"lazy.py"}),
        ("import json", set()),
    ],
)  # fmt: skip
def test_imports_are_found_in_the_text(folder: Path, line: str, found: set[str]) -> None:
    sources = bundles.imports_of(folder, {"x.py": line.encode()}).sources
    assert found <= set(sources)
    assert "unrelated.py" not in sources


def test_a_helper_with_the_name_of_an_installed_module_is_told(folder: Path) -> None:
    write(folder, "json.py", "raise SystemExit('never run')")
    imports = bundles.imports_of(folder, {"x.py": b"import json"})
    assert imports.hidden == {"json": "json.py"}
    assert "json.py" not in imports.sources


def test_a_version_runs_on_with_its_helpers_after_they_changed_or_vanished(
    folder: Path, tmp_path: Path
) -> None:
    old = bundled(folder)
    flow = flow_of(old, tmp_path / "cache")
    assert run(flow, "now") == "old"
    write(folder, "helper.py", "VALUE = 'new'")
    write(folder, "lazy.py", "VALUE = 'new lazy'")
    new = bundled(folder)
    assert new[0] != old[0]
    for path in folder.rglob("*.py"):
        path.unlink()
    assert run(flow_of(new, tmp_path / "cache"), "now") == "new"
    assert run(flow_of(new, tmp_path / "cache"), "later") == ("new lazy", "old inner")
    # Mid-run: the other version was loaded in between, and this one had not imported `lazy` yet.
    assert run(flow_of(old, tmp_path / "cache"), "now") == "old"
    assert run(flow_of(old, tmp_path / "cache"), "later") == ("old lazy", "old inner")
    assert run(flow_of(new, tmp_path / "cache"), "later") == ("new lazy", "old inner")


def test_a_process_keeps_what_it_loaded_and_reads_no_archive_twice(
    folder: Path, tmp_path: Path
) -> None:
    digest, archive = bundled(folder)
    first = flow_of((digest, archive), tmp_path / "cache")

    def never() -> bytes:
        raise AssertionError

    assert bundles.flow_of_bundle(digest, never, "f", tmp_path / "cache") is first
    bundles._shelf.clear()
    bundles._shelf.loaded.clear()
    again = bundles.flow_of_bundle(digest, never, "f", tmp_path / "cache")
    assert again.flow_id == "f", "the extracted folder serves a new process"


def test_modules_of_no_bundle_stay_and_those_of_another_go(folder: Path, tmp_path: Path) -> None:
    bundle = bundled(folder)
    before = (dict(sys.modules), list(sys.path), list(sys.meta_path))
    flow_of(bundle, tmp_path / "cache")
    assert "helper" in sys.modules
    bundles._shelf.clear()
    assert (dict(sys.modules), list(sys.path), list(sys.meta_path)) == before


def test_a_file_in_a_package_may_import_relatively(folder: Path, tmp_path: Path) -> None:
    source = MAIN.replace("import helper", "from . import helper").replace(
        "import lazy", "lazy = helper"
    )
    write(folder, "package/main.py", source)
    write(folder, "package/helper.py", "VALUE = 'of the package'")
    flow = flow_of(bundled(folder, "package/main.py"), tmp_path / "cache")
    assert run(flow, "now") == "of the package"


def test_a_file_whose_name_cannot_be_imported_is_loaded(folder: Path, tmp_path: Path) -> None:
    write(folder, "my-flow.v2.py", MAIN)
    assert run(flow_of(bundled(folder, "my-flow.v2.py"), tmp_path / "cache"), "now") == "old"


def test_a_flow_that_comes_with_an_import_belongs_to_the_imported_file(folder: Path) -> None:
    write(folder, "other.py", "import main\nfrom main import f")
    assert bundles.load_file(folder, "other.py").flows() == {}


def test_a_flow_that_a_helper_makes_belongs_to_the_file_that_calls_it(
    folder: Path, tmp_path: Path
) -> None:
    write(
        folder,
        "maker.py",
        """
        from scheduler_app.authoring import flow, task

        def make(name):
            @task
            def say():
                return name

            @flow(flow_id=name)
            def f():
                say()
        """,
    )
    write(folder, "made.py", "import maker\nfor name in ('one', 'two'):\n    maker.make(name)")
    bundle = bundled(folder, "made.py")
    assert run(flow_of(bundle, tmp_path / "cache", "two"), "say") == "two"


def test_a_module_that_changed_within_the_second_is_read_again_not_from_a_cache(
    folder: Path, tmp_path: Path
) -> None:
    """Python's own cache compares seconds and sizes; versions must not be mixed up by that."""
    old = bundled(folder)
    write(folder, "helper.py", "VALUE = 'odd'")
    new = bundled(folder)
    assert run(flow_of(old, tmp_path / "cache"), "now") == "old"
    assert run(flow_of(new, tmp_path / "cache"), "now") == "odd"
    assert not list(folder.rglob("__pycache__")), "nothing is written into a flow folder"


def test_a_flow_that_the_stored_source_does_not_make_here_is_told(
    folder: Path, tmp_path: Path
) -> None:
    with pytest.raises(NotFound, match="does not define flow 'g' on this host"):
        flow_of(bundled(folder), tmp_path / "cache", "g")


@given(
    st.dictionaries(
        st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=8).map("{}.py".format),
        st.binary(max_size=60),
        min_size=1,
        max_size=4,
    ),
    st.randoms(),
)
def test_the_same_content_has_the_same_digest_in_any_order_and_comes_back(
    sources: dict[str, bytes], random: object
) -> None:
    paths = list(sources)
    random.shuffle(paths)  # type: ignore[attr-defined]  # a random.Random
    digest, archive = bundles.pack_sources(paths[0], {path: sources[path] for path in paths})
    assert bundles.pack_sources(paths[0], sources) == (digest, archive)
    assert bundles.unpack(archive) == (paths[0], sources)
    changed = {**sources, paths[0]: sources[paths[0]] + b"#"}
    assert bundles.digest_of(paths[0], changed) != digest


def test_a_damaged_bundle_is_refused_and_leaves_nothing(folder: Path, tmp_path: Path) -> None:
    digest, archive = bundled(folder)
    cache = tmp_path / "cache"
    for damaged in (b"", archive[:-30], bundles.pack_sources("a.py", {"a.py": b""})[1]):
        with pytest.raises(InvalidInput, match="damaged"):
            bundles.extract(digest, partial(bytes, damaged), cache)
    assert not cache.exists() or not list(cache.iterdir())


@pytest.mark.parametrize("path", ["../out.py", "/etc/out.py", "a/../../out.py", "a\\b.py"])
def test_a_path_that_leads_out_of_the_bundle_is_refused(path: str) -> None:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as out:
        out.writestr(bundles.MANIFEST, json.dumps({"main": path}))
        out.writestr(path, "")
    with pytest.raises(InvalidInput, match="leads out"):
        bundles.unpack(archive.getvalue())
    with pytest.raises(InvalidInput, match="leads out"):
        bundles.pack_sources(path, {path: b""})


def test_a_bundle_that_is_too_large_is_refused_with_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bundles, "BYTES_MAX", 10)
    with pytest.raises(InvalidInput, match=r"11 bytes; the limits are .* 10 bytes"):
        bundles.pack_sources("a.py", {"a.py": b"x" * 11})
