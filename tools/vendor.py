"""Keeps the third-party browser files: fetches them by ``npm pack``, records and checks them.

``tools/vendor.py update NAME VERSION`` fetches one package and rewrites the manifest;
``tools/vendor.py check`` needs no network and fails when a file, a licence or ``THIRD_PARTY.md``
is not what the manifest says, or when a page or style sheet names an asset on another host.
"""

from __future__ import annotations

import argparse
import base64
import gzip
import hashlib
import json
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

ROOT: Final = Path(__file__).resolve().parent.parent
NPM_TIMEOUT_S: Final = 300
PACKED_BYTES_LEAST: Final = 16 * 1024  # smaller files are sent as they are

MIT_TEXT: Final = """\
Permission is hereby granted, free of charge, to any person obtaining a copy
of this software and associated documentation files (the "Software"), to deal
in the Software without restriction, including without limitation the rights
to use, copy, modify, merge, publish, distribute, sublicense, and/or sell
copies of the Software, and to permit persons to whom the Software is
furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all
copies or substantial portions of the Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR
IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY,
FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE
AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER
LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM,
OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE
SOFTWARE.
"""

# What packages call a licence, where it differs from the SPDX list.
SPDX_OF: Final = {"BSD-0-Clause": "0BSD"}

# Each icon that a page uses, in the outline style.
ICONS: Final = (
    "activity",
    "adjustments-horizontal",
    "alert-triangle",
    "arrow-down",
    "arrow-right",
    "box-multiple",
    "brightness-half",
    "chevron-right",
    "crown",
    "device-desktop",
    "download",
    "external-link",
    "hierarchy-3",
    "home",
    "keyboard",
    "list-details",
    "logout",
    "menu-2",
    "moon",
    "player-pause",
    "player-play",
    "refresh",
    "repeat",
    "search",
    "server-2",
    "subtask",
    "sun",
    "user",
    "x",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """What is taken from one npm package, and how."""

    name: str
    folder: str  # under static/vendor, without the version
    purpose: str
    take: Callable[[Path, Path], None]  # (unpacked package, target folder)


def take_htmx(source: Path, target: Path) -> None:
    """The target holds the minified library and its licence."""
    shutil.copyfile(source / "dist/htmx.min.js", target / "htmx.min.js")
    shutil.copyfile(source / "LICENSE", target / "LICENSE")


def take_tabler(source: Path, target: Path) -> None:
    """The target holds the one style sheet, without its source map comment, and a licence.

    The package names its licence but ships no text of it; the copyright lines are in the sheet.
    """
    css = (source / "dist/css/tabler.min.css").read_text(encoding="utf-8")
    css = re.sub(r"/\*# sourceMappingURL=[^*]*\*/\s*$", "", css)
    (target / "tabler.min.css").write_text(css, encoding="utf-8")
    copyright_lines = re.findall(r"^ \* (Copyright .+)$", css, flags=re.MULTILINE)
    if not copyright_lines:
        raise SystemExit("tabler.min.css: no copyright line in its first comment; read its licence")
    heading = "\n".join(["MIT License", "", *copyright_lines])
    (target / "LICENSE").write_text(f"{heading}\n\n{MIT_TEXT}", encoding="utf-8")


def take_icons(source: Path, target: Path) -> None:
    """The target holds one sprite of the icons in ``ICONS``, and the licence."""
    symbols = [_symbol(name, source / f"icons/outline/{name}.svg") for name in ICONS]
    sprite = "\n".join(['<svg xmlns="http://www.w3.org/2000/svg">', *symbols, "</svg>", ""])
    (target / "icons.svg").write_text(sprite, encoding="utf-8")
    shutil.copyfile(source / "LICENSE", target / "LICENSE")


def _symbol(name: str, path: Path) -> str:
    svg = path.read_text(encoding="utf-8")
    inner = svg[svg.index(">") + 1 : svg.rindex("</svg>")]
    inner = re.sub(r'<path stroke="none" d="M0 0h24v24H0z" fill="none"\s*/>', "", inner)
    shapes = "".join(line.strip() for line in inner.splitlines())
    return f'<symbol id="{name}" viewBox="0 0 24 24">{shapes}</symbol>'


PACKAGES: Final = (
    Package(
        name="htmx.org",
        folder="htmx",
        purpose="partial refresh of pages",
        take=take_htmx,
    ),
    Package(
        name="@tabler/core",
        folder="tabler-core",
        purpose="base style sheet (no script of it is used)",
        take=take_tabler,
    ),
    Package(
        name="@tabler/icons",
        folder="tabler-icons",
        purpose="icons, as one sprite",
        take=take_icons,
    ),
)


def update(root: Path, name: str, version: str) -> None:
    """The package is in ``static/vendor`` in this version alone, and recorded."""
    package = next((p for p in PACKAGES if p.name == name), None)
    if package is None:
        known = ", ".join(p.name for p in PACKAGES)
        raise SystemExit(f"unknown package {name}; known: {known}. Add it to PACKAGES first.")
    vendor = root / "static/vendor"
    target = vendor / f"{package.folder}-{version}"
    with tempfile.TemporaryDirectory() as scratch:
        tarball = _fetch(name, version, Path(scratch))
        integrity = (
            "sha512-" + base64.b64encode(hashlib.sha512(tarball.read_bytes()).digest()).decode()
        )
        with tarfile.open(tarball) as archive:
            archive.extractall(scratch, filter="data")
        source = Path(scratch) / "package"
        declared = json.loads((source / "package.json").read_text(encoding="utf-8"))["license"]
        for old in vendor.glob(f"{package.folder}-[0-9]*"):
            shutil.rmtree(old)
        target.mkdir(parents=True)
        package.take(source, target)
        for path in target.iterdir():
            _compress(path)
    entry = {
        "name": name,
        "version": version,
        "integrity": integrity,
        "purpose": package.purpose,
        "licence": SPDX_OF.get(declared, declared),
        "licence_file": f"{target.name}/LICENSE",
        "files": _files(vendor, target),
    }
    others = [e for e in read_manifest(root) if e["name"] != name]
    packages = sorted([*others, entry], key=lambda e: str(e["name"]))
    manifest = json.dumps({"packages": packages}, indent=2, ensure_ascii=False)
    (vendor / "VENDOR.json").write_text(manifest + "\n", encoding="utf-8")
    (root / "THIRD_PARTY.md").write_text(third_party(packages), encoding="utf-8")


def _compress(path: Path) -> None:
    """A large text file has a packed twin beside it, which browsers get instead."""
    if path.suffix in {".css", ".js"} and path.stat().st_size >= PACKED_BYTES_LEAST:
        packed = gzip.compress(path.read_bytes(), compresslevel=9, mtime=0)
        path.with_name(f"{path.name}.gz").write_bytes(packed)


def _fetch(name: str, version: str, folder: Path) -> Path:
    subprocess.run(
        ["npm", "pack", f"{name}@{version}", "--ignore-scripts", "--silent"],
        cwd=folder,
        check=True,
        stdout=subprocess.DEVNULL,
        timeout=NPM_TIMEOUT_S,
    )
    (tarball,) = folder.glob("*.tgz")
    return tarball


def _files(vendor: Path, target: Path) -> list[dict[str, Any]]:
    return [
        {
            "path": path.relative_to(vendor).as_posix(),
            "bytes": path.stat().st_size,
            "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        }
        for path in sorted(target.rglob("*"))
        if path.is_file()
    ]


def read_manifest(root: Path) -> list[dict[str, Any]]:
    """The packages that ``VENDOR.json`` records; none while there is no such file."""
    path = root / "static/vendor/VENDOR.json"
    if not path.exists():
        return []
    packages: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["packages"]
    return packages


def third_party(packages: Iterable[dict[str, Any]]) -> str:
    """The text of ``THIRD_PARTY.md``."""
    lines = [
        "# Third-party files in this repository",
        "",
        "Written by `tools/vendor.py` from `static/vendor/VENDOR.json`; do not edit by hand.",
        "Each licence text is beside the files. Python packages are not in the repository:",
        "`requirements/` lists them, and each installs its own licence.",
        "",
        "| package | version | licence | used for | files |",
        "|---|---|---|---|---|",
    ]
    for entry in packages:
        names = ", ".join(
            f"`{Path(f['path']).name}`"
            for f in entry["files"]
            if f["path"] != entry["licence_file"] and not f["path"].endswith(".gz")
        )
        licence = f"[{entry['licence']}](static/vendor/{entry['licence_file']})"
        lines.append(
            f"| {entry['name']} | {entry['version']} | {licence} | {entry['purpose']} | {names} |"
        )
    return "\n".join([*lines, ""])


def faults(root: Path) -> Iterator[str]:
    """What is wrong with the vendored files and with the assets that pages name."""
    vendor = root / "static/vendor"
    packages = read_manifest(root)
    recorded = {"VENDOR.json"}
    for entry in packages:
        for file in entry["files"]:
            recorded.add(file["path"])
            yield from _file_faults(vendor / file["path"], file)
        if entry["licence_file"] not in {f["path"] for f in entry["files"]}:
            yield f"{entry['name']}: its licence file {entry['licence_file']} is not recorded"
    present = {p.relative_to(vendor).as_posix() for p in vendor.rglob("*") if p.is_file()}
    for path in sorted(present - recorded):
        yield f"static/vendor/{path}: not in VENDOR.json"
    notices = root / "THIRD_PARTY.md"
    if not notices.exists() or notices.read_text(encoding="utf-8") != third_party(packages):
        yield "THIRD_PARTY.md: not what VENDOR.json says; run tools/vendor.py update"
    yield from _foreign_assets(root)


def _file_faults(path: Path, file: dict[str, Any]) -> Iterator[str]:
    if not path.exists():
        yield f"static/vendor/{file['path']}: missing"
        return
    content = path.read_bytes()
    if len(content) != file["bytes"] or hashlib.sha256(content).hexdigest() != file["sha256"]:
        yield f"static/vendor/{file['path']}: changed since it was recorded"
    elif path.suffix == ".gz" and gzip.decompress(content) != path.with_suffix("").read_bytes():
        yield f"static/vendor/{file['path']}: not the packed form of {path.stem}"


ASSET_IN_PAGE: Final = re.compile(
    r"<(?:script|link|img|iframe|source|use|image)\b[^>]*?(?:src|href)\s*=\s*[\"']?\s*(?:https?:)?//[^\"'\s>]*",
    re.IGNORECASE,
)
ASSET_IN_SHEET: Final = re.compile(
    r"(?:url\(\s*[\"']?|@import\s+[\"'])\s*(?:https?:)?//[^\"')\s]*", re.IGNORECASE
)
ASSET_IN_SCRIPT: Final = re.compile(
    r"(?:from|import)\s*\(?\s*[\"'](?:https?:)?//[^\"']*", re.IGNORECASE
)


def _foreign_assets(root: Path) -> Iterator[str]:
    places = (
        ("templates", "*.html", ASSET_IN_PAGE),
        ("static", "*.css", ASSET_IN_SHEET),
        ("static", "*.js", ASSET_IN_SCRIPT),
        ("static", "*.svg", ASSET_IN_PAGE),
    )
    for folder, pattern, asset in places:
        for path in sorted((root / folder).rglob(pattern)):
            for found in asset.findall(path.read_text(encoding="utf-8")):
                yield f"{path.relative_to(root)}: names an asset on another host: {found[:120]}"


def main(arguments: list[str]) -> int:
    """The chosen command has run; the answer is the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("check", help="verify files, licences and assets; no network")
    updating = commands.add_parser("update", help="fetch one package in one version")
    updating.add_argument("name")
    updating.add_argument("version")
    chosen = parser.parse_args(arguments)
    if chosen.command == "update":
        update(ROOT, chosen.name, chosen.version)
        return 0
    found = list(faults(ROOT))
    for fault in found:
        sys.stderr.write(fault + "\n")
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
