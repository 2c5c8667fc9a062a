from __future__ import annotations

import pytest

from scheduler_app.rules.stopping import Stage, ended_by, explain, following


def test_each_stage_follows_the_one_before_and_a_kill_is_repeated() -> None:
    assert [following(stage) for stage in Stage] == [Stage.SIGNAL, Stage.KILL, Stage.KILL]


@pytest.mark.parametrize(
    ("stage", "exit_code", "found"),
    [
        (Stage.EXCEPTION, 0, None),
        (Stage.EXCEPTION, -15, None),  # somebody else's
        (Stage.EXCEPTION, None, None),
        (Stage.SIGNAL, -15, Stage.SIGNAL),
        (Stage.SIGNAL, 3, Stage.SIGNAL),  # it exited in its own way
        (Stage.SIGNAL, None, Stage.SIGNAL),  # nobody could tell
        (Stage.SIGNAL, -9, None),  # nobody here has killed it
        (Stage.SIGNAL, -11, None),
        (Stage.KILL, -9, Stage.KILL),
        (Stage.KILL, None, Stage.KILL),
        (Stage.KILL, -15, Stage.SIGNAL),  # just before
        (Stage.KILL, 0, Stage.SIGNAL),
        (Stage.KILL, -11, None),
    ],
)
def test_what_ended_a_process_is_told_by_its_stage_and_its_end(
    stage: Stage, exit_code: int | None, found: Stage | None
) -> None:
    assert ended_by(stage, exit_code=exit_code) is found


def test_the_words_name_the_request_and_what_ended_it() -> None:
    told = {explain("ada terminated it: bad data", stage) for stage in (*Stage, None)}
    assert len(told) == 4
    assert all(one.startswith("ada terminated it: bad data. Its ") for one in told)
    assert explain("Enough!", None) == "Enough! Its process ended by itself."
