"""The commands of the tutorial that need no stack, as its reader gives them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.tutorial import blocks

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.commands.conftest import Call

ON_A_STACK = 7  # the chapter whose commands need one: tests/acceptance/test_nominal.py


@pytest.mark.django_db
def test_each_command_that_needs_no_stack_does_what_is_asked(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    given = set()
    for block in blocks():
        if block.chapter >= ON_A_STACK:
            continue
        if block.file:
            file = tmp_path / block.file
            file.parent.mkdir(exist_ok=True)
            file.write_text(block.text, encoding="utf-8")
        for command in block.commands:
            answer = call(*command)
            assert answer.code == 0, (command, answer.err)
            given.add(command[1])
    assert given == {"new", "check", "test", "next"}
    assert (tmp_path / "flows" / "shop.py").exists()
