"""What the strict content policy asks of templates and scripts, and what keys may do."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
TEMPLATES = sorted(
    path for kind in ("html", "jinja") for path in (ROOT / "templates").rglob(f"*.{kind}")
)
LINES_MAX = 120


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_template_has_no_inline_style_or_script_and_stays_short(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= LINES_MAX
    assert not re.search(r"<style\b|\sstyle\s*=", text)
    assert not re.search(r"\son[a-z]+\s*=|hx-on|javascript:|\bjs:", text)
    assert not re.search(r"<script(?![^>]*\bsrc=)", text)
    assert "|safe" not in text


def test_scripts_compile_no_text_and_parse_no_html() -> None:
    for path in (ROOT / "static/js").glob("*.js"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(
            r"\beval\(|new Function|innerHTML|insertAdjacentHTML|document\.write", text
        )


def test_no_two_keys_clash() -> None:
    text = (ROOT / "static/js/keys.js").read_text(encoding="utf-8")
    table = text[text.index("const KEYS = [") : text.index("];")]
    keys = re.findall(r'^  \["(.+?)", "', table, flags=re.MULTILINE)
    rail = (ROOT / "templates/dashboard/parts/rail.html").read_text(encoding="utf-8")
    places = re.findall(r"{% place '\w+' '[^']+' '[\w-]+' '(\w)' %}", rail)
    assert {"v", "r", "p", "t", "?"} <= set(keys)
    assert len(keys) == len(set(keys))
    assert len(places) == len(set(places))
    assert "g" not in keys  # it begins the sequences
