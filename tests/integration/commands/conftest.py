"""Commands run in this process, as a person sees them: exit code, answer, complaint."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from django.core.management import CommandError, call_command

if TYPE_CHECKING:
    from collections.abc import Callable

    Call = Callable[..., "Answer"]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The answer's value."""
        return json.loads(self.out)

    def lines(self) -> list[list[str]]:
        """The words of each line of the answer."""
        return [line.split() for line in self.out.splitlines()]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Call:
    """Runs a command as ana."""
    monkeypatch.setenv("LOGNAME", "ana")

    def called(*arguments: str) -> Answer:
        code, usage = 0, ""
        try:
            call_command(*arguments)
        except SystemExit as end:
            code = int(end.code or 0)
        except CommandError as error:  # what argparse says; on a command line it exits with 2
            code, usage = 2, f"{error}\n"
        out, err = capsys.readouterr()
        return Answer(code, out, err + usage)

    return called
