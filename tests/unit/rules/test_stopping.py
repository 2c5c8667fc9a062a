from __future__ import annotations

import pytest

from scheduler_app.rules.stopping import Stage, ended_by, explain, following


def test_each_stage_follows_the_one_before_and_a_kill_is_repeated() -> None:
    assert [following(stage) for stage in Stage] == [Stage.SIGNAL, Stage.KILL, Stage.KILL]


@pytest.mark.parametrize(
    ("stage", "signal_number", "found"),
    [
        (Stage.EXCEPTION, None, None),
        (Stage.EXCEPTION, 15, None),  # somebody else's
        (Stage.EXCEPTION, 11, None),
        (Stage.SIGNAL, 15, Stage.SIGNAL),
        (Stage.SIGNAL, None, Stage.SIGNAL),  # it exited in its own way
        (Stage.SIGNAL, 9, None),  # nobody here has killed it
        (Stage.KILL, 9, Stage.KILL),
        (Stage.KILL, 15, Stage.SIGNAL),  # just before
        (Stage.KILL, None, Stage.SIGNAL),
        (Stage.KILL, 11, None),
    ],
)
def test_what_ended_a_process_is_told_by_its_stage_and_signal(
    stage: Stage, signal_number: int | None, found: Stage | None
) -> None:
    assert ended_by(stage, signal_number=signal_number) is found


def test_the_words_name_the_request_and_what_ended_it() -> None:
    told = {explain("ada terminated it: bad data", stage) for stage in (*Stage, None)}
    assert len(told) == 4
    assert all(one.startswith("Ada terminated it: bad data. Its ") for one in told)
    assert explain("Enough!", None) == "Enough! Its process ended by itself."
