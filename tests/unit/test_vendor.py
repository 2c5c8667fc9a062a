"""The vendored files are what the manifest says, and the check sees when they are not."""

from __future__ import annotations

import gzip
import hashlib
import json
import shutil
from pathlib import Path

import pytest

from tools import vendor

ROOT = Path(__file__).parents[2]


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of what the check reads."""
    for folder in ("static", "templates"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    shutil.copyfile(ROOT / "THIRD_PARTY.md", tmp_path / "THIRD_PARTY.md")
    return tmp_path


def test_the_repository_passes() -> None:
    assert list(vendor.faults(ROOT)) == []


def test_a_changed_file_is_found(copy: Path) -> None:
    path = copy / "static/vendor/htmx-4.0.1/htmx.min.js"
    path.write_bytes(path.read_bytes() + b"//")
    assert list(vendor.faults(copy)) == [
        "static/vendor/htmx-4.0.1/htmx.min.js: changed since it was recorded",
        "static/vendor/htmx-4.0.1/htmx.min.js.gz: not the packed form of htmx.min.js",
    ]


def test_a_packed_twin_that_holds_something_else_is_found(copy: Path) -> None:
    path = copy / "static/vendor/htmx-4.0.1/htmx.min.js.gz"
    packed = gzip.compress(b"alert(1)", mtime=0)
    path.write_bytes(packed)
    manifest = copy / "static/vendor/VENDOR.json"
    packages = json.loads(manifest.read_text(encoding="utf-8"))
    for entry in packages["packages"]:
        for file in entry["files"]:
            if file["path"].endswith("htmx.min.js.gz"):
                file.update(bytes=len(packed), sha256=hashlib.sha256(packed).hexdigest())
    manifest.write_text(json.dumps(packages), encoding="utf-8")
    assert list(vendor.faults(copy)) == [
        "static/vendor/htmx-4.0.1/htmx.min.js.gz: not the packed form of htmx.min.js"
    ]


def test_a_missing_licence_and_a_stray_file_are_found(copy: Path) -> None:
    (copy / "static/vendor/htmx-4.0.1/LICENSE").unlink()
    (copy / "static/vendor/stray.js").write_text("1")
    assert set(vendor.faults(copy)) == {
        "static/vendor/htmx-4.0.1/LICENSE: missing",
        "static/vendor/stray.js: not in VENDOR.json",
    }


def test_notices_that_were_edited_by_hand_are_found(copy: Path) -> None:
    (copy / "THIRD_PARTY.md").write_text("nothing")
    (fault,) = vendor.faults(copy)
    assert fault.startswith("THIRD_PARTY.md")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("templates/x.html", '<script src="https://cdn.example/x.js"></script>'),
        ("templates/x.html", '<link rel="stylesheet" href="//cdn.example/x.css">'),
        ("static/css/x.css", "@import 'http://cdn.example/x.css';"),
        ("static/css/x.css", "a { background: url(https://cdn.example/x.png) }"),
        ("static/js/x.js", 'import x from "https://cdn.example/x.js";'),
    ],
)
def test_an_asset_on_another_host_is_found(copy: Path, name: str, text: str) -> None:
    (copy / name).write_text(text)
    (fault,) = vendor.faults(copy)
    assert fault.startswith(f"{name}: names an asset on another host")


def test_the_manifest_names_no_registry() -> None:
    text = (ROOT / "static/vendor/VENDOR.json").read_text(encoding="utf-8")
    assert "://" not in text
    for entry in json.loads(text)["packages"]:
        assert entry["integrity"].startswith("sha512-")


def test_an_unknown_package_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="unknown package left-pad"):
        vendor.update(tmp_path, "left-pad", "1.0.0")
