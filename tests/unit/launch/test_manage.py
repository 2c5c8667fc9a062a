from __future__ import annotations

import ast
import sys

import pytest

import manage
from scheduler_app.launch.environment import ROOT


@pytest.mark.parametrize("version", [(2, 7, 18), (3, 5, 0), (3, 10, 13)])
def test_a_python_that_is_too_old_gets_one_line_with_both_versions(
    version: tuple[int, int, int],
) -> None:
    line = manage.obstacle(version, "posix")
    assert "\n" not in line
    assert "3.11 or newer" in line
    assert f"this is Python {version[0]}.{version[1]}" in line


@pytest.mark.parametrize("version", [(3, 11, 0), (3, 12, 1), (4, 0, 0)])
def test_a_newer_python_is_welcome(version: tuple[int, int, int]) -> None:
    assert manage.obstacle(version, "posix") == ""


def test_windows_is_told_where_to_go() -> None:
    assert "WSL" in manage.obstacle((3, 12, 0), "nt")


def test_an_old_python_ends_with_an_error_before_anything_is_imported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 8, 0, "final", 0))
    monkeypatch.setitem(sys.modules, "scheduler_app.launch.environment", None)
    assert manage.main() == 1
    assert "3.11 or newer" in capsys.readouterr().err


def test_the_entrance_keeps_to_syntax_that_old_pythons_read() -> None:
    tree = ast.parse((ROOT / "manage.py").read_text(encoding="utf-8"))
    newer = (
        ast.JoinedStr,
        ast.AnnAssign,
        ast.NamedExpr,
        ast.AsyncFunctionDef,
        ast.Match,
        ast.Nonlocal,
        ast.Starred,
        ast.YieldFrom,
        ast.MatMult,
    )
    assert not [node for node in ast.walk(tree) if isinstance(node, newer)]
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            arguments = node.args
            assert node.returns is None
            assert not arguments.kwonlyargs
            assert not arguments.posonlyargs
            assert all(argument.annotation is None for argument in arguments.args)
        if isinstance(node, ast.ImportFrom):
            assert node.module != "__future__", "Python 2 does not know `annotations`"
        if isinstance(node, ast.Raise):
            assert node.cause is None
