"""Rules of the house that no other tool holds."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]
PACKAGE = CHECKOUT / "scheduler_app"
MODULES = sorted(path for root in (PACKAGE, CHECKOUT / "dashboard") for path in root.rglob("*.py"))
ROOMS = sorted(path for path in PACKAGE.iterdir() if (path / "__init__.py").exists())
# Rooms whose __init__ says nothing because Django alone reads it.
SILENT = {"migrations", "management"}
STATEMENTS = sorted((PACKAGE / "sql").glob("*.sql"))
BANNED_NAMES = {
    "utils",
    "helpers",
    "common",
    "misc",
    "base",
    "core",
    "services",
    "managers",
    "types",
}
STATE_WRITE = re.compile(
    r"\bUPDATE\s+(?:run|task_instance|attempt|executor_event|lease)\b|\.update\(\s*state=",
    re.DOTALL,
)


@pytest.mark.parametrize("room", ROOMS, ids=lambda p: p.name)
def test_each_room_says_what_it_is_for(room: Path) -> None:
    if room.name in SILENT:
        return
    assert ast.get_docstring(ast.parse((room / "__init__.py").read_text(encoding="utf-8")))


@pytest.mark.parametrize("module", MODULES, ids=lambda p: str(p.relative_to(CHECKOUT)))
def test_no_module_has_a_name_that_says_nothing(module: Path) -> None:
    assert module.stem not in BANNED_NAMES


@pytest.mark.parametrize("statement", STATEMENTS, ids=lambda p: p.stem)
def test_each_statement_has_a_header_and_a_caller(statement: Path) -> None:
    text = statement.read_text(encoding="utf-8")
    assert text.startswith("-- "), "its first line says what is true afterwards"
    assert "Walks:" in text, "its header names the index it walks"
    callers = [m for m in MODULES if f'load("{statement.stem}")' in m.read_text(encoding="utf-8")]
    assert callers, "nobody loads it"


@pytest.mark.parametrize(
    "command",
    sorted(set((PACKAGE / "management" / "commands").glob("[!_]*.py"))),
    ids=lambda path: path.stem,
)
def test_no_command_but_that_of_the_pages_loads_the_pages(command: Path) -> None:
    """Django's own checks load every address and view: a second before anything happens."""
    says = "requires_system_checks = (" in command.read_text(encoding="utf-8")
    assert says is (command.stem != "web")


def test_state_is_written_under_transitions_alone() -> None:
    writers = {
        str(module.relative_to(PACKAGE))
        for module in PACKAGE.rglob("*.py")
        if STATE_WRITE.search(module.read_text(encoding="utf-8"))
    }
    outside = {w for w in writers if not w.startswith(("transitions/", "migrations/"))}
    assert outside == set()


# Rooms that decide, or write what is decided: the database's clock is the only one they ask.
DECIDING = ("executors", "processes", "scheduler", "transitions", "triggerer", "worker")
NOT_DECIDING = {
    "ids.py",  # new ids begin with a moment, so that indexes grow at their end
    "bundle_cache.py",  # the age of files on this machine's disk, and only of what nobody needs
    "host_clock.py",  # told of beside the database's clock, so that a wrong one is seen
}
WALL_CLOCK = re.compile(r"\b(?:time\.time(?:_ns)?|datetime\.(?:now|utcnow|today)|timezone\.now)\(")


@pytest.mark.parametrize("room", DECIDING)
def test_no_decision_asks_the_clock_of_its_own_machine(room: str) -> None:
    """Clocks of two machines differ, and jump."""
    modules = [path for path in (PACKAGE / room).rglob("*.py") if path.name not in NOT_DECIDING]
    assert modules
    asks = [str(path) for path in modules if WALL_CLOCK.search(path.read_text(encoding="utf-8"))]
    assert asks == []
