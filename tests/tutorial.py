"""The tutorial of ``docs/authoring.md``, taken apart: its numbered chapters with their files and commands."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PAGE: Final = Path(__file__).parents[1] / "docs" / "authoring.md"
_BLOCK: Final = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_FILE: Final = re.compile(r"# ((?:flows|tests)/\w+\.py)\n")
_COMMAND: Final = "python3 manage.py "


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One block of a chapter: a file with its text, or commands."""

    chapter: int
    file: str = ""
    text: str = ""
    commands: tuple[tuple[str, ...], ...] = ()  # what comes after ``python3 manage.py``


def blocks() -> list[Block]:
    """The blocks of the numbered chapters, in order. Fails on one that is neither."""
    found = []
    page = PAGE.read_text(encoding="utf-8")
    for heading in re.finditer(r"^## (\d+)\. .*?(?=^## )", page, re.MULTILINE | re.DOTALL):
        chapter = int(heading[1])
        for kind, text in _BLOCK.findall(heading[0]):
            if kind == "python":
                named = _FILE.match(text)
                assert named, f"a block of chapter {chapter} does not say which file it is"
                found.append(Block(chapter=chapter, file=named[1], text=text))
            else:
                assert kind == "sh", f"a block of chapter {chapter} is {kind}"
                lines = text.strip().splitlines()
                assert all(line.startswith(_COMMAND) for line in lines), lines
                commands = tuple(tuple(shlex.split(line)[2:]) for line in lines)
                found.append(Block(chapter=chapter, commands=commands))
    return found
