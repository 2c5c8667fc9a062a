"""Whose step a triggerer died at."""

from __future__ import annotations

import os
from pathlib import Path
from uuid import UUID

from scheduler_app.triggerer.last_step import LastStep, left_behind


def _dies_at(folder: Path, number: int, *trigger_ids: int) -> None:
    """A process that dies without a word while it is at the last of these."""
    pid = os.fork()
    if not pid:
        last = LastStep(folder, UUID(int=number))
        for trigger_id in trigger_ids:
            last.set(trigger_id)
        os._exit(9)
    os.waitpid(pid, 0)


def test_the_trigger_at_whose_step_a_triggerer_died_is_told_once(tmp_path: Path) -> None:
    folder = tmp_path / "triggerers"
    _dies_at(folder, 1, 5, 0, 7)
    _dies_at(folder, 2, 5, 0)
    living = LastStep(folder, UUID(int=3))
    living.set(11)
    assert list(left_behind(folder)) == [7], "neither one between steps nor one that lives"
    assert list(left_behind(folder)) == []
    living.remove()
    assert list(folder.iterdir()) == []
