"""The servers of a test run: throw-away PostgreSQL and Valkey, named in the environment.

A plugin, since they must be there before Django reads its settings. Nothing of a developer's own
environment leaks in: addresses and options of a real stack are taken out first.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from scheduler_app.launch import embedded
from tests import readymade

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

ROOT: Final = Path(__file__).resolve().parents[1]
KEPT: Final = frozenset({"DAYLIGHT_PG_BIN", "DAYLIGHT_ENV"})
ADDRESSES: Final = ("DATABASE_URL", "BROKER_URL", "CACHE_URL")
ANSWERS_ONLY: Final = frozenset(
    {"--help", "-h", "--version", "-V", "--fixtures", "--markers", "--collect-only", "--co"}
)


@pytest.hookimpl(wrapper=True)
def pytest_load_initial_conftests(
    early_config: pytest.Config, args: Sequence[str]
) -> Generator[None, None, None]:
    """The servers answer before anything reads the settings, if a test may need them."""
    for name in [*os.environ]:
        if name in ADDRESSES or (name.startswith("DAYLIGHT_") and name not in KEPT):
            del os.environ[name]
    # Short, for the socket, and open to the unprivileged account of the servers.
    folder = Path(tempfile.mkdtemp(prefix="daylight-test-", dir="/tmp"))
    folder.chmod(0o755)
    early_config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
    os.environ["DAYLIGHT_DATA_DIR"] = str(folder)
    # Processes that this one starts share its folder.
    os.environ.setdefault(readymade.FOLDER, str(folder))
    if needs_servers(args, ROOT) and not hands_out_tests(early_config):
        readymade.fill(folder)
        postgres = embedded.start_postgres(folder, throw_away=True)
        early_config.add_cleanup(postgres.stop)
        valkey = embedded.start_valkey(folder)
        early_config.add_cleanup(valkey.stop)
        os.environ["DATABASE_URL"] = postgres.url
        os.environ["BROKER_URL"] = os.environ["CACHE_URL"] = valkey.url
    return (yield)


def hands_out_tests(config: pytest.Config) -> bool:
    """Whether this process only gives tests to others, each of which starts servers of its own."""
    is_asked = bool(getattr(config.known_args_namespace, "numprocesses", None))
    return is_asked and "PYTEST_XDIST_WORKER" not in os.environ


def needs_servers(args: Sequence[str], root: Path) -> bool:
    """Whether some test that these arguments name may need a server."""
    if ANSWERS_ONLY & set(args):
        return False
    paths = [Path(arg.split("::")[0]).absolute() for arg in args if not arg.startswith("-")]
    named = [path for path in paths if path.exists()]
    free = [root / "tests" / folder for folder in ("unit", "simulation")]
    return not named or not all(any(map(path.is_relative_to, free)) for path in named)
