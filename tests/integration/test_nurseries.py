"""The tests' own nurseries: who gets a process from one, and that it is what its command would be."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.nurseries import KEPT_MAX, Divided, Nurseries

WITHIN_S = 60.0
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere there is none")


@pytest.fixture(scope="module")
def made() -> Iterator[Nurseries]:
    made = Nurseries()
    yield made
    made.end()


def environ_of(place: Path) -> dict[str, str]:
    return {
        **os.environ,
        "DAYLIGHT_DATA_DIR": str(place),
        "DATABASE_URL": "postgresql://x@[::1]:1/x",
    }


def test_who_asks_again_gets_a_process_that_was_divided_off_and_is_no_other(
    made: Nurseries, tmp_path: Path
) -> None:
    said = []
    for number in range(3):
        log = tmp_path / f"log-{number}"
        process = made.start("audit", "visibility", environ=environ_of(tmp_path), log=log)
        assert isinstance(process, subprocess.Popen if number == 0 else Divided)
        assert process.wait(WITHIN_S) == 1
        assert process.poll() == 1
        # Before it stands what the pool of connections says, each time at another time.
        said.append(log.read_text().splitlines()[-1])
    assert "The database does not answer" in said[0]
    assert said == [said[0]] * 3


def test_it_is_ended_like_any_other(made: Nurseries, tmp_path: Path) -> None:
    environ = {**environ_of(tmp_path), "DATABASE_URL": os.environ["DATABASE_URL"]}
    for number in (signal.SIGTERM, signal.SIGKILL):
        for _ in range(2):
            process = made.start("web", "--port", "0", environ=environ, log=tmp_path / "log")
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(0.01)
            assert process.poll() is None
            process.send_signal(number)
            assert process.wait(WITHIN_S) in {-number, 0}
    assert isinstance(process, Divided)


def test_only_a_few_are_kept(tmp_path: Path) -> None:
    few = Nurseries()
    try:
        for number in range(KEPT_MAX + 2):
            environ = {**environ_of(tmp_path), "MARK": str(number)}
            process = few.start("nonsense", environ=environ, log=tmp_path / "log")
            assert process.wait(WITHIN_S) == 1
        assert len(few._known) == KEPT_MAX
    finally:
        few.end()
